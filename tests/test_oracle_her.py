"""Hindsight experience replay gives the batches that SB3's gives, on SB3's own goal env."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.codecs import available_codecs
from sb3_extra_buffers.compressed import CompressedHerReplayBuffer
from tests.oracle import assert_same_samples

STRATEGIES = ["future", "final", "episode"]


def goal_env(n_envs: int, **options: Any) -> VecEnv:
    return make_vec_env(lambda: BitFlippingEnv(n_bits=6, max_steps=7, **options), n_envs=n_envs, seed=0)


def play_both(env: VecEnv, buffers: list[Any], n_steps: int, check_every: int = 23) -> None:
    """Random actions; both buffers get what an off-policy algorithm would give them."""
    rng = np.random.default_rng(0)
    env.action_space.seed(0)
    obs = env.reset()
    for t in range(n_steps):
        actions = np.array([env.action_space.sample() for _ in range(env.num_envs)])
        after, rewards, dones, infos = env.step(actions)
        next_obs = {key: value.copy() for key, value in after.items()}
        for i, done in enumerate(dones):
            if done:
                for key in next_obs:
                    next_obs[key][i] = infos[i]["terminal_observation"][key]
        for buffer in buffers:
            buffer.add(obs, next_obs, actions, rewards, dones, infos)
        obs = after
        if t > 10 and t % check_every == 0:
            assert_same_samples(*buffers, batch_size=int(rng.integers(5, 40)), seed=t, env=None)


def pair(env: VecEnv, size: int = 60, **options: Any) -> list[Any]:
    args = (size, env.observation_space, env.action_space)
    ours = {key: options.pop(key) for key in list(options) if key in ("compression_method", "optimize_memory_usage")}
    return [
        CompressedHerReplayBuffer(*args, env=env, n_envs=env.num_envs, **options, **ours),
        HerReplayBuffer(*args, env=env, n_envs=env.num_envs, **options),
    ]


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_equals_sb3_after_wrap_around(strategy: str, n_envs: int) -> None:
    env = goal_env(n_envs)
    play_both(env, pair(env, goal_selection_strategy=strategy), 160)


@pytest.mark.parametrize("method", ["auto", *available_codecs()])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("kind", ["image_obs_space", "discrete_obs_space", None])
def test_every_goal_space_and_codec_equals_sb3(kind: str | None, n_envs: int, method: str) -> None:
    env = goal_env(n_envs, **({} if kind is None else {kind: True}))
    play_both(env, pair(env, compression_method=method), 100)


@pytest.mark.parametrize("handle_timeouts", [True, False])
def test_optimize_memory_usage_is_accepted(handle_timeouts: bool) -> None:
    env = goal_env(2)
    play_both(env, pair(env, optimize_memory_usage=True, handle_timeout_termination=handle_timeouts), 100)


def test_copy_info_dict_equals_sb3() -> None:
    env = goal_env(2)
    play_both(env, pair(env, copy_info_dict=True, n_sampled_goal=2), 100)


def test_truncate_last_trajectory_equals_sb3() -> None:
    env = goal_env(2)
    buffers = pair(env)
    play_both(env, buffers, 50)
    for buffer in buffers:
        with pytest.warns(UserWarning, match="last trajectory"):
            buffer.truncate_last_trajectory()
    assert_same_samples(*buffers, batch_size=30)
