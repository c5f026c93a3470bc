"""The device store: the streams of one observation leaf, with its frames on a torch device.

    add:     observation -> frames -> (already in the stream? reuse) -> slot -> waiting frames -> memory
    gather:  cells -> slots -> memory, waiting frames laid over it -> observations, on the device

What is where is known on the host (device_kernels), because SB3 draws indices there; frames are on the device from the
moment they are written. Memories that work in batches (see FrameMemory) get frames when enough of them wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.registry import SMALLEST_FRAME
from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.detect import StorePlan
from sb3_extra_buffers.store.device_memory import GROWTH, DenseMemory, Expected, FrameMemory, Room
from sb3_extra_buffers.store.layout import FrameLayout
from sb3_extra_buffers.store.observation_bytes import ObservationBytes

MakeMemory = Callable[[Expected, th.device, Room], FrameMemory]
#: Frames that wait, at most, if not for a step that has more.
_LARGEST_BATCH = 512
#: Frames that are moved at once when the memory is changed for another.
_CHUNK_FRAMES = 1 << 10


class DeviceStore(Store):
    """The streams of one observation leaf, on a device. Reads give tensors.

    :param layout: how an observation is cut into frames
    :param n_cells: cells of one column
    :param make_memory: what keeps the frames
    :param device: where they are kept
    :param room: how many bytes they may take
    :param n_streams: streams; one per env
    :param n_columns: columns that share the streams
    """

    codec = None  # a memory has its own way to keep frames
    _n_waiting: int

    def __init__(
        self,
        layout: FrameLayout,
        n_cells: int,
        make_memory: MakeMemory,
        device: th.device,
        room: Room,
        *,
        n_streams: int = 1,
        n_columns: int = 1,
    ) -> None:
        super().__init__(n_cells, n_streams, n_columns)
        self.layout, self.device, self.room = layout, device, room
        # Besides the cells' frames there are those of the streams' ends, and reset observations.
        n_frames = 1 + n_cells + n_cells // 64 + 2 * n_streams * layout.stack
        expected = Expected(layout.frame_bytes, n_frames, n_streams, line_bytes_of(layout))
        self.memory = make_memory(expected, device, room)
        self._load_kernels()
        self._allocate()

    # ---- writing

    def reserve(self, n_observations: int) -> None:
        """See that this many observations can be written without going beyond a hard limit; HeapFullError if they cannot.

        :param n_observations: over all columns
        """
        if not self.room.is_hard:
            return
        with self._lock:
            n_frames = n_observations * self.layout.stack
            if self.memory.batch_frames and self._n_waiting + n_frames > len(self._waiting):
                self._flush_within_limits()
            if isinstance(self.memory, DenseMemory):
                self.memory.reserve(n_frames, strict=True)

    def _flush_within_limits(self) -> None:
        try:
            self.flush(strict=True)
        except HeapFullError as error:  # it stands for the first part that did not fit: count all that wait
            needed = max(error.needed_bytes, self.room.taken + self._n_waiting * self.layout.frame_bytes)
            raise HeapFullError(str(error), needed) from error

    def write_columns(self, first: int, cells: Cells, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_columns`. Goes beyond a hard limit rather than fail; see `reserve`."""
        with self._lock:
            for column, array in enumerate(observations, first):
                values = self._bytes_of(array).reshape(len(cells), -1)
                for start in range(0, len(cells), self._most):
                    self._append(column, cells[start : start + self._most], values[start : start + self._most])

    def erase(self, cells: Cells) -> None:
        """Empty cells of all columns: they read as zeros, and their frames may go."""
        with self._lock:
            for heads in self._heads:
                freed = np.empty(len(cells) * self.layout.stack, np.int32)
                n_freed = self._kernels.erase(cells, heads, self._previous, self._references, self.layout.stack, freed)
                self._release(freed[:n_freed])

    def flush(self, *, strict: bool = False) -> None:
        """Hand waiting frames to the memory.

        :param strict: rather raise HeapFullError than go beyond a hard limit; the frames then go on waiting
        """
        with self._lock:
            slots = self._waiting_slots[: self._n_waiting]
            alive = np.flatnonzero(slots > 0)
            if alive.size:
                frames = self._waiting.index_select(0, self.memory.index(alive))
                try:
                    self.memory.put(slots[alive], frames, strict=strict)
                except HeapFullError:
                    if not self._fits_dense():
                        raise
                    self._change_to_dense()
                    self.memory.put(slots[alive], frames, strict=strict)
            self._waiting_at[slots[alive]] = -1
            self._n_waiting = 0
            if not self.memory.is_worth_it():
                self._change_to_dense()

    def compact(self) -> None:
        """Pack what the memory holds."""
        with self._lock:
            self.memory.compact()

    def clear(self) -> None:
        """See `Store.clear`."""
        with self._lock:
            self.memory.clear()
            for table in (self._heads, self._previous, self._references):
                table[:] = 0
            self._streams[:], self._waiting_at[:] = -1, -1
            self._n_waiting, self._n_free = 0, self._n_slots - 1
            self._free[: self._n_free] = np.arange(self._n_free, 0, -1)

    def _append(self, column: int, cells: Cells, values: NDArray[np.uint8]) -> None:
        stack = self.layout.stack
        most = len(cells) * stack
        if self.memory.batch_frames and self._n_waiting + most > len(self._waiting):
            self.flush()
        if self._n_free < most:
            self._add_slots(max(most, self._n_slots // GROWTH))
        frames, slots, freed = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(2 * most, np.int32)
        n_new, n_freed = self._kernels.append(
            values, cells, self._heads[column], self._last, self._streams, self._previous, self._references,
            self._free, self._n_free, stack, frames, slots, freed,
        )  # fmt: skip
        self._n_free -= n_new
        if n_new:
            new = values.reshape(most, self.layout.frame_bytes)[frames[:n_new]]
            self._keep(slots[:n_new], th.from_numpy(new).to(self.device))
        self._release(freed[:n_freed])

    def _keep(self, slots: NDArray[np.int64], frames: th.Tensor) -> None:
        if not self.memory.batch_frames:
            self.memory.put(slots, frames)
            return
        begin, end = self._n_waiting, self._n_waiting + len(slots)
        self._waiting[begin:end] = frames
        self._waiting_slots[begin:end] = slots
        self._waiting_at[slots] = np.arange(begin, end)
        self._n_waiting = end

    def _release(self, freed: NDArray[np.int32]) -> None:
        if not len(freed):
            return
        at = self._waiting_at[freed]
        self._waiting_slots[at[at >= 0]] = 0  # slot 0 never waits: skipped by `flush`
        self._waiting_at[freed] = -1
        self.memory.free(freed[at < 0].astype(np.int64))
        self._free[self._n_free : self._n_free + len(freed)] = freed
        self._n_free += len(freed)

    def _fits_dense(self) -> bool:
        """Whether all frames, those that wait too, would fit as they are, though they do not as the memory has them."""
        others = self.room.taken - sum(self.memory.parts().values())
        dense = (self._n_slots - self._n_free) * self.layout.frame_bytes
        return self.memory.may_become_dense and others + dense <= self.room.limit

    def _change_to_dense(self) -> None:
        """Frames like noise are smaller as they are."""
        smaller = self.memory
        smaller.room.leave(smaller)
        self.memory = DenseMemory(smaller.expected, self.device, self.room)
        alive = np.flatnonzero(self._references[: self._n_slots] > 0)
        alive = alive[alive > 0]
        for start in range(0, len(alive), _CHUNK_FRAMES):
            slots = alive[start : start + _CHUNK_FRAMES]
            self.memory.put(slots, smaller.gather(slots))
        self._allocate_waiting()

    # ---- reading

    def read_columns(self, columns: tuple[int, ...], cells: Cells) -> list[th.Tensor]:
        """See `Store.read_columns`. They are fetched together."""
        n, stack = len(cells), self.layout.stack
        with self._lock:
            slots = np.empty((len(columns) * n, stack), np.int64)
            for i, column in enumerate(columns):
                slots[i * n : (i + 1) * n, -1] = self._heads[column][cells]
            for k in range(stack - 2, -1, -1):
                slots[:, k] = self._previous[slots[:, k + 1]]
            frames = self._gather(slots.reshape(-1))
        return [observations_of(self.layout, part) for part in frames.view(len(columns), n * stack, self.layout.frame_bytes)]

    def _gather(self, slots: NDArray[np.int64]) -> th.Tensor:
        at = self._waiting_at[slots]
        late = np.flatnonzero(at >= 0)
        if not late.size:
            return self.memory.gather(slots)
        slots[late] = 0
        frames = self.memory.gather(slots)
        waiting = self._waiting.index_select(0, self.memory.index(at[late].astype(np.int64)))
        return frames.index_copy_(0, self.memory.index(late), waiting)

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`. Waiting frames count as well."""
        with self._lock:
            raw = int(np.count_nonzero(self._heads)) * self.layout.observation_bytes
            tables = (self._heads, self._previous, self._references, self._free, self._waiting_at, self._last)
            on_host = self.memory.host_bytes + sum(table.nbytes for table in tables)
            stored = self.memory.nbytes + self._waiting.numel() + on_host
            frames = self._n_slots - self._n_free
        return MemoryUsage(raw, stored, stored / raw if raw else 0.0, frames)

    # ---- state

    def _allocate(self) -> None:
        self._heads = np.zeros((self.n_columns, self.n_cells), np.int32)
        self._last = np.zeros((self.n_streams, self.layout.observation_bytes), np.uint8)
        self._streams = np.full(self.n_streams, -1, np.int32)
        self._previous, self._references, self._free = (np.zeros(1, np.int32) for _ in range(3))
        self._waiting_at = np.full(1, -1, np.int16)
        self._n_slots, self._n_free = 1, 0
        self._allocate_waiting()

    def _allocate_waiting(self) -> None:
        n_frames = self.memory.batch_frames
        if n_frames:
            n_frames = max(n_frames, min(self.n_streams * 16, _LARGEST_BATCH), self.layout.stack)
            if self.room.is_hard:  # a whole step must fit behind a batch, so that `reserve` can speak for it
                n_frames += self.n_streams * self.layout.stack * self.n_columns
        self._waiting = th.zeros((n_frames, self.layout.frame_bytes), dtype=th.uint8, device=self.device)
        self._waiting_slots = np.zeros(n_frames, np.int64)
        self._n_waiting = 0
        self._most = n_frames // self.layout.stack or _CHUNK_FRAMES  # observations that are written at once

    def _add_slots(self, more: int) -> None:
        first = self._n_slots
        self._n_slots += more
        for name in ("_previous", "_references"):
            setattr(self, name, np.concatenate((getattr(self, name), np.zeros(more, np.int32))))
        self._waiting_at = np.concatenate((self._waiting_at, np.full(more, -1, np.int16)))
        # The lowest slots are given out first: dense rows are used from the front.
        fresh = np.arange(self._n_slots - 1, first - 1, -1, dtype=np.int32)
        free = np.zeros(self._n_slots, np.int32)
        free[: more + self._n_free] = np.concatenate((fresh, self._free[: self._n_free]))
        self._free = free
        self._n_free += more

    def _load_kernels(self) -> None:
        # Here and not at the top: numba takes a while to import.
        from sb3_extra_buffers.store import device_kernels

        self._kernels: Any = device_kernels
        self._bytes_of = ObservationBytes(self.layout)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in ("_kernels", "_bytes_of")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._load_kernels()


def line_bytes_of(layout: FrameLayout) -> int:
    """Bytes of a line of a frame, if frames are pictures; else 0. Pictures have channels first or last, or none."""
    shape = layout.frame_shape
    channels_last = layout.axis == -1 if layout.stack > 1 else shape[-1:] < shape[:1]
    line = shape[1:] if len(shape) == 3 and channels_last else shape[-1:]
    return math.prod(line) * layout.dtype.itemsize if math.prod(line) < math.prod(shape) and len(shape) > 1 else 0


def observations_of(layout: FrameLayout, frames: th.Tensor) -> th.Tensor:
    """uint8 frames ``(n * stack, frame_bytes)`` as observations ``(n, *shape)``, on their device."""
    n = len(frames) // layout.stack
    values = frames.view(n, layout.observation_bytes).view(torch_dtype(layout.dtype))
    if layout.stack == 1 or layout.axis == 0 or len(layout.shape) == 1:
        return values.view(n, *layout.shape)
    lead, channels = layout.shape[:-1], layout.shape[-1] // layout.stack
    return values.view(n, layout.stack, *lead, channels).movedim(1, -2).reshape(n, *layout.shape)


def torch_dtype(dtype: np.dtype[Any]) -> th.dtype:
    """The torch dtype of the same bits.

    :param dtype: NumPy dtype
    """
    try:
        return th.from_numpy(np.empty(0, dtype)).dtype
    except TypeError as error:
        raise TypeError(f"torch has no dtype for NumPy's {np.dtype(dtype)}; give the observation space another one") from error


@dataclass(frozen=True)
class DevicePlan(StorePlan):
    """All that is known about a leaf on a device before its first observation.

    :param make_memory: what keeps the frames
    :param device: where
    :param room: how many bytes they may take
    """

    make_memory: MakeMemory = DenseMemory
    device: th.device = field(default_factory=lambda: th.device("cpu"))
    room: Room | None = None

    def build(self, layout: FrameLayout) -> DeviceStore:
        """The store for a layout. Tiny frames are kept as they are, whatever was asked for."""
        return DeviceStore(
            layout, self.n_cells, DenseMemory if layout.frame_bytes < SMALLEST_FRAME else self.make_memory, self.device,
            self.room or Room(0), n_streams=self.n_streams, n_columns=self.n_columns,
        )  # fmt: skip
