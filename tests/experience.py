"""Transitions that can be told apart, for tests of shards: each reward is the number of its transition."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

SIDE = 20
IMAGES = spaces.Box(0, 255, (4, SIDE, SIDE), np.uint8)
VECTORS = spaces.Box(-np.inf, np.inf, (3,), np.float32)
DICT = spaces.Dict({"image": IMAGES, "vector": VECTORS})
ACTIONS = spaces.Discrete(5)
EPISODE = 23


def frame(number: int, step: int) -> NDArray[np.uint8]:
    """A frame in which little changes from step to step."""
    made = np.full((SIDE, SIDE), number % 7, np.uint8)
    made[step % SIDE, :5] = 1 + step % 250
    return made


class Walk:
    """Transitions of several envs without end. Observations, rewards and ends depend on the step and the env alone.

    :param space: one of those above
    :param first: the number of the first transition
    """

    def __init__(self, space: spaces.Space[Any], n_envs: int = 1, first: int = 0) -> None:
        self.space, self.n_envs, self.step, self.first = space, n_envs, 0, first

    def observation(self, env: int, step: int) -> Any:
        image = np.stack([frame(env, max(step - back, step // EPISODE * EPISODE)) for back in (3, 2, 1, 0)])
        vector = np.array([env, step, -step], np.float32)
        if isinstance(self.space, spaces.Dict):
            return {"image": image, "vector": vector}
        return image if self.space == IMAGES else vector

    def _all(self, step: int) -> Any:
        each = [self.observation(env, step) for env in range(self.n_envs)]
        if isinstance(self.space, spaces.Dict):
            return {key: np.stack([one[key] for one in each]) for key in each[0]}
        return np.stack(each)

    def next(self) -> tuple[Any, ...]:
        """The arguments of `add`."""
        step = self.step
        self.step += 1
        numbers = self.first + step * self.n_envs + np.arange(self.n_envs)
        done = np.full(self.n_envs, step % EPISODE == EPISODE - 1)
        infos = [{"TimeLimit.truncated": bool(done[0] and step % 2)} for _ in range(self.n_envs)]
        return self._all(step), self._all(step + 1), (numbers % 5)[:, None], numbers.astype(np.float32), done, infos

    def expected(self, number: int) -> tuple[Any, Any]:
        """Observation and next observation of a transition."""
        step, env = divmod(number - self.first, self.n_envs)
        return self.observation(env, step), self.observation(env, step + 1)


def assert_batch(batch: Any, walk: Walk) -> None:
    """Every transition of a batch is what was added."""
    for i, number in enumerate(batch.rewards.reshape(-1).long().tolist()):
        for column, expected in zip((batch.observations, batch.next_observations), walk.expected(number), strict=True):
            if isinstance(expected, dict):
                for key, one in expected.items():
                    np.testing.assert_array_equal(column[key][i].numpy(), one)
            else:
                np.testing.assert_array_equal(column[i].numpy(), expected)
        assert batch.actions[i].item() == number % 5
