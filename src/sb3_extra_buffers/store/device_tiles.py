"""`tiles`: a frame as a tree of pieces that are stored once and named by number. Below: device_tree, which says how it is cut.

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
from sb3_extra_buffers.store.device_memory import GROWTH, Expected, FrameMemory, Room
from sb3_extra_buffers.store.device_rows import Indices, SlotRows, Slots, grown
from sb3_extra_buffers.store.device_tree import plan_tree

#: Places in a line of the table.
_PLACES = 8
#: Spreads a sum over all bits of a hash. Odd, so that none is lost.
_MIX = 0x1E3779B97F4A7C15
#: Used part of a table: when it is made anew, and then.
_FULLEST_TABLE, _EMPTIEST_TABLE = 0.85, 0.6
#: Part of the dense size above which tiles are not worth their while.
_WORTHWHILE = 0.6
#: Rows are looked for that nobody needs when one frame in so many is dead.
_SWEEP_AT = 16


#: What finds room for so many rows of a level, or raises HeapFullError.
MakeRoom = Callable[["Level", int], None]


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
        self._table = th.zeros((8, _PLACES), dtype=th.int32, device=device)
        self._name_bits = len(self._rows).bit_length()
        self._recent = th.zeros(n_recent, dtype=th.int32, device=device)  # names of the rows of the last frames
        # Small enough that the sum of products stays below 2 ** 63; odd, so that no bit of a word is lost.
        factors = np.random.default_rng(width).integers(1 << 24, 1 << 27, width, dtype=np.int64) | 1
        self._factors = th.from_numpy(factors).to(device)

    @property
    def nbytes(self) -> int:
        return 4 * (self._rows.numel() + self._table.numel() + self._free.numel() + self._recent.numel())

    @property
    def reserved_bytes(self) -> int:
        """What it may take without asking for room: the table and the list of free rows grow with what is used."""
        return len(self._rows) * self.row_bytes + 4 * (8 * _PLACES + self._recent.numel())

    @property
    def row_bytes(self) -> int:
        """What one more row takes at most, with its part of the table and of the list of free rows."""
        return 4 * (self.width + 3)

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
        if len(self._rows) >> self._name_bits:
            self._rebuild_table()

    def names(self, rows: th.Tensor, make_room: MakeRoom) -> th.Tensor:
        """Names of rows ``(n, width)``, after storing those that are new.

        :param rows: of whole frames
        :param make_room: called with the number of rows that are not free, before anything is changed
        """
        # Most rows are those of the frame one turn before, and share its name. Turns are the rows of `changed`.
        n, turn = len(rows), len(self._recent)
        before = th.cat((self._rows.index_select(0, self._recent), rows))[:n]
        changed = th.zeros((2 + (n - 1) // turn, turn), dtype=th.bool, device=rows.device)
        changed[0] = True
        changed.view(-1)[turn : turn + n] = (before != rows).any(1)
        places = changed.t().nonzero()  # (of a frame, turn): all turns of a place, then those of the next one
        known = th.cat((self._recent, self._recent.new_zeros(n)))
        missing = changed.view(-1)[turn:].nonzero().view(-1)
        known.index_copy_(0, turn + missing, self._find_or_store(rows.index_select(0, missing), make_room))
        latest = known.index_select(0, places[:, 1] * turn + places[:, 0])
        names = latest.index_select(0, changed.t().reshape(-1).cumsum(0) - 1).view(turn, -1).t().reshape(-1)[turn : turn + n]
        self._recent = th.cat((self._recent, names))[-turn:].clone()
        return names

    def _find_or_store(self, rows: th.Tensor, make_room: MakeRoom) -> th.Tensor:
        hashes = self._hashes(rows)
        entries = self._table.index_select(0, self._lines(hashes).view(-1)).view(-1, 2 * _PLACES)
        which = (entries >> self._name_bits == self._marks(hashes)[:, None]).to(th.int32).argmax(1, keepdim=True)
        names = self._names_in(entries.gather(1, which).view(-1))
        missing = (self._rows.index_select(0, names) != rows).any(1).nonzero().view(-1)
        if len(missing):
            stored = self._store(rows.index_select(0, missing), hashes.index_select(0, missing), make_room)
            names.index_copy_(0, missing, stored)
        return names

    def _store(self, rows: th.Tensor, hashes: th.Tensor, make_room: MakeRoom) -> th.Tensor:
        """Names for rows that were not found, equal ones among them stored once."""
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
        if self.n_used > _FULLEST_TABLE * self._table.numel():
            self._rebuild_table()
        else:
            self._remember(ids)
        names = th.zeros(len(rows), dtype=th.int32, device=rows.device).index_copy_(0, new, ids)
        return th.where(is_other, names, names.index_select(0, leader))

    def sweep(self, live_names: th.Tensor) -> th.Tensor:
        """Free all rows but those with these names; gives the words of the rows that stay."""
        is_live = th.zeros(len(self._rows), dtype=th.bool, device=self._rows.device)
        is_live.index_fill_(0, live_names.to(th.int64), True)
        is_live[0] = True
        self._recent *= is_live.index_select(0, self._recent)
        self._free, self._n_taken = (~is_live).nonzero().view(-1).to(th.int32), 0
        if self.n_used < _EMPTIEST_TABLE / 2 * self._table.numel():
            self._rebuild_table()
        else:  # drop the dead, and move the others to the left
            stays = is_live.index_select(0, self._names_in(self._table).view(-1)).view(self._table.shape)
            self._table = (self._table * stays).sort(1, descending=True).values
        return self._rows[is_live].view(-1)

    # ---- the table: each hash has two lines of places, filled from the left, and goes where fewer are taken. An entry is a
    # name, and above it some bits of the hash, so that of both lines one row has to be looked at. Where they are full, an
    # entry is driven out.

    def _hashes(self, rows: th.Tensor) -> th.Tensor:
        mixed = (rows.to(th.int64) * self._factors).sum(1) * _MIX
        return mixed ^ (mixed >> 32)

    def _lines(self, hashes: th.Tensor) -> th.Tensor:
        """``(n,)`` -> ``(n, 2)``: by the 31 lowest bits, and by the next 31."""
        halves = th.stack((hashes, hashes >> 31), 1) & 0x7FFFFFFF
        return halves * len(self._table) >> 31  # an even spread, without a division

    def _marks(self, hashes: th.Tensor) -> th.Tensor:
        """Bits that have little to do with the lines: the lowest of the upper half."""
        return (hashes >> 31 & ((1 << 31 - self._name_bits) - 1)).to(th.int32)

    def _names_in(self, entries: th.Tensor) -> th.Tensor:
        return entries & ((1 << self._name_bits) - 1)

    def _remember(self, names: th.Tensor) -> None:
        """Enter rows into the table, few per line at a time, so that lines fill evenly."""
        for start in range(0, len(names), len(self._table)):
            some = names[start : start + len(self._table)]
            hashes = self._hashes(self._rows.index_select(0, some))
            lines = self._lines(hashes)
            n_taken, which = (self._table.index_select(0, lines.view(-1)) != 0).sum(1).view(-1, 2).min(1)
            line, order = lines.gather(1, which[:, None]).view(-1).sort()
            rank = th.arange(len(line), device=line.device) - th.searchsorted(line, line)  # among those of the same line
            places = line * _PLACES + (n_taken.index_select(0, order) + rank) % _PLACES
            entries = self._marks(hashes) << self._name_bits | some
            self._table.view(-1).index_copy_(0, places, entries.index_select(0, order))

    def _rebuild_table(self) -> None:
        """A table of the right size for the rows in use."""
        is_used = th.ones(len(self._rows), dtype=th.bool, device=self._rows.device)
        is_used.index_fill_(0, self._free[self._n_taken :].to(th.int64), False)
        is_used[0] = False
        n_lines = int(self.n_used / _EMPTIEST_TABLE / _PLACES) + 8
        self._table = th.zeros((n_lines, _PLACES), dtype=th.int32, device=self._rows.device)
        self._name_bits = len(self._rows).bit_length()
        self._remember(is_used.nonzero().view(-1).to(th.int32))


class TileMemory(FrameMemory):
    """`tiles`: frames as trees of shared pieces."""

    batch_frames = 128
    may_become_dense = True

    def __init__(self, expected: Expected, device: th.device, room: Room) -> None:
        super().__init__(expected, device, room)
        self.tree = plan_tree(expected.frame_bytes, expected.line_bytes)
        n_recent = min(expected.n_streams, self.batch_frames)
        self.levels, n_names = [], self.tree.n_words
        for width in (self.tree.piece, *self.tree.branches):
            n_names //= width
            self.levels.append(Level(width, n_names * n_recent, device))
        self._top = SlotRows(n_names, th.int32, device)
        self._n_dead = 0  # frames that died since rows were last swept

    def clear(self) -> None:
        for level in self.levels:
            level.clear()
        self._top.clear()
        self._n_dead = 0

    # ---- decoding

    def _decode(self, slots: Slots, order: Indices) -> th.Tensor:
        words = self._top.rows.index_select(0, self.index(self._top.of(slots))).view(-1)
        for level in reversed(self.levels[1:]):
            words = level.select(words)
        # Names of pieces are put in order, and not frames: that is one copy less.
        names = self.tree.by_line(words).view(len(slots), self.tree.n_pieces).index_select(0, self.index(order))
        words = self.levels[0].select(names.view(-1))
        frames = words.view(len(order), self.tree.n_words).view(th.uint8)
        return frames if frames.shape[1] == self.frame_bytes else frames[:, : self.frame_bytes].contiguous()

    # ---- encoding

    def put(self, slots: Slots, frames: th.Tensor, *, strict: bool = False) -> None:
        if self._n_dead * _SWEEP_AT > self._top.n_in_use:
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
        missing = self._top.n_new(slots) - self._top.n_free
        if missing > 0:
            size, width = self._top.rows.shape
            more = self.room.grow_by(max(size // GROWTH, 64), missing, 4 * width, strict=strict)
            self._top.rows = grown(self._top.rows, size + more)
        words = self.tree.by_block(self._names(self.levels[0], words.view(-1, self.tree.piece), strict=strict))
        for level in self.levels[1:]:
            words = self._names(level, words.view(-1, level.width), strict=strict)
        self._top.rows.index_copy_(0, self.index(self._top.take(slots).astype(np.int64)), words.view(len(slots), -1))

    def _names(self, level: Level, rows: th.Tensor, *, strict: bool) -> th.Tensor:
        """Names of rows in a level, after storing those that are new."""

        def make_room(level: Level, n_rows: int) -> None:
            level.grow(self.room.grow_by(level.n_used // GROWTH, n_rows, level.row_bytes, strict=strict))

        return level.names(rows, make_room)

    def _words(self, frames: th.Tensor) -> th.Tensor:
        """Frames as int32 words, padded to what the tree holds."""
        padding = 4 * self.tree.n_words - self.frame_bytes
        if padding:
            frames = th.nn.functional.pad(frames, (0, padding))
        return frames.contiguous().view(th.int32)

    # ---- memory

    def free(self, slots: Slots) -> None:
        self._n_dead += self._top.give_back(slots)

    def compact(self) -> None:
        """Free the rows that no live frame needs: mark from the slots down, one level at a time."""
        names = self._top.rows.index_select(0, self.index(self._top.in_use())).view(-1)
        for level in reversed(self.levels):
            names = level.sweep(names)
        self._n_dead = 0

    @property
    def host_bytes(self) -> int:
        return self._top.host_bytes

    def parts(self) -> dict[int, int]:
        return {id(self): 4 * self._top.rows.numel() + sum(level.reserved_bytes for level in self.levels)}

    @property
    def nbytes(self) -> int:
        return 4 * self._top.rows.numel() + sum(level.nbytes for level in self.levels)

    def is_worth_it(self) -> bool:
        n_live = self._top.n_in_use
        dense = n_live * self.frame_bytes
        if self.room.is_hard:  # dense frames must not be larger than what they take the place of
            return self.nbytes <= dense or n_live < self.batch_frames // 2
        used = sum(4 * level.width * level.n_used for level in self.levels)
        return used <= _WORTHWHILE * dense or n_live < self.batch_frames // 2
