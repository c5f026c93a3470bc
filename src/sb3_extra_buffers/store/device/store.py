"""The device store: the streams of one observation leaf, with its frames on a torch device.

    add:     observation -> index (what is new?) -> new frames -> memory -> index: the cells are written
    sample:  cells -> index (which frames?) -> memory -> observations, on the device

The index is the native core's, on the host, because SB3 draws its indices there. Frames are on the device from the moment
they are written, in one of the memories, which know them by their tokens.

The index plans a write, which changes nothing. Then the memory stores the new frames. Then the index commits, in one call that
cannot fail. If an exception comes before the commit, the memory has frames that no cell names. These, and frames that no cell
names any more, are freed when the next write begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_extra_buffers.native import NativeStore
from sb3_extra_buffers.native.store import OUTSIDE
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.detect import StorePlan
from sb3_extra_buffers.store.device.budget import ByteBudget
from sb3_extra_buffers.store.device.memory import DenseMemory, Expected, MakeMemory
from sb3_extra_buffers.store.device.observations import line_bytes_of, observations_of, torch_dtype
from sb3_extra_buffers.store.device.rows import Tokens
from sb3_extra_buffers.store.layout import SMALLEST_FRAME, FrameLayout
from sb3_extra_buffers.store.observation_bytes import ObservationBytes


class DeviceStore(Store):
    """The streams of one observation leaf, on a device. Reading returns tensors.

    :param layout: how an observation is cut into frames
    :param n_cells: cells of one column
    :param make_memory: makes the memory of the frames
    :param device: device of the frames
    :param budget: limit of their bytes
    :param n_streams: streams; one per env
    :param n_columns: columns that share the streams
    """

    codec = None  # the memory, not a codec, decides how frames are kept

    def __init__(
        self,
        layout: FrameLayout,
        n_cells: int,
        make_memory: MakeMemory,
        device: th.device,
        budget: ByteBudget,
        *,
        n_streams: int = 1,
        n_columns: int = 1,
    ) -> None:
        super().__init__(layout, n_cells, n_streams, n_columns)
        self.device, self.budget = device, budget
        self._index = NativeStore(
            n_cells=n_cells, n_streams=n_streams, n_columns=n_columns, stack=layout.stack,
            frame_bytes=max(layout.frame_bytes, 1), block_frames=layout.stack, frames=OUTSIDE,
        )  # fmt: skip
        # Besides the frames of cells there are reset observations, partly needed blocks at the ends of streams, and a step
        # that is being written.
        n_frames = 1 + n_cells + n_cells // 64 + 4 * n_streams * layout.stack
        expected = Expected(
            layout.frame_bytes, n_frames, n_streams, line_bytes_of(layout), n_streams * n_columns * layout.stack
        )
        self.memory = make_memory(expected, device, budget)
        budget.join(self.memory)
        self._is_empty = layout.frame_bytes == 0  # observations without bytes: there is nothing to store
        self._bytes_of = ObservationBytes(layout)
        #: Tokens of a write that is not committed, and the cells that it would fill.
        self._put: tuple[Tokens, Cells] | None = None
        self._prepared: tuple[int, tuple[NDArray[Any], ...]] | None = None
        self._is_clearing = False

    @property
    def method(self) -> str:  # type: ignore[override]
        """See `Store.method`. A memory may change for another kind."""
        return self.memory.method

    # ---- writing

    def reserve(self, n_observations: int) -> None:
        """Ensure that this many observations can be written within a hard limit; HeapFullError if they cannot.

        :param n_observations: over all columns
        """
        if self.budget.is_hard:
            self._settle()
            self.memory.reserve(n_observations * self.layout.stack)

    def prepare_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.prepare_step`. Goes beyond a hard limit rather than fail; see `reserve`."""
        if self._is_empty:
            self._cells(self._cells_of(slot), None)
            return
        self._prepared = None
        self._settle()
        first = self._bytes_of(observations[0])
        second = self._bytes_of(observations[1], 1) if self.n_columns == 2 else first
        self._index.plan(slot, first, second)
        self._put_frames(self._cells_of(slot))
        self._prepared = slot, observations

    def commit_step(self) -> None:
        """See `Store.commit_step`."""
        if self._prepared is not None:
            self._index.commit()
            self._put = None
            self._prepared = None

    def write(self, column: int, cells: Cells, observations: NDArray[Any]) -> None:
        """See `Store.write`."""
        cells = np.ascontiguousarray(self._cells(cells, None), np.int64)
        if self._is_empty or not len(cells):
            return
        prepared, self._prepared = self._prepared, None
        values = self._bytes_of(observations, 2).reshape(len(cells), -1)
        try:
            for start, end in self._runs(cells):
                self._settle()
                self._index.plan_cells(column, cells[start:end], np.ascontiguousarray(values[start:end]))
                self._put_frames(cells[start:end])
                self._index.commit()
                self._put = None
        finally:
            if prepared is not None:  # the index has one plan at a time
                self.prepare_step(*prepared)

    def _runs(self, cells: Cells) -> list[tuple[int, int]]:
        """Ranges of cells without two cells of one stream."""
        starts, seen = [0], set[int]()
        for i, stream in enumerate((cells % self.n_streams).tolist()):
            if stream in seen:
                starts.append(i)
                seen.clear()
            seen.add(stream)
        return list(zip(starts, [*starts[1:], len(cells)], strict=True))

    def _put_frames(self, cells: Cells) -> None:
        """Put the new frames of a plan for these cells into the memory."""
        planned = self._index.changes()
        if len(planned.tokens):
            self._put = planned.tokens.copy(), cells
            self.memory.put(self._put[0], th.from_numpy(planned.frames).to(self.device))

    def _settle(self) -> None:
        """Free frames that no cell needs: those of a write without commit, and of freed blocks."""
        if self._is_clearing:
            self.clear()
        if self._put is not None and self._prepared is None:
            tokens, cells = self._put
            # If the write was committed, its last token is the newest frame of a cell.
            named, _ = self._index.tokens(cells, None, (1 << self.n_columns) - 1)
            if tokens[-1] not in named:
                self.memory.free(tokens)
            self._put = None
        blocks = self._index.freed()
        if len(blocks):
            stack = self.layout.stack
            self.memory.free((blocks[:, None] * stack + np.arange(stack)).reshape(-1))
            self._index.let_go()

    def erase(self, cells: Cells) -> None:
        """Empty cells of all columns. They read as zeros, and their frames can be freed."""
        cells = np.ascontiguousarray(self._cells(cells, None), np.int64)
        self._prepared = None
        for start in range(0, 0 if self._is_empty else len(cells), self.n_streams):
            self._settle()
            self._index.erase(cells[start : start + self.n_streams])
        self._settle()

    def compact(self) -> None:
        """Pack the memory."""
        self._settle()
        self.memory.compact()

    def clear(self) -> None:
        """See `Store.clear`."""
        self._is_clearing = True
        self.memory.clear()
        self._index.clear()
        self._put = self._prepared = None
        self._is_clearing = False

    # ---- reading

    def read_columns(self, columns: tuple[int, ...], slots: Cells, envs: Cells | None = None) -> list[th.Tensor]:
        """See `Store.read_columns`. They are fetched together, and each frame is decoded once."""
        if self._is_clearing:
            self._settle()
        layout, n = self.layout, len(slots)
        if self._is_empty:
            self._cells(slots, envs)
            dtype = torch_dtype(layout.dtype)
            return [th.zeros((n, *layout.shape), dtype=dtype, device=self.device) for _ in columns]
        slots = np.ascontiguousarray(slots, np.int64)
        envs = None if envs is None else np.ascontiguousarray(envs, np.int64)
        tokens, order = self._index.tokens(slots, envs, sum(1 << column for column in columns))
        frames = self.memory.gather(tokens, order)
        return [observations_of(layout, part) for part in frames.view(len(columns), n * layout.stack, layout.frame_bytes)]

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`. Waiting frames count as well."""
        self._settle()
        usage = self._index.usage()
        stored = self.memory.nbytes + self.memory.host_bytes + usage.stored_bytes
        return MemoryUsage.of(usage.n_written * self.layout.observation_bytes, stored, usage.n_blocks, self.method)

    def check(self) -> None:
        """Raise an error unless all counts and links are consistent. Slow; for tests."""
        self._settle()
        self._index.check()
        self.memory.check()


@dataclass(frozen=True)
class DevicePlan(StorePlan):
    """What is known about a leaf on a device before its first observation.

    :param make_memory: makes the memory of the frames
    :param device: device of the frames
    :param budget: limit of their bytes
    """

    make_memory: MakeMemory = DenseMemory
    device: th.device = field(default_factory=lambda: th.device("cpu"))
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(0))

    def build(self, layout: FrameLayout) -> DeviceStore:
        """The store for a layout. Tiny frames are kept uncompressed, whatever the method."""
        return DeviceStore(
            layout, self.n_cells, DenseMemory if layout.frame_bytes < SMALLEST_FRAME else self.make_memory, self.device,
            self.budget, n_streams=self.n_streams, n_columns=self.n_columns,
        )  # fmt: skip
