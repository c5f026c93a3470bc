"""One checkpoint of a Dopamine replay log -> steps: single frames are stacked here. Above: dqn_replay. Below: gzipped.

    $store$_observation_ckpt.N.gz -> some hundred frames at a time, read by a thread -> overlapping views as stacks -> steps

A log is the memory of Dopamine's replay buffer, a ring of single frames. Each episode begins with `stack - 1` entries of
zeros, the padding. So the frames of every stack are contiguous, and a stack is a view. No stack crosses the place where the
ring begins, `add_count % capacity`, or the ends of the file: steps there are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sb3_extra_buffers.datasets.gzipped import read_ahead, read_array, read_header, read_rows
from sb3_extra_buffers.datasets.steps import Found, Steps, pieces
from sb3_extra_buffers.errors import CorruptDataError

#: Arrays of one number, or one frame, per entry.
_STORED = ("observation", "action", "reward", "terminal")
#: Bytes of frames to read at a time.
_READ_BYTES = 4 << 20


class _Piece(NamedTuple):
    """Entries of one episode, or of a part of it.

    :param first: the first entry
    :param last: the entry after the last
    :param is_begun: whether the episode begins with the first entry
    """

    first: int
    last: int
    is_begun: bool


class _Window(NamedTuple):
    """The frames of some consecutive entries.

    :param begin: the first of these entries
    :param limit: entries before it can become steps, because the frames that follow them are here too
    :param frames: of the entries from `begin` on
    :param stack: frames per observation
    """

    begin: int
    limit: int
    frames: NDArray[Any]
    stack: int

    def stacks(self, first: int, last: int) -> NDArray[Any]:
        """``(last - first, stack, ...)``: observations of entries, as views that overlap."""
        frames = self.frames
        row, *rest = frames.strides
        shape, begin = (last - first, self.stack, *frames.shape[1:]), first - self.stack + 1 - self.begin
        # Like sliding_window_view, which takes twenty times as long and puts the window last. NumPy checks the bounds.
        return np.ndarray(shape, frames.dtype, frames.data, begin * row, (row, row, *rest))

    def stack_from(self, first: int, entry: int) -> NDArray[Any]:
        """``(1, stack, ...)``: the observation of an entry, with zeros for the frames before entry `first`."""
        if entry - first >= self.stack - 1:
            return self.stacks(entry, entry + 1)
        rows = np.zeros((1, self.stack, *self.frames.shape[1:]), self.frames.dtype)
        rows[0, first - entry - 1 :] = self.frames[first - self.begin : entry + 1 - self.begin]
        return rows

    def is_zero(self, first: int, last: int) -> bool:
        """Whether the frames of these entries are all zeros."""
        return not self.frames[first - self.begin : last - self.begin].any()


class Log:
    """One checkpoint of a replay log.

    :param stack: frames per observation
    """

    def __init__(self, folder: Path, number: int, stack: int) -> None:
        self.folder, self.number, self.stack = folder, number, stack
        for path in (*map(self._path, _STORED), self._add_count_path()):
            if not path.is_file():
                raise FileNotFoundError(f"{path.name} is missing in {folder}. Get it from where the other files came from")
        shape, dtype = read_header(self._path("observation"))
        if len(shape) < 2:
            raise CorruptDataError(f"{self._path('observation')} has the shape {shape}; it must hold frames")
        self.n, self.frame, self._axes = shape[0], (shape[1:], dtype), tuple(range(1, len(shape)))
        counted = read_array(self._add_count_path())
        if counted.size != 1 or counted.dtype.kind not in "iu" or counted.item() < 1 or self.n < 1:
            raise CorruptDataError(f"Checkpoint {number} in {folder} is empty: {self.n} frames, add_count {counted}")
        self.add_count = int(counted.item())
        #: Entries that are padding, and steps whose stack is not complete.
        self.n_padding = self.n_unstacked = 0

    @property
    def n_entries(self) -> int:
        """Entries that were ever written."""
        return min(self.add_count, self.n)

    def read(self, name: str) -> NDArray[Any]:
        """A whole array with one number per entry."""
        array = read_array(self._path(name))
        if array.shape != (self.n,):
            raise CorruptDataError(f"{self._path(name)} has the shape {array.shape}, but there are {self.n} frames")
        return array

    def unused(self) -> Iterator[str]:
        """Names of other arrays. `invalid_range` is no other: it follows from `add_count`."""
        used = {*(f"$store$_{name}" for name in _STORED), "add_count", "invalid_range", "episode_end_indices"}
        ending = f"_ckpt.{self.number}.gz"
        for path in self.folder.iterdir():
            name = path.name.removesuffix(ending)
            if name != path.name and name not in used:
                yield name

    def steps(self) -> Iterator[Found]:
        """All steps, in the order of the file."""
        self.actions, self.rewards, self.terminals = (self.read(name) for name in _STORED[1:])
        self.terminals = self.terminals.astype(bool)
        todo = list(self._pieces())[::-1]
        at, is_zero_led = 0, False
        for window in self._windows():
            if self.has_unmarked_ends():
                self._split(todo, window)
            while todo and at < window.limit:
                piece = todo[-1]
                if at == piece.first:
                    is_zero_led = self._begin(window, piece)
                first = piece.first if is_zero_led else piece.first + self.stack - 1
                stop = min(piece.last, window.limit)
                yield self._found(window, piece, max(at, first), stop, is_zero_led)._replace(n_rows=stop - at)
                at = stop
                if at == piece.last:
                    todo.pop()
        del self.actions, self.rewards, self.terminals  # hold one checkpoint at a time

    def _windows(self) -> Iterator[_Window]:
        path, stack = self._path("observation"), self.stack
        at_once = max(_READ_BYTES // max(int(np.prod(self.frame[0])) * self.frame[1].itemsize, 1), 2 * stack)
        end = 0
        for rows in read_ahead(read_rows(path, at_once, kept=2 * stack)):
            begin = max(end - 2 * stack, 0)
            end = begin + len(rows)
            yield _Window(begin, end if end == self.n else end - stack, rows, stack)

    def _pieces(self) -> Iterator[_Piece]:
        """The entries, split at terminals and where the ring begins."""
        n, is_full, cursor = self.n_entries, self.add_count >= self.n, self.add_count % self.n
        ends = self.terminals[:n].copy()
        if is_full and cursor > 0:
            ends[cursor - 1] = True
        for first, last in pieces(ends):
            is_begun = self.terminals[first - 1] and not (is_full and first == cursor) if first else not is_full
            yield _Piece(first, last, bool(is_begun))

    def _begin(self, window: _Window, piece: _Piece) -> bool:
        """Look for padding at the beginning of a piece. Returns whether zeros must be put before it."""
        behind = min(piece.first + self.stack - 1, piece.last)
        if self._is_padding(window, piece.first, behind):
            self.n_padding += behind - piece.first
            return False
        if not piece.is_begun:
            self.n_unstacked += min(self.stack - 1, piece.last - piece.first)
        return piece.is_begun

    def _is_padding(self, window: _Window, first: int, last: int) -> bool:
        numbers = (self.actions, self.rewards, self.terminals)
        return not any(one[first:last].any() for one in numbers) and window.is_zero(first, last)

    def _found(self, window: _Window, piece: _Piece, first: int, last: int, is_zero_led: bool) -> Found:
        """Steps of a piece, from entry `first` up to, but without, `last`."""
        end = piece.last - 1  # has no next observation
        has_terminated = bool(self.terminals[end])
        found, stop = [], min(last, end)
        while is_zero_led and first < min(piece.first + self.stack - 1, stop):
            now, following = (window.stack_from(piece.first, entry) for entry in (first, first + 1))
            found.append(self._steps(now, following, first, first + 1))
            first += 1
        if first < stop:
            found.append(self._steps(window.stacks(first, stop), window.stacks(first + 1, stop + 1), first, stop))
        if stop == end and not has_terminated and found:
            found[-1] = found[-1]._replace(is_cut=True)
        if last <= end or first > end:
            return Found(found)
        if not has_terminated:
            return Found(found, n_left_out=1)
        seen = window.stack_from(piece.first, end) if is_zero_led else window.stacks(end, end + 1)
        found.append(self._steps(seen, seen, end, end + 1))
        return Found(found, n_stand_ins=1)

    def _steps(self, now: NDArray[Any], following: NDArray[Any], first: int, last: int) -> Steps:
        some, is_stacked = slice(first, last), self.stack > 1 or len(self.frame[0]) == 2
        if not is_stacked:
            now, following = now[:, 0], following[:, 0]
        never = np.zeros(last - first, bool)
        return Steps(now, following, self.actions[some], self.rewards[some], self.terminals[some], never)

    # ---- ends without a terminal

    def has_unmarked_ends(self) -> bool:
        """Whether episodes may end without a terminal. Later versions of Dopamine list them in a pickle, which is not read."""
        return (self.folder / f"episode_end_indices_ckpt.{self.number}.gz").is_file()

    def _split(self, todo: list[_Piece], window: _Window) -> None:
        """Split the pieces of a window where padding shows that an episode begins. The next piece is the last of the list."""
        near, end = [], window.begin + len(window.frames)
        while todo and todo[-1].first < end:
            near.append(todo.pop())
        for piece in reversed(near):
            places = self._padded_places(window, max(piece.first, window.begin), piece.last)
            edges = [piece.first, *places, piece.last]
            cut = [_Piece(*pair, piece.is_begun if i == 0 else True) for i, pair in enumerate(pairwise(edges))]
            todo += cut[::-1]

    def _padded_places(self, window: _Window, first: int, last: int) -> list[int]:
        """Entries after `first` where padding begins. At `last`, a part of the padding is enough."""
        n, is_end = self.stack - 1, last <= window.begin + len(window.frames)
        some = slice(first, min(last, window.begin + len(window.frames)))
        frames = window.frames[first - window.begin : some.stop - window.begin]
        blank = (self.actions[some] == 0) & (self.rewards[some] == 0) & ~self.terminals[some] & ~frames.any(axis=self._axes)
        blank = np.concatenate((blank, np.ones(n * is_end, bool)))
        if n < 1 or len(blank) <= n:
            return []
        begins = np.all(sliding_window_view(blank, n)[1:], axis=1) & ~blank[: len(blank) - n]
        return [place for place in (np.flatnonzero(begins) + first + 1).tolist() if place < last]

    def _path(self, name: str) -> Path:
        return self.folder / f"$store$_{name}_ckpt.{self.number}.gz"

    def _add_count_path(self) -> Path:
        return self.folder / f"add_count_ckpt.{self.number}.gz"
