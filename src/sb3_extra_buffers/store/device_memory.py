"""Device memory: where the frames of a device store live, by slot. Below: torch. Above: device.

A slot names one frame. `FrameMemory` says what a store needs of a memory; `DenseMemory` (here) keeps frames as they are,
device_tiles and device_heap keep them smaller. Slot 0 is the frame of zeros: it is there from the beginning and stays.

All of it is plain uint8, int32 and int64 tensors with `index_select` and `index_copy_`: those exist for CPU, CUDA and MPS.
An untyped storage cannot be indexed by a tensor, and would have to be wrapped into a tensor for every operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.store.device_rows import Indices, SlotRows, Slots

OnFull = Literal["grow", "evict", "raise"]

#: A memory that is full grows by this part of its size.
GROWTH = 16


class HasParts(Protocol):
    """What a room counts."""

    def parts(self) -> dict[int, int]:
        """Bytes that are held on the device, by an identity of what holds them."""


@dataclass
class Room:
    """How many bytes the memories of one buffer may take together.

    :param limit: bytes
    :param is_hard: whether memories must stay below it; else it is only a size to begin with
    """

    limit: int
    is_hard: bool = False
    _members: list[HasParts] = field(default_factory=list, repr=False)

    def join(self, member: HasParts) -> None:
        """Count this memory or heap from now on."""
        self._members.append(member)

    def leave(self, member: HasParts) -> None:
        """Count this memory no more."""
        self._members = [other for other in self._members if other is not member]

    @property
    def taken(self) -> int:
        """Bytes that all memories take. Those that share a heap count it once."""
        return sum({key: nbytes for member in self._members for key, nbytes in member.parts().items()}.values())

    def grow_by(self, wanted: int, needed: int, unit: int, *, strict: bool) -> int:
        """Units that a memory may grow by: those it wants, or what is left as long as it needs no more.

        :param strict: keep to a hard limit; raises HeapFullError
        """
        wanted = max(wanted, needed)
        if not (self.is_hard and strict):
            return wanted
        left = (self.limit - self.taken) // unit
        if left < needed:
            total = self.taken + needed * unit
            raise HeapFullError(f"Frames need {total} bytes, {self.limit} are allowed", total)
        return min(wanted, left)


@dataclass(frozen=True)
class Expected:
    """What is known about frames before the first of them.

    :param frame_bytes: bytes of a frame
    :param n_frames: frames that a full buffer is expected to hold
    :param n_streams: streams that they come from, mostly in turn
    :param line_bytes: bytes of a picture's line; 0 where there are no lines
    """

    frame_bytes: int
    n_frames: int
    n_streams: int
    line_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all frames, dense."""
        return self.n_frames * self.frame_bytes


class FrameMemory(ABC):
    """Frames by slot, on a device.

    :param expected: what is known about the frames
    :param device: where they live
    :param room: how many bytes they may take
    """

    #: Frames that are worth to be put at once; 0 where it makes no difference.
    batch_frames = 0
    #: Whether the store may keep frames as they are instead, where that is smaller.
    may_become_dense = False

    def __init__(self, expected: Expected, device: th.device, room: Room) -> None:
        self.expected, self.device, self.room = expected, device, room
        self.frame_bytes = expected.frame_bytes
        room.join(self)

    @abstractmethod
    def put(self, slots: Slots, frames: th.Tensor, *, strict: bool = False) -> None:
        """Keep ``frames`` (uint8 ``(n, frame_bytes)``, on the device) in these slots.

        :param strict: rather raise HeapFullError, with nothing changed, than go beyond a hard limit
        """

    def gather(self, slots: Slots) -> th.Tensor:
        """The frames in these slots, as a new uint8 tensor ``(n, frame_bytes)``."""
        # Here and not at the top: numba takes a while to import.
        from sb3_extra_buffers.store.device_kernels import list_once

        # Observations share most of their frames with the next ones.
        distinct, order = np.empty_like(slots), np.empty_like(slots)
        return self._decode(distinct[: list_once(slots, distinct, order)], order)

    @abstractmethod
    def _decode(self, slots: Slots, order: Indices) -> th.Tensor:
        """The frames in ``slots[order]``.

        :param slots: each once, so that what is dear is done once
        """

    @abstractmethod
    def free(self, slots: Slots) -> None:
        """Nobody needs these slots any more."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all frames but slot 0."""

    @abstractmethod
    def parts(self) -> dict[int, int]:
        """Bytes that are held on the device, by an identity of what holds them."""

    def compact(self) -> None:  # noqa: B027  (most memories have nothing to pack)
        """Pack what is alive."""

    def is_worth_it(self) -> bool:
        """Whether the frames are smaller here than dense ones."""
        return True

    def index(self, slots: NDArray[np.integer]) -> th.Tensor:
        """Slots, or other indices, as a tensor on the device."""
        return th.from_numpy(np.ascontiguousarray(slots)).to(self.device)

    @property
    def host_bytes(self) -> int:
        """Bytes of tables that are held on the host."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes that are held on the device."""
        return sum(self.parts().values())


class DenseMemory(FrameMemory):
    """`none`: each frame as it is, a row of one tensor. Rows for a full buffer are taken at the first frame."""

    def __init__(self, expected: Expected, device: th.device, room: Room) -> None:
        super().__init__(expected, device, room)
        self._frames = SlotRows(self.frame_bytes, th.uint8, device)

    def put(self, slots: Slots, frames: th.Tensor, *, strict: bool = False) -> None:
        if len(slots):
            self.reserve(self._frames.n_new(slots), strict=strict)
            self._frames.rows.index_copy_(0, self.index(self._frames.take(slots).astype(np.int64)), frames)

    def reserve(self, n_frames: int, *, strict: bool) -> None:
        """Have rows for this many more frames, or raise HeapFullError."""
        untouched = n_frames - self._frames.n_given_back
        if untouched > 0:
            self.room.grow_by(0, untouched, self.frame_bytes, strict=strict)
        n_missing, size = n_frames - self._frames.n_free, len(self._frames.rows)
        if n_missing <= 0:
            return
        n_rows = max(size + n_missing + size // GROWTH, self.expected.n_frames)
        if self.room.is_hard and strict:
            n_rows = max(min(n_rows, self.room.limit // self.frame_bytes), size + n_missing)
        rows = th.empty((n_rows, self.frame_bytes), dtype=th.uint8, device=self.device)  # untouched pages cost nothing
        rows[: self._frames.n_touched] = self._frames.rows[: self._frames.n_touched]
        self._frames.rows = rows

    def _decode(self, slots: Slots, order: Indices) -> th.Tensor:
        return self._frames.rows.index_select(0, self.index(self._frames.of(slots).take(order)))

    def free(self, slots: Slots) -> None:
        self._frames.give_back(slots)

    def clear(self) -> None:
        self._frames.clear()

    @property
    def host_bytes(self) -> int:
        return self._frames.host_bytes

    def parts(self) -> dict[int, int]:
        return {id(self): self._frames.n_touched * self.frame_bytes}
