"""A tree of sums over weights, of the core: draws cells in proportion to them. Above: prioritized."""

from __future__ import annotations

import weakref
from ctypes import byref, c_int32
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.native.binding import BAD_ARGUMENT, OK, address_of, check, core

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

    def update(self, cells: Ints, errors: Floats, weights: Floats, largest: Floats) -> bool:
        """Give cells that have a weight other ones, by their errors. Returns whether all could be; otherwise nothing changes.

        :param errors: must be finite and not negative
        :param weights: one for each error
        :param largest: one number, which is raised to the largest of the weights
        """
        status: int = self._core.sb3x_tree_update(
            self._handle, address_of(cells), address_of(errors), address_of(weights), len(cells), address_of(largest)
        )
        return status == OK

    def draw(self, uniform: NDArray[np.float64], n_envs: int = 1) -> tuple[Ints, Ints, Ints, Floats]:
        """Cells, one from each of as many equal parts of the total as there are numbers: where the number says, in its part.

        :param uniform: in ``0 <= number < 1``
        :param n_envs: cells per slot
        :return: slots, envs and cells, and the weights divided by the smallest of them
        """
        n = len(uniform)
        drawn, ratios = np.empty((3, n), np.int64), np.empty(n, np.float32)
        status = self._core.sb3x_tree_draw(self._handle, address_of(uniform), n, n_envs, address_of(drawn), address_of(ratios))
        if status == BAD_ARGUMENT:
            raise ValueError("There is nothing to draw: no cell has a weight")
        check(status, "draw cells")
        return drawn[0], drawn[1], drawn[2], ratios

    def __reduce__(self) -> tuple[Any, ...]:
        return SumTree, (self.weights,)
