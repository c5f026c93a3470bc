"""Episodes -> a buffer: `from_episodes`, for data in any other format. Above: minari. Below: writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers.datasets.steps import Found, Observations, Steps, find_steps
from sb3_extra_buffers.datasets.writing import Request, StepWriter, writing

_FIELDS = ("observations", "next_observations", "actions", "rewards", "terminations", "truncations")
#: Fields of Minari's episodes that are no data.
_ABOUT = ("id", "seed", "options")


def from_episodes(
    episodes: Iterable[Any],
    *,
    observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
    into: Any = None,
    buffer_size: int | None = None,
    buffer_kwargs: Mapping[str, Any] | None = None,
    scale_actions: bool = True,
    progress_bar: bool = True,
) -> Any:
    """Fill a replay buffer with episodes. They are read one at a time.

    An episode is a dict, or an object with attributes:

    - ``observations``: one more than steps; the last one follows the last step. For Dict spaces, a dict of arrays. They may
      also be as many as steps, with ``next_observations`` or without. Without, a last step that does not terminate is left out
    - ``actions`` and ``rewards``: one per step
    - ``terminations`` and ``truncations``: one bool per step, or one for the last step. An episode without an end gets a
      timeout at its last step

    :param episodes: a list; or another iterable, which needs ``buffer_size`` too
    :param observation_space: as the algorithm sees it. If it has the channels of images first, and the data have them last,
        they are moved
    :param action_space: space of the actions
    :param into: class of the buffer, or a buffer to add to. By default `CompressedReplayBuffer`, or
        `CompressedDictReplayBuffer` for Dict spaces
    :param buffer_size: how many steps are kept, the newest ones; all by default
    :param buffer_kwargs: more arguments of the class
    :param scale_actions: scale actions of a Box to [-1, 1], as SB3's algorithms store them
    :param progress_bar: show a progress bar, on a terminal and where tqdm is installed
    :return: the buffer
    """
    request = Request(into, buffer_size, buffer_kwargs, observation_space, action_space, scale_actions, progress_bar)
    n_steps = sum(len(_field(one, "rewards", i)) for i, one in enumerate(episodes)) if isinstance(episodes, Sequence) else None
    with writing(request, "Episodes", None, None, n_steps) as target:
        write_episodes(target, episodes)
    return target.buffer


def write_episodes(target: StepWriter, episodes: Iterable[Any]) -> None:
    """Write episodes. Errors number them from 0 on."""
    for number, episode in enumerate(episodes):
        named = episode if isinstance(episode, Mapping) else getattr(episode, "__dict__", {})
        target.report.unused(
            name
            for name, value in named.items()
            if name not in (*_FIELDS, *_ABOUT) and value is not None and not _is_empty(value)
        )
        target.write(_steps_of(episode, number))


def _steps_of(episode: Any, number: int) -> Found:
    observations, following = _field(episode, "observations", number), _field(episode, "next_observations", number, None)
    actions, rewards = (np.asarray(_field(episode, name, number)) for name in ("actions", "rewards"))
    n, n_observations = len(rewards), _count(observations, number)
    n_following = n if following is None else _count(following, number)
    allowed = (n, n + 1) if following is None else (n,)
    if n_observations not in allowed or n_following != n or len(actions) != n:
        and_next = "" if following is None else f", {n_following} next_observations"
        raise ValueError(
            f"Episode {number} has {n} rewards, {len(actions)} actions and {n_observations} observations{and_next}. There "
            f"must be one action per reward, and {' or '.join(map(str, allowed))} observations"
        )
    ends = [_flags(_field(episode, name, number, None), name, n, number) for name in ("terminations", "truncations")]
    if ends[1][:-1].any():
        raise ValueError(f"Episode {number} is truncated before its last step. Split it there into two episodes")
    steps = Steps(observations, following, actions, rewards, ends[0], ends[1])
    if following is None:
        return find_steps(steps, n_observations)
    is_cut = n > 0 and not (ends[0][-1] or ends[1][-1])
    return Found([steps._replace(is_cut=is_cut)] if n else [])


_MISSING = object()


def _field(episode: Any, name: str, number: int, default: Any = _MISSING) -> Any:
    value = episode.get(name, default) if isinstance(episode, Mapping) else getattr(episode, name, default)
    if value is _MISSING:
        given = list(episode) if isinstance(episode, Mapping) else type(episode).__name__
        raise ValueError(
            f"Episode {number} has no {name!r}: it must be a dict or an object with {', '.join(_FIELDS)}; got {given}"
        )
    return value


def _count(observations: Observations, number: int) -> int:
    """How many observations there are."""
    if not isinstance(observations, Mapping):
        return len(observations)
    lengths = {key: len(one) for key, one in observations.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"Episode {number} has different numbers of observations by key: {lengths}")
    return next(iter(lengths.values()))


def _flags(given: Any, name: str, n: int, number: int) -> NDArray[np.bool_]:
    """One bool per step."""
    values = np.asarray(False if given is None else given)
    if values.shape not in ((), (n,)) or (values.dtype != bool and not np.isin(values, (0, 1)).all()):
        raise ValueError(
            f"{name} of episode {number} must be {n} bools, one per step, or one for the last step; got {values.dtype} of "
            f"shape {values.shape}"
        )
    return values.astype(bool) if values.ndim else (np.arange(n) == n - 1) & bool(values)


def _is_empty(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and len(value) == 0
