"""Atari envs, ready for SB3's CnnPolicy: the usual preprocessing, frame stacks, channels first. Below: vec_env."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium as gym
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv

from sb3_extra_buffers._optional import require
from sb3_extra_buffers.training_utils.vec_env import VecEnvClass, vectorize


def make_env(
    env_id: str,
    n_envs: int = 1,
    vec_env_cls: VecEnvClass = SubprocVecEnv,
    framestack: int | None = 4,
    seed: int | None = None,
    wrapper_kwargs: Mapping[str, Any] | None = None,
    **env_kwargs: Any,
) -> VecEnv:
    """Atari envs with SB3's AtariWrapper; observations are ``(framestack, 84, 84)`` uint8.

    :param env_id: a game without frame skip, which the wrapper adds, e.g. ``"PongNoFrameskip-v4"``
    :param n_envs: number of envs; a single one runs in this process
    :param vec_env_cls: how several envs run
    :param framestack: frames in an observation; 1, 0 or None for single frames
    :param seed: seed of the first env, the others follow
    :param wrapper_kwargs: options of AtariWrapper, e.g. ``dict(clip_reward=False)``
    :param env_kwargs: options of the game, e.g. ``render_mode="human"``
    """
    register_games()
    gym.spec(env_id)  # a name that does not exist is refused here, not in a worker process
    require("cv2", extra="atari", what="atari.make_env")
    make_one = partial(_make_game, env_id, **{"render_mode": "rgb_array", **env_kwargs})
    return vectorize(make_one, n_envs, vec_env_cls, framestack or 1, seed, AtariWrapper, dict(wrapper_kwargs or {}))


def _make_game(env_id: str, **env_kwargs: Any) -> gym.Env[Any, Any]:
    """Make one game. Registers the games first, because this may run in a worker process."""
    register_games()
    game = gym.make(env_id, **env_kwargs)
    if not hasattr(game.unwrapped, "ale"):
        raise ValueError(f"{env_id} is no game of Atari, so AtariWrapper cannot wrap it. SB3's make_vec_env makes other envs")
    game.action_space.names = game.unwrapped.get_action_meanings()  # type: ignore[attr-defined]  # saved with a buffer
    return game


def register_games() -> None:
    """Register Atari's games with gymnasium, and silence ALE's banner. Errors are still shown."""
    ale = require("ale_py", extra="atari", what="atari.make_env")
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
    gym.register_envs(ale)
