"""A fast way for SB3's own `_get_samples` to read a batch. Above: replay.py. Below: the stores.

    slots, envs  ->  SB3's `_get_samples`, with a BatchView in the place of the buffer  ->  tensors

SB3's code indexes six arrays with the same slots and envs, and copies each result into a tensor. A BatchView reads both
columns of a leaf at once, finds the cells of the other four arrays once, takes their rows by cell, and lets tensors use the
memory of these new arrays. What is drawn and computed is up to SB3's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch as th
from numpy import ndarray
from numpy.typing import NDArray
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer, ReplayBuffer

from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.store.array_view import ArrayView, is_pair_of_arrays

#: Code of SB3 that reads each array with the same slots and envs, and hands nothing to `to_torch` but new arrays.
_KNOWN: frozenset[Any] = frozenset({ReplayBuffer._get_samples.__code__, DictReplayBuffer._get_samples.__code__})


class _Drawn:
    """The slots and envs of the batch that is being made, their cells, and columns that were read and not asked for yet."""

    __slots__ = ("ahead", "cells", "envs", "n_envs", "slots")

    def __init__(self, n_envs: int) -> None:
        self.n_envs = n_envs
        self.forget()

    def forget(self) -> None:
        """Begin another batch."""
        self.slots: Any = None
        self.envs: Any = None
        self.cells: Any = None
        self.ahead: dict[int, Any] = {}

    def is_same(self, index: Any) -> bool:
        """Whether the index has the slots and envs of this batch. The first index sets them."""
        if index[0] is self.slots and index[1] is self.envs:
            return True
        if self.slots is not None or not is_pair_of_arrays(index):
            return False
        self.slots, self.envs = index[0], index[1]
        self.cells = self.slots.astype(np.int64, copy=False) * self.n_envs + self.envs
        return True


class _Rows:
    """One of SB3's arrays ``(buffer_size, n_envs, ...)``, read by cell."""

    __slots__ = ("_drawn", "_rows", "array")

    def __init__(self, array: NDArray[Any], drawn: _Drawn) -> None:
        self.array, self._drawn = array, drawn
        self._rows = array.reshape(-1, *array.shape[2:])

    def __getitem__(self, index: Any) -> NDArray[Any]:
        drawn = self._drawn
        values: NDArray[Any] = self._rows.take(drawn.cells, axis=0) if drawn.is_same(index) else self.array[index]
        return values


class _Column:
    """A column of a leaf. What is read first reads the other column, too: they share most frames."""

    __slots__ = ("_columns", "_drawn", "_number")

    def __init__(self, columns: tuple[ArrayView, ArrayView], number: int, drawn: _Drawn) -> None:
        self._columns, self._number, self._drawn = columns, number, drawn

    def __getitem__(self, index: Any) -> NDArray[Any]:
        drawn, column = self._drawn, self._columns[self._number]
        if not drawn.is_same(index):
            return column[index]
        key = id(column)
        if key not in drawn.ahead:
            try:
                read = column.leaf.store.read_columns((0, 1), drawn.slots, drawn.envs)
            except IndexError:  # negative or out of bounds: as in NumPy
                return column[index]
            drawn.ahead.update(zip(map(id, self._columns), read, strict=True))
        values: NDArray[Any] = drawn.ahead.pop(key).astype(column.dtype, copy=False)
        return values


class BatchView:
    """Stands in for a replay buffer in SB3's `_get_samples`. Not for several threads at a time.

    It refers to the buffer only while a batch is made, so that a buffer is freed as soon as nobody needs it.

    :param buffer: a replay buffer that `can_be_viewed`
    """

    optimize_memory_usage = False

    def __init__(self, buffer: Any) -> None:
        self._buffer: Any = None
        self._drawn = _Drawn(buffer.n_envs)
        self.n_envs: int = buffer.n_envs
        self._normalize_obs, self._normalize_reward = buffer._normalize_obs, buffer._normalize_reward
        self.actions, self.rewards = self._rows(buffer.actions), self._rows(buffer.rewards)
        self.dones, self.timeouts = self._rows(buffer.dones), self._rows(buffer.timeouts)
        self._viewed = buffer.observations, buffer.next_observations
        self.observations, self.next_observations = (self._columns(number) for number in range(2))

    def _columns(self, number: int) -> Any:
        """What SB3 reads a column from, or a dict of these."""
        obs, next_obs = self._viewed
        if isinstance(obs, Mapping):
            return {key: _Column((obs[key], next_obs[key]), number, self._drawn) for key in obs}
        return _Column((obs, next_obs), number, self._drawn)

    def _rows(self, array: NDArray[Any]) -> _Rows:
        return _Rows(array, self._drawn)

    def __getattr__(self, name: str) -> Any:  # what SB3's code may ask for beside the above
        return getattr(self.__dict__["_buffer"], name)

    def to_torch(self, array: NDArray[Any], copy: bool = True) -> th.Tensor:
        """A tensor with the memory of the array, which nobody else holds."""
        try:
            return th.from_numpy(array)
        except (TypeError, ValueError):  # a dtype that torch does not have: SB3's own conversion raises its error
            return th.tensor(array) if copy else th.as_tensor(array)

    def fits(self, buffer: Any) -> bool:
        """Whether the buffer still has the arrays that this view was made for."""
        return (
            buffer.actions is self.actions.array and buffer.rewards is self.rewards.array
            and buffer.dones is self.dones.array and buffer.timeouts is self.timeouts.array
            and buffer.observations is self._viewed[0] and buffer.next_observations is self._viewed[1]
        )  # fmt: skip

    def run(self, get_samples: Callable[..., Any], buffer: Any, *args: Any) -> Any:
        """The batch that SB3's function makes."""
        self._buffer = buffer
        try:
            return get_samples(self, *args)
        finally:
            self._buffer = None
            self._drawn.forget()


def is_known(get_samples: Callable[..., Any]) -> bool:
    """Whether a BatchView has all that this function asks of a buffer."""
    return getattr(get_samples, "__code__", None) in _KNOWN


def can_be_viewed(buffer: Any) -> bool:
    """Whether all that SB3's `_get_samples` reads and calls is SB3's or this library's, for CPU tensors."""
    columns = [buffer.observations, buffer.next_observations]
    if isinstance(columns[0], Mapping):
        columns = [column for by_key in columns for column in by_key.values()]
    arrays = (buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts)
    return (
        buffer.device.type == "cpu" and getattr(buffer.to_torch, "__func__", None) is CompressedObservations.to_torch
        and buffer._normalize_obs is BaseBuffer._normalize_obs and buffer._normalize_reward is BaseBuffer._normalize_reward
        and all(type(one) is ndarray and one.flags.c_contiguous for one in arrays)
        and all(type(one) is ArrayView for one in columns)
    )  # fmt: skip
