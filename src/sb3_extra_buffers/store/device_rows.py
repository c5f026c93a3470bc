"""Rows of a tensor for slots, as few as there are slots in use. Above: the memories that keep something of fixed size by slot.

Which row a slot has is known on the host. Rows are given to slots when something is put there, not when the slot is named: so
what is freed can be used again by whatever comes next.
"""

from __future__ import annotations

import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_extra_buffers.store.free_numbers import FreeNumbers

Slots = NDArray[np.int64]
Indices = NDArray[np.int64]


def grown(tensor: th.Tensor, n_rows: int) -> th.Tensor:
    """A copy with more rows, which are zeros."""
    larger = th.zeros((n_rows, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    larger[: len(tensor)] = tensor
    return larger


class SlotRows:
    """Row 0 is zeros, and stands for all slots that have none of their own; slot 0 never has.

    :param width: entries of a row
    :param dtype: dtype of an entry
    :param device: where the rows are
    """

    def __init__(self, width: int, dtype: th.dtype, device: th.device) -> None:
        self.rows = th.zeros((1, width), dtype=dtype, device=device)
        self._row_of = np.zeros(1, np.int32)  # by slot
        self._given_back = FreeNumbers()
        self.n_touched = 1  # rows from here on were never used

    @property
    def n_free(self) -> int:
        """Rows that are there and not in use."""
        return len(self.rows) - self.n_in_use - 1

    @property
    def n_in_use(self) -> int:
        return self.n_touched - 1 - self.n_given_back

    @property
    def n_given_back(self) -> int:
        """Rows that were used once, and are free."""
        return len(self._given_back)

    @property
    def host_bytes(self) -> int:
        return self._row_of.nbytes + self._given_back.nbytes

    def of(self, slots: Slots) -> NDArray[np.int32]:
        """The row of each slot."""
        self._know(slots)
        return self._row_of.take(slots)

    def in_use(self) -> NDArray[np.int32]:
        """All rows in use."""
        return self._row_of[self._row_of > 0]

    def n_new(self, slots: Slots) -> int:
        """How many of these slots have no row yet."""
        return int(np.count_nonzero(self.of(slots) == 0))

    def take(self, slots: Slots) -> NDArray[np.int32]:
        """The row of each slot, after giving one to those that have none. There must be enough, see `n_new` and `n_free`."""
        new = slots[self.of(slots) == 0]
        used_before = self._given_back.take(len(new))
        n_untouched = len(new) - len(used_before)
        self._row_of[new] = np.concatenate((used_before, np.arange(self.n_touched, self.n_touched + n_untouched)))
        self.n_touched += n_untouched
        return self._row_of[slots]

    def give_back(self, slots: Slots) -> int:
        """Free the rows of these slots, and say how many they were."""
        rows = self.of(slots)
        rows = rows[rows > 0]
        self._given_back.give_back(rows)
        self._row_of[slots] = 0
        return len(rows)

    def _know(self, slots: Slots) -> None:
        missing = int(slots.max(initial=0)) + 1 - len(self._row_of)
        if missing > 0:
            more = np.zeros(max(missing, len(self._row_of) // 16), np.int32)
            self._row_of = np.concatenate((self._row_of, more))

    def clear(self) -> None:
        """Free all rows."""
        self._row_of[:] = 0
        self._given_back.clear()
        self.n_touched = 1
