"""Episodes: where they begin and end in the steps of all envs, what they return, and which of them meet a condition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.viewer.conditions import Condition
from sb3_extra_buffers.viewer.experience import Experience, Ints

#: How an episode ended. A rollout says that it did, but not how; the newest episode of an env may still be running.
ENDINGS = ("terminal", "timeout", "ended", "running")
TERMINAL, TIMEOUT, ENDED, RUNNING = range(4)
#: Values of the small plot of an episode.
_SPARK = 32


@dataclass(frozen=True)
class Episodes:
    """All episodes in the order in which they begin. Steps are absolute: `Experience.first` is the oldest one.

    :param number: what an episode is called; stays the same while a training goes on
    :param last: the step behind the last one
    :param is_cut: whether its first steps were overwritten
    """

    number: Ints
    env: Ints
    first: Ints
    last: Ints
    returns: NDArray[np.float64]
    ended: Ints
    is_cut: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.number)

    @property
    def length(self) -> Ints:
        """Steps of each."""
        return self.last - self.first

    def index_of(self, number: int) -> int:
        """Where the episode of this number is. KeyError if there is none."""
        found = np.flatnonzero(self.number == number)
        if not len(found):
            raise KeyError(number)
        return int(found[0])

    def field(self, name: str) -> NDArray[Any]:
        """What conditions and the order of a table are about."""
        fields: dict[str, NDArray[Any]] = {
            "episode": self.number, "env": self.env, "start": self.first, "length": self.length, "return": self.returns,
            "ended": self.ended,
        }  # fmt: skip
        return fields[name]

    def chosen(self, conditions: list[Condition], sort: str = "episode", *, descending: bool = False) -> Ints:
        """The episodes that meet all conditions, in the order of a field. NaN comes last."""
        kept = np.ones(len(self), bool)
        for condition in conditions:
            kept &= condition.holds(self.field(condition.field))
        rows = np.flatnonzero(kept)
        values = self.field(sort)[rows].astype(np.float64)
        order = np.argsort(-values if descending else values, kind="stable")
        return rows[order]


def find_episodes(experience: Experience, before: Episodes | None = None) -> Episodes:
    """The episodes of a buffer.

    :param before: those of an earlier state of the same buffer, whose numbers they keep
    """
    dones = experience.dones()
    rewards = experience.array("rewards").astype(np.float64) if experience.has("rewards") else np.zeros(dones.shape)
    timeouts = experience.array("timeouts").astype(bool) if experience.has_timeouts else np.zeros_like(dones)
    is_told = "dones" in experience.names
    tables = [_of_env(env, dones[:, env], timeouts[:, env], rewards[:, env], is_told) for env in range(experience.n_envs)]
    first, last, returns, ended, envs = (np.concatenate([table[i] for table in tables]) for i in range(5))
    order = np.lexsort((envs, first))
    first, last, returns, ended, envs = (column[order] for column in (first, last, returns, ended, envs))
    is_cut = (first == 0) & experience.is_cut
    first, last = first + experience.first, last + experience.first
    numbers = np.arange(len(first)) if before is None else _numbered(first, envs, before)
    return Episodes(numbers, envs, first, last, returns, ended, is_cut)


def _of_env(env: int, dones: NDArray[Any], timeouts: NDArray[Any], rewards: NDArray[Any], is_told: bool) -> tuple[Any, ...]:
    n = len(dones)
    last = np.flatnonzero(dones) + 1
    if n and (not len(last) or last[-1] != n):
        last = np.append(last, n)
    first = np.append(0, last[:-1])[: len(last)]
    with np.errstate(invalid="ignore", over="ignore"):
        returns = np.add.reduceat(rewards, first) if len(last) else np.zeros(0)
    kinds = np.where(timeouts[last - 1], TIMEOUT, TERMINAL) if is_told else np.full(len(last), ENDED)
    ended = np.where(dones[last - 1], kinds, RUNNING)
    return first, last, returns, ended, np.full(len(last), env)


def _numbered(first: Ints, envs: Ints, before: Episodes) -> Ints:
    """Numbers of episodes some of which were there before: the one of the same env that had the same step."""
    numbers = np.full(len(first), -1, np.int64)
    for env in np.unique(envs).tolist():
        old, new = np.flatnonzero(before.env == env), np.flatnonzero(envs == env)
        if not len(old):
            continue
        at = np.searchsorted(before.first[old], first[new], side="right") - 1
        same = old[np.maximum(at, 0)]
        is_known = (at >= 0) & (first[new] < before.last[same])
        numbers[new[is_known]] = before.number[same[is_known]]
    is_new = numbers < 0
    numbers[is_new] = before.number.max(initial=-1) + 1 + np.arange(int(is_new.sum()))
    return numbers


def spark_of(experience: Experience, env: int, first: int, last: int) -> list[float]:
    """How the return of an episode grew, in a few values."""
    if not experience.has("rewards"):
        return []
    with np.errstate(invalid="ignore", over="ignore"):
        growing = np.cumsum(experience.rows("rewards", env, first, last).astype(np.float64))
    at = np.unique(np.linspace(0, len(growing) - 1, min(_SPARK, len(growing))).astype(np.int64))
    values: list[float] = growing[at].tolist()
    return values
