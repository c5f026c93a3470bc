"""Offline data in batches: what the two buffers would have drawn by themselves, one behind the other."""

from __future__ import annotations

import gc
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers import BufferCheckpointCallback, compress_buffer, load_buffer, merge_buffers, resume
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
)
from sb3_extra_buffers.datasets import OfflineMix, OfflineMixCallback
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer
from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer, PrioritizedDQN
from tests.oracle import DICT_SPACE, IMAGE, add_to_replay, assert_same
from tests.transitions import play

ACTIONS = spaces.Discrete(5)


class MixedPlain(OfflineMix, ReplayBuffer): ...


class Mixed(OfflineMix, CompressedReplayBuffer): ...


class MixedDict(OfflineMix, CompressedDictReplayBuffer): ...


class MixedNStep(OfflineMix, CompressedNStepReplayBuffer): ...


class MixedHer(OfflineMix, CompressedHerReplayBuffer): ...


class MixedGpu(OfflineMix, GpuReplayBuffer): ...


class MixedPrioritized(OfflineMix, CompressedPrioritizedReplayBuffer): ...


def filled(made_class: Any, n_envs: int, seed: int, *args: Any, space: Any = IMAGE, n_steps: int = 30, **kwargs: Any) -> Any:
    buffer = made_class(20 * n_envs, space, kwargs.pop("actions", ACTIONS), *args, device="cpu", n_envs=n_envs, **kwargs)
    for step in play(space, buffer.action_space, n_envs, n_steps, seed=seed):
        add_to_replay([buffer], step)
    return buffer


def joined(one: Any, other: Any) -> Any:
    """Two batches of SB3's as one, written down again."""
    fields = []
    for first, second in zip(one, other, strict=True):
        if isinstance(first, dict):
            fields.append({key: th.from_numpy(np.concatenate((first[key], second[key]))) for key in first})
        else:
            fields.append(None if first is None else th.from_numpy(np.concatenate((first, second))))
    return type(one)(*fields)


# ---- batches


@pytest.mark.parametrize(
    ("mixed", "plain", "space"),
    [
        (MixedPlain, ReplayBuffer, IMAGE), (Mixed, ReplayBuffer, IMAGE), (MixedGpu, ReplayBuffer, IMAGE),
        (OfflineMix, ReplayBuffer, IMAGE), (MixedDict, DictReplayBuffer, DICT_SPACE), (MixedNStep, NStepReplayBuffer, IMAGE),
    ],
)  # fmt: skip
@pytest.mark.parametrize("n_envs", [1, 3])
def test_a_batch_is_what_both_buffers_draw(mixed: Any, plain: Any, space: Any, n_envs: int) -> None:
    offline, theirs = filled(plain, 2, 1, space=space), filled(plain, n_envs, 2, space=space)
    ours = filled(mixed, n_envs, 2, space=space, offline=offline, offline_fraction=0.25)
    for seed in range(4):
        np.random.seed(seed)
        expected = joined(theirs.sample(24), offline.sample(8))
        np.random.seed(seed)
        assert_same(ours.sample(32), expected)


def test_hindsight_goals_are_mixed_too() -> None:
    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=4, continuous=False)])
    arguments: Any = {"space": env.observation_space, "actions": env.action_space}
    offline, theirs = filled(HerReplayBuffer, 1, 1, env, **arguments), filled(HerReplayBuffer, 1, 2, env, **arguments)
    ours = filled(MixedHer, 1, 2, env, **arguments, offline=offline)
    np.random.seed(0)
    expected = joined(theirs.sample(16), offline.sample(16))
    np.random.seed(0)
    assert_same(ours.sample(32), expected)


def test_hindsight_from_a_file_gets_the_env(tmp_path: Path) -> None:
    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=4, continuous=False)])
    arguments: Any = {"space": env.observation_space, "actions": env.action_space}
    filled(CompressedHerReplayBuffer, 1, 1, env, **arguments).save(tmp_path / "her.sb3x")
    ours = filled(MixedHer, 1, 2, env, **arguments, offline=tmp_path / "her.sb3x")
    assert len(ours.sample(32).rewards) == 32
    again = pickle.loads(pickle.dumps(ours))  # SB3 leaves the env out
    again.set_env(env)
    assert len(again.sample(32).rewards) == 32


def test_both_parts_are_normalized() -> None:
    env: Any = VecNormalize(make_vec_env("Pendulum-v1"))
    space = spaces.Box(-9, 9, (3,), np.float32)
    env.obs_rms.mean[:], env.ret_rms.var = 5, 3.0
    offline, theirs = filled(ReplayBuffer, 1, 1, space=space), filled(ReplayBuffer, 1, 2, space=space)
    ours = filled(Mixed, 1, 2, space=space, offline=offline)
    np.random.seed(0)
    expected = joined(theirs.sample(4, env=env), offline.sample(4, env=env))
    np.random.seed(0)
    assert_same(ours.sample(8, env=env), expected)


def test_sequences_are_mixed() -> None:
    offline, theirs = filled(CompressedReplayBuffer, 2, 1), filled(CompressedReplayBuffer, 1, 2)
    ours = filled(Mixed, 1, 2, offline=offline)
    np.random.seed(0)
    expected = joined(theirs.sample_sequences(3, 5, burn_in=1), offline.sample_sequences(3, 5, burn_in=1))
    np.random.seed(0)
    assert_same(ours.sample_sequences(6, 5, burn_in=1), expected)


# ---- the share


@pytest.mark.parametrize("fraction", [0, 0.5, 1, 0.3, 0.29, 1 / 3, 0.01])
@pytest.mark.parametrize("batch_size", [1, 7, 32, 100])
def test_the_share_is_exact(fraction: float, batch_size: int) -> None:
    offline = filled(ReplayBuffer, 1, 1)
    offline.rewards[:] = 777
    ours = filled(Mixed, 1, 2, offline=offline, offline_fraction=fraction)
    counts = [int((ours.sample(batch_size).rewards == 777).sum()) for _ in range(60)]
    due = fraction * batch_size
    assert all(abs(n - due) < 1 for n in counts)  # no batch is off by a whole sample
    assert abs(sum(counts) - 60 * due) <= 0.5 + 1e-6  # and all of them together by none
    if due == int(due):
        assert set(counts) == {int(due)}


def test_a_schedule_is_asked_for_each_batch() -> None:
    offline = filled(ReplayBuffer, 1, 1)
    offline.rewards[:] = 777
    ours = filled(Mixed, 1, 2, offline=offline, offline_fraction=LinearSchedule(1.0, 0.0, 1.0))
    with pytest.raises(ValueError, match=r"pass OfflineMixCallback\(\) to learn, or set buffer.progress_remaining"):
        ours.sample(8)
    for remaining, n in ((1.0, 8), (0.5, 4), (0.25, 2), (0.0, 0)):
        ours.progress_remaining = remaining
        assert int((ours.sample(8).rewards == 777).sum()) == n
    ours.offline_fraction = lambda remaining: remaining
    ours.progress_remaining = -0.01  # SB3's, where the last rollout has more steps than are left
    assert not (ours.sample(8).rewards == 777).any()
    ours.offline_fraction = lambda remaining: 2 * remaining + 1
    ours.progress_remaining = 0.5
    with pytest.raises(ValueError, match=r"must be a number from 0 to 1, or a schedule of such numbers, got 2.0"):
        ours.sample(8)


def test_without_fresh_steps_all_must_be_offline() -> None:
    ours = Mixed(20, IMAGE, ACTIONS, "cpu", offline=filled(ReplayBuffer, 1, 1), offline_fraction=0.75)
    for _ in range(3):  # and nothing is owed for what was refused
        with pytest.raises(ValueError, match=r"2 of 8 samples must be fresh, but there are no fresh steps yet. Collect"):
            ours.sample(8)
    ours.offline_fraction = 1
    assert len(ours.sample(8).rewards) == 8


# ---- trainings


@pytest.fixture(scope="module")
def recorded() -> Any:
    """CartPole, played at random."""
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=1000, seed=1, device="cpu", buffer_size=300)
    model.learn(300)
    return model.replay_buffer


def cartpole(buffer_class: Any, algorithm: Any = DQN, **kwargs: Any) -> Any:
    return algorithm(
        "MlpPolicy", "CartPole-v1", learning_starts=20, seed=0, device="cpu", buffer_size=200, train_freq=4,
        replay_buffer_class=buffer_class, replay_buffer_kwargs=kwargs,
    )  # fmt: skip


def weights(model: Any) -> list[th.Tensor]:
    return [one.clone() for one in model.policy.parameters()]


def test_training_ends_in_the_same_weights_over_any_class(recorded: Any, tmp_path: Path) -> None:
    plain = cartpole(MixedPlain, offline=recorded, offline_fraction=0.3).learn(200)
    compress_buffer(recorded).save(tmp_path / "recorded.sb3x")
    for offline in (recorded, tmp_path / "recorded.sb3x", str(tmp_path / "recorded.sb3x")):
        ours = cartpole(Mixed, offline=offline, offline_fraction=0.3).learn(200)
        assert all(th.equal(one, other) for one, other in zip(weights(ours), weights(plain), strict=True))
    without = cartpole(Mixed, offline=recorded, offline_fraction=0.0).learn(200)
    alone = cartpole(CompressedReplayBuffer).learn(200)
    assert all(th.equal(one, other) for one, other in zip(weights(without), weights(alone), strict=True))
    assert not all(th.equal(one, other) for one, other in zip(weights(ours), weights(alone), strict=True))


def test_a_schedule_follows_the_training(recorded: Any) -> None:
    asked: list[float] = []

    def schedule(remaining: float) -> float:
        asked.append(remaining)
        return remaining

    model = cartpole(Mixed, offline=recorded, offline_fraction=schedule)
    with pytest.raises(ValueError, match="the remaining progress is not known"):
        model.learn(100)
    model.learn(100, callback=OfflineMixCallback())
    assert asked == [1 - step / 100 for step in range(24, 101, 4)]


def test_a_callback_without_a_mix_is_refused() -> None:
    model = cartpole(CompressedReplayBuffer)
    with pytest.raises(ValueError, match="needs a model whose buffer is an OfflineMix, got a CompressedReplayBuffer"):
        model.learn(10, callback=OfflineMixCallback())


def test_continuous_actions_and_several_envs() -> None:
    kwargs: Any = {"learning_starts": 10, "seed": 0, "device": "cpu", "buffer_size": 100, "batch_size": 16, "train_freq": 1}
    first = SAC("MlpPolicy", "Pendulum-v1", **kwargs, replay_buffer_class=CompressedReplayBuffer).learn(40)
    env = make_vec_env("Pendulum-v1", n_envs=3)
    model = SAC("MlpPolicy", env, **kwargs, replay_buffer_class=Mixed, replay_buffer_kwargs={"offline": first.replay_buffer})
    model.learn(60)
    assert model.replay_buffer.size() == 20


# ---- prioritized


def test_offline_samples_of_a_prioritized_buffer_have_no_priority(recorded: Any) -> None:
    offline = filled(ReplayBuffer, 1, 1)
    offline.rewards[:] = 777
    ours = filled(MixedPrioritized, 2, 2, offline=offline, offline_fraction=0.25)
    batch = ours.sample(16)
    assert (batch.rewards[:12] != 777).all()
    assert (batch.rewards[12:] == 777).all()
    assert batch.indices[12:].tolist() == [-1] * 4
    assert (batch.weights[12:] == 1).all()
    ours.update_priorities(batch.indices, th.full((16, 1), 9.0))
    priorities = ours.priorities.reshape(-1)
    changed = np.zeros(priorities.size, bool)
    changed[batch.indices[:12]] = True
    assert np.allclose(priorities[changed], (9 + 1e-6) ** 0.6)
    assert (priorities[~changed] == 1).all()
    ours.update_priorities(batch.indices, th.full((16, 1), 4.0, dtype=th.bfloat16))
    assert np.allclose(priorities[changed], (4 + 1e-6) ** 0.6)
    with pytest.raises(ValueError, match="got 15 errors for 16 indices"):
        ours.update_priorities(batch.indices, np.ones(15))
    ours.offline_fraction = 1
    assert ours.sample(4).indices.tolist() == [-1] * 4
    model = cartpole(MixedPrioritized, PrioritizedDQN, offline=recorded, beta=LinearSchedule(0.4, 1.0, 1.0))
    model.learn(100)
    assert model.replay_buffer.current_beta() > 0.9


# ---- saving


def test_a_file_holds_the_fresh_steps_alone(tmp_path: Path) -> None:
    ours = filled(Mixed, 2, 2, offline=filled(ReplayBuffer, 1, 1))
    ours.save(tmp_path / "buffer.sb3x")
    ours.checkpoint(tmp_path / "folder")
    expected = filled(CompressedReplayBuffer, 2, 2)
    for loaded in (load_buffer(tmp_path / "buffer.sb3x", device="cpu"), load_buffer(tmp_path / "folder", device="cpu")):
        assert type(loaded) is CompressedReplayBuffer
        assert np.array_equal(loaded.rewards, expected.rewards)
    assert type(ours.slice(3, 9)) is CompressedReplayBuffer
    assert merge_buffers([ours, expected]).size() == 40


@pytest.mark.parametrize("mixed", [MixedPlain, Mixed])
@pytest.mark.parametrize("has_path", [False, True])
def test_a_pickle_mixes_again(tmp_path: Path, mixed: Any, has_path: bool) -> None:
    offline: Any = filled(CompressedReplayBuffer, 1, 1)
    offline.save(tmp_path / "offline.sb3x")
    ours = filled(mixed, 2, 2, offline=tmp_path / "offline.sb3x" if has_path else offline, offline_fraction=0.3)
    ours.sample(8)
    data = pickle.dumps(ours)
    again = pickle.loads(data)
    batches = []
    for buffer in (ours, again):
        np.random.seed(0)
        batches.append([buffer.sample(9) for _ in range(4)])
    for one, other in zip(*batches, strict=True):
        assert_same(one, other)
    assert (b"offline.sb3x" in data) == has_path


def test_a_saved_model_mixes_again(recorded: Any, tmp_path: Path) -> None:
    model = cartpole(Mixed, offline=recorded, offline_fraction=0.3).learn(60)
    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=model.get_env())
    assert type(loaded.replay_buffer) is Mixed
    assert loaded.replay_buffer.offline.size() == recorded.size()
    model.save_replay_buffer(tmp_path / "buffer")
    loaded.load_replay_buffer(tmp_path / "buffer")
    assert loaded.replay_buffer.offline_fraction == 0.3
    loaded.learn(40, reset_num_timesteps=False)


@pytest.mark.parametrize("keep", [False, True])
def test_a_resumed_training_mixes_again(recorded: Any, tmp_path: Path, keep: bool) -> None:
    more: Any = {"directory": tmp_path / "blocks", "keep": True} if keep else {}
    model = cartpole(Mixed, offline=recorded, offline_fraction=0.3, **more)
    model.learn(60, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    rewards = model.replay_buffer.rewards[:60].copy()
    model.replay_buffer.close()
    again = resume(tmp_path / "run", model.get_env(), device="cpu")
    buffer = again.replay_buffer
    assert type(buffer) is Mixed
    assert buffer.offline.size() == recorded.size()
    gc.collect()  # nothing that loaded it closes it
    assert np.array_equal(buffer.rewards[:60], rewards)
    again.learn(40, reset_num_timesteps=False, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    assert buffer.size() == 100
    observations = buffer.observations[np.arange(100), np.zeros(100, int)]
    buffer.close()
    for folder in [tmp_path / "run", *([tmp_path / "blocks"] if keep else [])]:
        kept = load_buffer(folder, device="cpu")
        assert type(kept) is CompressedReplayBuffer
        assert np.array_equal(kept.observations[np.arange(100), np.zeros(100, int)], observations)


def test_a_class_of_ones_own_is_not_made_of_a_file(tmp_path: Path) -> None:
    class Own(CompressedReplayBuffer): ...

    class MixedOwn(OfflineMix, Own): ...

    offline = filled(ReplayBuffer, 1, 1)
    loaded = filled(CompressedReplayBuffer, 1, 2)
    with pytest.raises(
        TypeError, match=r"A saved MixedOwn is loaded as a CompressedReplayBuffer, but the class behind it is Own"
    ):
        filled(MixedOwn, 1, 2, offline=offline).take_over(loaded)


# ---- what is refused


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), True, "half", None])
def test_a_fraction_that_cannot_be_is_refused(fraction: Any) -> None:
    with pytest.raises(ValueError, match="offline_fraction must be a number from 0 to 1, or a schedule"):
        Mixed(20, IMAGE, ACTIONS, offline=filled(ReplayBuffer, 1, 1), offline_fraction=fraction)


def test_an_offline_buffer_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    offline = filled(CompressedReplayBuffer, 1, 1)
    for nothing in (None, 5, [offline]):
        with pytest.raises(TypeError, match="Mixed needs offline=, a replay buffer or the path of a saved one, got"):
            Mixed(20, IMAGE, ACTIONS, offline=nothing)
    with pytest.raises(FileNotFoundError):
        Mixed(20, IMAGE, ACTIONS, offline=tmp_path / "missing.sb3x")
    with pytest.raises(
        ValueError, match=r"The action_space of the offline buffer is Discrete\(5\), but the env has Discrete\(6\)"
    ):
        Mixed(20, IMAGE, spaces.Discrete(6), offline=offline)
    with pytest.raises(ValueError, match="The observation_space of the offline buffer is"):
        Mixed(20, spaces.Box(0, 255, (4, 12, 13), np.uint8), ACTIONS, offline=offline)
    with pytest.raises(ValueError, match="The offline buffer is empty"):
        Mixed(20, IMAGE, ACTIONS, offline=ReplayBuffer(5, IMAGE, ACTIONS))
    with pytest.raises(ValueError, match=r"has \(n_steps, gamma\) = \(1, None\), but this one \(3, 0.99\)"):
        MixedNStep(20, IMAGE, ACTIONS, offline=offline)
    with pytest.raises(ValueError, match=r"\(3, 0.99\), but this one \(5, 0.99\)"):
        MixedNStep(20, IMAGE, ACTIONS, n_steps=5, offline=filled(NStepReplayBuffer, 1, 1))
    with pytest.raises(ValueError, match="has normalize_images=None, but this one True"):
        Mixed(20, IMAGE, ACTIONS, normalize_images=True, offline=offline)
    with pytest.raises(ValueError, match="has output_dtype='raw', but this one 'float'"):
        Mixed(20, IMAGE, ACTIONS, output_dtype="float", offline=offline)
    with pytest.raises(ValueError, match="so a CompressedPrioritizedReplayBuffer cannot be the offline buffer"):
        Mixed(20, IMAGE, ACTIONS, offline=filled(CompressedPrioritizedReplayBuffer, 1, 1))
    with pytest.raises(TypeError, match="Did you mean 'compression_method'"):
        Mixed(20, IMAGE, ACTIONS, offline=offline, compression="zstd")


def test_the_signature_is_shown_in_full() -> None:
    shown, behind = inspect.signature(Mixed).parameters, inspect.signature(CompressedReplayBuffer).parameters
    assert [*behind, "offline", "offline_fraction"] == list(shown)
    assert "n_steps" in inspect.signature(MixedNStep).parameters
