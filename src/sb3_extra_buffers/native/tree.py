"""A tree of sums over weights, of the core: draws cells in proportion to them. Above: prioritized."""

from __future__ import annotations

import weakref
from ctypes import byref, c_int32
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.native.binding import BAD_ARGUMENT, address_of, check, core

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class SumTree:
    """Sums over an array of weights, which stays the caller's and is changed by `set` alone.

    :param weights: float32, C-contiguous, of any shape; finite and not negative
    """

    def __init__(self, weights: Floats) -> None:
        error = c_int32()
        self.weights = weights
        self._core = core()
        self._handle = self._core.sb3x_tree_create(address_of(weights), weights.size, byref(error))
        if error.value == BAD_ARGUMENT:
            raise ValueError("Weights must be finite and not negative, and there must be one at least")
        check(error.value, "make a tree")
        weakref.finalize(self, self._core.sb3x_tree_destroy, self._handle).atexit = False

    @property
    def total(self) -> float:
        """The sum of all weights."""
        total: float = self._core.sb3x_tree_total(self._handle)
        return total

    def set(self, cells: Ints, weights: Floats) -> None:
        """Give cells other weights; of a cell that is named twice, the last one counts. An error changes nothing."""
        status = self._core.sb3x_tree_set(self._handle, address_of(cells), address_of(weights), len(cells))
        if status == BAD_ARGUMENT:
            raise ValueError("Weights must be finite and not negative")
        check(status, "set weights")

    def draw(self, shares: NDArray[np.float64]) -> tuple[Ints, Floats]:
        """Cells where the sum of weights reaches these shares of the total, and their weights.

        :param shares: in ``0 <= share < 1``
        """
        cells, weights = np.empty(len(shares), np.int64), np.empty(len(shares), np.float32)
        status = self._core.sb3x_tree_draw(
            self._handle, address_of(shares), len(shares), address_of(cells), address_of(weights)
        )
        if status == BAD_ARGUMENT:
            raise ValueError("There is nothing to draw: no cell has a weight")
        check(status, "draw cells")
        return cells, weights

    def __reduce__(self) -> tuple[Any, ...]:
        return SumTree, (self.weights,)
