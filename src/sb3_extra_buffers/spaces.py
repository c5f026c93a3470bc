"""Gymnasium space -> the leaves that are stored: one for a plain space, one per key of a Dict. Above: the buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

#: Key of the only leaf of a space that is not a Dict.
PLAIN = "observation"


@dataclass(frozen=True)
class Leaf:
    """One array of an observation."""

    key: str
    space: spaces.Space[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def is_image(self) -> bool:
        """Whether SB3 treats it as an image: a Box of uint8, 0 to 255, with three axes."""
        box = self.space
        return (
            isinstance(box, spaces.Box) and len(self.shape) == 3 and self.dtype == np.uint8
            and bool(np.all(box.low == 0)) and bool(np.all(box.high == 255))
        )  # fmt: skip


def leaves_of(space: spaces.Space[Any], shape: tuple[int, ...] | dict[str, tuple[int, ...]]) -> list[Leaf]:
    """The leaves of a space.

    :param shape: the shapes that SB3 gives to observations of this space, by key for a Dict
    """
    if isinstance(shape, dict):
        if not isinstance(space, spaces.Dict):
            raise TypeError(f"Shapes by key need a Dict space, got {space}")
        return [Leaf(key, space[key], one, np.dtype(space[key].dtype)) for key, one in shape.items()]
    return [Leaf(PLAIN, space, shape, np.dtype(space.dtype))]


def hollow(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """A space of the same kind and dtype whose observations have no bytes: SB3's constructors allocate nothing for it."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: hollow(sub) for key, sub in space.spaces.items()})
    return spaces.Box(0, 1, (0,), np.dtype(space.dtype))
