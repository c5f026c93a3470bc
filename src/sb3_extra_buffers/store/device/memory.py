"""Device memory: where the frames of a device store live, by token. Below: torch. Above: store.

A token names one frame. `FrameMemory` is the interface of a memory; `DenseMemory` (here) keeps frames uncompressed, `tiles`
and `coded` keep them smaller. Token -1, and every token without a frame, is a frame of zeros.

A memory may be interrupted at any point, by a refused allocation or by Ctrl-C. It then loses only the frames that are being
put: one table by token is authoritative, and it changes last, in one assignment. Everything else follows from it.

Everything is plain uint8, int32 and int64 tensors with `index_select` and `index_copy_`, which exist for CPU, CUDA and MPS.
An untyped storage cannot be indexed by a tensor, and would have to be wrapped into a tensor for every operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_extra_buffers.store.device.budget import GROWTH, ByteBudget
from sb3_extra_buffers.store.device.rows import Indices, RowTable, Tokens, wide


@dataclass(frozen=True)
class Expected:
    """What is known about frames before the first one arrives.

    :param frame_bytes: bytes of a frame
    :param n_frames: frames that a full buffer is expected to hold
    :param n_streams: streams that they come from, mostly in turn
    :param line_bytes: bytes of a picture's line; 0 where there are no lines
    :param step_frames: frames that one step may bring, at most
    """

    frame_bytes: int
    n_frames: int
    n_streams: int
    line_bytes: int = 0
    step_frames: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all frames, dense."""
        return self.n_frames * self.frame_bytes


class FrameMemory(ABC):
    """Frames by token, on a device.

    :param expected: what is known about the frames
    :param device: where they live
    :param budget: limit of bytes, which the user of the memory lets it join
    """

    #: How many frames should be put at once; 0 if it makes no difference.
    batch_frames = 0
    #: Whether frames may be kept uncompressed instead, if that is smaller.
    may_become_dense = False
    #: How frames are encoded, as the shorthand of the method.
    method: str = "none"

    def __init__(self, expected: Expected, device: th.device, budget: ByteBudget) -> None:
        self.expected, self.device, self.budget = expected, device, budget
        self.frame_bytes = expected.frame_bytes

    @abstractmethod
    def put(self, tokens: Tokens, frames: th.Tensor, *, strict: bool = False) -> None:
        """Keep ``frames`` (uint8 ``(n, frame_bytes)``, on the device) for these tokens, replacing their old frames.

        After an exception, all other tokens are unchanged; these tokens may have old frames, new frames, or a mix.

        :param tokens: ``(n,)``, each once, from 0 on
        :param strict: raise HeapFullError, without a change, rather than exceed a hard limit
        """

    @abstractmethod
    def gather(self, tokens: Tokens, order: Indices | None = None) -> th.Tensor:
        """The frames of ``tokens[order]``, as a new uint8 tensor ``(n, frame_bytes)``.

        :param tokens: each once, so that expensive work is done once
        :param order: by default the order of the tokens
        """

    @abstractmethod
    def free(self, tokens: Tokens) -> None:
        """Free the frames of these tokens, if they have any."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all frames."""

    @abstractmethod
    def tokens(self) -> Tokens:
        """All tokens that have a frame, in ascending order."""

    @abstractmethod
    def parts(self) -> dict[int, int]:
        """Bytes on the device, by an identity of the tensor that holds them."""

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError unless everything follows from the tokens in use. For tests."""

    def reserve(self, n_frames: int) -> None:  # noqa: B027  (most memories have no limit of their own)
        """Ensure that this many more frames fit below a hard limit, or raise HeapFullError."""

    def flush(self, *, strict: bool = False) -> None:  # noqa: B027
        """Encode the waiting frames.

        :param strict: raise HeapFullError rather than exceed a hard limit; the frames then keep waiting
        """

    def compact(self) -> None:  # noqa: B027
        """Pack live frames."""

    def is_worth_it(self) -> bool:
        """Whether the frames are smaller here than dense ones."""
        return True

    def index(self, numbers: NDArray[np.integer]) -> th.Tensor:
        """Rows, or other indices, as a tensor on the device."""
        return th.from_numpy(np.ascontiguousarray(numbers)).to(self.device)

    @property
    def host_bytes(self) -> int:
        """Bytes of the tables on the host."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(self.parts().values())


MakeMemory = Callable[[Expected, th.device, ByteBudget], FrameMemory]


class DenseMemory(FrameMemory):
    """`none`: uncompressed frames, as rows of one tensor. Rows for a full buffer are allocated at the first frame."""

    def __init__(self, expected: Expected, device: th.device, budget: ByteBudget) -> None:
        super().__init__(expected, device, budget)
        self._rows = th.zeros((1, self.frame_bytes), dtype=th.uint8, device=device)
        self._table = RowTable()

    def put(self, tokens: Tokens, frames: th.Tensor, *, strict: bool = False) -> None:
        if len(tokens):
            self._reserve(self._table.n_new(tokens), strict=strict)
            rows = self._table.choose(tokens)
            wide(self._rows).index_copy_(0, self.index(rows.astype(np.int64)), wide(frames))
            self._table.record(tokens, rows)

    def reserve(self, n_frames: int) -> None:
        self._reserve(n_frames, strict=True)

    def _reserve(self, n_frames: int, *, strict: bool) -> None:
        """Ensure rows for this many more frames, or raise HeapFullError."""
        table, size = self._table, len(self._rows)
        untouched = n_frames - table.n_given_back
        if untouched > 0:
            self.budget.grow_by(0, untouched, self.frame_bytes, strict=strict)
        n_missing = n_frames - (size - table.n_in_use - 1)
        if n_missing <= 0:
            return
        n_rows = max(size + n_missing + size // GROWTH, self.expected.n_frames)
        if self.budget.is_hard and strict:
            n_rows = max(min(n_rows, self.budget.limit // self.frame_bytes), size + n_missing)
        rows = th.empty((n_rows, self.frame_bytes), dtype=th.uint8, device=self.device)  # untouched pages cost nothing
        rows[: table.n_touched] = self._rows[: table.n_touched]
        self._rows = rows

    def gather(self, tokens: Tokens, order: Indices | None = None) -> th.Tensor:
        rows = self._table.get(tokens)
        return self._rows.index_select(0, self.index(rows if order is None else rows.take(order)))

    def free(self, tokens: Tokens) -> None:
        self._table.give_back(tokens)

    def clear(self) -> None:
        self._table.clear()

    def tokens(self) -> Tokens:
        return self._table.tokens()

    def parts(self) -> dict[int, int]:
        return {id(self): self._table.n_touched * self.frame_bytes}

    def check(self) -> None:
        self._table.check()

    @property
    def host_bytes(self) -> int:
        return self._table.host_bytes
