"""Collectors, in this process: they explore and store as SB3 does, for every off-policy algorithm."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import DDPG, DQN, SAC, TD3
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.distributed.collector import Collector, Order, Setup, weights_of
from sb3_extra_buffers.distributed.shard import Shard
from sb3_extra_buffers.distributed.spec import BufferSpec
from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer, PrioritizedDQN

contrib = pytest.importorskip("sb3_contrib")

ALGORITHMS = [DQN, SAC, TD3, DDPG, contrib.QRDQN, contrib.TQC, contrib.CrossQ]


def make_env(name: str) -> Any:
    return Monitor(gym.make(name))


def env_of(algorithm: Any) -> str:
    return "CartPole-v1" if issubclass(algorithm, (DQN, contrib.QRDQN)) else "Pendulum-v1"


def model_of(algorithm: Any, **arguments: Any) -> Any:
    small = {"buffer_size": 500, "learning_starts": 20, "policy_kwargs": {"net_arch": [8]}, "seed": 1}
    return algorithm("MlpPolicy", make_env(env_of(algorithm)), **{**small, **arguments})


def setup_of(model: Any, env_fn: Any = None, buffer_class: Any = CompressedReplayBuffer, **more: Any) -> Setup:
    file = BytesIO()
    model.save(file)
    spec = BufferSpec(buffer_class, model.observation_space, model.action_space)
    env_fn = env_fn or (lambda: make_env(env_of(type(model))))
    return Setup(type(model), np.frombuffer(file.getvalue(), np.uint8), env_fn, spec, push_steps=64, **more)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: one.__name__)
def test_every_off_policy_algorithm_collects(algorithm: Any) -> None:
    model = model_of(algorithm)
    setup = setup_of(model)
    collector, shard = Collector(), Shard(setup.spec, 500, seed=0)
    assert collector.begin(setup, [shard]) == 1
    for i in range(2):
        report = collector.collect(Order(50, 50 * i, 1000, i), weights_of(model))
        assert report.rewards.shape == report.dones.shape == (50, 1)
        assert report.version == i
    assert shard.state().size == 100
    assert np.array_equal(shard._buffer.rewards[50:100], report.rewards)
    collector.close()


@pytest.mark.parametrize("algorithm", [DQN, SAC, PrioritizedDQN], ids=lambda one: one.__name__)
def test_a_collector_stores_what_sb3_would(algorithm: Any) -> None:
    """With one seed and one set of weights, the transitions are those of `model.learn`."""
    buffer_class = CompressedPrioritizedReplayBuffer if algorithm is PrioritizedDQN else CompressedReplayBuffer
    plain = model_of(algorithm, replay_buffer_class=buffer_class, learning_starts=10, gradient_steps=0)
    setup = setup_of(plain, buffer_class=buffer_class, seed=5)
    plain.set_random_seed(5)
    plain.learn(120)
    shard, collector = Shard(setup.spec, 500), Collector()
    collector.begin(setup, [shard])
    reports = [collector.collect(Order(40, 40 * i, 120, 0), weights_of(plain)) for i in range(3)]
    for name in ("actions", "rewards", "dones", "timeouts"):
        assert np.array_equal(getattr(shard._buffer, name)[:120], getattr(plain.replay_buffer, name)[:120]), name
    slots = np.arange(120)
    for name in ("observations", "next_observations"):
        ours, theirs = (getattr(one, name)[slots, np.zeros(120, int)] for one in (shard._buffer, plain.replay_buffer))
        assert np.array_equal(ours, theirs)
    episodes = [info["episode"]["r"] for report in reports for info in report.infos.values()]
    assert episodes == [info["r"] for info in plain.ep_info_buffer]


def test_a_collector_that_begins_again_sees_other_episodes() -> None:
    setup = setup_of(model_of(DQN), seed=5)
    shard, seen = Shard(setup.spec, 500), []
    for life in (0, 0, 1):
        collector = Collector()
        collector.begin(setup, [shard], life)
        collector.collect(Order(10, 0, 1000, 0), weights_of(model_of(DQN)))
        seen.append(shard._buffer.observations[10 * len(seen) : 10 * len(seen) + 10].copy())
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])


def test_new_weights_are_used() -> None:
    model = model_of(DQN, learning_starts=0, exploration_initial_eps=0.0, exploration_final_eps=0.0)
    setup = setup_of(model)
    shard, collector = Shard(setup.spec, 500), Collector()
    collector.begin(setup, [shard])
    for version, action in enumerate((0, 1)):
        weights = {name: np.zeros_like(one) for name, one in weights_of(model).items()}
        bias = [name for name in weights if name.endswith("bias")][-1]
        weights[bias][action] = 1
        collector.collect(Order(20, 100, 1000, version), weights)
        assert set(shard._buffer.actions[20 * version : 20 * version + 20].reshape(-1).tolist()) == {action}


def test_targets_do_not_travel() -> None:
    names = weights_of(model_of(SAC))
    assert any(name.startswith("actor.") for name in names)
    assert not any("target" in name for name in names)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_a_collector_may_have_its_own_epsilon(epsilon: float) -> None:
    model = model_of(DQN, learning_starts=0, exploration_initial_eps=0.5, exploration_final_eps=0.5)
    with th.no_grad():
        for one in model.policy.parameters():
            one.zero_()
    setup = setup_of(model, exploration=epsilon)
    shard, collector = Shard(setup.spec, 500), Collector()
    collector.begin(setup, [shard])
    collector.collect(Order(60, 100, 1000, 0), weights_of(model))
    assert (len(set(shard._buffer.actions[:60].reshape(-1).tolist())) > 1) == (epsilon == 1)


def test_a_collector_may_have_its_own_noise() -> None:
    noise = NormalActionNoise(np.zeros(1), np.full(1, 5.0))
    model = model_of(TD3, learning_starts=0)
    setup = setup_of(model, exploration=noise)
    shard, collector = Shard(setup.spec, 500), Collector()
    collector.begin(setup, [shard])
    collector.collect(Order(60, 100, 1000, 0), weights_of(model))
    assert np.abs(shard._buffer.actions[:60]).max() == 1
    with pytest.raises(ValueError, match="has no epsilon"):
        Collector().begin(setup_of(model, exploration=0.1), [shard])


def test_segments_go_to_the_shards_in_turn() -> None:
    model = model_of(DQN)
    for number in (0, 1):
        setup = setup_of(model, lambda: DummyVecEnv([lambda: make_env("CartPole-v1")] * 2), number=number)
        shards, collector = [Shard(setup.spec, 500) for _ in range(3)], Collector()
        assert collector.begin(setup, shards) == 2
        for i in range(4):
            collector.collect(Order(10 + i, 0, 1000, 0), weights_of(model))
        sizes = [shards[(number + i) % 3].state().size for i in range(3)]
        assert sizes == [2 * (10 + 13), 2 * 11, 2 * 12]


def test_normalization_by_running_statistics_is_refused() -> None:
    model = model_of(DQN)
    setup = setup_of(model, lambda: VecNormalize(DummyVecEnv([lambda: make_env("CartPole-v1")])))
    with pytest.raises(ValueError, match="env_fn uses VecNormalize"):
        Collector().begin(setup, [Shard(setup.spec, 500)])
