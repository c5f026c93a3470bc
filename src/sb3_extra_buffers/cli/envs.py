"""Envs by id, as a user of SB3 would make them: Atari with its preprocessing and a frame stack, images channel first."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from sb3_extra_buffers._optional import installed, require
from sb3_extra_buffers.training_utils.atari import register_games

ATARI_STACK = 4


def make_env(env_id: str, *, n_envs: int = 1, frame_stack: int | None = None, seed: int = 0) -> VecEnv:
    """The vectorized env that SB3's algorithms would see.

    :param env_id: any id that gymnasium, ale-py or ViZDoom registers
    :param frame_stack: frames in an observation; None for 4 with Atari, 1 otherwise
    """
    gym.logger.min_level = gym.logger.ERROR
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions of envs: not what was asked
        spec = find_spec(env_id)
        if is_atari(spec):
            # SB3's wrapper skips frames itself.
            envs: VecEnv = make_atari_env(env_id, n_envs=n_envs, seed=seed, env_kwargs={"frameskip": 1})
        else:
            envs = make_vec_env(env_id, n_envs=n_envs, seed=seed)
        stack = frame_stack or (ATARI_STACK if is_atari(spec) else 1)
        if stack > 1:
            envs = VecFrameStack(envs, stack)
        return BaseAlgorithm._wrap_env(envs, verbose=0)  # what every SB3 algorithm does: image channels first


def find_spec(env_id: str) -> EnvSpec:
    """The registered env, after registering those of ale-py and ViZDoom where they are installed."""
    name = env_id.rpartition("/")[2]
    if env_id.startswith("ALE/") or "NoFrameskip" in name:
        require("cv2", extra="atari", what=f"Env {env_id!r}")
        require("ale_py", extra="atari", what=f"Env {env_id!r}")
    if name.startswith("Vizdoom"):
        require("vizdoom.gymnasium_wrapper", extra="vizdoom", what=f"Env {env_id!r}")
    if installed("ale_py"):
        register_games()
    try:
        return gym.spec(env_id)
    except gym.error.Error as error:
        raise ValueError(f"No env {env_id!r}. {error}") from error


def is_atari(spec: EnvSpec) -> bool:
    """Whether it is an ALE game that is seen as pictures."""
    kwargs: dict[str, Any] = spec.kwargs
    return "ale_py" in str(spec.entry_point) and kwargs.get("obs_type", "rgb") != "ram"
