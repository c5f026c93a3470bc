"""A look at the data: some observations from all over a buffer. Above: findings, which says what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.viewer.episodes import Episodes
from sb3_extra_buffers.viewer.experience import Experience, LeafShape
from sb3_extra_buffers.viewer.pictures import Picture

#: Places that are looked at, each with two steps that follow each other.
_PLACES = 24
#: Bytes of observations of a look, at most about.
_LOOK_BYTES = 16 << 20


@dataclass
class LeafLook:
    """Some observations of a leaf: at each place one, the one that follows it, and `next_obs` of the first.

    :param goes_on: places where both are of one episode
    """

    leaf: LeafShape
    picture: Picture | None
    places: list[tuple[int, int]]
    first: NDArray[Any]
    second: NDArray[Any]
    following: NDArray[Any] | None
    goes_on: NDArray[np.bool_]


@dataclass
class Look:
    """What the checks are given."""

    experience: Experience
    episodes: Episodes
    leaves: dict[str, LeafLook] = field(default_factory=dict)


def look_at(experience: Experience, episodes: Episodes, pictures: dict[str, Picture]) -> Look:
    """Read some observations from all over the buffer.

    :param pictures: the leaves that are seen as such
    """
    look = Look(experience, episodes)
    n = experience.n_steps
    dones = experience.dones() if n else np.zeros((0, 1), bool)
    for key, leaf in experience.leaves.items():
        n_places = min(_PLACES, n - 1, max(_LOOK_BYTES // (3 * max(leaf.n_bytes, 1)), 4))
        if n_places < 1:
            continue
        at = np.unique(np.linspace(0, n - 2, n_places).astype(np.int64))
        envs = np.arange(len(at)) % experience.n_envs
        first, second, following = (np.zeros((len(at), *leaf.shape), leaf.dtype) for _ in range(3))
        for env in np.unique(envs).tolist():
            mine = envs == env
            pairs = experience.scattered(key, env, np.concatenate((at[mine], at[mine] + 1)))
            first[mine], second[mine] = pairs[: mine.sum()], pairs[mine.sum() :]
            if leaf.has_next:
                following[mine] = experience.scattered(key, env, at[mine], following=True)
        places = [(env, step) for env, step in zip(envs.tolist(), (at + experience.first).tolist(), strict=True)]
        look.leaves[key] = LeafLook(
            leaf, pictures.get(key), places, first, second, following if leaf.has_next else None, ~dones[at, envs]
        )
    return look
