"""A leaf of the observation space with the store that holds it: what the mixin has one of, or one per key of a Dict."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers.errors import ObservationError
from sb3_extra_buffers.spaces import Leaf
from sb3_extra_buffers.store import ArrayView, DetectingStore
from sb3_extra_buffers.store.array_view import WRITTEN, Reader, cast
from sb3_extra_buffers.store.detect import StorePlan


class StoredLeaf:
    """One leaf, its store, and how it is read.

    :param leaf: the leaf of the space
    :param plan: how it is stored
    :param buffer_size: steps
    :param n_envs: envs
    :param reads_together: columns that are read with the same indices
    :param handed_out: see `Reader`
    """

    #: Device buffers have their own.
    store_class: ClassVar[type[DetectingStore]] = DetectingStore
    view_class: ClassVar[type[ArrayView]] = ArrayView

    def __init__(
        self, leaf: Leaf, plan: StorePlan, buffer_size: int, n_envs: int, reads_together: int, handed_out: list[NDArray[Any]]
    ) -> None:
        self.leaf = leaf
        self.store = self.store_class(plan)
        self.reader = Reader(self.store, reads_together, handed_out)
        self._dtype = plan.dtype
        self._buffer_shape = (buffer_size, n_envs)
        self._step_shape = (n_envs, *leaf.shape)
        #: What SB3's `add` gets in place of an observation; of a shape that it may reshape for Discrete spaces.
        self.written = np.zeros((n_envs, 1), WRITTEN)

    def column(self, number: int) -> ArrayView:
        """The array that SB3 believes it has."""
        return self.view_class(
            self.store,
            number,
            self._buffer_shape,
            self.leaf.shape,
            self.leaf.dtype,
            stored_dtype=self._dtype,
            reader=self.reader,
        )

    def checked(self, observation: Any) -> NDArray[Any]:
        """An observation of all envs as it is stored: of the right shape and dtype, or refused."""
        value = observation if type(observation) is np.ndarray else np.asarray(observation)
        if value.shape != self._step_shape:
            try:
                if isinstance(self.leaf.space, spaces.Discrete):
                    value = value.reshape(self._step_shape)
                value = np.broadcast_to(value, self._step_shape)
            except ValueError:
                raise ObservationError(
                    f"Got {self.leaf.key} of shape {value.shape}; "
                    f"{self._step_shape[0]} envs of shape {self.leaf.shape} need {self._step_shape}"
                ) from None
        if value.dtype == self._dtype:
            return value
        return cast(value, self._dtype, saturate=self._dtype != self.leaf.dtype)
