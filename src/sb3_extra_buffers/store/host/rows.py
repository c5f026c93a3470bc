"""The row store: observations that are too small to be worth encoding. `auto` uses it instead of `blocks`.

    obs        a plain array, one row per cell
    next_obs   read from the obs of the next step if that is the same, which is nearly always; else an exception, a row of its
    own

Whether next_obs is shared is decided by comparison when the next step arrives: until then the newest one waits.

An interrupted write damages only the cells that it was to fill: each change below leaves every other cell readable, and the
tail, which describes the newest step, changes last and in one assignment.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.free_numbers import FreeNumbers
from sb3_extra_buffers.store.layout import FrameLayout

#: Values of `_own` for a cell: its next_obs is the obs of the next step; it is zeros; or else the number of an exception.
_SHARED, _ZEROS = 0, 1
#: The first exceptions, one per stream, hold the waiting next_obs; the others can be assigned to cells.
_SHOWN = 2
#: The exceptions grow by one part in so many.
_GROWTH = 4
#: Up to so many streams, a loop is faster than NumPy.
_FEW_STREAMS = 8
#: The most cells: as many as exception numbers can count, and as a block store can have.
_MOST_CELLS = 2**31
#: The tail of a store in which nothing waits.
_NO_TAIL = (-1, b"")


class _Links(NamedTuple):
    """The exception of each cell, and the exceptions. Replaced together, so that an interrupt never separates them."""

    own: NDArray[Any]
    exceptions: NDArray[Any]


class RowStore(Store):
    """Observations of one leaf, uncompressed.

    :param layout: shape and dtype of an observation of at least one byte; its frames do not matter
    :param n_cells: cells of one column
    :param n_streams: streams; one per env
    :param n_columns: 1, or 2 if the second column is the next observation
    """

    _links: _Links
    #: The slot after the newest one, or -1, and the newest next_obs, which should become the obs of that slot.
    _tail: tuple[int, bytes]
    _is_shown: bool | None  # whether the waiting next_obs is in an exception; None: unknown after an interrupt
    _n_slots: int  # up to the last written slot
    _prepared: tuple[int, tuple[NDArray[Any], ...]] | None

    def __init__(self, layout: FrameLayout, n_cells: int, *, n_streams: int = 1, n_columns: int = 1) -> None:
        if n_cells * n_columns >= _MOST_CELLS:
            raise ValueError(
                f"{n_cells} observations in {n_columns} columns: more than a store can count. Use a smaller buffer_size"
            )
        super().__init__(layout, n_cells, n_streams, n_columns)
        self.codec = make_codec("none")
        self._allocate()

    # ---- writing

    def write_slot(self, column: int, slot: int, observations: NDArray[Any]) -> None:
        """Write the observations of all streams into one column of a slot, as SB3's `add` does: obs before next_obs."""
        expected, waiting = self._tail
        data = observations.tobytes()
        self.n_slot_writes += 1
        if not self._is_chained:
            self._slots[slot] = data
            if slot >= self._n_slots:
                self._n_slots = slot + 1
        elif column == 0 and slot == expected >= 0:  # nearly always equal to the waiting next_obs of the previous step
            if self._is_shown is not False:
                self._hide()
            if data != waiting:
                self._except(slot, data, waiting)
            self._slots[slot] = data
            self._tail = _NO_TAIL
        elif column == 1 and expected < 0:
            if self._may_own[slot]:
                self._disown(slot)
            slot += 1
            if slot > self._n_slots:
                self._n_slots = slot
            self._tail = slot if slot < self._most_slots else self._end_lap(), data
        else:
            self.write(column, self._cells_of(slot), observations)

    def prepare_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.prepare_step`."""
        self._cells(self._cells_of(slot), None)
        self._prepared = slot, observations

    def commit_step(self) -> None:
        """See `Store.commit_step`."""
        if self._prepared is None:
            return
        slot, observations = self._prepared
        for column in range(self.n_columns):
            self.write_slot(column, slot, observations[column])
        self._prepared = None

    def _end_lap(self) -> int:
        # Free exceptions, and those left behind by interrupted writes.
        unused = len(self._exceptions) - self._first_exception - np.count_nonzero(self._own >= self._first_exception)
        if 2 * unused > len(self._exceptions):
            self._pack()
        return 0

    def write(self, column: int, cells: Cells, observations: NDArray[Any]) -> None:
        """See `Store.write`."""
        cells = self._cells(cells, None)
        if not cells.size:
            return
        # If a cell is named twice, the last observation counts.
        unique, last = np.unique(cells[::-1], return_index=True)
        self._settle()
        self._n_slots = max(self._n_slots, int(unique[-1]) // self.n_streams + 1)
        (self._write_next if column else self._write_obs)(unique, observations[len(cells) - 1 - last])

    def clear(self) -> None:
        """See `Store.clear`."""
        self._allocate()

    def _write_obs(self, cells: Cells, values: NDArray[Any]) -> None:
        if self._is_chained:
            before = (cells - self.n_streams) % self.n_cells
            following = self._next_of(before)
            self._write_next(before, following, share=False)
        self._rows[cells] = values
        if self._is_chained:
            self._write_next(before, following)  # its next_obs stays as it was

    def _write_next(self, cells: Cells, values: NDArray[Any], *, share: bool = True) -> None:
        old = self._own[cells]
        given, obs = self._bits(values), self._bits(self._next_rows(cells))
        is_shared = (given == obs).all(axis=1) & share
        own = np.where(is_shared, _SHARED, _ZEROS)
        excepted = np.flatnonzero(~is_shared & given.any(axis=1))
        own[excepted] = self._new_exceptions(len(excepted))  # may replace the links
        self._exceptions[own[excepted]] = values[excepted]
        for slot in np.unique(cells[own > 0] // self.n_streams).tolist():
            self._may_own[slot] = True
        self._own[cells] = own
        self._give_back(old)  # last: a number must never be free and in use

    def _except(self, slot: int, obs: bytes, waiting: bytes) -> None:
        """Make exceptions for waiting next_obs that differ from this obs."""
        newest, size = self._cells_of((slot - 1) % self._most_slots), self.layout.observation_bytes
        if self.n_streams > _FEW_STREAMS:
            self._write_next(newest, self._as_rows(waiting))
            return
        self._may_own[newest[0] // self.n_streams] = True
        for stream, begin in enumerate(range(0, len(obs), size)):
            row = waiting[begin : begin + size]
            if row != obs[begin : begin + size]:
                [number] = self._new_exceptions(1).tolist()
                self._exceptions[number] = np.frombuffer(row, self.layout.dtype).reshape(self.layout.shape)
                old = self._own[newest[stream : stream + 1]]
                self._own[newest[stream]] = number
                self._give_back(old)  # of a write that was interrupted

    def _disown(self, slot: int) -> None:
        cells = slice(slot * self.n_streams, (slot + 1) * self.n_streams)
        old = self._own[cells].copy()
        self._own[cells] = _SHARED
        self._give_back(old)
        self._may_own[slot] = False

    # ---- reading

    def read_columns(self, columns: tuple[int, ...], slots: Cells, envs: Cells | None = None) -> list[NDArray[Any]]:
        """See `Store.read_columns`."""
        cells = self._cells(slots, envs)
        return [self._next_of(cells) if column else self._rows.take(cells, axis=0) for column in columns]

    def _next_of(self, cells: Cells) -> NDArray[Any]:
        if not self._is_shown and self._tail[0] >= 0:
            self._show()
        own = self._own.take(cells)
        values = self._next_rows(cells)
        excepted = own.nonzero()[0]
        if excepted.size:
            values[excepted] = self._exceptions[own[excepted]]
        return values

    def _next_rows(self, cells: Cells) -> NDArray[Any]:
        return self._rows.take(cells + self.n_streams, axis=0, mode="wrap")

    def is_written(self, cells: Cells) -> NDArray[np.bool_]:
        """See `Store.is_written`."""
        return cells < self._n_slots * self.n_streams

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`."""
        written = self._n_slots * self.n_streams
        rows = written * self.layout.observation_bytes
        stored = rows
        if self._is_chained:
            stored += written * self._own.itemsize + len(self._may_own) + self._exceptions.nbytes + self._free.nbytes
        return MemoryUsage.of(rows * self.n_columns, stored)

    # ---- the waiting next_obs

    def _as_rows(self, data: bytes) -> NDArray[Any]:
        return np.frombuffer(data, self.layout.dtype).reshape(self.n_streams, *self.layout.shape)

    def _show(self) -> None:
        """Make the waiting next_obs of the newest step readable."""
        newest, shown = self._newest_cells(), np.arange(_SHOWN, self._first_exception)
        old = self._own[newest]
        self._is_shown = None
        self._exceptions[shown] = self._as_rows(self._tail[1])
        self._own[newest] = shown
        self._is_shown = True
        self._give_back(old)  # of a write that was interrupted

    def _hide(self) -> None:
        newest = self._newest_cells()
        self._is_shown = None
        self._own[newest] = _SHARED
        self._is_shown = False

    def _newest_cells(self) -> Cells:
        return self._cells_of((self._tail[0] - 1) % self._most_slots)

    def _settle(self) -> None:
        """Store the waiting next_obs, so that nothing waits."""
        expected, waiting = self._tail
        if expected >= 0 and self._is_chained:
            if self._is_shown is not False:
                self._hide()
            self._write_next(self._newest_cells(), self._as_rows(waiting))
        self._tail = _NO_TAIL

    # ---- exceptions

    @property
    def _own(self) -> NDArray[Any]:
        return self._links.own

    @property
    def _exceptions(self) -> NDArray[Any]:
        return self._links.exceptions

    def _new_exceptions(self, n: int) -> NDArray[np.int64]:
        if n > len(self._free):
            self._add_exceptions(n)
        return self._free.take(n)

    def _add_exceptions(self, n: int) -> None:
        """Provide at least ``n`` free exceptions."""
        end = len(self._exceptions)
        size = max(end + n - len(self._free), min(end + end // _GROWTH, self._first_exception + self.n_cells))
        self._use_exceptions(self._own, self._exceptions, size)
        self._free.give_back(np.arange(size - 1, end - 1, -1))

    def _give_back(self, own: NDArray[Any]) -> None:
        self._free.give_back(own[own >= self._first_exception])

    def _pack(self) -> None:
        """Remove free exceptions."""
        own = self._own.copy()
        cells = np.flatnonzero(own >= self._first_exception)
        kept = np.concatenate((self._exceptions[: self._first_exception], self._exceptions[own[cells]]))
        own[cells] = np.arange(self._first_exception, len(kept))
        self._free = FreeNumbers()
        self._links = _Links(own, kept)

    def _use_exceptions(self, own: NDArray[Any], rows: NDArray[Any], size: int) -> None:
        """Use these exceptions, extended to a size. Their numbers get as many bits as they need."""
        larger = np.zeros((size, *self.layout.shape), self.layout.dtype)
        larger[: len(rows)] = rows
        self._links = _Links(own.astype(np.min_scalar_type(size), copy=False), larger)

    def _bits(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Bytes to compare: -0.0 is not 0.0, and NaN is NaN."""
        return np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(len(values), self.layout.observation_bytes)

    # ---- state

    def _allocate(self) -> None:
        shape, dtype = self.layout.shape, self.layout.dtype
        self._tail, self._is_shown, self._n_slots = _NO_TAIL, False, 0
        self._prepared = None
        self._rows = np.zeros((self.n_cells, *shape), dtype)
        # The rows of all streams at a slot as one piece of bytes, which NumPy assigns much faster than an array.
        self._slots = self._rows.reshape(-1).view(f"V{self.n_streams * self.layout.observation_bytes}")
        self._most_slots = len(self._slots)
        self._is_chained = self.n_columns == 2
        own = np.zeros(self.n_cells if self._is_chained else 0, np.uint8)
        self._first_exception = _SHOWN + self.n_streams  # that is given out
        self._free = FreeNumbers()
        self._use_exceptions(own, np.zeros((0, *shape), dtype), self._first_exception)
        self._may_own = bytearray(self._most_slots)  # whether a slot has anything but shared cells
