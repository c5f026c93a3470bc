"""`tiles`: a frame as a tree of pieces that are stored once and named by number.

    (1, 84, 84) uint8:  252 pieces of 28 bytes    level 0: rows of 7 words, named by int32 numbers
                        6 names, two lines        level 1: 42 rows a frame
                        6 of those names          level 2: 7 rows, whose names the slot keeps

What stands still between frames, and whatever returns, costs nothing but names. Decoding is one `index_select` per level:
static shapes, no transfer, no wait for the device. Encoding compares each row with the one that stood there before, looks
those that differ up in a table by their hash, compares whole rows again, and appends what is new. That asks the device for a
few counts per level, once for a whole batch. The table may forget: that costs a duplicate, never a bit.
Rows that no live frame needs are found by marking, from the slots down to the pieces.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch as th

from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.store.device_memory import GROWTH, FrameMemory, Room, Slots, grown

#: Words in a piece, best first. Fewer make more names, more find less that repeats.
_PIECE_WORDS = (7, 8, 6, 5, 9, 10, 4)
#: Rows of one level that make one of the next, best first.
_BRANCHES = (6, 4, 3, 5, 7, 2)
#: Names of the last level that a slot may keep.
_TOP_NAMES = 8
#: Places in the table that a row may have.
_PROBES = 4
#: How often a row that lost its place to another one tries again.
_ROUNDS = 6
#: Used part of a table: when it is made anew, and then.
_FULLEST_TABLE, _EMPTIEST_TABLE = 0.7, 0.55
#: Part of the dense size above which tiles are not worth their while.
_WORTHWHILE = 0.6
#: Rows are looked for that nobody needs when one frame in so many is dead.
_SWEEP_AT = 16


def plan_tree(frame_bytes: int) -> tuple[int, int, list[int]]:
    """Words of a frame with padding, words of a piece, and how many rows of each level make one of the next.

    :param frame_bytes: bytes of a frame
    """
    words = -(-frame_bytes // 4)
    piece = next((width for width in _PIECE_WORDS if words % width == 0), _PIECE_WORDS[0])
    names, branches = -(-words // piece), []
    while names > _TOP_NAMES:
        branch = next((branch for branch in _BRANCHES if names % branch == 0), _BRANCHES[0])
        names = -(-names // branch)
        branches.append(branch)
    return names * int(np.prod(branches, dtype=np.int64)) * piece, piece, branches


class Level:
    """Rows of int32 words that are stored once. Row 0 is a row of zeros and stays.

    :param width: words in a row
    :param n_recent: rows in as many frames as there are streams
    :param device: where they live
    """

    def __init__(self, width: int, n_recent: int, device: th.device) -> None:
        self.width = width
        self._rows = th.zeros((64, width), dtype=th.int32, device=device)
        self._free = th.arange(1, 64, dtype=th.int32, device=device)
        self._n_taken = 0  # of the free rows
        self._table = th.zeros(64, dtype=th.int32, device=device)  # names by hash, 0 where there is none
        self._recent = th.zeros(n_recent, dtype=th.int32, device=device)  # names of the rows of the last frames
        # Small enough that the sum of products stays below 2 ** 63; odd, so that no bit of a word is lost.
        factors = np.random.default_rng(width).integers(1 << 24, 1 << 27, width, dtype=np.int64) | 1
        self._factors = th.from_numpy(factors).to(device)

    @property
    def nbytes(self) -> int:
        return 4 * (self._rows.numel() + self._table.numel() + self._free.numel())

    @property
    def n_used(self) -> int:
        """Rows in use."""
        return len(self._rows) - self.n_free

    @property
    def n_free(self) -> int:
        return len(self._free) - self._n_taken

    def clear(self) -> None:
        """Free all rows but row 0; the memory stays."""
        self._table.zero_()
        self._recent.zero_()
        self._free = th.arange(1, len(self._rows), dtype=th.int32, device=self._rows.device)
        self._n_taken = 0

    def select(self, names: th.Tensor) -> th.Tensor:
        """The rows of these names, one behind the other: ``(n,)`` -> ``(n * width,)``."""
        return self._rows.index_select(0, names).view(-1)

    def grow(self, n_rows: int) -> None:
        """Have ``n_rows`` more free rows."""
        size = len(self._rows)
        self._rows = grown(self._rows, size + n_rows)
        fresh = th.arange(size, size + n_rows, dtype=th.int32, device=self._rows.device)
        self._free, self._n_taken = th.cat((self._free[self._n_taken :], fresh)), 0

    def find(self, rows: th.Tensor) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """Names of rows ``(n, width)``; indices of those that were not found, whose names mean nothing; and their hashes.

        :param rows: of whole frames
        """
        # Most rows are those of a recent frame; the others are looked for in the table, at all their places at once.
        names = self._recent.repeat(-(-len(rows) // len(self._recent)))[: len(rows)]
        missing = (self._rows.index_select(0, names) != rows).any(1).nonzero().view(-1)
        wanted = rows.index_select(0, missing)
        hashes = self._hashes(wanted)
        guesses = self._table.index_select(0, self._spots(hashes).view(-1))
        is_equal = (self._rows.index_select(0, guesses).view(-1, _PROBES, self.width) == wanted[:, None]).all(2)
        is_found, which = is_equal.to(th.int32).max(1)
        names.index_copy_(0, missing, guesses.view(-1, _PROBES).gather(1, which[:, None]).view(-1))
        is_missing = is_found == 0
        return names, missing[is_missing], hashes[is_missing]

    def store(self, rows: th.Tensor, hashes: th.Tensor, make_room: Callable[[Level, int], None]) -> th.Tensor:
        """Names for rows that were not found, equal ones among them stored once.

        :param make_room: called with the number of rows that are not free, before anything is changed
        """
        order = th.arange(len(rows), device=rows.device)
        unique, group = th.unique(hashes, return_inverse=True)
        leader = th.zeros(len(unique), dtype=th.int64, device=rows.device).index_copy_(0, group, order).index_select(0, group)
        is_other = (rows.index_select(0, leader) != rows).any(1)  # an equal hash by chance
        new = ((leader == order) | is_other).nonzero().view(-1)
        if len(new) > self.n_free:
            make_room(self, len(new) - self.n_free)
        ids = self._free[self._n_taken : self._n_taken + len(new)]
        self._n_taken += len(new)
        self._rows.index_copy_(0, ids.to(th.int64), rows.index_select(0, new))
        if self.n_used > _FULLEST_TABLE * len(self._table):
            self._rebuild_table()
        else:
            self._remember(ids, hashes.index_select(0, new))
        names = th.zeros(len(rows), dtype=th.int32, device=rows.device).index_copy_(0, new, ids)
        return th.where(is_other, names, names.index_select(0, leader))

    def keep_recent(self, names: th.Tensor) -> None:
        """Remember the names of the last frames, one of each stream if all streams are written in turn."""
        self._recent = th.cat((self._recent, names))[-len(self._recent) :].clone()

    def sweep(self, live_names: th.Tensor) -> th.Tensor:
        """Free all rows but those with these names; gives the words of the rows that stay."""
        is_live = th.zeros(len(self._rows), dtype=th.bool, device=self._rows.device)
        is_live.index_fill_(0, live_names.to(th.int64), True)
        is_live[0] = True
        self._recent *= is_live.index_select(0, self._recent)
        self._free, self._n_taken = (~is_live).nonzero().view(-1).to(th.int32), 0
        self._rebuild_table()
        return self._rows[is_live].view(-1)

    # ---- the table: open addressing, a few places per hash; a row that finds them taken drives another one out

    def _hashes(self, rows: th.Tensor) -> th.Tensor:
        mixed = (rows.to(th.int64) * self._factors).sum(1)
        return mixed ^ (mixed >> 29)

    def _spots(self, hashes: th.Tensor) -> th.Tensor:
        """All places of hashes: ``(n,)`` -> ``(n, places)``."""
        steps = th.arange(_PROBES, device=hashes.device)
        spots = th.addcmul(hashes[:, None], (hashes >> 24)[:, None], steps)
        # 31 bits times the size, and the 31 lowest bits dropped: an even spread, without a division.
        return spots.bitwise_and_(0x7FFFFFFF).mul_(len(self._table)).bitwise_right_shift_(31)

    def _remember(self, names: th.Tensor, hashes: th.Tensor) -> None:
        for _ in range(_ROUNDS):  # again for those that lost an empty place to another one
            if not len(names):
                break
            spots = self._spots(hashes)
            is_empty = self._table.index_select(0, spots.view(-1)).view(-1, _PROBES) == 0
            spots = spots.gather(1, is_empty.to(th.int32).argmax(1, keepdim=True)).view(-1)
            self._table.index_copy_(0, spots, names)
            is_out = self._table.index_select(0, spots) != names
            names, hashes = names[is_out], hashes[is_out]

    def _rebuild_table(self) -> None:
        """A table of the right size for the rows in use."""
        is_used = th.ones(len(self._rows), dtype=th.bool, device=self._rows.device)
        is_used.index_fill_(0, self._free[self._n_taken :].to(th.int64), False)
        is_used[0] = False
        n_entries = int(self.n_used / _EMPTIEST_TABLE) + 64
        self._table = th.zeros(n_entries, dtype=th.int32, device=self._rows.device)
        names = is_used.nonzero().view(-1)
        self._remember(names.to(th.int32), self._hashes(self._rows[is_used]))


class TileMemory(FrameMemory):
    """`tiles`: frames as trees of shared pieces."""

    batch_frames = 80

    def __init__(self, frame_bytes: int, n_expected: int, n_streams: int, device: th.device, room: Room) -> None:
        super().__init__(frame_bytes, n_expected, n_streams, device, room)
        self._n_words, self._piece, self._branches = plan_tree(frame_bytes)
        n_recent = min(self.n_streams, self.batch_frames)
        self.levels, n_names = [], self._n_words
        for width in (self._piece, *self._branches):
            n_names //= width
            self.levels.append(Level(width, n_names * n_recent, device))
        self._top = th.zeros((1, n_names), dtype=th.int32, device=device)
        self._is_live = np.zeros(1, np.bool_)  # by slot
        self._n_live, self._n_dead = 0, 0  # frames; those that died since rows were last swept

    def clear(self) -> None:
        for level in self.levels:
            level.clear()
        self._is_live[:] = False
        self._n_live, self._n_dead = 0, 0

    # ---- decoding

    def gather(self, slots: Slots) -> th.Tensor:
        words = self._top.index_select(0, self.index(slots)).view(-1)
        for level in reversed(self.levels):
            words = level.select(words)
        frames = words.view(len(slots), self._n_words).view(th.uint8)
        return frames if frames.shape[1] == self.frame_bytes else frames[:, : self.frame_bytes].contiguous()

    # ---- encoding

    def put(self, slots: Slots, frames: th.Tensor, *, strict: bool = False) -> None:
        if self._n_dead * _SWEEP_AT > self._n_live:
            self.compact()
        words = self._words(frames)
        try:
            self._store(slots, words, strict=strict)
        except HeapFullError:
            if not self._n_dead:
                raise
            self.compact()
            self._store(slots, words, strict=strict)

    def _store(self, slots: Slots, words: th.Tensor, *, strict: bool) -> None:
        """Frames into slots. Rows that were stored before an error stay: they are found again, or swept."""
        n_slots = int(slots.max(initial=0)) + 1
        if n_slots > len(self._top):
            row_bytes = 4 * self._top.shape[1]
            wanted = max(len(self._top) // GROWTH, 64)
            more = self.room.grow_by(wanted, n_slots - len(self._top), row_bytes, strict=strict)
            self._top = grown(self._top, len(self._top) + more)
            self._is_live = np.concatenate((self._is_live, np.zeros(more, np.bool_)))
        for level in self.levels:
            words = self._names(level, words.view(-1, level.width), strict=strict)
        self._top.index_copy_(0, self.index(slots), words.view(len(slots), -1))
        self._n_live += len(slots) - int(np.count_nonzero(self._is_live[slots]))
        self._is_live[slots] = True

    def _names(self, level: Level, rows: th.Tensor, *, strict: bool) -> th.Tensor:
        """Names of rows in a level, after storing those that are new."""

        def make_room(level: Level, n_rows: int) -> None:
            row_bytes = 4 * (level.width + 3)  # with its part of the table, and of the list of free rows
            level.grow(self.room.grow_by(level.n_used // GROWTH, n_rows, row_bytes, strict=strict))

        names, missing, hashes = level.find(rows)
        if len(missing):
            names.index_copy_(0, missing, level.store(rows.index_select(0, missing), hashes, make_room))
        level.keep_recent(names)
        return names

    def _words(self, frames: th.Tensor) -> th.Tensor:
        """Frames as int32 words, padded to what the tree holds."""
        padding = 4 * self._n_words - self.frame_bytes
        if padding:
            frames = th.nn.functional.pad(frames, (0, padding))
        return frames.contiguous().view(th.int32)

    # ---- memory

    def free(self, slots: Slots) -> None:
        slots = slots[slots < len(self._is_live)]
        n_dead = int(np.count_nonzero(self._is_live[slots]))
        self._is_live[slots] = False
        self._n_live, self._n_dead = self._n_live - n_dead, self._n_dead + n_dead

    def compact(self) -> None:
        """Free the rows that no live frame needs: mark from the slots down, one level at a time."""
        names = self._top.index_select(0, self.index(np.flatnonzero(self._is_live))).view(-1)
        for level in reversed(self.levels):
            names = level.sweep(names)
        self._n_dead = 0

    @property
    def host_bytes(self) -> int:
        return self._is_live.nbytes

    def parts(self) -> dict[int, int]:
        return {id(self): 4 * self._top.numel() + sum(level.nbytes for level in self.levels)}

    def is_worth_it(self) -> bool:
        used = sum(4 * level.width * level.n_used for level in self.levels)
        # Within a hard limit, dense frames must not be larger than what they take the place of.
        most = 1.0 if self.room.is_hard else _WORTHWHILE
        return self._n_live < self.batch_frames or used <= most * self._n_live * self.frame_bytes
