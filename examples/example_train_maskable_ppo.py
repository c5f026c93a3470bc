"""Train MaskablePPO on Pong, where half of the six actions do the same as the others and are masked out."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from sb3_contrib.common.wrappers import ActionMasker
from shared import GAMES, arguments, finish, storage
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.env_util import make_vec_env

from sb3_extra_buffers.contrib import CompressedMaskableRolloutBuffer
from sb3_extra_buffers.training_utils.atari import register_games


def without_fire(env: gym.Env[Any, Any]) -> np.ndarray:
    """Pong's paddle does not fire: only staying, up and down are left."""
    meanings = env.unwrapped.get_action_meanings()
    return np.array(["FIRE" not in meaning for meaning in meanings])


def make_one(env_id: str) -> gym.Env[Any, Any]:
    register_games()
    return gym.make(env_id)


def masked(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return ActionMasker(AtariWrapper(env), without_fire)


def main(argv: list[str] | None = None) -> MaskablePPO:
    args = arguments(__doc__, total_timesteps=10_000_000, n_envs=8).parse_args(argv)
    env = make_vec_env(partial(make_one, GAMES["pong"].env_id), args.n_envs, args.seed, wrapper_class=masked)
    model = MaskablePPO(
        "CnnPolicy", env, n_steps=128, n_epochs=4, batch_size=32 * args.n_envs, learning_rate=2.5e-4, clip_range=0.1,
        ent_coef=0.01, seed=args.seed, device=args.device,
        rollout_buffer_class=MaskableRolloutBuffer if args.raw else CompressedMaskableRolloutBuffer,
        rollout_buffer_kwargs=storage(args),
    )  # fmt: skip
    model.learn(args.total_timesteps, progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
