"""Frame detection: does an observation repeat the one before it, shifted by a frame? Above: leaf, which acts on the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.codecs.base import Codec
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.host.blocks import BlockStore
from sb3_extra_buffers.store.host.rows import RowStore
from sb3_extra_buffers.store.layout import SMALLEST_FRAME, FrameLayout, layout_for_stack, possible_stacks

#: So many changed observations without a shifted repetition mean that a leaf is not stacked.
MOST_MISSES = 16
#: The most writes that wait while nothing changes.
MOST_WAITING = 2048
#: The assumed stack if nothing has moved by then. A wrong guess costs memory, never correctness.
_USUAL_STACK = 4
#: Bytes of frames in a block, unless that would be fewer than four frames.
_USUAL_BLOCK = 1 << 18
#: Open blocks of so many bytes, or so many cells, may not fit into memory. This is tried before the first observation.
_LARGE_BLOCKS, _MANY_CELLS = 1 << 30, 1 << 31


@dataclass(frozen=True)
class StorePlan:
    """What is known about a leaf before its first observation.

    :param codec: a codec, or a preference: ``"auto"``, ``"auto-fast"`` or ``"auto-small"``
    :param frame_stack: None for `auto`
    :param block_frames: None for the default
    :param directory: where blocks are kept in files; None keeps them in memory
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    n_cells: int
    n_streams: int
    n_columns: int
    codec: Codec | str = "auto"
    frame_stack: int | None = None
    block_frames: int | None = None
    directory: str | None = None

    def build(self, layout: FrameLayout) -> Store:
        """The store for a layout.

        With a preference (`auto`), small observations and vectors of floats are shared but not encoded.
        """
        codec, is_small = self.codec, layout.frame_bytes < SMALLEST_FRAME
        if isinstance(codec, str) and (is_small or (layout.dtype.kind == "f" and len(layout.frame_shape) <= 1)):
            if is_small and layout.stack == 1 and layout.frame_bytes > 0 and self.directory is None:
                return RowStore(layout, self.n_cells, n_streams=self.n_streams, n_columns=self.n_columns)
            codec = make_codec("none")
        return BlockStore(
            layout, self.n_cells, codec, n_streams=self.n_streams, n_columns=self.n_columns,
            block_frames=self._block_frames(layout), is_whole=self.block_frames is not None,
            directory=self.directory,
        )  # fmt: skip

    def _block_frames(self, layout: FrameLayout) -> int:
        """Number of frames in a block, at most as many as a stream can keep."""
        stream_length = self.n_cells // self.n_streams
        if self.block_frames is None:
            return default_block_frames(layout, stream_length)
        return max(min(self.block_frames, stream_length * self.n_columns * layout.stack), layout.stack)

    def storable_layouts(self) -> list[FrameLayout]:
        """Those of `layouts` that can be stored. If none can, the error says why."""
        layouts, errors = [], []
        for layout in self.layouts():
            try:
                open_blocks = self._block_frames(layout) * layout.frame_bytes * self.n_streams
                if open_blocks > _LARGE_BLOCKS or self.n_cells * self.n_columns >= _MANY_CELLS:
                    self.build(layout)
                layouts.append(layout)
            except (ValueError, MemoryError) as error:
                errors.append(error)
        if not layouts:
            raise errors[0]
        return layouts

    def layouts(self) -> list[FrameLayout]:
        """Possible layouts, the unstacked one last. Only one if there is nothing to detect."""
        if self.frame_stack is None:
            stacks = possible_stacks(self.shape, self.dtype)
            fitting = [layout for layout in stacks if self.block_frames is None or layout.stack <= self.block_frames]
            return [*fitting, FrameLayout(self.shape, self.dtype)]
        layout = layout_for_stack(self.shape, self.dtype, self.frame_stack)
        if self.block_frames is not None and self.block_frames < layout.stack:
            raise ValueError(f"block_frames must be at least the frame_stack of {layout.stack}, got {self.block_frames}")
        return [layout]


def default_block_frames(layout: FrameLayout, stream_length: int) -> int:
    """Frames in a block: 16, more if frames are tiny, fewer if they are large or few; never fewer than a stack.

    A full block is copied in a single `add`, so a large block would make that `add` slow.

    :param stream_length: observations that a stream keeps
    """
    usual = 64 if layout.frame_bytes < 1024 else 16
    while usual > 4 and usual * layout.frame_bytes > _USUAL_BLOCK:
        usual //= 2
    return max(min(usual, stream_length), layout.stack)


class FrameDetector:
    """Compares each observation with the one before it in its stream.

    :param layouts: possible layouts, the unstacked one last
    :param n_streams: streams
    """

    def __init__(self, layouts: list[FrameLayout], n_streams: int) -> None:
        self.layouts = layouts
        self._last: list[NDArray[Any] | None] = [None] * n_streams
        self._misses = 0

    def look_at(self, streams: Iterable[int], columns: tuple[NDArray[Any], ...]) -> FrameLayout | None:
        """The layout, once a changed observation shows it, or enough of them show none; else None.

        :param streams: the stream of each observation
        :param columns: the observations of each column
        """
        streams = list(streams)
        for observations in columns:
            for stream, new in zip(streams, observations, strict=True):
                old, self._last[stream] = self._last[stream], new.copy()
                if old is None or old.tobytes() == new.tobytes():  # bits: -0.0 is not 0.0
                    continue
                for layout in self.layouts[:-1]:
                    before, after = layout.to_bytes(old[None])[0], layout.to_bytes(new[None])[0]
                    if np.array_equal(before[layout.frame_bytes :], after[: -layout.frame_bytes]):
                        return layout
                self._misses += 1
        return self.layouts[-1] if self._misses >= MOST_MISSES else None

    def forget(self) -> None:
        """Forget the last observations: the next ones do not follow them."""
        self._last = [None] * len(self._last)


class WaitingStore(Store):
    """The first observations of a leaf, uncompressed, in the order of their arrival.

    :param layout: shape and dtype; its stack is not known yet
    :param plan: the plan of the leaf
    """

    def __init__(self, layout: FrameLayout, plan: StorePlan) -> None:
        super().__init__(layout, plan.n_cells, plan.n_streams, plan.n_columns)
        self._waiting: list[tuple[int, Cells, NDArray[Any]]] = []
        self._prepared: list[tuple[int, Cells, NDArray[Any]]] = []

    def prepare_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.prepare_step`."""
        cells, prepared = self._cells(self._cells_of(slot), None), self._waiting[-1:]
        for column, values in enumerate(observations[: self.n_columns]):
            prepared.append((column, cells, _copy_of(values, prepared)))
        self._prepared = prepared[-self.n_columns :]

    @property
    def is_prepared(self) -> bool:
        """Whether a step is prepared and not yet committed."""
        return bool(self._prepared)

    def commit_step(self) -> None:
        """See `Store.commit_step`."""
        if self._prepared:
            self._waiting = [*self._waiting, *self._prepared]
            self._prepared = []

    def write(self, column: int, cells: Cells, observations: NDArray[Any]) -> None:
        """See `Store.write`."""
        self._waiting.append((column, self._cells(cells, None).copy(), _copy_of(observations, self._waiting)))

    def clear(self) -> None:
        """See `Store.clear`."""
        self._waiting, self._prepared = [], []

    def give_up(self, layouts: list[FrameLayout]) -> FrameLayout | None:
        """The layout to assume if too many observations wait; else None."""
        if len(self._waiting) + 1 < MOST_WAITING:  # one more is about to be written
            return None
        return next((usual for usual in layouts if usual.stack == _USUAL_STACK), layouts[-1])

    def move_to(self, store: Store) -> None:
        """Write all waiting observations into another store."""
        for column, cells, observations in self._waiting:
            store.write(column, cells, observations)

    def read_columns(self, columns: tuple[int, ...], slots: Cells, envs: Cells | None = None) -> list[Any]:
        """See `Store.read_columns`."""
        cells = self._cells(slots, envs)
        return [self._read(column, cells) for column in columns]

    def _read(self, column: int, cells: Cells) -> NDArray[Any]:
        known = self._latest(column)
        out = np.zeros((len(cells), *self.layout.shape), self.layout.dtype)
        for i, cell in enumerate(cells.tolist()):
            if cell in known:
                out[i] = known[cell]
        return out

    def _latest(self, column: int) -> dict[int, NDArray[Any]]:
        """The latest waiting observation of each cell of a column."""
        latest: dict[int, NDArray[Any]] = {}
        for written, cells, observations in self._waiting:
            if written == column:
                latest.update(zip(cells.tolist(), observations, strict=True))
        return latest

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`."""
        written = sum(len(self._latest(column)) for column in range(self.n_columns))
        stored = sum(array.nbytes for array in {id(item[2]): item[2] for item in self._waiting}.values())
        return MemoryUsage.of(
            written * self.layout.observation_bytes, stored, codec="not encoded until the frame stack is known"
        )


def _copy_of(observations: NDArray[Any], waiting: list[tuple[int, Cells, NDArray[Any]]]) -> NDArray[Any]:
    """A copy; equal consecutive observations share one."""
    if waiting and waiting[-1][2].tobytes() == observations.tobytes():
        return waiting[-1][2]
    return observations.copy()
