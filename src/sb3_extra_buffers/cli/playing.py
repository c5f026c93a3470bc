"""Experience for `recommend`: an env played for some seconds by random actions, each held for a few steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.preprocessing import get_action_dim, get_obs_shape, is_image_space
from stable_baselines3.common.vec_env import VecEnv

from sb3_extra_buffers.cli.envs import make_env
from sb3_extra_buffers.cli.output import Update
from sb3_extra_buffers.training_utils.play import Transitions
from sb3_extra_buffers.training_utils.play import play as play_without_end

#: Experience is kept as it is, to be added to many buffers: this much of it is enough.
MOST_BYTES, MOST_TRANSITIONS, FEWEST_STEPS = 500_000_000, 10_000, 2
#: Steps that an action is held, on average.
HOLD = 4


@dataclass(frozen=True)
class Experience:
    """What was seen: arguments for `add`, in order."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    n_envs: int
    steps: list[Transitions]

    @property
    def transitions(self) -> int:
        return len(self.steps) * self.n_envs

    @property
    def has_images(self) -> bool:
        return is_image_space(self.observation_space)


def play(env_id: str, *, n_envs: int, frame_stack: int | None, seconds: float, most_steps: int, update: Update) -> Experience:
    """Play until the time is over, or there is as much as is needed.

    :param most_steps: steps of all envs that the buffer can hold
    :param update: progress, in percent
    """
    env = make_env(env_id, n_envs=n_envs, frame_stack=frame_stack)
    try:
        # Both refuse a space that SB3 has no buffer for.
        get_obs_shape(env.observation_space)
        get_action_dim(env.action_space)
        return _play(env, seconds, most_steps, update)
    finally:
        env.close()


def _play(env: VecEnv, seconds: float, most_steps: int, update: Update) -> Experience:
    steps: list[Transitions] = []
    start = time.perf_counter()
    for step in play_without_end(env, RandomActions(env)):
        steps.append(step)
        most_steps = min(most_steps, MOST_TRANSITIONS // env.num_envs, MOST_BYTES // (2 * max(_nbytes(step.obs), 1)))
        done = max((time.perf_counter() - start) / seconds, len(steps) / max(most_steps, 1))
        update(min(int(100 * done), 100), f"{len(steps) * env.num_envs:,} transitions")
        if done >= 1 and len(steps) >= FEWEST_STEPS:
            break
    return Experience(env.observation_space, env.action_space, env.num_envs, steps)


class RandomActions:
    """Plays like a policy that has learned nothing: random actions, each held for a few steps."""

    def __init__(self, env: VecEnv) -> None:
        self.space, self.rng = env.action_space, np.random.default_rng(0)
        self.space.seed(0)
        self.actions = np.stack([self.space.sample() for _ in range(env.num_envs)])

    def predict(self, observation: Any, *_: Any, **__: Any) -> tuple[NDArray[Any], None]:
        """As SB3's `predict`: actions of all envs, and no state."""
        for i in np.flatnonzero(self.rng.random(len(self.actions)) < 1 / HOLD):
            self.actions[i] = self.space.sample()
        return self.actions.copy(), None


def _nbytes(obs: Any) -> int:
    return sum(value.nbytes for value in obs.values()) if isinstance(obs, dict) else int(obs.nbytes)
