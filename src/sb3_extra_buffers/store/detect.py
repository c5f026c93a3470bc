"""Frame detection: does an observation repeat the one before it, shifted by one frame?

Until the data have answered, observations wait as they are; then they go into a store with the layout that was found.
The answer is only about saving: whatever it is, the store compares every observation and returns the bytes that were written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs import auto_codec, make_codec
from sb3_extra_buffers.codecs.base import Codec
from sb3_extra_buffers.codecs.registry import SMALLEST_FRAME
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.frame_store import FrameStore
from sb3_extra_buffers.store.layout import FrameLayout, layout_for_stack, possible_stacks
from sb3_extra_buffers.store.row_store import RowStore

#: Changed observations that are no shifted repetition before a leaf counts as not stacked.
MOST_MISSES = 16
#: Writes that wait at most, while nothing changes.
MOST_WAITING = 2048


@dataclass(frozen=True)
class StorePlan:
    """All that is known about a leaf before its first observation.

    :param codec: None for `auto`
    :param frame_stack: None for `auto`
    :param block_frames: None for a number that suits the frames
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    n_cells: int
    n_streams: int
    n_columns: int
    codec: Codec | None = None
    frame_stack: int | None = None
    block_frames: int | None = None

    def build(self, layout: FrameLayout) -> Store:
        """The store for a layout, with `auto` resolved."""
        if self.codec is None and layout.stack == 1 and 0 < layout.frame_bytes < SMALLEST_FRAME:
            return RowStore(layout, self.n_cells, n_streams=self.n_streams, n_columns=self.n_columns)
        codec = self.codec or make_codec(auto_codec(layout.frame_shape, layout.dtype))
        return FrameStore(
            layout, self.n_cells, codec, n_streams=self.n_streams, n_columns=self.n_columns,
            block_frames=self.block_frames or default_block_frames(layout, self.n_cells // self.n_streams),
        )  # fmt: skip

    def layouts(self) -> list[FrameLayout]:
        """Layouts that come into question; just one where there is nothing to find out."""
        if self.frame_stack is None:
            stacks = possible_stacks(self.shape, self.dtype)
            fitting = [layout for layout in stacks if self.block_frames is None or layout.stack <= self.block_frames]
            return [*fitting, FrameLayout(self.shape, self.dtype)]
        layout = layout_for_stack(self.shape, self.dtype, self.frame_stack)
        if self.block_frames is not None and self.block_frames < layout.stack:
            raise ValueError(f"block_frames must be at least the frame_stack of {layout.stack}, got {self.block_frames}")
        return [layout]


def default_block_frames(layout: FrameLayout, stream_length: int) -> int:
    """Frames in a block: 16, more where frames are tiny, fewer where they are huge or few; never less than a stack.

    :param stream_length: observations that a stream keeps
    """
    usual = 64 if layout.frame_bytes < 1024 else 16 if layout.frame_bytes <= 1 << 17 else 8
    return max(min(usual, stream_length), layout.stack)


class DetectingStore(Store):
    """A store whose frame layout is found from the data, if it was not given.

    :param plan: what is known about the leaf
    """

    def __init__(self, plan: StorePlan) -> None:
        super().__init__(plan.n_cells, plan.n_streams, plan.n_columns)
        self.plan = plan
        self._candidates = plan.layouts()
        self._store: Any = None  # as the plan builds it
        self._waiting: list[tuple[int, Cells, NDArray[Any]]] = []
        self._last: dict[int, NDArray[Any]] = {}  # stream -> the observation written last
        self._misses = 0
        if len(self._candidates) == 1:
            self._decide(self._candidates[0])

    @property
    def layout(self) -> FrameLayout | None:
        """The layout that was given or found; None as long as it is open."""
        return self._store.layout if self._store is not None else None

    @property
    def codec(self) -> Codec | None:
        """The codec in use; None as long as `auto` waits for the layout."""
        return self._store.codec if self._store is not None else self.plan.codec

    def share_lock(self, lock: Any) -> None:
        """See `Store.share_lock`."""
        super().share_lock(lock)
        if self._store is not None:
            self._store.share_lock(lock)

    def write_step(self, step: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_step`."""
        if self._store is not None:
            self._store.write_step(step, observations)
        else:
            super().write_step(step, observations)

    def write_columns(self, first: int, cells: Cells, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_columns`."""
        if self._store is not None:
            self._store.write_columns(first, cells, observations)
            return
        self._check_cells(cells)
        with self._lock:
            for column, values in enumerate(observations, first):
                if self.layout is None:
                    self._wait(column, cells, values)
                else:  # found by the column before
                    self.write(column, cells, values)

    def read_columns(self, columns: tuple[int, ...], cells: Cells) -> list[Any]:
        """See `Store.read_columns`."""
        with self._lock:
            if self._store is None:
                return [self._read_waiting(column, cells) for column in columns]
            found: list[Any] = self._store.read_columns(columns, cells)
        return found

    def clear(self) -> None:
        """See `Store.clear`. What was learned about the layout is kept."""
        with self._lock:
            self._waiting.clear()
            self._last.clear()
            if self._store is not None:
                self._store.clear()

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`."""
        if self._store is not None:
            usage: MemoryUsage = self._store.memory_usage()
            return usage
        with self._lock:
            written = sum(len(self._latest(column)) for column in range(self.plan.n_columns))
            raw = written * math.prod(self.plan.shape) * self.plan.dtype.itemsize
            stored = sum(array.nbytes for array in {id(item[2]): item[2] for item in self._waiting}.values())
        return MemoryUsage(raw, stored, stored / raw if raw else 0.0, 0)

    def _wait(self, column: int, cells: Cells, observations: NDArray[Any]) -> None:
        if self._waiting and self._waiting[-1][2].tobytes() == observations.tobytes():  # bits: -0.0 is not 0.0
            observations = self._waiting[-1][2]  # a picture that stands still waits only once
        else:
            observations = observations.copy()
        self._waiting.append((column, cells.copy(), observations))
        layout = self._look_at(cells, observations)
        if layout is None and len(self._waiting) >= MOST_WAITING:
            # Nothing has moved so far: take what is usual. A wrong guess costs memory, never correctness.
            layout = next((usual for usual in self._candidates if usual.stack == 4), self._candidates[-1])
        if layout is not None:
            self._decide(layout)

    def _read_waiting(self, column: int, cells: Cells) -> NDArray[Any]:
        known = self._latest(column)
        out = np.zeros((len(cells), *self.plan.shape), self.plan.dtype)
        for i, cell in enumerate(cells.tolist()):
            if cell in known:
                out[i] = known[cell]
        return out

    def _latest(self, column: int) -> dict[int, NDArray[Any]]:
        """What waits for each cell of a column."""
        latest: dict[int, NDArray[Any]] = {}
        for written, cells, observations in self._waiting:
            if written == column:
                latest.update(zip(cells.tolist(), observations, strict=True))
        return latest

    def _look_at(self, cells: Cells, observations: NDArray[Any]) -> FrameLayout | None:
        """The layout, as soon as a changed observation shows it, or enough of them show none."""
        for cell, new in zip(cells.tolist(), observations, strict=True):
            stream = cell % self.plan.n_streams
            old = self._last.get(stream)
            self._last[stream] = new
            if old is None or old.tobytes() == new.tobytes():
                continue
            for layout in self._candidates[:-1]:
                before, after = layout.to_bytes(old[None])[0], layout.to_bytes(new[None])[0]
                if np.array_equal(before[layout.frame_bytes :], after[: -layout.frame_bytes]):
                    return layout
            self._misses += 1
        return self._candidates[-1] if self._misses >= MOST_MISSES else None

    def _decide(self, layout: FrameLayout) -> None:
        store = self.plan.build(layout)
        store.share_lock(self._lock)
        for column, cells, observations in self._waiting:
            store.write(column, cells, observations)
        self._store = store
        self._shorten_the_way()
        self._waiting.clear()
        self._last.clear()

    def _shorten_the_way(self) -> None:
        """Once the store is known, `write_step` is its own."""
        self.write_step = self._store.write_step  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "write_step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._store is not None:
            self._shorten_the_way()
        self.share_lock(self._lock)
