"""A leaf of the observation space with its store. A buffer has one, or one per key of a Dict.

    add:  observations -> `prepare` -> SB3's `add`, with a placeholder in their place -> `commit_step`

So observations go straight into the store, without the copies that SB3 makes for its arrays. A step that is refused, by us or
by SB3, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy import ndarray
from numpy.typing import NDArray

from sb3_extra_buffers.errors import ObservationError
from sb3_extra_buffers.spaces import Leaf
from sb3_extra_buffers.store import ArrayView, LeafStore, StorePlan
from sb3_extra_buffers.store.array_view import PLACEHOLDER, Reader, cast


class StoredLeaf(LeafStore):
    """One leaf of the space: checks observations, and gives SB3 columns in place of arrays.

    :param leaf: the leaf of the space
    :param plan: how it is stored
    :param buffer_size: steps
    :param n_envs: envs
    """

    #: How the columns read. Set by the buffer, which shares it between leaves and gives each copy a new one.
    reader: Reader

    #: Device buffers have their own.
    view_class: ClassVar[type[ArrayView]] = ArrayView

    def __init__(self, leaf: Leaf, plan: StorePlan, buffer_size: int, n_envs: int) -> None:
        super().__init__(plan)
        self.leaf = leaf
        self._dtype = plan.dtype
        self._buffer_shape = (buffer_size, n_envs)
        self._step_shape = (n_envs, *leaf.shape)
        #: What SB3's `add` gets in place of an observation. For Discrete spaces it has a shape that SB3 can reshape.
        self.placeholder = np.zeros((n_envs, 1) if isinstance(leaf.space, spaces.Discrete) else (), PLACEHOLDER)

    def hollow_state(self) -> dict[str, Any]:
        """See `LeafStore.hollow_state`."""
        return {name: value for name, value in super().hollow_state().items() if name != "reader"}

    def column(self, number: int) -> ArrayView:
        """The column that SB3 uses as an array."""
        return self.view_class(
            self,
            number,
            self._buffer_shape,
            self.leaf.shape,
            self.leaf.dtype,
            stored_dtype=self._dtype,
            reader=self.reader,
        )

    def prepare(self, slot: int, observations: tuple[Any, ...]) -> None:
        """Prepare a step with what the user has given, or refuse it."""
        if self._detector is not None or not self.store.prepare_given(slot, observations):
            self.prepare_step(slot, self.checked(observations))

    def checked(self, observations: tuple[Any, ...]) -> tuple[NDArray[Any], ...]:
        """Observations of all envs in the shape and dtype of the store; others are refused."""
        shape, dtype = self._step_shape, self._dtype
        for value in observations:
            if type(value) is not ndarray or value.dtype != dtype or value.shape != shape:
                return tuple(map(self._fitting, observations))
        return observations

    def _fitting(self, observation: Any) -> NDArray[Any]:
        value = observation if type(observation) is np.ndarray else np.asarray(observation)
        if value.dtype == object:
            given = type(observation).__name__
            raise ObservationError(f"Got {given} as {self.leaf.key}; it must be an array of {self.leaf.dtype}")
        if value.shape != self._step_shape:
            try:
                if isinstance(self.leaf.space, spaces.Discrete):
                    value = value.reshape(self._step_shape)
                else:
                    while value.ndim > len(self._step_shape) and len(value) == 1:
                        value = value[0]  # as in NumPy, which drops leading axes of length one
                    value = np.broadcast_to(value, self._step_shape)
            except ValueError:
                raise ObservationError(
                    f"Got {self.leaf.key} of shape {value.shape}; "
                    f"{self._step_shape[0]} envs of shape {self.leaf.shape} need {self._step_shape}"
                ) from None
        return cast(value, self._dtype, saturate=self._dtype != self.leaf.dtype)


class StoredDict:
    """All leaves of a Dict, checked and written together.

    :param leaves: by key
    """

    def __init__(self, leaves: dict[str, StoredLeaf]) -> None:
        self._leaves = leaves
        self.has_rows = False  # not all of them, perhaps
        self.placeholder = {key: leaf.placeholder for key, leaf in leaves.items()}

    def checked(self, observations: tuple[Any, ...]) -> dict[str, tuple[NDArray[Any], ...]]:
        """See `StoredLeaf.checked`."""
        for observation in observations:
            if not isinstance(observation, Mapping):
                given = type(observation).__name__
                raise ObservationError(f"Got {given}; it must be a dict with the keys {list(self._leaves)}")
            missing = [key for key in self._leaves if key not in observation]
            if missing:
                raise ObservationError(f"The observation lacks {missing}; it must have {list(self._leaves)}")
        return {key: leaf.checked(tuple(one[key] for one in observations)) for key, leaf in self._leaves.items()}

    def prepare(self, slot: int, observations: tuple[Any, ...]) -> None:
        """See `StoredLeaf.prepare`."""
        checked = self.checked(observations)
        for key, leaf in self._leaves.items():
            leaf.prepare_step(slot, checked[key])

    def commit_step(self) -> None:
        """See `Store.commit_step`."""
        for leaf in self._leaves.values():
            leaf.commit_step()
