"""One level of `tiles`: rows of words that are stored once, and found by their hash. Above: tiles, which builds trees.

Everything except the rows follows from which rows are live: the free rows, the hash table, the rows of the last frames.
`sweep` computes it again, and so repairs a level that was interrupted during a change.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch as th

from sb3_extra_buffers.store.device.rows import grown, select_rows

#: Places in a line of the hash table.
_PLACES = 8
#: Spreads a sum over all bits of a hash. Odd, so that no bit is lost.
_MIX = 0x1E3779B97F4A7C15
#: The used part of a hash table at which it is rebuilt, and the used part after that.
_FULLEST_TABLE, _EMPTIEST_TABLE = 0.85, 0.6

#: Called with a level and how many free rows it lacks: adds them, or raises HeapFullError.
AddRows = Callable[["Level", int], None]


class Level:
    """Rows of int32 words that are stored once and named by their number. Row 0 is always zeros.

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
        """Bytes that it may take without asking: the hash table and the list of free rows grow with the used rows."""
        return len(self._rows) * self.row_bytes + 4 * (8 * _PLACES + self._recent.numel())

    @property
    def row_bytes(self) -> int:
        """The most bytes of one more row, with its part of the hash table and of the list of free rows."""
        return 4 * (self.width + 3)

    @property
    def n_used(self) -> int:
        """Rows in use."""
        return len(self._rows) - self.n_free

    @property
    def n_free(self) -> int:
        return len(self._free) - self._n_taken

    def select(self, names: th.Tensor) -> th.Tensor:
        """The rows of these names, one after the other: ``(n,)`` -> ``(n * width,)``."""
        return select_rows(self._rows, names).view(-1)

    def grow(self, n_rows: int) -> None:
        """Add ``n_rows`` free rows."""
        size = len(self._rows)
        self._rows = grown(self._rows, size + n_rows)
        fresh = th.arange(size, size + n_rows, dtype=th.int32, device=self._rows.device)
        self._free, self._n_taken = th.cat((self._free[self._n_taken :], fresh)), 0
        if len(self._rows) >> self._name_bits:
            self._rebuild_table()

    # ---- storing

    def names(self, rows: th.Tensor, add_rows: AddRows) -> th.Tensor:
        """Names of rows ``(n, width)``, after storing those that are new.

        :param rows: of whole frames
        :param add_rows: called if there are too few free rows
        """
        # Most rows equal those of the frame one turn before, and share their names. Turns are the rows of `changed`.
        n, turn = len(rows), len(self._recent)
        before = th.cat((self._rows.index_select(0, self._recent), rows))[:n]
        changed = th.zeros((2 + (n - 1) // turn, turn), dtype=th.bool, device=rows.device)
        changed[0] = True
        changed.view(-1)[turn : turn + n] = (before != rows).any(1)
        places = changed.t().nonzero()  # (place in a frame, turn): all turns of a place, then those of the next place
        known = th.cat((self._recent, self._recent.new_zeros(n)))
        missing = changed.view(-1)[turn:].nonzero().view(-1)
        known.index_copy_(0, turn + missing, self._find_or_store(rows.index_select(0, missing), add_rows))
        latest = known.index_select(0, places[:, 1] * turn + places[:, 0])
        names = latest.index_select(0, changed.t().reshape(-1).cumsum(0) - 1).view(turn, -1).t().reshape(-1)[turn : turn + n]
        self._recent = th.cat((self._recent, names))[-turn:].clone()
        return names

    def _find_or_store(self, rows: th.Tensor, add_rows: AddRows) -> th.Tensor:
        hashes = self._hashes(rows)
        entries = self._table.index_select(0, self._lines(hashes).view(-1)).view(-1, 2 * _PLACES)
        which = (entries >> self._name_bits == self._marks(hashes)[:, None]).to(th.int32).argmax(1, keepdim=True)
        names = self._names_in(entries.gather(1, which).view(-1))
        missing = (self._rows.index_select(0, names) != rows).any(1).nonzero().view(-1)
        if len(missing):
            stored = self._store(rows.index_select(0, missing), hashes.index_select(0, missing), add_rows)
            names.index_copy_(0, missing, stored)
        return names

    def _store(self, rows: th.Tensor, hashes: th.Tensor, add_rows: AddRows) -> th.Tensor:
        """Store rows that were not found, equal ones only once, and return their names."""
        order = th.arange(len(rows), device=rows.device)
        unique, group = th.unique(hashes, return_inverse=True)
        leader = th.zeros(len(unique), dtype=th.int64, device=rows.device).index_copy_(0, group, order).index_select(0, group)
        is_other = (rows.index_select(0, leader) != rows).any(1)  # an equal hash by chance
        new = ((leader == order) | is_other).nonzero().view(-1)
        if len(new) > self.n_free:
            add_rows(self, len(new) - self.n_free)
        ids = self._free[self._n_taken : self._n_taken + len(new)]
        self._n_taken += len(new)
        self._rows.index_copy_(0, ids.to(th.int64), rows.index_select(0, new))
        if self.n_used > _FULLEST_TABLE * self._table.numel():
            self._rebuild_table()
        else:
            self._remember(ids)
        names = th.zeros(len(rows), dtype=th.int32, device=rows.device).index_copy_(0, new, ids)
        return th.where(is_other, names, names.index_select(0, leader))

    # ---- what follows from the live rows

    def clear(self) -> None:
        """Free all rows except row 0, but keep the memory. Not for a level that was interrupted."""
        self._table.zero_()
        self._recent.zero_()
        self._free, self._n_taken = th.arange(1, len(self._rows), dtype=th.int32, device=self._rows.device), 0

    def sweep(self, live_names: th.Tensor, *, repair: bool) -> None:
        """Free all rows except those with these names.

        :param repair: a change was interrupted: rely only on the rows
        """
        is_live = th.zeros(len(self._rows), dtype=th.bool, device=self._rows.device)
        is_live.index_fill_(0, live_names.to(th.int64), True)
        is_live[0] = True
        self._recent = self._recent * is_live.index_select(0, self._recent)
        self._free, self._n_taken = (~is_live).nonzero().view(-1).to(th.int32), 0
        if repair or self.n_used < _EMPTIEST_TABLE / 2 * self._table.numel():
            self._rebuild_table()
        else:  # drop dead entries, and move the others to the left
            stays = is_live.index_select(0, self._names_in(self._table).view(-1)).view(self._table.shape)
            self._table = (self._table * stays).sort(1, descending=True).values

    def words_in_use(self) -> th.Tensor:
        """The words of all rows in use, as names of the level below."""
        return self._rows[self._is_used()].view(-1)

    def _is_used(self) -> th.Tensor:
        """For each row, whether it is in use. Row 0 does not count."""
        is_used = th.ones(len(self._rows), dtype=th.bool, device=self._rows.device)
        is_used.index_fill_(0, self._free[self._n_taken :].to(th.int64), False)
        is_used[0] = False
        return is_used

    def check(self, live_names: th.Tensor) -> th.Tensor:
        """Raise ValueError if one of these names, or a name in the hash table, is a free row. For tests.

        :return: the words of the rows with these names
        """
        is_used = self._is_used()
        is_used[0] = True
        names = th.cat((live_names, self._names_in(self._table).view(-1), self._recent))
        if int(is_used.sum()) != self.n_used or not is_used.index_select(0, names).all():
            raise ValueError("A row is both free and in use")
        return self.select(th.unique(live_names))

    # ---- the hash table: each hash has two lines of places, which are filled from the left. It goes to the line with fewer
    # entries. An entry is a name, with some bits of the hash above it, so that only one row of both lines has to be compared.
    # If both are full, an entry is evicted.

    def _hashes(self, rows: th.Tensor) -> th.Tensor:
        mixed = (rows.to(th.int64) * self._factors).sum(1) * _MIX
        return mixed ^ (mixed >> 32)

    def _lines(self, hashes: th.Tensor) -> th.Tensor:
        """``(n,)`` -> ``(n, 2)``: by the 31 lowest bits, and by the next 31."""
        halves = th.stack((hashes, hashes >> 31), 1) & 0x7FFFFFFF
        return halves * len(self._table) >> 31  # an even spread, without a division

    def _marks(self, hashes: th.Tensor) -> th.Tensor:
        """Bits of the hash that the lines hardly depend on: the lowest of the upper half."""
        return (hashes >> 31 & ((1 << 31 - self._name_bits) - 1)).to(th.int32)

    def _names_in(self, entries: th.Tensor) -> th.Tensor:
        return entries & ((1 << self._name_bits) - 1)

    def _remember(self, names: th.Tensor) -> None:
        """Add rows to the table, few per line at a time, so that lines fill evenly."""
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
        n_lines = int(self.n_used / _EMPTIEST_TABLE / _PLACES) + 8
        self._table = th.zeros((n_lines, _PLACES), dtype=th.int32, device=self._rows.device)
        self._name_bits = len(self._rows).bit_length()
        self._remember(self._is_used().nonzero().view(-1).to(th.int32))
