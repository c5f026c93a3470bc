"""Edges that a user or a subclass may come to: refused as SB3 refuses them, or the same as in SB3."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from typing import Any, ClassVar

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer

from sb3_extra_buffers.codecs import make_codec, registry
from sb3_extra_buffers.codecs.base import CODED, with_header
from sb3_extra_buffers.compressed import (
    CompressedArray,
    CompressedDictReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.errors import CorruptDataError, FallbackWarning
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer
from tests.oracle import IMAGE, add_to_replay, assert_same, assert_same_samples
from tests.transitions import play

VECTOR = spaces.Box(-1, 1, (8,), np.float32)
ACTIONS = spaces.Discrete(3)


@pytest.mark.parametrize(("steps", "n_envs"), [(10, 2), (100, 2), (64, 64)])
@pytest.mark.parametrize("space", [VECTOR, IMAGE], ids=["vector", "stack"])
def test_a_full_rollout_buffer_refuses_more_as_sb3_does(space: spaces.Box, steps: int, n_envs: int) -> None:
    buffers = [kind(steps, space, ACTIONS, device="cpu", n_envs=n_envs) for kind in (CompressedRolloutBuffer, RolloutBuffer)]
    for step in range(steps + 8):
        obs = np.full((n_envs, *space.shape), step % 200, space.dtype)
        for buffer in buffers:
            arguments = (obs, np.zeros((n_envs, 1)), np.zeros(n_envs), np.zeros(n_envs), th.zeros(n_envs), th.zeros(n_envs))
            if step < steps:
                buffer.add(*arguments)
            else:
                with pytest.raises(IndexError, match="full" if buffer is buffers[0] else None):
                    buffer.add(*arguments)
    assert np.array_equal(np.asarray(buffers[0].observations), buffers[1].observations)


@pytest.mark.parametrize("frozen", [(True, False), (False, True), (True, True)])
def test_read_only_observations_are_taken(frozen: tuple[bool, bool]) -> None:
    args = (40, IMAGE, ACTIONS, "cpu", 2)
    ours, theirs = CompressedReplayBuffer(*args), ReplayBuffer(*args)
    for step in play(IMAGE, ACTIONS, 2, 40):
        step.obs.flags.writeable, step.next_obs.flags.writeable = not frozen[0], not frozen[1]
        for buffer in (ours, theirs):
            buffer.add(step.obs, step.next_obs, step.action, step.reward, step.done, step.infos)
    assert_same_samples(ours, theirs)


@pytest.mark.parametrize("kind", [CompressedReplayBuffer, GpuReplayBuffer])
def test_torchs_default_device_is_not_asked(kind: type[ReplayBuffer]) -> None:
    args = (40, IMAGE, ACTIONS, "cpu", 2)
    with th.device("meta"):
        ours, theirs = kind(*args), ReplayBuffer(*args)
        for step in play(IMAGE, ACTIONS, 2, 40):
            add_to_replay([ours, theirs], step)
        assert_same_samples(ours, theirs)


class Shifted:
    """A subclass that changes its index array between the two reads."""

    def _get_samples(self: Any, batch_inds: np.ndarray, env: Any = None) -> Any:
        envs = np.zeros(len(batch_inds), np.int64)
        now = self.observations[batch_inds, envs]
        batch_inds += 1
        batch_inds %= self.buffer_size
        return now, self.next_observations[batch_inds, envs]


def test_an_index_array_that_is_changed_between_reads_is_read_anew() -> None:
    ours = type("Ours", (Shifted, CompressedReplayBuffer), {})(20, IMAGE, ACTIONS, "cpu")
    theirs = type("Theirs", (Shifted, ReplayBuffer), {})(20, IMAGE, ACTIONS, "cpu")
    for step in play(IMAGE, ACTIONS, 1, 50):
        add_to_replay([ours, theirs], step)
    np.random.seed(0)
    mine = ours.sample(16)
    np.random.seed(0)
    assert all(np.array_equal(a, b) for a, b in zip(mine, theirs.sample(16), strict=True))


def test_other_threads_may_read_observations_while_one_samples() -> None:
    buffer = CompressedReplayBuffer(40, IMAGE, ACTIONS, "cpu")
    steps = list(play(IMAGE, ACTIONS, 1, 40))
    for step in steps:
        add_to_replay([buffer], step)
    expected = np.stack([step.obs[0] for step in steps])
    failures: list[Any] = []
    done = threading.Event()

    def look() -> None:
        rng = np.random.default_rng(0)
        while not done.is_set():
            slots, envs = rng.integers(0, 40, 8), np.zeros(8, np.int64)
            try:
                if not np.array_equal(buffer.observations[slots, envs], expected[slots]):
                    failures.append("wrong")
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(300):
        buffer.sample(8)
    done.set()
    thread.join()
    assert not failures


def test_positional_arguments_are_sb3s_and_those_of_0_5() -> None:
    with pytest.raises(ValueError, match="must be a NumPy dtype, got 'junk'"):
        CompressedReplayBuffer(10, VECTOR, ACTIONS, "cpu", 1, False, True, "junk")
    with pytest.raises(TypeError, match="positional arguments"):
        CompressedReplayBuffer(10, VECTOR, ACTIONS, "cpu", 1, False, True, None, False, "rle", None, None, "raw", 4)
    with pytest.raises(TypeError, match="positional arguments"):
        CompressedNStepReplayBuffer(10, VECTOR, ACTIONS, "cpu", 1, True, True, 5)
    with pytest.raises(TypeError, match="several values for n_envs"):
        CompressedReplayBuffer(10, VECTOR, ACTIONS, "cpu", 1, n_envs=4)


def test_a_subclass_may_have_a_constructor_of_its_own() -> None:
    class Prioritized(CompressedReplayBuffer):
        def __init__(
            self, size: int, space: Any, actions: Any, alpha: float = 0.6, optimize_memory_usage: bool = False
        ) -> None:
            super().__init__(size, space, actions, "cpu", 2, optimize_memory_usage)
            self.alpha = alpha

    buffer = Prioritized(10, VECTOR, ACTIONS, 0.5, True)
    assert (buffer.n_envs, buffer.alpha, buffer.buffer_size) == (2, 0.5, 5)


def test_a_class_below_may_take_more_arguments() -> None:
    class Weighted(ReplayBuffer):
        weights: ClassVar[list[float]] = []

        def add(self, *args: Any) -> None:
            super().add(*args[:6])
            self.weights.extend(args[6:])

    class CompressedWeighted(CompressedReplayBuffer, Weighted):
        pass

    buffer, [step] = CompressedWeighted(10, VECTOR, ACTIONS, "cpu", 2), list(play(VECTOR, ACTIONS, 2, 1))
    buffer.add(*step, 0.5)
    buffer.add(*step)
    buffer.add(*step, 0.25)
    assert buffer.weights == [0.5, 0.25]
    assert buffer.pos == 3
    assert np.array_equal(buffer.observations[2], step.obs)


@pytest.mark.parametrize("space", [VECTOR, IMAGE], ids=["vector", "stack"])
def test_a_shallow_copy_shares_the_stores_and_their_lock(space: spaces.Box) -> None:
    buffer = CompressedReplayBuffer(10, space, ACTIONS, "cpu", 2)
    other = copy.copy(buffer)
    for one in (buffer, other, pickle.loads(pickle.dumps(buffer)), copy.deepcopy(buffer)):
        for leaf in one._leaves.values():
            assert leaf.lock is one._lock
    assert other._lock is buffer._lock
    assert pickle.loads(pickle.dumps(buffer))._lock is not buffer._lock


def test_observations_without_bytes_can_be_written_directly() -> None:
    buffer = CompressedReplayBuffer(10, spaces.Box(-1, 1, (0,), np.float32), ACTIONS, "cpu")
    buffer.observations[0] = np.zeros((1, 0), np.float32)
    assert np.asarray(buffer.observations).shape == (10, 1, 0)


@pytest.mark.parametrize("kind", ["replay", "rollout"])
def test_an_action_that_sb3_refuses_leaves_the_observations_alone(kind: str) -> None:
    wrong = np.zeros((3, 5))
    if kind == "replay":
        replay = CompressedReplayBuffer(4, VECTOR, ACTIONS, "cpu")
        for i in range(5):
            replay.add(np.full((1, 8), i), np.full((1, 8), i + 1), np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
        before = np.asarray(replay.observations).copy()
        with pytest.raises(ValueError, match="reshape"):
            replay.add(np.full((1, 8), 9), np.full((1, 8), 9), wrong, np.zeros(1), np.zeros(1), [{}])
        assert np.array_equal(np.asarray(replay.observations), before)
    else:
        rollout = CompressedRolloutBuffer(4, VECTOR, ACTIONS, "cpu")
        with pytest.raises(ValueError, match="reshape"):
            rollout.add(np.full((1, 8), 9), wrong, np.zeros(1), np.zeros(1), th.zeros(1), th.zeros(1))
        assert not np.asarray(rollout.observations).any()


def test_a_block_shorter_than_the_usual_stack_still_works() -> None:
    args = (60, IMAGE, ACTIONS, "cpu", 2)
    ours, theirs = CompressedReplayBuffer(*args, block_frames=2), ReplayBuffer(*args)
    for step in play(IMAGE, ACTIONS, 2, 50):
        add_to_replay([ours, theirs], step)
    assert_same_samples(ours, theirs)
    with pytest.raises(ValueError, match="block_frames must be at least the frame_stack of 4, got 2"):
        CompressedReplayBuffer(*args, block_frames=2, frame_stack=4)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
@pytest.mark.parametrize("kind", [CompressedReplayBuffer, GpuReplayBuffer])
def test_observations_without_bytes_work_as_in_sb3(kind: type[ReplayBuffer], shape: tuple[int, ...]) -> None:
    args = (10, spaces.Box(-1, 1, shape, np.float32), ACTIONS, "cpu", 2)
    ours, theirs = kind(*args), ReplayBuffer(*args)
    for step in play(args[1], ACTIONS, 2, 15):
        add_to_replay([ours, theirs], step)
    assert_same_samples(ours, theirs)


def test_what_is_no_observation_is_refused_by_its_type() -> None:
    buffer = CompressedReplayBuffer(10, VECTOR, ACTIONS, "cpu")
    image = CompressedReplayBuffer(10, IMAGE, ACTIONS, "cpu")
    for wrong in (None, {"a": 1}):
        with pytest.raises(ValueError, match=f"Got {type(wrong).__name__}"):
            image.add(wrong, wrong, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    assert buffer.size() == image.size() == 0
    of_dicts = CompressedDictReplayBuffer(10, spaces.Dict(a=VECTOR), ACTIONS, "cpu")
    obs = np.zeros((1, 8), np.float32)
    with pytest.raises(ValueError, match=r"Got ndarray; it must be a dict with the keys \['a'\]"):
        of_dicts.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])


def test_columns_are_compared_as_arrays() -> None:
    buffer = CompressedReplayBuffer(6, VECTOR, ACTIONS, "cpu", 2)
    assert (buffer.observations == 0).all()
    assert (buffer.observations == 0).shape == buffer.observations.shape


def test_a_space_without_entries_works_as_in_sb3() -> None:
    space = spaces.Dict({"empty": spaces.Box(-1, 1, (0,), np.float32), "x": VECTOR})
    from stable_baselines3.common.buffers import DictReplayBuffer

    from sb3_extra_buffers.compressed import CompressedDictReplayBuffer

    args = (20, space, ACTIONS, "cpu", 2)
    ours, theirs = CompressedDictReplayBuffer(*args), DictReplayBuffer(*args)
    for step in play(space, ACTIONS, 2, 30):
        add_to_replay([ours, theirs], step)
    assert_same_samples(ours, theirs)


def test_short_rollouts_are_not_larger_than_plain_arrays() -> None:
    buffer = CompressedRolloutBuffer(5, spaces.Box(0, 255, (4, 84, 84), np.uint8), ACTIONS, "cpu", n_envs=16)
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (9, 16, 84, 84), np.uint8)
    for t in range(5):
        obs = np.stack(frames[t : t + 4], axis=1)
        buffer.add(obs, np.zeros((16, 1)), np.zeros(16), np.zeros(16), th.zeros(16), th.zeros(16))
    assert buffer.memory_usage().ratio < 1


@pytest.mark.parametrize("name", ["rle", "rle-jit"])
def test_run_lengths_that_overflow_are_refused_or_cut(name: str) -> None:
    codec = make_codec(name, {"runs_type": "uint64"})
    lengths = np.array([2**64 - 10**9, 2**63 - 1, 5], np.uint64)
    data = with_header(CODED, (3).to_bytes(4, "little") + bytes([1, 2, 3]) + lengths.tobytes())
    out = np.zeros((2, 50), np.uint8)
    try:
        codec.decode(data, out)
    except CorruptDataError:
        return
    assert set(np.unique(out)) <= {1, 2, 3}


def test_arrays_of_one_cell_and_sequences_as_indices() -> None:
    single = CompressedArray((), np.uint8, (3, 4))
    single[...] = np.arange(12).reshape(3, 4)
    assert np.array_equal(single[()], np.arange(12).reshape(3, 4))
    ours, theirs = CompressedArray((4, 3), np.int64, (2, 5)), np.arange(120).reshape(4, 3, 2, 5)
    ours[...] = theirs
    for index in (
        (0, 2, Ellipsis, (0, 1)), (0, (0, 1), 0, (0, 1)), (slice(None), (0, 1), slice(None), 0), (Ellipsis, True),
        ([0, 1], [1, 2], slice(None), -1), ([0, 1], slice(None), 1), (range(2),), ([], []), (None, 0), (0, None, 1),
    ):  # fmt: skip
        assert_same_array(ours[index], theirs[index])


def assert_same_array(ours: Any, theirs: Any) -> None:
    assert np.shape(ours) == np.shape(theirs)
    assert np.array_equal(ours, theirs)


def test_parts_and_wholes_are_cast_by_one_rule() -> None:
    array = CompressedArray((2,), np.uint8, (3,))
    for index in (0, (0, slice(0, 3))):
        with pytest.raises(ValueError, match="cannot hold"):
            array[index] = np.array([300, 1, 2])
        with pytest.raises(ValueError, match="cannot hold"):
            array[index] = 1.7
    array[0, 1:] = 7
    assert np.array_equal(array[0], [0, 7, 7])


def test_sampled_tensors_are_not_the_buffers() -> None:
    args = (40, IMAGE, ACTIONS, "cpu", 2)
    ours, theirs = CompressedReplayBuffer(*args), ReplayBuffer(*args)
    for step in play(IMAGE, ACTIONS, 2, 40):
        add_to_replay([ours, theirs], step)
    np.random.seed(3)
    batch = ours.sample(16)
    batch.observations.zero_()
    np.random.seed(3)
    assert_same(batch._replace(observations=ours.sample(16).observations), _sampled(theirs, 3, 16))


def _sampled(buffer: ReplayBuffer, seed: int, n: int) -> Any:
    np.random.seed(seed)
    return buffer.sample(n)


def saved(method: str) -> tuple[bytes, np.ndarray]:
    rng = np.random.default_rng(0)
    observations = (rng.random((60, 30, 30)) < 0.1).astype(np.uint8)
    array = CompressedArray((60,), np.uint8, (30, 30), compression_method=method)
    array[...] = observations
    return pickle.dumps(array), observations


def hide(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setattr(registry, "installed", lambda name: name != module)
    monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(("method", "module"), [("igzip", "isal"), ("rle-jit", "numba")])
def test_a_saved_array_is_read_by_the_stand_in_where_its_backend_is_missing(
    monkeypatch: pytest.MonkeyPatch, method: str, module: str
) -> None:
    data, observations = saved(method)
    hide(monkeypatch, module)
    with pytest.warns(FallbackWarning, match=method):
        array = pickle.loads(data)
    assert np.array_equal(np.asarray(array), observations)


def test_a_saved_array_says_what_to_install_where_its_backend_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = saved("zstd")
    hide(monkeypatch, "zstandard")
    with pytest.raises(ImportError, match=r"pip install \"sb3-extra-buffers\[zstd\]\""):
        pickle.loads(data)


@pytest.mark.parametrize(("name", "close"), [("ZSTD3", "zstd"), ("lz4", "lz4-"), ("zsdt", "zstd"), ("gzipp9", "gzip")])
def test_a_misspelled_codec_gets_a_suggestion(name: str, close: str) -> None:
    with pytest.raises(ValueError, match=f"Did you mean '{close}"):
        make_codec(name)
