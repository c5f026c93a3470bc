"""Observations and actions of a dataset -> those that SB3's algorithms store. Above: writing and the importers.

SB3's algorithms see images with the channels first, and store actions of a Box scaled to [-1, 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.vec_env import VecTransposeImage

from sb3_extra_buffers.datasets.report import Report
from sb3_extra_buffers.datasets.steps import Observations
from sb3_extra_buffers.errors import ObservationError
from sb3_extra_buffers.spaces import PLAIN, Leaf
from sb3_extra_buffers.store.array_view import cast
from sb3_extra_buffers.training_utils.play import as_stored, as_taken


def channels_first(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """The space that an algorithm of SB3 sees: the channels of images come first."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: channels_first(one) for key, one in space.spaces.items()})
    if isinstance(space, spaces.Box) and is_image_space(space) and not is_image_space_channels_first(space):
        return VecTransposeImage.transpose_space(space)
    return space


def arranged(observations: Observations, leaves: list[Leaf], n: int, report: Report) -> dict[str, NDArray[Any]]:
    """Observations by key, each ``(n, *shape)`` of its leaf and with its dtype; ObservationError if they cannot be."""
    if leaves[0].key != PLAIN or isinstance(observations, Mapping):
        if not isinstance(observations, Mapping):
            raise ObservationError(
                f"Observations must be a dict with {[leaf.key for leaf in leaves]}, got {type(observations).__name__}"
            )
        if missing := [leaf.key for leaf in leaves if leaf.key not in observations]:
            raise ObservationError(f"The observations have {list(observations)}, but lack {missing}")
        report.unused(f"observations/{key}" for key in observations if key not in {leaf.key for leaf in leaves})
        return {leaf.key: _leaf(np.asarray(observations[leaf.key]), leaf, n, report) for leaf in leaves}
    return {PLAIN: _leaf(np.asarray(observations), leaves[0], n, report)}


def _leaf(values: NDArray[Any], leaf: Leaf, n: int, report: Report) -> NDArray[Any]:
    shape = values.shape[1:]
    if values.shape[:1] == (n,) and shape != leaf.shape:
        if isinstance(leaf.space, spaces.Discrete) and values.size == n:
            values = values.reshape(n, *leaf.shape)
        elif len(shape) == 3 and (shape[2], *shape[:2]) == leaf.shape:
            values = VecTransposeImage.transpose_image(values)
            report.note("The channels of images are moved to the front, where SB3's algorithms expect them.")
    if values.shape != (n, *leaf.shape):
        raise ObservationError(
            f"Got {leaf.key} of shape {values.shape}; {n} steps of shape {leaf.shape} need {(n, *leaf.shape)}. Give the "
            "observation_space that the data have"
        )
    return values if values.dtype == leaf.dtype else cast(values, leaf.dtype, saturate=False)


def scaled(actions: NDArray[Any], space: spaces.Box, report: Report) -> NDArray[Any]:
    """Actions as SB3's algorithms store them: scaled from the bounds of their space to [-1, 1]."""
    if _is_unit(space):
        return actions
    if not space.is_bounded():
        report.note(f"Actions are kept as they are: {space} has no bounds to scale them by.")
        return actions
    report.note("Actions are scaled to [-1, 1], as SB3's algorithms store them.")
    return as_stored(actions, space)


def unscaled(actions: NDArray[Any], space: spaces.Box) -> NDArray[Any]:
    """The inverse of `scaled`."""
    return actions if _is_unit(space) or not space.is_bounded() else as_taken(actions, space)


def _is_unit(space: spaces.Box) -> bool:
    """Whether scaling would change nothing but rounding."""
    return bool(np.all(space.low == -1) and np.all(space.high == 1))
