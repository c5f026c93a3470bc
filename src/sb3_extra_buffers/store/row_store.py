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
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.layout import FrameLayout

FORMAT = 1

#: What `_own` says of a cell: its next_obs is the obs of the next step; it is zeros; or else the number of a row apart.
_SHARED, _ZEROS = 0, 1
#: The rows apart from here on, one per stream, are for showing what waits; those behind them are given out.
_SHOWN = 2
#: Rows apart grow by this part.
_GROWTH = 4


class RowStore(Store):
    """Observations of one leaf, as they are.

    :param layout: shape and dtype of an observation, which has at least one byte; frames are not looked at
    :param n_cells: cells of one column
    :param n_streams: streams; one per env
    :param n_columns: 1, or 2 where the second column is what comes next
    """

    _apart: NDArray[Any]
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
            self._waiting = observations[1].tobytes()
        step += 1
        if step == self._most_steps:
            step, self._n_steps = 0, step
        self._expected = step

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
        own = np.where((given == obs).all(axis=1), _SHARED, np.where(given.any(axis=1), _SHOWN, _ZEROS)).astype(np.int32)
        apart = np.flatnonzero(own == _SHOWN)
        if apart.size:
            own[apart] = self._new_rows(apart.size)
            self._apart[own[apart]] = values[apart]
        self._own[cells] = own
        for step in np.unique(cells[own > 0] // self.n_streams).tolist():
            self._may_own[step] = True

    def _keep_apart(self, obs: bytes) -> None:
        """Give rows apart to what waits and is not this obs: as `_write_next` would, but quickly, as episodes end often."""
        newest, size = self._newest_cells(), self.layout.observation_bytes
        for stream, begin in enumerate(range(0, len(obs), size)):
            row = self._waiting[begin : begin + size]
            if row != obs[begin : begin + size]:
                [self._own[newest[stream]]] = [number] = self._new_rows(1)
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
                stored += written * self._own.itemsize + len(self._may_own) + self._apart.nbytes
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

    def _new_rows(self, n: int) -> list[int]:
        missing = n - len(self._free)
        if missing > 0:
            end = len(self._apart)
            most = _SHOWN + self.n_streams + self.n_cells
            larger = np.zeros((max(end + missing, min(end + end // _GROWTH, most)), *self.layout.shape), self.layout.dtype)
            larger[:end] = self._apart
            self._apart = larger
            self._free.extend(range(len(larger) - 1, end - 1, -1))
        taken = self._free[-n:]
        del self._free[-n:]
        return taken

    def _free_rows(self, own: NDArray[np.int32]) -> None:
        self._free.extend(own[own >= _SHOWN + self.n_streams].tolist())

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
        self._own = np.zeros(self.n_cells if self._is_chained else 0, np.int32)
        self._own_steps = self._own.reshape(-1, self.n_streams)
        self._may_own = bytearray(len(self._own_steps))  # whether a step has anything but shared cells
        self._apart = np.zeros((_SHOWN + self.n_streams, *shape), dtype)
        self._free: list[int] = []
        self._n_steps = 0
        self._expected, self._waiting, self._is_shown = -1, b"", False

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._settle()
            n = self._n_steps * self.n_streams
            arrays = {"rows": self._rows[:n].copy(), "own": self._own.copy(), "apart": self._apart.copy()}
            given = {"layout": self.layout, "n_cells": self.n_cells, "n_streams": self.n_streams, "n_columns": self.n_columns}
            state = {"format": FORMAT, "given": given, "n_steps": self._n_steps, "arrays": arrays, "free": list(self._free)}
        return {**state, "checksum": _checksum(state)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.get("format") != FORMAT:
            raise CorruptDataError(
                f"A row store of format {state.get('format')!r} cannot be read; this version reads format {FORMAT}"
            )
        if state["checksum"] != _checksum(state):
            raise CorruptDataError("A saved row store is damaged: its checksum does not match")
        RowStore.__init__(self, **state["given"])
        self._n_steps, self._free = state["n_steps"], list(state["free"])
        self._rows[: len(state["arrays"]["rows"])] = state["arrays"]["rows"]
        self._own[:], self._apart = state["arrays"]["own"], state["arrays"]["apart"]
        self._may_own = bytearray(self._own_steps.any(axis=1).tobytes())


def _checksum(state: dict[str, Any]) -> int:
    given = dict(state["given"])
    layout = given.pop("layout")
    crc = zlib.crc32(repr((tuple(map(int, layout.shape)), layout.dtype.str, given, state["n_steps"], state["free"])).encode())
    for array in state["arrays"].values():
        crc = zlib.crc32(array, crc)
    return crc
