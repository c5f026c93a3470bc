"""Steps on their way into a buffer: every importer makes them from its source, `writing` takes them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: ``(steps, *shape)``, or by key of a Dict.
Observations = Any


class Steps(NamedTuple):
    """Consecutive steps of one env.

    :param observations: ``(n, *shape)``, by key for a Dict; they may overlap in memory
    :param next_observations: the same
    :param actions: ``(n, ...)``, as the env takes them
    :param rewards: ``(n,)``
    :param terminated: ``(n,)``: whether the episode terminates with the step
    :param truncated: ``(n,)``: whether it is truncated there
    :param is_cut: whether the data break off behind the last step: the episode goes on, but its next step is not written
    """

    observations: Observations
    next_observations: Observations
    actions: NDArray[Any]
    rewards: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_cut: bool = False

    def part(self, first: int, last: int) -> Steps:
        """The steps from `first` up to, but without, `last`."""
        some, is_cut = slice(first, last), self.is_cut and last == len(self.rewards)
        return Steps(
            part_of(self.observations, first, last), part_of(self.next_observations, first, last), self.actions[some],
            self.rewards[some], self.terminated[some], self.truncated[some], is_cut,
        )  # fmt: skip


def part_of(observations: Observations, first: int, last: int) -> Observations:
    """A slice of the observations, by key for a Dict."""
    if isinstance(observations, dict):
        return {key: one[first:last] for key, one in observations.items()}
    return None if observations is None else observations[first:last]


class Found(NamedTuple):
    """Steps of an episode, or of a part of it, and how missing next observations were treated.

    :param steps: to be written in this order
    :param n_stand_ins: terminal steps without a next observation, whose own observation is used instead
    :param n_left_out: other steps without a next observation, which are not in `steps`
    :param n_rows: rows of the source that were read for them; None if that is the number of steps
    """

    steps: list[Steps]
    n_stand_ins: int = 0
    n_left_out: int = 0
    n_rows: int | None = None


def find_steps(steps: Steps, n_observations: int, *, goes_on: bool = False) -> Found:
    """Steps of one episode; the next observation of a step is the observation of the step after it.

    The last step may have no next observation. If it terminates, its own observation is used, because nobody bootstraps from a
    terminal state. Otherwise it is left out, and the steps before it are marked as cut.

    :param steps: their `next_observations` are ignored
    :param n_observations: how many observations `steps` has: as many as steps, or one more
    :param goes_on: whether the step that is written next continues the episode
    """
    n, observations = len(steps.rewards), steps.observations
    if n == 0:
        return Found([])
    has_terminated, has_ended = bool(steps.terminated[-1]), bool(steps.terminated[-1] | steps.truncated[-1])
    if n_observations > n:
        following = part_of(observations, 1, n + 1)
        return Found([_between(steps, 0, n, following)._replace(is_cut=not (goes_on or has_ended))])
    body = _between(steps, 0, n - 1, part_of(observations, 1, n))._replace(is_cut=not has_terminated)
    found = [body] if n > 1 else []
    if not has_terminated:
        return Found(found, n_left_out=1)
    return Found([*found, _between(steps, n - 1, n, part_of(observations, n - 1, n))], n_stand_ins=1)


def _between(steps: Steps, first: int, last: int, following: Observations) -> Steps:
    """A slice of the steps, with these next observations."""
    return steps._replace(next_observations=None).part(first, last)._replace(next_observations=following)


def pieces(ends: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """The bounds ``(first, last)`` of each episode, without `last`; the final episode may not have ended."""
    edges = [0, *(np.flatnonzero(ends) + 1).tolist()]
    if edges[-1] < len(ends):
        edges.append(len(ends))
    yield from pairwise(edges)
