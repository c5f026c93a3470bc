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

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.errors import CorruptDataError, SegmentVersionError
from sb3_extra_buffers.native.store import LENGTH
from sb3_extra_buffers.store import BlockStore, LeafStore, RowStore
from sb3_extra_buffers.store.detect import WaitingStore
from tests.invariants import check_invariants
from tests.oracle import DICT_SPACE, IMAGE, SPACES, add_to_replay, add_to_rollout, assert_same_minibatches, assert_same_samples
from tests.store_segments import flipped, flips, header_changes
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


def open_block_bytes(store: Any) -> int:
    """No more than what the open blocks of a store take in a segment, with their entries in the table of blocks."""
    if not isinstance(store, BlockStore):
        return 0
    with store.taken(np.arange(store.n_cells)) as taken:
        return store.n_streams * (int(taken.table[:, LENGTH].max()) + 64)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", CLASSES)
def test_a_copy_holds_as_much_and_takes_no_more_memory(kind: str, method: str, how: str) -> None:
    """But for what stands in open blocks: the copy has it in blocks of its own, and opens new ones."""
    ours_class, theirs_class, space, options = CLASSES[kind]
    args = (40, space, ACTIONS, "cpu", 2)
    ours, theirs = ours_class(*args, compression_method=method, **options), theirs_class(*args, **options)
    for step in play(space, ACTIONS, 2, 90):
        add_to_replay([ours, theirs], step)
    before, copied, after = ours.memory_usage(), COPIES[how](ours), ours.memory_usage()
    other, again = copied.memory_usage(), COPIES[how](copied).memory_usage()
    raw_bytes = bytes_of(theirs.observations) + bytes_of(theirs.next_observations)
    for usage in (before, other, again, after):
        assert usage.raw_bytes == raw_bytes
        assert usage.keys.keys() == before.keys.keys()
    assert 0 < after.stored_bytes <= before.stored_bytes
    for key, usage in other.keys.items():
        assert 0 < usage.stored_bytes <= before.keys[key].stored_bytes + open_block_bytes(ours._leaves[key].store)
        assert usage.blocks <= before.keys[key].blocks + 2
    assert again.stored_bytes <= other.stored_bytes  # its open blocks are empty


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


@pytest.mark.parametrize("n_slots", [1, 2, 5, 16, 20, 33, 100, 999])
def test_the_newest_steps_of_a_large_file_fit_into_a_small_buffer(n_slots: int, tmp_path: Path) -> None:
    """With the blocks that they need: a small store has no room for all blocks of a segment."""
    buffer = filled()
    buffer.save(tmp_path / "buffer")
    other = load_buffer(tmp_path / "buffer", buffer_size=2 * n_slots)
    assert other.buffer_size == other.size() == n_slots
    for name in ("observations", "next_observations"):
        assert np.array_equal(np.asarray(getattr(other, name)), getattr(buffer, name)[1000 - n_slots :])
    check_invariants(stores_of(other)[0])
    assert other.memory_usage().stored_bytes <= buffer.memory_usage().stored_bytes


def contents(buffer: Any) -> list[np.ndarray]:
    """All that a replay buffer holds, as arrays."""
    columns = [getattr(buffer, name) for name in ("observations", "next_observations")]
    arrays = [one for column in columns for one in (column.values() if isinstance(column, dict) else [column])]
    names = ("actions", "rewards", "dones", "timeouts")
    return [np.asarray(one) for one in (*arrays, *(getattr(buffer, name) for name in names))]


def assert_same_contents(buffer: Any, other: Any) -> None:
    for one, two in zip(contents(buffer), contents(other), strict=True):
        assert one.dtype == two.dtype
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("method", ["delta", "gzip", "none"])
def test_a_damaged_file_is_refused_or_its_contents_are_right(method: str) -> None:
    """A flipped bit must not become another number, whether it was ours or SB3's."""
    buffer = filled(method, 60)
    data = pickle.dumps(buffer)
    right = list(map(zlib.crc32, contents(buffer)))
    rng = np.random.default_rng(0)
    refused = 0
    for bit in rng.integers(0, 8 * len(data), 150).tolist():
        try:
            other = pickle.loads(flipped(data, bit // 8, bit % 8))
            if type(other) is not CompressedReplayBuffer or other.n_envs != 2 or other.buffer_size != buffer.buffer_size:
                continue
            arrays = contents(other)
        except Exception:  # pickle's errors are of many kinds
            refused += 1
            continue
        if any(one.shape != two.shape or one.dtype != two.dtype for one, two in zip(arrays, contents(buffer), strict=True)):
            continue  # visibly another array
        assert list(map(zlib.crc32, arrays)) == right, bit
    assert refused


def some_buffer(kind: str, n_steps: int = 25) -> Any:
    if kind == "her":
        env = goal_env(2)
        pair: Any = [
            buffer_class(60, env.observation_space, env.action_space, env=env, n_envs=2)
            for buffer_class in (CompressedHerReplayBuffer, HerReplayBuffer)
        ]
        play_both(env, pair, n_steps)
        return pair[0]
    ours_class, _, space, options = {
        **CLASSES,
        "gzip": (CompressedReplayBuffer, ReplayBuffer, IMAGE, {"compression_method": "gzip"}),
        "waiting": (CompressedReplayBuffer, ReplayBuffer, IMAGE, {}),
    }[kind]
    buffer = ours_class(40, space, ACTIONS, "cpu", 2, **options)
    steps = list(play(space, ACTIONS, 2, n_steps))
    if kind == "waiting":  # a picture that stands still
        steps = [step._replace(obs=steps[0].obs, next_obs=steps[0].obs) for step in steps[:3]]
    for step in steps:
        add_to_replay([buffer], step)
    return buffer


KINDS = [*CLASSES, "gzip", "waiting", "her"]


def loaded(state: dict[str, Any], like: Any) -> Any:
    other = type(like).__new__(type(like))
    other.__setstate__(state)
    return other


def test_the_kinds_are_all_that_a_leaf_can_have() -> None:
    kinds = {kind: [type(leaf.store) for leaf in some_buffer(kind)._leaves.values()] for kind in KINDS}
    assert kinds["gzip"] == [BlockStore]
    assert kinds["vector"] == [RowStore]
    assert kinds["waiting"] == [WaitingStore]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_segment_is_refused(kind: str) -> None:
    """One flipped bit anywhere: in a number, a name, an observation, a reward or a checksum."""
    buffer = some_buffer(kind)
    state = buffer.__getstate__()
    n_refused = 0
    for data, means_something in flips(state["_segments"], np.random.default_rng(0), 16):
        if means_something:
            with pytest.raises(CorruptDataError):
                loaded({**state, "_segments": data}, buffer)
            n_refused += 1
        else:
            assert_same_contents(loaded({**state, "_segments": data}, buffer), buffer)
    assert n_refused > 150
    assert_same_contents(loaded(state, buffer), buffer)


@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_that_is_cut_off_or_goes_on_is_refused(kind: str) -> None:
    buffer = some_buffer(kind)
    state = buffer.__getstate__()
    data = state["_segments"]
    for n in np.linspace(0, len(data) - 1, 60).astype(int).tolist():
        with pytest.raises(CorruptDataError):
            loaded({**state, "_segments": data[:n]}, buffer)
    for more in (b"\0", bytes(100), data):
        with pytest.raises(CorruptDataError):
            loaded({**state, "_segments": data + more}, buffer)


@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_that_says_something_else_is_refused_or_read(kind: str) -> None:
    """Checksums are no help against a header that someone has changed; nothing may crash, whatever it says."""
    buffer = some_buffer(kind)
    state = buffer.__getstate__()
    n_refused = 0
    for _, data in header_changes(state["_segments"]):
        try:
            other = loaded({**state, "_segments": data}, buffer)
        except CorruptDataError:
            n_refused += 1
            continue
        contents(other)
    assert n_refused > 50


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_contradicts_its_segment_is_refused(kind: str) -> None:
    """What stands beside the segment has no checksum; what matters of it stands in both."""
    buffer = some_buffer(kind)
    state = buffer.__getstate__()
    for name, other in (("pos", buffer.pos + 1), ("pos", 0), ("full", not buffer.full), ("buffer_size", 19), ("n_envs", 1)):
        with pytest.raises(CorruptDataError):
            loaded({**state, name: other}, buffer)


@pytest.mark.parametrize("kind", ["gzip", "vector", "waiting"])
def test_a_damaged_leaf_is_refused(kind: str) -> None:
    """A leaf that is pickled by itself, as that of a CompressedArray."""
    [stored] = some_buffer(kind)._leaves.values()
    leaf = LeafStore(stored.plan)
    with stored.extract(np.arange(leaf.plan.n_cells)) as extract:
        leaf.put(np.arange(leaf.plan.n_cells), extract)
    state, cells = leaf.__getstate__(), np.arange(leaf.plan.n_cells)
    for data, means_something in flips(state["segment"], np.random.default_rng(0), 30):
        if means_something:
            with pytest.raises(CorruptDataError):
                loaded({**state, "segment": data}, leaf)
            continue
        for column in range(2):
            again = loaded({**state, "segment": data}, leaf).read(column, cells)
            assert again.tobytes() == stored.read(column, cells).tobytes()
    for data in (state["segment"][:-1], state["segment"] * 2, b""):
        with pytest.raises(CorruptDataError):
            loaded({**state, "segment": data}, leaf)


def test_a_segment_of_a_later_version_is_refused() -> None:
    buffer = some_buffer("plain")
    state = buffer.__getstate__()
    data = state["_segments"][:8] + (99).to_bytes(4, "little") + state["_segments"][12:]
    with pytest.raises(SegmentVersionError, match="format version 99"):
        loaded({**state, "_segments": data}, buffer)


def test_a_buffer_that_an_earlier_version_has_pickled_is_refused() -> None:
    buffer = some_buffer("plain")
    state = {name: value for name, value in buffer.__getstate__().items() if name != "_segments"}
    with pytest.raises(CorruptDataError, match="earlier version"):
        loaded(state, buffer)
