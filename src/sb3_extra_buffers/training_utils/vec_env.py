"""A function that makes one env -> a vectorized env with frame stacks and channels first. Above: atari and vizdoom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack, VecTransposeImage

VecEnvClass = type[DummyVecEnv] | type[SubprocVecEnv]


def vectorize(
    make_one: Callable[..., gym.Env[Any, Any]],
    n_envs: int,
    vec_env_cls: VecEnvClass,
    framestack: int,
    seed: int | None,
    wrapper_class: Callable[..., gym.Env[Any, Any]] | None = None,
    wrapper_kwargs: dict[str, Any] | None = None,
) -> VecEnv:
    """Monitored envs as one VecEnv, whose images are channel-first stacks.

    :param make_one: makes one env; runs in the env's own process and must be picklable
    :param n_envs: number of envs; one env stays in this process, whatever ``vec_env_cls`` says
    :param framestack: frames in an observation
    :param wrapper_class: wraps the Monitor, which therefore sees true rewards and episode ends
    """
    check_counts(n_envs=n_envs, framestack=framestack)
    env = make_vec_env(
        make_one, n_envs, seed, vec_env_cls=DummyVecEnv if n_envs == 1 else vec_env_cls,
        wrapper_class=wrapper_class, wrapper_kwargs=wrapper_kwargs,
    )  # fmt: skip
    if framestack > 1:
        env = VecFrameStack(env, framestack)
    return VecTransposeImage(env)


def check_counts(**counts: int) -> None:
    """Refuse values that are not integers of at least 1.

    :param counts: values by the names of the options
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
