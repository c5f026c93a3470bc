"""`tiles`: a frame as a tree of pieces that are stored once and named by number. Below: tree, which cuts frames; levels.

Parts of a frame that stand still or come back cost only their names. Decoding is one `index_select` per level: static shapes,
no transfer, no wait for the device. Encoding compares each row with the previous row at its place, looks up rows that differ
in a hash table, compares whole rows again, and appends new ones. That asks the device for a few counts per level, once for a
whole batch. The table may forget rows: that costs a duplicate, never correctness.
Rows that no live frame needs are found by marking, from the tokens down to the pieces.
"""

from __future__ import annotations

import numpy as np
import torch as th

from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.store.device.budget import GROWTH, ByteBudget
from sb3_extra_buffers.store.device.levels import Level
from sb3_extra_buffers.store.device.memory import Expected, FrameMemory
from sb3_extra_buffers.store.device.rows import Indices, RowTable, Tokens, grown
from sb3_extra_buffers.store.device.tree import plan_tree

#: Above this part of the dense size, tiles are not worth it.
_WORTHWHILE = 0.6
#: Unused rows are searched for when one frame in so many is dead.
_SWEEP_AT = 16


class TileMemory(FrameMemory):
    """`tiles`: frames as trees of shared pieces.

    A token has a row of names, the top of its tree. The tops of the tokens in use, and what they name, are authoritative. The
    free rows of the levels and the hash tables follow from them.
    """

    batch_frames = 128
    may_become_dense = True
    method = "tiles"

    def __init__(self, expected: Expected, device: th.device, budget: ByteBudget) -> None:
        super().__init__(expected, device, budget)
        self.tree = plan_tree(expected.frame_bytes, expected.line_bytes)
        n_recent = min(expected.n_streams, self.batch_frames)
        self.levels, n_names = [], self.tree.n_words
        for width in (self.tree.piece, *self.tree.branches):
            n_names //= width
            self.levels.append(Level(width, n_names * n_recent, device))
        self._tops = th.zeros((1, n_names), dtype=th.int32, device=device)
        self._table = RowTable()  # token -> row of the tops
        self._n_dead = 0  # frames that were freed since the last sweep
        self._is_changing = False

    # ---- decoding

    def gather(self, tokens: Tokens, order: Indices | None = None) -> th.Tensor:
        words = self._tops.index_select(0, self.index(self._table.get(tokens))).view(-1)
        for level in reversed(self.levels[1:]):
            words = level.select(words)
        # The names of pieces are reordered instead of the frames, which saves a copy.
        names = self.tree.by_line(words).view(len(tokens), self.tree.n_pieces)
        if order is not None:
            names = names.index_select(0, self.index(order))
        words = self.levels[0].select(names.view(-1))
        frames = words.view(len(names), self.tree.n_words).view(th.uint8)
        if frames.shape[1] == self.frame_bytes:
            return frames
        # Not `contiguous`, which keeps the stride of a single row, so that it could not be viewed as words.
        return frames[:, : self.frame_bytes].clone(memory_format=th.contiguous_format)

    # ---- encoding

    def put(self, tokens: Tokens, frames: th.Tensor, *, strict: bool = False) -> None:
        if not len(tokens):
            return
        self._settle()
        if self._n_dead * _SWEEP_AT > self._table.n_in_use:
            self.compact()
        words = self._words(frames)
        try:
            self._store(tokens, words, strict=strict)
        except HeapFullError:
            if not self._n_dead:
                raise
            self.compact()
            self._store(tokens, words, strict=strict)

    def _store(self, tokens: Tokens, words: th.Tensor, *, strict: bool) -> None:
        """Store frames for tokens. After an exception, rows that were already stored are swept."""
        n_new = self._table.n_new(tokens)
        size, width = self._tops.shape
        missing = n_new - (size - self._table.n_in_use - 1)
        if missing > 0:
            more = self.budget.grow_by(max(size // GROWTH, 64), missing, 4 * width, strict=strict)
            self._tops = grown(self._tops, size + more)
        self._is_changing = True
        words = self.tree.by_block(self._names(self.levels[0], words.view(-1, self.tree.piece), strict=strict))
        for level in self.levels[1:]:
            words = self._names(level, words.view(-1, level.width), strict=strict)
        rows = self._table.choose(tokens)
        self._tops.index_copy_(0, self.index(rows.astype(np.int64)), words.view(len(tokens), -1))
        self._table.record(tokens, rows)
        self._n_dead += len(tokens) - n_new
        self._is_changing = False

    def _names(self, level: Level, rows: th.Tensor, *, strict: bool) -> th.Tensor:
        """Store new rows in a level, and return the names of all."""

        def add_rows(level: Level, n_rows: int) -> None:
            level.grow(self.budget.grow_by(level.n_used // GROWTH, n_rows, level.row_bytes, strict=strict))

        return level.names(rows, add_rows)

    def _words(self, frames: th.Tensor) -> th.Tensor:
        """Frames as int32 words, padded to the size of the tree."""
        padding = 4 * self.tree.n_words - self.frame_bytes
        if padding:
            frames = th.nn.functional.pad(frames, (0, padding))
        return frames.contiguous().view(th.int32)

    # ---- memory

    def free(self, tokens: Tokens) -> None:
        self._settle()
        self._is_changing = True
        self._n_dead += self._table.give_back(tokens)
        self._is_changing = False

    def clear(self) -> None:
        self._settle()
        self._is_changing = True
        self._table.clear()
        for level in self.levels:
            level.clear()
        self._n_dead = 0
        self._is_changing = False

    def compact(self) -> None:
        """Free the rows that no live frame needs: mark from the tokens down, one level at a time."""
        repair, self._is_changing = self._is_changing, True
        names = self._tops.index_select(0, self.index(self._table.get(self.tokens()))).view(-1)
        for level in reversed(self.levels):
            level.sweep(names, repair=repair)
            if level is not self.levels[0]:
                names = level.words_in_use()
        self._n_dead = 0
        self._is_changing = False

    def _settle(self) -> None:
        if self._is_changing:
            self.compact()

    def tokens(self) -> Tokens:
        return self._table.tokens()

    @property
    def host_bytes(self) -> int:
        return self._table.host_bytes

    def parts(self) -> dict[int, int]:
        return {id(self): 4 * self._tops.numel() + sum(level.reserved_bytes for level in self.levels)}

    @property
    def nbytes(self) -> int:
        return 4 * self._tops.numel() + sum(level.nbytes for level in self.levels)

    def is_worth_it(self) -> bool:
        n_live = self._table.n_in_use
        dense = n_live * self.frame_bytes
        if self.budget.is_hard:  # dense frames must not be larger than the tiles that they replace
            return self.nbytes <= dense or n_live < self.batch_frames // 2
        used = sum(4 * level.width * level.n_used for level in self.levels)
        return used <= _WORTHWHILE * dense or n_live < self.batch_frames // 2

    def check(self) -> None:
        self._settle()
        self._table.check()
        names = self._tops.index_select(0, self.index(self._table.get(self.tokens()))).view(-1)
        for level in reversed(self.levels):
            names = level.check(names)
