"""Made-up episodes, and what SB3's own buffer holds of them: the oracle of the importers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from tests.transitions import batched, env_for


class Episode(NamedTuple):
    """One episode as Minari has it: one observation more than steps."""

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


def play_episodes(
    space: spaces.Space[Any], action_space: spaces.Space[Any], n: int = 9, longest: int = 14, seed: int = 0
) -> list[Episode]:
    """Episodes; two thirds of them terminate, the others are truncated."""
    rng = np.random.default_rng(seed)
    action_space.seed(seed)
    env, made = env_for(space, rng), []
    for i in range(n):
        length = int(rng.integers(1, longest + 1))
        seen = [env.reset(), *(env.step() for _ in range(length))]
        actions = np.stack([np.asarray(action_space.sample()) for _ in range(length)])
        last = np.arange(length) == length - 1
        rewards = rng.normal(size=length).astype(np.float32)
        made.append(Episode(batched(seen), actions, rewards, last & (i % 3 > 0), last & (i % 3 == 0)))
    return made


def n_steps(episodes: list[Episode]) -> int:
    return sum(len(episode.rewards) for episode in episodes)


def part(observations: Any, where: slice) -> Any:
    if isinstance(observations, dict):
        return {key: one[where] for key, one in observations.items()}
    return observations[where]


def add_all(buffer: Any, episodes: list[Episode]) -> Any:
    """SB3's `add` for every step, as its algorithms would call it."""
    for episode in episodes:
        for i in range(len(episode.rewards)):
            now, after = slice(i, i + 1), slice(i + 1, i + 2)
            ends = episode.terminations[now] | episode.truncations[now]
            infos = [{"TimeLimit.truncated": bool(episode.truncations[i])}]
            observations = part(episode.observations, now), part(episode.observations, after)
            buffer.add(*observations, episode.actions[now], episode.rewards[now], ends, infos)
    return buffer
