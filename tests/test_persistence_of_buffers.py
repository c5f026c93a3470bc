"""Buffers survive deepcopy, pickle and SB3's save_replay_buffer, as small as they are in memory."""

from __future__ import annotations

import copy
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store import BlockStore, RowStore
from sb3_extra_buffers.store.detect import WaitingStore
from tests.invariants import check_invariants
from tests.oracle import DICT_SPACE, IMAGE, SPACES, add_to_replay, add_to_rollout, assert_same_minibatches, assert_same_samples
from tests.test_oracle_her import goal_env, play_both
from tests.transitions import play

ACTIONS = spaces.Discrete(4)
METHODS = ["auto", "none", "delta", "rle", "gzip", "zstd", "lz4-frame"]
CLASSES: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "plain": (CompressedReplayBuffer, ReplayBuffer, IMAGE, {}),
    "vector": (CompressedReplayBuffer, ReplayBuffer, SPACES["float32"], {}),
    "dict": (CompressedDictReplayBuffer, DictReplayBuffer, DICT_SPACE, {}),
    "n-step": (CompressedNStepReplayBuffer, NStepReplayBuffer, IMAGE, {"n_steps": 3, "gamma": 0.9}),
}
COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda buffer: pickle.loads(pickle.dumps(buffer))}


def stores_of(buffer: Any) -> list[Any]:
    return [leaf.store for leaf in buffer._leaves.values() if not isinstance(leaf.store, WaitingStore)]


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", CLASSES)
def test_a_copy_gives_the_same_samples_and_goes_on_by_itself(kind: str, method: str, how: str) -> None:
    ours_class, theirs_class, space, options = CLASSES[kind]
    args = (40, space, ACTIONS, "cpu", 2)
    ours, theirs = ours_class(*args, compression_method=method, **options), theirs_class(*args, **options)
    steps = list(play(space, ACTIONS, 2, 90))
    for t, step in enumerate(steps):
        add_to_replay([ours, theirs], step)
        if t in (0, 7, 30, 70):
            before = copy.deepcopy(theirs)
            other = COPIES[how](ours)
            assert_same_samples(other, theirs, seed=t)
            for more in steps[: t // 2]:
                add_to_replay([other, before], more)
            assert_same_samples(other, before, batch_size=60, seed=t)
            for store in stores_of(other):
                check_invariants(store)
    assert_same_samples(ours, theirs)


def bytes_of(columns: Any) -> int:
    """What SB3's arrays take: a plain array, or one per key."""
    return sum(array.nbytes for array in columns.values()) if isinstance(columns, dict) else int(columns.nbytes)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", CLASSES)
def test_a_copy_holds_as_much_and_takes_no_more_memory(kind: str, method: str, how: str) -> None:
    ours_class, theirs_class, space, options = CLASSES[kind]
    args = (40, space, ACTIONS, "cpu", 2)
    ours, theirs = ours_class(*args, compression_method=method, **options), theirs_class(*args, **options)
    for step in play(space, ACTIONS, 2, 90):
        add_to_replay([ours, theirs], step)
    before, other, after = ours.memory_usage(), COPIES[how](ours).memory_usage(), ours.memory_usage()
    raw_bytes = bytes_of(theirs.observations) + bytes_of(theirs.next_observations)
    assert (before.raw_bytes, other.raw_bytes, after.raw_bytes) == (raw_bytes, raw_bytes, raw_bytes)
    for usage in (other, after):
        assert usage.keys.keys() == before.keys.keys()
        assert 0 < usage.stored_bytes <= before.stored_bytes


@pytest.mark.parametrize("kind", ["plain", "dict"])
def test_rollout_buffers_can_be_copied(kind: str) -> None:
    ours_class, space = {"plain": (CompressedRolloutBuffer, IMAGE), "dict": (CompressedDictRolloutBuffer, DICT_SPACE)}[kind]
    ours = ours_class(20, space, ACTIONS, n_envs=2)
    for step in play(space, ACTIONS, 2, 20):
        add_to_rollout([ours], step)
    for make_copy in COPIES.values():
        other = make_copy(ours)
        assert_same_minibatches(other, copy.deepcopy(ours), 7)
        other.reset()
        for step in play(space, ACTIONS, 2, 20, seed=1):
            add_to_rollout([other], step)


def model_with(buffer_class: Any, env: Any = None, **options: Any) -> DQN:
    env = env or make_vec_env("CartPole-v1", n_envs=2, seed=0)
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    return DQN(
        policy, env, buffer_size=200, replay_buffer_class=buffer_class, replay_buffer_kwargs=options,
        policy_kwargs={"net_arch": [8]}, learning_starts=30, seed=0,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "n-step"])
def test_save_and_load_replay_buffer(kind: str, tmp_path: Path) -> None:
    ours_class, theirs_class, _, options = CLASSES[kind]
    fresh = []
    for i, buffer_class in enumerate((ours_class, theirs_class)):
        model = model_with(buffer_class, **options)
        model.learn(300)
        model.save_replay_buffer(tmp_path / str(i))
        other = model_with(buffer_class, **options)
        other.load_replay_buffer(tmp_path / f"{i}.pkl")
        assert_same_samples(other.replay_buffer, model.replay_buffer)
        other.learn(100)
        fresh.append(other)
    assert_same_samples(fresh[0].replay_buffer, fresh[1].replay_buffer)
    for key, value in fresh[1].policy.state_dict().items():
        assert np.array_equal(fresh[0].policy.state_dict()[key].numpy(), value.numpy()), key


@pytest.mark.parametrize("truncate", [True, False])
def test_save_and_load_her(truncate: bool, tmp_path: Path) -> None:
    env = make_vec_env(lambda: BitFlippingEnv(n_bits=5, max_steps=7), n_envs=2, seed=0)
    buffers = []
    for i, buffer_class in enumerate((CompressedHerReplayBuffer, HerReplayBuffer)):
        model = model_with(buffer_class, env)
        model.learn(130)
        model.save_replay_buffer(tmp_path / str(i))
        if truncate:
            with pytest.warns(UserWarning, match="last trajectory"):
                model.load_replay_buffer(tmp_path / f"{i}.pkl", truncate_last_traj=True)
        else:
            model.load_replay_buffer(tmp_path / f"{i}.pkl", truncate_last_traj=False)
        assert isinstance(model.replay_buffer, buffer_class)
        assert model.replay_buffer.env is not None
        buffers.append(model.replay_buffer)
    assert_same_samples(buffers[0], buffers[1], batch_size=40)


def test_her_can_be_deep_copied() -> None:
    env = goal_env(2)
    args = (60, env.observation_space, env.action_space)
    pair = [buffer_class(*args, env=env, n_envs=2) for buffer_class in (CompressedHerReplayBuffer, HerReplayBuffer)]
    play_both(env, pair, 80)
    copies = [pickle.loads(pickle.dumps(buffer)) for buffer in pair]
    for buffer in copies:
        buffer.set_env(env)
    play_both(env, copies, 40)
    assert_same_samples(*copies)


def filled(method: str = "auto", n_steps: int = 1000) -> CompressedReplayBuffer:
    space = spaces.Box(0, 255, (4, 40, 40), np.uint8)
    buffer = CompressedReplayBuffer(2 * n_steps, space, ACTIONS, n_envs=2, compression_method=method)
    for step in play(space, ACTIONS, 2, n_steps):
        add_to_replay([buffer], step)
    return buffer


@pytest.mark.parametrize("method", ["auto", "zstd", "none"])
def test_a_saved_buffer_is_about_as_small_as_the_buffer(method: str) -> None:
    buffer = filled(method)
    arrays = sum(getattr(buffer, name).nbytes for name in ("actions", "rewards", "dones", "timeouts"))
    size, usage = len(pickle.dumps(buffer)), buffer.memory_usage()
    assert size < 1.05 * (usage.stored_bytes + arrays) + 20_000
    assert size < usage.raw_bytes / (4 if method == "none" else 20)


@pytest.mark.parametrize("method", ["delta", "gzip", "none"])
def test_a_damaged_file_is_refused_or_its_observations_are_right(method: str) -> None:
    """A flipped bit in SB3's own arrays is SB3's; one in ours must not become a wrong observation."""
    buffer = filled(method, 60)
    data = pickle.dumps(buffer)
    right = zlib.crc32(np.asarray(buffer.observations)), zlib.crc32(np.asarray(buffer.next_observations))
    rng = np.random.default_rng(0)
    refused = 0
    for bit in rng.integers(0, 8 * len(data), 150).tolist():
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            other = pickle.loads(damaged)
            if type(other) is not CompressedReplayBuffer or other.n_envs != 2 or other.buffer_size != buffer.buffer_size:
                continue
            observations = np.asarray(other.observations), np.asarray(other.next_observations)
        except Exception:  # pickle's errors are of many kinds
            refused += 1
            continue
        if any(array.shape != buffer.observations.shape or array.dtype != np.uint8 for array in observations):
            continue  # visibly another array
        assert (zlib.crc32(observations[0]), zlib.crc32(observations[1])) == right, bit
    assert refused


def test_a_damaged_block_is_refused() -> None:
    store = stores_of(filled("gzip", 60))[0]
    state = store.__getstate__()
    other = BlockStore.__new__(BlockStore)
    for place in np.linspace(0, len(state["payload"]) - 1, 200).astype(int).tolist():
        payload = bytearray(state["payload"])
        payload[place] ^= 4
        with pytest.raises(CorruptDataError):
            other.__setstate__({**state, "payload": bytes(payload)})
    for name, value in state["given"].items():
        if isinstance(value, int):
            with pytest.raises(CorruptDataError):
                other.__setstate__({**state, "given": {**state["given"], name: value + 1}})
    with pytest.raises(CorruptDataError, match="format 99"):
        other.__setstate__({**state, "format": 99})


def test_damaged_rows_are_refused() -> None:
    buffer = CompressedReplayBuffer(40, SPACES["float32"], ACTIONS, "cpu", 2)
    for step in play(SPACES["float32"], ACTIONS, 2, 60):
        add_to_replay([buffer], step)
    [store] = stores_of(buffer)
    assert isinstance(store, RowStore)
    state = store.__getstate__()
    other = RowStore.__new__(RowStore)
    for name, array in state["arrays"].items():
        broken = array.copy()
        broken.reshape(-1).view(np.uint8)[array.nbytes // 2] ^= 4
        with pytest.raises(CorruptDataError):
            other.__setstate__({**state, "arrays": {**state["arrays"], name: broken}})
    with pytest.raises(CorruptDataError):
        other.__setstate__({**state, "given": {**state["given"], "n_slots": 3}})
    with pytest.raises(CorruptDataError, match="format 99"):
        other.__setstate__({**state, "format": 99})
