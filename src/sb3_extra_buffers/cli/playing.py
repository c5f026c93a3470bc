"""Experience for `recommend`: an env played for some seconds by random actions, each held for a few steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, unwrap_vec_wrapper

from sb3_extra_buffers._text import counted
from sb3_extra_buffers.cli.output import Update
from sb3_extra_buffers.training_utils.play import Transitions
from sb3_extra_buffers.training_utils.play import play as play_without_end

#: All that is played is added to a buffer of each codec, so much of it is enough: transitions, bytes of frames that codecs
#: encode, and bytes of experience, which is kept as it is.
MOST_TRANSITIONS, MOST_NEW_BYTES, MOST_BYTES = 10_000, 64_000_000, 500_000_000
#: But so many steps, if there is time: fewer show little of an env whose frames are large.
ENOUGH_STEPS, FEWEST_STEPS = 256, 2
#: The first steps may take longer than was asked for, so many times: a smaller sample says next to nothing.
FIRST_STEPS, PATIENCE = 128, 10
#: Steps that an action is held, on average.
HOLD = 4


@dataclass(frozen=True)
class Experience:
    """What was seen: arguments for a replay buffer's `add`, in order."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    n_envs: int
    steps: list[Transitions]

    @property
    def transitions(self) -> int:
        return len(self.steps) * self.n_envs

    @property
    def is_dict(self) -> bool:
        return isinstance(self.observation_space, spaces.Dict)

    @property
    def has_images(self) -> bool:
        return is_image_space(self.observation_space)


def play(env: VecEnv, *, seconds: float, most_steps: int, update: Update) -> Experience:
    """Play until the time is over, or there is as much as is needed. The first steps may take ten times as long.

    :param most_steps: steps of all envs that the buffer can hold
    :param update: progress, in percent
    """
    steps: list[Transitions] = []
    try:
        _play(env, steps, seconds, most_steps, update)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise ValueError(f"The env failed after {counted(len(steps), 'step')}: {words}. --debug shows where") from error
    return Experience(env.observation_space, env.action_space, env.num_envs, steps)


def _play(env: VecEnv, steps: list[Transitions], seconds: float, most_steps: int, update: Update) -> None:
    start = time.perf_counter()
    for step in play_without_end(env, RandomActions(env)):
        steps.append(step)
        if len(steps) == 1:
            most_steps = max(min(most_steps, enough_steps(env, _nbytes(step.obs))), FEWEST_STEPS)
        passed = (time.perf_counter() - start) / (seconds if len(steps) >= FIRST_STEPS else PATIENCE * seconds)
        done = max(passed, len(steps) / most_steps)
        update(min(int(100 * done), 100), f"{len(steps) * env.num_envs:,} transitions")
        if done >= 1 and len(steps) >= FEWEST_STEPS:
            return


def enough_steps(env: VecEnv, step_bytes: int) -> int:
    """Steps that are enough of an env.

    :param step_bytes: bytes of the observations of one step
    """
    stacked = unwrap_vec_wrapper(env, VecFrameStack)
    new_bytes = max(step_bytes // (stacked.stacked_obs.n_stack if isinstance(stacked, VecFrameStack) else 1), 1)
    few = min(MOST_TRANSITIONS // env.num_envs, max(MOST_NEW_BYTES // new_bytes, ENOUGH_STEPS))
    return min(few, MOST_BYTES // (2 * max(step_bytes, 1)))


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
