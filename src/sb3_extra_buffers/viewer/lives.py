"""Lost lives: where they are known, and where the pictures say that an episode ended without the game being over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.viewer.experience import Experience
from sb3_extra_buffers.viewer.pictures import Picture

#: A key of Dict observations, or an array of a step, with the lives that are left.
NAME = "lives"
#: Of the difference to the oldest picture, what the difference across the end may be at most. Where that picture is the
#: beginning of a game, no end of 73 games of five kinds was taken for a lost life, and 40 to 100 % of lost lives were found;
#: where the ring has overwritten the beginning, it may be any picture.
_ALIKE, _ALIKE_IF_CUT = 0.8, 0.25
#: Share of pixels that may change across the loss of a life.
_CHANGED = 0.1


def lost_lives(experience: Experience, env: int, first: int, last: int) -> list[int]:
    """Positions at which an observation has fewer lives than the one before."""
    if NAME in experience.leaves:
        parts = experience.chunks(NAME, env, np.arange(first, last))
    elif experience.has(NAME):
        parts = iter([experience.rows(NAME, env, first, last)])
    else:
        return []
    left = np.concatenate([some.reshape(len(some), -1)[:, -1].astype(np.float64) for some in parts])
    found: list[int] = (np.flatnonzero(np.diff(left) < 0) + 1 + first).tolist()
    return found


def goes_on(experience: Experience, key: str, picture: Picture, env: int, last: int) -> bool:
    """Whether the game seems to go on behind the end of an episode, as after a lost life.

    The picture that follows is compared with the one before, and with the oldest one of this env.

    :param last: position of the last step
    """
    if last + 1 >= experience.n_steps or not experience.leaves[key].has_next:
        return False

    def newest(position: int, following: bool = False) -> NDArray[np.float64]:
        observation = experience.observations(key, env, np.array([position]), following=following)[0]
        return picture.pixels(picture.frames(observation)[-1]).astype(np.float64)

    begin, end, after = newest(0), newest(last, following=True), newest(last + 1)
    across, to_begin = np.abs(after - end), np.abs(after - begin)
    limit = (_ALIKE_IF_CUT if experience.is_cut else _ALIKE) * to_begin.mean()
    return bool(to_begin.any() and across.mean() <= limit and (across > 8).mean() <= _CHANGED)
