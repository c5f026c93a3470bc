"""The row store: observations that are too small to be worth encoding. Beside frame_store, for what `auto` leaves as it is.

    obs        a plain array, one row per cell
    next_obs   the obs of the next step wherever it is the same, which is nearly always; else a row apart

Which it is, is found out by comparing, one step late: the next_obs of the newest step waits until the next obs comes.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.store import saved_state
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.free_numbers import FreeNumbers
from sb3_extra_buffers.store.layout import FrameLayout

FORMAT = 1

#: What `_own` says of a cell: its next_obs is the obs of the next step; it is zeros; or else the number of a row apart.
_SHARED, _ZEROS = 0, 1
#: The rows apart from here on, one per stream, are for showing what waits; those behind them are given out.
_SHOWN = 2
#: Rows apart grow by one in so many.
_GROWTH = 4
#: Streams that are quicker looked at one by one than by NumPy.
_FEW_STREAMS = 8


class RowStore(Store):
    """Observations of one leaf, as they are.

    :param layout: shape and dtype of an observation, which has at least one byte; frames are not looked at
    :param n_cells: cells of one column
    :param n_streams: streams; one per env
    :param n_columns: 1, or 2 where the second column is what comes next
    """

    _apart: NDArray[Any]
    _own: NDArray[Any]
    #: The step after the newest one, or -1; the next_obs of the newest one, which should be its obs; whether it can be read.
    _expected: int
    _waiting: bytes
    _is_shown: bool
    _n_steps: int  # up to the last one that was written; the newest may lie behind it

    def __init__(self, layout: FrameLayout, n_cells: int, *, n_streams: int = 1, n_columns: int = 1) -> None:
        super().__init__(n_cells, n_streams, n_columns)
        self.layout, self.codec = layout, make_codec("none")
        self._allocate()

    # ---- writing

    def write_step(self, step: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_step`. Nearly always the obs is what waits as the next_obs of the step before."""
        if step != self._expected:
            self._jump_to(step, observations[0])
        obs = observations[0].tobytes()
        self._steps[step] = obs
        if self._is_chained:
            if self._is_shown:
                self._hide()
            if obs != self._waiting:
                self._keep_apart(obs)
            if self._may_own[step]:
                self._disown(step)
            waiting = observations[1].tobytes()
        else:
            waiting = b""
        step += 1
        if step == self._most_steps:
            step = 0
            self._end_lap()
        self._waiting, self._expected = waiting, step

    def _end_lap(self) -> None:
        self._n_steps = self._most_steps
        if 2 * len(self._free) > len(self._apart):
            self._pack()

    def _jump_to(self, step: int, obs: NDArray[Any]) -> None:
        """See that a step can be written as if it came after the one written last."""
        self._settle()
        if self._is_chained:
            self._write_obs(self._cells_of(step), obs)
            before = (step - 1) % self._most_steps
            self._waiting = self._next_of(self._cells_of(before)).tobytes()
            self._disown(before)
            self._expected = step

    def write_columns(self, first: int, cells: Cells, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_columns`."""
        self._check_cells(cells)
        if not cells.size:
            return
        # Of a cell that is named twice, the last observation stays.
        unique, last = np.unique(cells[::-1], return_index=True)
        last = len(cells) - 1 - last
        with self._lock:
            self._settle()
            for column, values in enumerate(observations, first):
                (self._write_next if column else self._write_obs)(unique, values[last])
            self._n_steps = max(self._n_steps, int(unique[-1]) // self.n_streams + 1)

    def clear(self) -> None:
        """See `Store.clear`."""
        with self._lock:
            self._allocate()

    def _write_obs(self, cells: Cells, values: NDArray[Any]) -> None:
        if not self._is_chained:
            self._rows[cells] = values
            return
        before = (cells - self.n_streams) % self.n_cells
        following = self._next_of(before)
        self._rows[cells] = values
        self._write_next(before, following)  # what came next still does

    def _write_next(self, cells: Cells, values: NDArray[Any]) -> None:
        self._free_rows(self._own[cells])
        given, obs = self._bits(values), self._bits(self._next_rows(cells))
        is_shared = (given == obs).all(axis=1)
        own = np.where(is_shared, _SHARED, _ZEROS)
        apart = np.flatnonzero(~is_shared & given.any(axis=1))
        own[apart] = self._new_rows(len(apart))
        self._apart[own[apart]] = values[apart]
        self._own[cells] = own
        for step in np.unique(cells[own > 0] // self.n_streams).tolist():
            self._may_own[step] = True

    def _keep_apart(self, obs: bytes) -> None:
        """Give rows apart to what waits and is not this obs."""
        newest, size = self._newest_cells(), self.layout.observation_bytes
        if self.n_streams > _FEW_STREAMS:
            self._write_next(newest, self._waiting_rows())
            return
        for stream, begin in enumerate(range(0, len(obs), size)):
            row = self._waiting[begin : begin + size]
            if row != obs[begin : begin + size]:
                [number] = self._new_rows(1).tolist()
                self._own[newest[stream]] = number
                self._apart[number] = np.frombuffer(row, self.layout.dtype).reshape(self.layout.shape)
        self._may_own[newest[0] // self.n_streams] = True

    def _disown(self, step: int) -> None:
        self._free_rows(self._own_steps[step])
        self._own_steps[step] = _SHARED
        self._may_own[step] = False

    # ---- reading

    def read_columns(self, columns: tuple[int, ...], cells: Cells) -> list[NDArray[Any]]:
        """See `Store.read_columns`."""
        with self._lock:
            return [self._next_of(cells) if column else self._rows.take(cells, axis=0) for column in columns]

    def _next_of(self, cells: Cells) -> NDArray[Any]:
        if self._expected >= 0 and not self._is_shown:
            self._show()
        own = self._own.take(cells)
        values = self._next_rows(cells)
        apart = own.nonzero()[0]
        if apart.size:
            values[apart] = self._apart[own[apart]]
        return values

    def _next_rows(self, cells: Cells) -> NDArray[Any]:
        return self._rows.take(cells + self.n_streams, axis=0, mode="wrap")

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`."""
        with self._lock:
            written = max(self._n_steps, self._expected) * self.n_streams
            rows = written * self.layout.observation_bytes
            stored = rows
            if self._is_chained:
                stored += written * self._own.itemsize + len(self._may_own) + self._apart.nbytes + self._free.nbytes
        raw = rows * self.n_columns
        return MemoryUsage(raw, stored, stored / raw if raw else 0.0, 0)

    # ---- what waits

    def _waiting_rows(self) -> NDArray[Any]:
        return np.frombuffer(self._waiting, self.layout.dtype).reshape(self.n_streams, *self.layout.shape)

    def _show(self) -> None:
        """Let the next_obs of the newest step be read, though it waits."""
        shown = np.arange(_SHOWN, _SHOWN + self.n_streams)
        self._apart[shown], self._own[self._newest_cells()] = self._waiting_rows(), shown
        self._is_shown = True

    def _hide(self) -> None:
        self._own[self._newest_cells()] = _SHARED
        self._is_shown = False

    def _newest_cells(self) -> Cells:
        return self._cells_of((self._expected - 1) % self._most_steps)

    def _settle(self) -> None:
        """Let nothing wait."""
        if self._expected >= 0 and self._is_chained:
            if self._is_shown:
                self._hide()
            self._write_next(self._newest_cells(), self._waiting_rows())
        self._n_steps, self._expected = max(self._n_steps, self._expected), -1

    # ---- rows apart

    def _new_rows(self, n: int) -> NDArray[np.int64]:
        missing = n - len(self._free)
        if missing > 0:
            end = len(self._apart)
            size = max(end + missing, min(end + end // _GROWTH, self._first_row + self.n_cells))
            self._use_rows(self._apart, size)
            self._free.give_back(np.arange(size - 1, end - 1, -1))
        return self._free.take(n)

    def _free_rows(self, own: NDArray[Any]) -> None:
        self._free.give_back(own[own >= self._first_row])

    def _pack(self) -> None:
        """Drop the rows that are free."""
        cells = np.flatnonzero(self._own >= self._first_row)
        kept = np.concatenate((self._apart[: self._first_row], self._apart[self._own[cells]]))
        self._own[cells] = np.arange(self._first_row, len(kept))
        self._free.clear()
        self._use_rows(kept, len(kept))

    def _use_rows(self, rows: NDArray[Any], size: int) -> None:
        """Have these rows apart, and more up to a size. Their numbers get as many bits as they need."""
        self._apart = np.zeros((size, *self.layout.shape), self.layout.dtype)
        self._apart[: len(rows)] = rows
        self._own = self._own.astype(np.min_scalar_type(size), copy=False)
        self._own_steps = self._own.reshape(-1, self.n_streams)

    def _bits(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Bytes to compare: -0.0 is not 0.0, and NaN is NaN."""
        return np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(len(values), self.layout.observation_bytes)

    # ---- state

    def _allocate(self) -> None:
        shape, dtype = self.layout.shape, self.layout.dtype
        self._rows = np.zeros((self.n_cells, *shape), dtype)
        # The rows of all streams at a step as one piece of bytes: NumPy is much quicker to assign that than an array.
        self._steps = self._rows.reshape(-1).view(f"V{self.n_streams * self.layout.observation_bytes}")
        self._most_steps = len(self._steps)
        self._is_chained = self.n_columns == 2
        self._own = np.zeros(self.n_cells if self._is_chained else 0, np.uint8)
        self._first_row = _SHOWN + self.n_streams  # that is given out
        self._free = FreeNumbers()
        self._use_rows(np.zeros((0, *shape), dtype), self._first_row)
        self._may_own = bytearray(len(self._own_steps))  # whether a step has anything but shared cells
        self._n_steps = 0
        self._expected, self._waiting, self._is_shown = -1, b"", False

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._settle()
            self._pack()
            owners = np.flatnonzero(self._own)
            rows = self._rows[: self._n_steps * self.n_streams].copy()
            arrays = {"rows": rows, "owners": owners, "own": self._own[owners], "apart": self._apart.copy()}
            given = {"layout": self.layout, "n_cells": self.n_cells, "n_streams": self.n_streams, "n_columns": self.n_columns}
            state = {"format": FORMAT, "given": given, "n_steps": self._n_steps, "arrays": arrays}
        return {**state, "checksum": _checksum(state)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved_state.check("row store", state, FORMAT, _checksum)
        RowStore.__init__(self, **state["given"])
        self._n_steps, arrays = state["n_steps"], state["arrays"]
        self._rows[: len(arrays["rows"])] = arrays["rows"]
        self._use_rows(arrays["apart"], len(arrays["apart"]))
        self._own[arrays["owners"]] = arrays["own"]
        self._may_own = bytearray(self._own_steps.any(axis=1).tobytes())


def _checksum(state: dict[str, Any]) -> int:
    given = dict(state["given"])
    layout = given.pop("layout")
    crc = zlib.crc32(repr((tuple(map(int, layout.shape)), layout.dtype.str, given, state["n_steps"])).encode())
    for array in state["arrays"].values():
        crc = zlib.crc32(array, crc)
    return crc
