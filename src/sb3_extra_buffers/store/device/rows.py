"""Which row of a tensor belongs to which token, and which rows are free. Above: the memories.

The table by token is authoritative: it changes last, in one NumPy call. The list of free rows follows from it. A flag is set
before a change and cleared after it. If the flag is found set, a change was interrupted, and the list is computed again from
the table. So a row is never free and in use at the same time.
"""

from __future__ import annotations

import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_extra_buffers import native
from sb3_extra_buffers.store.free_numbers import FreeNumbers

Tokens = NDArray[np.int64]
Indices = NDArray[np.int64]
Rows = NDArray[np.int32]


def grown(tensor: th.Tensor, n_rows: int) -> th.Tensor:
    """A copy with more rows of zeros."""
    larger = th.zeros((n_rows, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    larger[: len(tensor)] = tensor
    return larger


def wide(rows: th.Tensor) -> th.Tensor:
    """The same memory, uint8 ``(n, bytes)``, as the widest words that divide a row.

    `index_copy_` takes as long for a byte as for a word: on a CPU 11 us for a row of 7 KB in bytes, and 1 us in words.
    """
    for dtype in (th.int64, th.int32, th.int16):
        if rows.shape[1] % dtype.itemsize == 0:
            return rows.view(dtype)
    return rows


def select_rows(rows: th.Tensor, numbers: th.Tensor) -> th.Tensor:
    """``rows.index_select(0, numbers)``. On the host the core does it, in half of torch's time.

    :param rows: ``(n, width)``, contiguous
    :param numbers: int32
    """
    if rows.device.type != "cpu":
        return rows.index_select(0, numbers)
    numbers = numbers.contiguous()
    n_rows, width = rows.shape
    out = th.empty((len(numbers), width), dtype=rows.dtype, device=rows.device)
    row_bytes = width * rows.element_size()
    native.select_rows(rows.data_ptr(), n_rows, row_bytes, numbers.data_ptr(), len(numbers), out.data_ptr())
    return out


class TokenTable:
    """A number for each token; 0 for tokens without one, including -1 and unknown tokens."""

    def __init__(self) -> None:
        self._numbers = np.zeros(2, np.int32)  # by token + 1; the first and the last entry stay 0

    @property
    def nbytes(self) -> int:
        return self._numbers.nbytes

    def get(self, tokens: Tokens) -> Rows:
        """The number of each token."""
        return self._numbers.take(tokens + 1, mode="clip")

    def set(self, tokens: Tokens, numbers: Rows | int) -> None:
        """Change the numbers of tokens in one assignment: an interrupt comes before or after it."""
        missing = int(tokens.max(initial=-1)) + 3 - len(self._numbers)
        if missing > 0:
            more = np.zeros(max(missing, len(self._numbers) // 16), np.int32)
            self._numbers = np.concatenate((self._numbers, more))
        self._numbers[tokens + 1] = numbers

    def clear(self) -> None:
        """Set all numbers to 0."""
        self._numbers = np.zeros(2, np.int32)

    def tokens(self) -> Tokens:
        """Tokens with a number, in ascending order."""
        return np.flatnonzero(self._numbers) - 1


class RowTable:
    """The rows of tokens. Row 0 is zeros, for tokens without a row."""

    def __init__(self) -> None:
        self._table = TokenTable()
        self._given_back, self._n_touched = FreeNumbers(), 1
        self._is_changing = False

    # ---- the table

    def get(self, tokens: Tokens) -> Rows:
        """The row of each token."""
        return self._table.get(tokens)

    def tokens(self) -> Tokens:
        """Tokens that have a row, in ascending order."""
        return self._table.tokens()

    # ---- what follows from it

    @property
    def n_touched(self) -> int:
        """Rows from this number on have not been used since the last `clear`."""
        self._settle()
        return self._n_touched

    @property
    def n_in_use(self) -> int:
        return self.n_touched - 1 - len(self._given_back)

    @property
    def n_given_back(self) -> int:
        """Number of free rows that were used before."""
        self._settle()
        return len(self._given_back)

    @property
    def host_bytes(self) -> int:
        return self._table.nbytes + self._given_back.nbytes

    def n_new(self, tokens: Tokens) -> int:
        """How many of these tokens have no row yet."""
        return int(np.count_nonzero(self.get(tokens) == 0))

    # ---- changing

    def choose(self, tokens: Tokens) -> Rows:
        """A row for each token: its own, or a free one. Free rows stay free until `record` assigns them."""
        self._settle()
        self._is_changing = True
        rows = self.get(tokens)
        missing = np.flatnonzero(rows == 0)
        used_before = self._given_back.take(len(missing))
        n_untouched = len(missing) - len(used_before)
        rows[missing[: len(used_before)]] = used_before
        rows[missing[len(used_before) :]] = np.arange(self._n_touched, self._n_touched + n_untouched)
        self._n_touched += n_untouched
        return rows

    def record(self, tokens: Tokens, rows: Rows) -> None:
        """Assign the chosen rows, which are filled by now, to tokens."""
        self._table.set(tokens, rows)
        self._is_changing = False

    def give_back(self, tokens: Tokens) -> int:
        """Free the rows of tokens, each named once. Returns how many."""
        self._settle()
        self._is_changing = True
        rows = self.get(tokens)
        rows = rows[rows > 0]
        if len(rows):
            self._table.set(tokens, 0)
            self._given_back.give_back(rows)
        self._is_changing = False
        return len(rows)

    def clear(self) -> None:
        """Free all rows."""
        self._is_changing = True
        self._table.clear()
        self._settle()

    def _settle(self) -> None:
        """After an interrupt, compute the free rows again."""
        if not self._is_changing:
            return
        rows = self.get(self.tokens())
        self._n_touched = int(rows.max(initial=0)) + 1
        is_free = np.ones(self._n_touched, bool)
        is_free[rows] = False
        is_free[0] = False
        self._given_back = FreeNumbers()
        self._given_back.give_back(np.flatnonzero(is_free))
        self._is_changing = False

    def check(self) -> None:
        """Raise ValueError unless each row is either free or belongs to one token. For tests."""
        self._settle()
        rows = np.concatenate((self.get(self.tokens()), self._given_back.snapshot()))
        if not np.array_equal(np.sort(rows), np.arange(1, self._n_touched)):
            raise ValueError("A row is both free and in use, or neither")
