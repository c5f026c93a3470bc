"""BufferMemoryCallback: what it logs is so, and the training does not notice it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, FakeImageEnv
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.callbacks import BufferMemoryCallback, transition_memory
from sb3_extra_buffers.compressed import CompressedHerReplayBuffer, CompressedReplayBuffer, CompressedRolloutBuffer
from sb3_extra_buffers.vec_buf import DummyVecRolloutBuffer

NAMES = {"stored_mb", "ratio", "bytes_per_transition", "sample_ms"}


class Memory(KVWriter):
    """Keeps what is logged, by step."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        self.rows[step] = dict(key_values)

    def close(self) -> None:
        pass


class Dump(BaseCallback):
    """Writes the log at the end of every rollout, where SB3 waits for finished episodes."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.logger.dump(self.num_timesteps)


class ImageEnv(FakeImageEnv):
    """Noise, the same in every run."""

    def __init__(self) -> None:
        super().__init__(screen_height=40, screen_width=40)
        self.observation_space.seed(0)

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, float(action), *rest


def image_env() -> Any:
    return make_vec_env(ImageEnv, 2, seed=0)


def run(model: Any, n: int, *callbacks: BaseCallback) -> dict[int, dict[str, Any]]:
    memory = Memory()
    model.set_logger(Logger(None, [memory]))
    model.learn(n, [*callbacks, Dump()], log_interval=10**9)
    return memory.rows


def dqn(buffer_class: Any, env: Any = None, policy: str = "CnnPolicy", **kwargs: Any) -> Any:
    return DQN(
        policy, env or image_env(), buffer_size=200, learning_starts=20, batch_size=8, train_freq=2, seed=0, device="cpu",
        replay_buffer_class=buffer_class, **kwargs,
    )  # fmt: skip


def ppo(buffer_class: Any, algorithm: Any = PPO, **kwargs: Any) -> Any:
    sizes = {"batch_size": 8, "n_epochs": 1} if algorithm is PPO else {}
    return algorithm(
        "CnnPolicy", image_env(), n_steps=16, seed=0, device="cpu", rollout_buffer_class=buffer_class, **sizes, **kwargs
    )


PIXELS = 40 * 40
REPLAY_BYTES = 2 * PIXELS + 8 + 4 + 4 + 4  # obs, next_obs, action, reward, done, timeout
ROLLOUT_BYTES = PIXELS + 8 + 6 * 4  # obs, action, reward, return, start, value, log_prob, advantage


def test_sb3s_replay_buffer_is_logged_with_ratio_one() -> None:
    rows = run(dqn(ReplayBuffer), 60, BufferMemoryCallback(log_freq=4))
    row = rows[40]
    assert row["buffer/ratio"] == 1
    assert row["buffer/sample_ms"] > 0
    assert row["buffer/bytes_per_transition"] == REPLAY_BYTES
    assert row["buffer/stored_mb"] == pytest.approx(40 * REPLAY_BYTES / 1e6)


def test_a_full_buffer_stops_growing() -> None:
    rows = run(dqn(ReplayBuffer), 240, BufferMemoryCallback(log_freq=4))
    assert rows[240]["buffer/stored_mb"] == pytest.approx(200 * REPLAY_BYTES / 1e6)


def test_a_compressed_replay_buffer_is_logged_with_what_it_holds() -> None:
    model = dqn(CompressedReplayBuffer)
    row = run(model, 60, BufferMemoryCallback(log_freq=60))[60]
    held = model.replay_buffer.memory_usage()
    assert held.raw_bytes == 60 * 2 * PIXELS
    assert row["buffer/stored_mb"] == pytest.approx((held.stored_bytes + 60 * 20) / 1e6)
    assert row["buffer/ratio"] == pytest.approx((held.stored_bytes + 60 * 20) / (60 * REPLAY_BYTES))
    assert row["buffer/bytes_per_transition"] == pytest.approx(held.stored_bytes / 60 + 20)
    assert row["buffer/ratio"] < 0.9  # noise, but obs and next_obs share frames


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize("buffer_class", [RolloutBuffer, CompressedRolloutBuffer])
def test_rollout_buffers_are_logged(buffer_class: Any, algorithm: Any) -> None:
    rows = run(ppo(buffer_class, algorithm), 64, BufferMemoryCallback(log_freq=32))
    assert sorted(rows) == [32, 64]
    for row in rows.values():
        assert {f"buffer/{name}" for name in NAMES} <= row.keys()
        assert row["buffer/sample_ms"] > 0
        if buffer_class is RolloutBuffer:
            assert row["buffer/ratio"] == 1
            assert row["buffer/bytes_per_transition"] == ROLLOUT_BYTES


def test_each_buffer_of_a_facade_is_logged() -> None:
    buffers = [RolloutBuffer, partial(CompressedRolloutBuffer, compression_method="none")]
    row = run(ppo(DummyVecRolloutBuffer, rollout_buffer_kwargs={"buffers": buffers}), 32, BufferMemoryCallback(32, "b"))[32]
    assert row["b_0/ratio"] == 1
    assert {f"b_{i}/{name}" for i in (0, 1) for name in NAMES} <= row.keys()


def test_measurements_are_log_freq_steps_apart() -> None:
    rows = run(dqn(ReplayBuffer), 100, BufferMemoryCallback(log_freq=30))
    assert [step for step, row in rows.items() if "buffer/ratio" in row] == [32, 64, 96]  # a rollout is 4 steps


class LateBuffer(ReplayBuffer):
    """Does not see its first transitions at once, as shards that steps have to travel to."""

    def size(self) -> int:
        return 0 if super().size() < 20 else super().size()


def test_a_buffer_that_is_still_empty_is_not_measured() -> None:
    rows = run(dqn(LateBuffer), 100, BufferMemoryCallback(log_freq=30))
    assert [step for step, row in rows.items() if "buffer/ratio" in row] == [40, 72]


def test_before_the_model_samples_there_is_no_sample_time() -> None:
    rows = run(dqn(ReplayBuffer), 40, BufferMemoryCallback(log_freq=4))
    assert [step for step, row in rows.items() if "buffer/sample_ms" in row] == [24, 28, 32, 36, 40]


@pytest.mark.parametrize("buffer_class", [HerReplayBuffer, CompressedHerReplayBuffer])
def test_her_is_measured_as_soon_as_it_can_sample(buffer_class: Any) -> None:
    env = make_vec_env(BitFlippingEnv, 2, env_kwargs={"n_bits": 4, "continuous": False}, seed=0)
    rows = run(dqn(buffer_class, env, "MultiInputPolicy"), 40, BufferMemoryCallback(log_freq=4))
    assert rows[40]["buffer/sample_ms"] > 0
    if buffer_class is HerReplayBuffer:
        assert rows[40]["buffer/ratio"] == 1


@pytest.mark.parametrize("make", [partial(dqn, CompressedReplayBuffer), partial(dqn, ReplayBuffer)])
def test_off_policy_training_does_not_notice(make: Any) -> None:
    assert_same_with_and_without(make, 80)


@pytest.mark.parametrize("make", [partial(ppo, CompressedRolloutBuffer), partial(ppo, RolloutBuffer)])
def test_on_policy_training_does_not_notice(make: Any) -> None:
    assert_same_with_and_without(make, 96)


def assert_same_with_and_without(make: Any, n: int) -> None:
    with_it = make()  # seeds NumPy and torch
    run(with_it, n, BufferMemoryCallback(log_freq=1))
    drawn = np.random.rand()
    without = make()
    run(without, n)
    assert np.random.rand() == drawn
    for name, weight in with_it.policy.state_dict().items():
        assert th.equal(weight, without.policy.state_dict()[name]), name


def test_other_callbacks_find_the_rollout_as_it_was_collected() -> None:
    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            assert self.locals["rollout_buffer"].observations.shape == (16, 2, 1, 40, 40)
            assert not self.locals["rollout_buffer"].generator_ready

    for buffer_class in (RolloutBuffer, CompressedRolloutBuffer):
        run(ppo(buffer_class), 32, BufferMemoryCallback(log_freq=1), Look())


def test_optimized_memory_of_sb3_counts_one_array() -> None:
    model = dqn(ReplayBuffer, optimize_memory_usage=True, replay_buffer_kwargs={"handle_timeout_termination": False})
    row = run(model, 40, BufferMemoryCallback(log_freq=40))[40]
    assert row["buffer/ratio"] == 1
    assert row["buffer/bytes_per_transition"] == REPLAY_BYTES - PIXELS


def test_a_facade_takes_what_its_buffers_take() -> None:
    buffers = [RolloutBuffer, partial(CompressedRolloutBuffer, compression_method="gzip")]
    model = ppo(DummyVecRolloutBuffer, rollout_buffer_kwargs={"buffers": buffers})
    run(model, 32)
    facade = model.rollout_buffer
    plain, compressed = map(transition_memory, facade.buffers)
    both = transition_memory(facade)
    assert plain.raw_bytes == compressed.raw_bytes == 32 * ROLLOUT_BYTES
    assert both.raw_bytes == 2 * 32 * ROLLOUT_BYTES
    assert both.stored_bytes == plain.stored_bytes + compressed.stored_bytes
    assert both.ratio == both.stored_bytes / both.raw_bytes
    assert both.blocks == compressed.blocks > 0


def test_an_empty_buffer_takes_nothing() -> None:
    assert transition_memory(dqn(ReplayBuffer).replay_buffer) == (0, 0, 0.0, 0, "none")


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="log_freq must be at least 1"):
        BufferMemoryCallback(log_freq=0)
    model = dqn(ReplayBuffer)
    model.replay_buffer = None
    callback = BufferMemoryCallback()
    callback.init_callback(model)
    with pytest.raises(ValueError, match="needs a model with a replay or rollout buffer"):
        callback.on_training_start({}, {})
