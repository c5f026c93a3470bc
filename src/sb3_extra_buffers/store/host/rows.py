"""The row store: observations that are too small to be worth encoding. `auto` uses it instead of `blocks`.

    obs        a plain array, one row per cell
    next_obs   read from the obs of the next step if that is the same, which is nearly always; else an exception, a row of its
               own
    window     the newest steps: their obs are in place, their next_obs wait in an array

Steps are written into the window by plain assignments. When it is full, all that wait are compared with the obs that followed.

An interrupted write damages only the cells that it was to fill: each change below leaves every other cell readable, and a
window ends with one assignment.
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
_SHARED, _ZEROS, _FIRST_EXCEPTION = 0, 1, 2
#: The exceptions grow by one part in so many.
_GROWTH = 4
#: Bytes of a window, the fewest and most steps of one, and which part of all slots it may be.
_WINDOW_BYTES, _FEWEST_STEPS, _MOST_STEPS, _WINDOW_PART = 2**16, 4, 256, 64
#: The most cells: as many as exception numbers can count, and as a block store can have.
_MOST_CELLS = 2**31


class _Links(NamedTuple):
    """The exception of each cell, and the exceptions. Replaced together, so that an interrupt never separates them."""

    own: NDArray[Any]
    exceptions: NDArray[Any]


class Window:
    """The newest steps, whose next_obs wait. The step `next_slot` may be written into both arrays; then it is raised by one.

    :param first: slot of the first step
    :param obs: ``(steps, n_streams, ...)``, a view of the rows from this slot on
    :param following: the same of next_obs
    :param stop: the slot behind the last step
    """

    __slots__ = ("first", "following", "next_slot", "obs", "stop")

    def __init__(self, first: int, obs: Any, following: Any, stop: int) -> None:
        self.first, self.next_slot, self.stop = first, first, stop
        self.obs, self.following = obs, following

    def close(self) -> None:
        """No more steps: the store does not use this window any more."""
        self.stop = -1


class RowStore(Store):
    """Observations of one leaf, uncompressed.

    :param layout: shape and dtype of an observation of at least one byte; its frames do not matter
    :param n_cells: cells of one column
    :param n_streams: streams; one per env
    :param n_columns: 1, or 2 if the second column is the next observation
    """

    #: The newest steps; None if no next_obs waits.
    window: Window | None
    _links: _Links
    _n_slots: int  # up to the last written slot, those of the window aside
    _prepared: tuple[int, tuple[NDArray[Any], ...]] | None

    def __init__(self, layout: FrameLayout, n_cells: int, *, n_streams: int = 1, n_columns: int = 1) -> None:
        if n_cells * n_columns >= _MOST_CELLS:
            raise ValueError(
                f"{n_cells} observations in {n_columns} columns: more than a store can count. Use a smaller buffer_size"
            )
        super().__init__(layout, n_cells, n_streams, n_columns)
        self.codec = make_codec("none")
        self.window = None
        self._allocate()

    # ---- writing

    def prepare_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.prepare_step`."""
        self._cells(self._cells_of(slot), None)
        self._prepared = slot, observations

    def commit_step(self) -> None:
        """See `Store.commit_step`."""
        if self._prepared is None:
            return
        slot, (obs, *following) = self._prepared
        if following:
            self._write_step(slot, obs, following[0])
        else:
            self._slots[slot] = obs
            self._n_slots = max(self._n_slots, slot + 1)
        self._prepared = None

    def _write_step(self, slot: int, obs: NDArray[Any], following: NDArray[Any]) -> None:
        window = self.window
        if window is None or not slot == window.next_slot < window.stop:
            window = self._window_at(slot, obs)
        i = slot - window.first
        window.obs[i] = obs
        window.following[i] = following
        window.next_slot = slot + 1
        self.window = window

    def _window_at(self, slot: int, obs: NDArray[Any]) -> Window:
        """A new window from this slot on. Also writes the obs of the slot, and stores what waits in the last window."""
        last = self.window
        if last is not None and slot == last.next_slot % len(self._slots):
            last.close()
            self._slots[slot] = obs
            self._settle()
        else:
            self._settle()
            self._write_obs(self._cells_of(slot), obs)
        if slot == 0:
            self._pack_if_worth_it()
        rows = self._slots[slot : slot + self._window_steps]
        return Window(slot, rows, np.empty_like(rows), slot + len(rows))

    def _settle(self) -> None:
        """Store the next_obs that wait, so that none does."""
        window = self.window
        if window is None:
            return
        window.close()
        self._n_slots = max(self._n_slots, window.next_slot)
        begin, end = window.first * self.n_streams, window.next_slot * self.n_streams
        following = window.following[: window.next_slot - window.first].reshape(-1, *self.layout.shape)
        at = slice(begin + self.n_streams, end + self.n_streams)
        obs = self._rows[at] if at.stop <= self.n_cells else self._next_rows(np.arange(begin, end))
        # Nearly all are the obs of the next step, and those that they replace were, too.
        others = ((self._bits(following) != self._bits(obs)).any(axis=1) | (self._own[begin:end] != _SHARED)).nonzero()[0]
        if others.size:
            self._write_next(begin + others, following[others])
        self.window = None

    def _pack_if_worth_it(self) -> None:
        # Free exceptions, and those left behind by interrupted writes.
        unused = len(self._exceptions) - _FIRST_EXCEPTION - np.count_nonzero(self._own >= _FIRST_EXCEPTION)
        if 2 * unused > len(self._exceptions):
            self._pack()

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
        self._own[cells] = own
        self._give_back(old)  # last: a number must never be free and in use

    # ---- reading

    def read_columns(self, columns: tuple[int, ...], slots: Cells, envs: Cells | None = None) -> list[NDArray[Any]]:
        """See `Store.read_columns`."""
        cells = self._cells(slots, envs)
        return [self._next_of(cells) if column else self._rows.take(cells, axis=0) for column in columns]

    def _next_of(self, cells: Cells) -> NDArray[Any]:
        own = self._own.take(cells)
        values = self._next_rows(cells)
        excepted = own.nonzero()[0]
        if excepted.size:
            values[excepted] = self._exceptions[own[excepted]]
        window = self.window
        if window is not None:
            begin, end = window.first * self.n_streams, window.next_slot * self.n_streams
            waiting = ((cells >= begin) & (cells < end)).nonzero()[0]
            if waiting.size:
                values[waiting] = window.following.reshape(-1, *self.layout.shape)[cells[waiting] - begin]
        return values

    def _next_rows(self, cells: Cells) -> NDArray[Any]:
        return self._rows.take(cells + self.n_streams, axis=0, mode="wrap")

    def is_written(self, cells: Cells) -> NDArray[np.bool_]:
        """See `Store.is_written`."""
        return cells < self._written() * self.n_streams

    def _written(self) -> int:
        """Slots up to the last written one."""
        return self._n_slots if self.window is None else max(self._n_slots, self.window.next_slot)

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`."""
        written = self._written() * self.n_streams
        rows = written * self.layout.observation_bytes
        stored = rows
        if self._is_chained:
            stored += written * self._own.itemsize + self._exceptions.nbytes + self._free.nbytes
            stored += 0 if self.window is None else self.window.following.nbytes
        return MemoryUsage.of(rows * self.n_columns, stored)

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
        size = max(end + n - len(self._free), min(end + end // _GROWTH, _FIRST_EXCEPTION + self.n_cells))
        self._use_exceptions(self._own, self._exceptions, size)
        self._free.give_back(np.arange(size - 1, end - 1, -1))

    def _give_back(self, own: NDArray[Any]) -> None:
        self._free.give_back(own[own >= _FIRST_EXCEPTION])

    def _pack(self) -> None:
        """Remove free exceptions."""
        own = self._own.copy()
        cells = np.flatnonzero(own >= _FIRST_EXCEPTION)
        kept = np.concatenate((self._exceptions[:_FIRST_EXCEPTION], self._exceptions[own[cells]]))
        own[cells] = np.arange(_FIRST_EXCEPTION, len(kept))
        self._free = FreeNumbers()
        self._links = _Links(own, kept)

    def _use_exceptions(self, own: NDArray[Any], rows: NDArray[Any], size: int) -> None:
        """Use these exceptions, extended to a size. Their numbers get as many bits as they need."""
        larger = np.zeros((size, *self.layout.shape), self.layout.dtype)
        larger[: len(rows)] = rows
        self._links = _Links(own.astype(np.min_scalar_type(size), copy=False), larger)

    def _bits(self, values: NDArray[Any]) -> NDArray[Any]:
        """What to compare: -0.0 is not 0.0, and NaN is NaN. As large words as fit."""
        size = self.layout.observation_bytes
        word = np.uint64 if size % 8 == 0 else np.uint32 if size % 4 == 0 else np.uint8
        return np.ascontiguousarray(values).reshape(-1).view(word).reshape(len(values), -1)

    # ---- state

    def _allocate(self) -> None:
        shape, dtype = self.layout.shape, self.layout.dtype
        if self.window is not None:
            self.window.close()
        self.window, self._n_slots, self._prepared = None, 0, None
        self._rows = np.zeros((self.n_cells, *shape), dtype)
        self._slots = self._rows.reshape(-1, self.n_streams, *shape)
        slot_bytes = self.n_streams * self.layout.observation_bytes
        most = min(_WINDOW_BYTES // slot_bytes, len(self._slots) // _WINDOW_PART, _MOST_STEPS)
        self._window_steps = max(most, _FEWEST_STEPS)
        self._is_chained = self.n_columns == 2
        own = np.zeros(self.n_cells if self._is_chained else 0, np.uint8)
        self._free = FreeNumbers()
        self._use_exceptions(own, np.zeros((0, *shape), dtype), _FIRST_EXCEPTION)
