"""Faults that were found in other compressed buffers and in SB3: each test states the fact that holds here."""

from __future__ import annotations

import copy
import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.bench.memory import resident_bytes
from sb3_extra_buffers.codecs import available_codecs
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.errors import ObservationError
from tests.oracle import DICT_SPACE, IMAGE, add_to_replay, add_to_rollout, assert_same_samples
from tests.saving_peak import STATUS
from tests.test_oracle_her import goal_env, play_both
from tests.transitions import play

ACTIONS = spaces.Discrete(2)
METHODS = ["auto", *available_codecs()]
every_codec = pytest.mark.parametrize("method", METHODS)


def one(space: spaces.Space[Any], value: Any, **options: Any) -> np.ndarray:
    """What comes back of one observation."""
    buffer = CompressedReplayBuffer(4, space, ACTIONS, **options)
    for _ in range(4):  # blocks are sealed, not only open
        buffer.add(value[None], value[None], np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    return buffer.sample(1).observations[0].numpy()


@every_codec
def test_float_observations_stay_float(method: str) -> None:
    value = np.linspace(-1, 1, 100, dtype=np.float32)
    assert one(spaces.Box(-1, 1, (100,), np.float32), value, compression_method=method).tobytes() == value.tobytes()


def test_values_out_of_range_are_refused_not_wrapped() -> None:
    with pytest.raises(ObservationError, match="uint8 cannot hold"):
        one(spaces.Box(0, 255, (300,), np.uint8), np.full(300, 300))


def test_every_key_of_a_dict_keeps_its_dtype() -> None:
    buffer = CompressedDictReplayBuffer(20, DICT_SPACE, ACTIONS)
    for step in play(DICT_SPACE, ACTIONS, 1, 20):
        add_to_replay([buffer], step)
    for key, value in buffer.sample(4).observations.items():
        assert value.numpy().dtype == DICT_SPACE[key].dtype, key


def test_vector_keys_are_never_divided_by_255() -> None:
    buffer = CompressedDictReplayBuffer(20, DICT_SPACE, ACTIONS, normalize_images=True)
    plain = CompressedDictReplayBuffer(20, DICT_SPACE, ACTIONS)
    for step in play(DICT_SPACE, ACTIONS, 1, 20):
        add_to_replay([buffer, plain], step)
    batches = []
    for one_of_them in (buffer, plain):
        np.random.seed(0)
        batches.append(one_of_them.sample(9).observations)
    assert th.equal(batches[0]["speed"], batches[1]["speed"])
    assert th.equal(batches[0]["camera"], batches[1]["camera"].float() / 255.0)


@every_codec
def test_a_white_frame_stays_white(method: str) -> None:
    """Its one run of 65,536 is longer than a 16-bit run length can say."""
    white = np.full((1, 256, 256), 255, np.uint8)
    assert (one(spaces.Box(0, 255, (1, 256, 256), np.uint8), white, compression_method=method) == 255).all()


@every_codec
def test_infinities_nan_and_negative_zero_keep_their_bits(method: str) -> None:
    payload = np.array([0x7FC00001, 0xFFC12345, 0x7F800001], np.uint32).view(np.float32)
    value = np.tile(np.concatenate((np.array([np.inf, -np.inf, -0.0, 0.0, np.nan], np.float32), payload)), 40)
    space = spaces.Box(-np.inf, np.inf, value.shape, np.float32)
    assert one(space, value, compression_method=method).tobytes() == value.tobytes()


def test_compression_kwargs_extend_dtypes() -> None:
    buffer = CompressedReplayBuffer(
        4,
        IMAGE,
        ACTIONS,
        compression_method="rle",
        dtypes={"runs_type": np.uint32},
        compression_kwargs={"elem_type": "uint16"},
    )
    codec = buffer._leaves["observation"].plan.codec
    assert (codec.runs_type, codec.elem_type) == ("uint32", "uint16")


def test_a_level_in_the_name_does_not_reach_the_next_buffer() -> None:
    options: dict[str, Any] = {}
    CompressedReplayBuffer(4, IMAGE, ACTIONS, compression_method="zstd19", compression_kwargs=options)
    assert options == {}
    buffer = CompressedReplayBuffer(4, IMAGE, ACTIONS, compression_method="zstd", compression_kwargs=options)
    assert buffer._leaves["observation"].method == "zstd/3"


@pytest.mark.parametrize("method", ["gzip99", "zstd99", "igzip9", "lz4-frame/99", "lz4-block/99", "zstd0"])
@pytest.mark.parametrize("buffer_class", [CompressedReplayBuffer, CompressedRolloutBuffer])
def test_bad_levels_fail_at_construction(buffer_class: Any, method: str) -> None:
    with pytest.raises(ValueError, match="level must be in"):
        buffer_class(4, IMAGE, ACTIONS, compression_method=method)


def test_hindsight_replay_stores_compressed() -> None:
    env = goal_env(1, image_obs_space=True)
    buffer = CompressedHerReplayBuffer(3000, env.observation_space, env.action_space, env=env)
    play_both(env, [buffer], 3000, check_every=10_000)
    assert buffer.memory_usage().ratio < 0.2
    assert not isinstance(buffer.observations["observation"], np.ndarray)


@pytest.mark.parametrize("buffer_class", [CompressedReplayBuffer, CompressedRolloutBuffer])
def test_a_dead_buffer_is_freed(buffer_class: Any) -> None:
    buffer = buffer_class(20, IMAGE, ACTIONS)
    for step in play(IMAGE, ACTIONS, 1, 20):
        (add_to_replay if buffer_class is CompressedReplayBuffer else add_to_rollout)([buffer], step)
    _ = buffer.sample(4) if buffer_class is CompressedReplayBuffer else next(buffer.get(4))
    references = [weakref.ref(buffer), weakref.ref(buffer._leaves["observation"].store)]
    del buffer, _
    gc.collect()
    assert [reference() for reference in references] == [None, None]


@every_codec
def test_nothing_stale_is_served(method: str) -> None:
    """Each slot is overwritten many times; a read gives what was written last."""
    space = spaces.Box(0, 255, (300,), np.uint8)
    buffer = CompressedReplayBuffer(3, space, ACTIONS, compression_method=method)
    for t in range(60):
        value = np.full((1, 300), t, np.uint8)
        buffer.add(value, value + 1, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
        for _ in range(2):
            assert (buffer.observations[t % 3] == t).all()
            assert (buffer.next_observations[t % 3] == t + 1).all()


def test_optimize_memory_usage_keeps_the_terminal_observation() -> None:
    """SB3 gives the next episode's first observation there."""
    space = spaces.Box(0, 255, (3,), np.uint8)
    ours = CompressedReplayBuffer(5, space, ACTIONS, optimize_memory_usage=True)
    theirs = ReplayBuffer(5, space, ACTIONS, optimize_memory_usage=True, handle_timeout_termination=False)
    for t, done in ((1, 0), (2, 1), (10, 0)):  # 3 is terminal, then a new episode begins with 10
        for buffer in (ours, theirs):
            obs = np.full((1, 3), t, np.uint8)
            buffer.add(obs, obs + 1, np.zeros(1), np.zeros(1), np.array([done]), [{}])
    assert ours._get_samples(np.array([1])).next_observations.tolist() == [[3, 3, 3]]
    assert theirs._get_samples(np.array([1])).next_observations.tolist() == [[10, 10, 10]]  # why this is a fault


@pytest.mark.skipif(not STATUS.exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("method", ["auto", "zstd"])
def test_saving_needs_little_more_memory_than_the_buffer(method: str, tmp_path: Path) -> None:
    """At its peak, and for a buffer of noise: what is stored is large there, so that every copy of it shows."""
    path = tmp_path / "buffer.pkl"
    command = [sys.executable, "-m", "tests.saving_peak", str(path), method]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["stored"] > 50 << 20  # it is really there
    assert result["grown"] < 1.1 * result["stored"] + (8 << 20)  # the bytes that the pickle carries
    assert path.stat().st_size < result["stored"] + (1 << 20)


def test_frames_that_do_not_overlap_are_kept_whole() -> None:
    """A stack is announced, but the observations are random: nothing may be shared that is not equal."""
    args = (30, IMAGE, ACTIONS, "cpu", 2)
    ours, theirs = CompressedReplayBuffer(*args, frame_stack=4), ReplayBuffer(*args)
    rng = np.random.default_rng(0)
    for step in play(IMAGE, ACTIONS, 2, 70):
        noise = [rng.integers(0, 256, (2, *IMAGE.shape), dtype=np.uint8) for _ in range(2)]
        add_to_replay([ours, theirs], step._replace(obs=noise[0], next_obs=noise[1]))
    assert_same_samples(ours, theirs, batch_size=100)


def test_frames_are_compressed_together_not_one_by_one() -> None:
    """A still picture costs next to nothing, whatever it shows. Libraries get a few frames, so that reading stays fast."""
    space = spaces.Box(0, 255, (1, 84, 84), np.uint8)
    picture = np.random.default_rng(0).integers(0, 256, (1, 1, 84, 84), dtype=np.uint8)
    for method, block_frames, share in (("delta", None, 8), ("zstd", None, 3), ("zstd", 16, 8), ("lz4-frame", None, 6)):
        buffer = CompressedReplayBuffer(200, space, ACTIONS, compression_method=method, block_frames=block_frames)
        for t in range(200):
            obs, next_obs = picture.copy(), picture.copy()
            obs[..., 0, 0], next_obs[..., 0, 0] = t, t + 1
            buffer.add(obs, next_obs, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
        usage = buffer._leaves["observation"].store._native.usage()
        assert usage.live_bytes < 200 * 84 * 84 / share, method


def test_blobs_hold_no_more_memory_than_their_length() -> None:
    """Some bindings return bytes objects that keep thirty times their length; what is kept here is counted by the core."""
    space = spaces.Box(0, 255, (1, 84, 84), np.uint8)
    buffer = CompressedReplayBuffer(500, space, ACTIONS, compression_method="zstd", block_frames=1)
    for step in play(space, ACTIONS, 1, 500):
        add_to_replay([buffer], step)
    usage = buffer._leaves["observation"].store._native.usage()
    assert usage.held_bytes - usage.live_bytes < 1 << 21


def test_a_buffer_can_be_copied_while_it_is_filled() -> None:
    buffer = CompressedReplayBuffer(10, IMAGE, ACTIONS)
    for step in play(IMAGE, ACTIONS, 1, 7):
        add_to_replay([buffer], step)
    assert_same_samples(copy.deepcopy(buffer), buffer)


@pytest.mark.parametrize("method", ["auto", "gzip"])
def test_batches_are_not_kept(method: str) -> None:
    """What was decoded for a batch is freed with the batch, or is used again for the next one."""
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = CompressedReplayBuffer(60, space, ACTIONS, compression_method=method)
    for step in play(space, ACTIONS, 1, 60):
        add_to_replay([buffer], step)
    batch = buffer.sample(500)
    batch_bytes = batch.observations.nbytes + batch.next_observations.nbytes  # 28 MB
    tensors = [weakref.ref(tensor) for tensor in batch if tensor is not None]
    del batch
    gc.collect()
    assert [tensor() for tensor in tensors] == [None] * len(tensors)
    before = resident_bytes()
    for _ in range(8):
        buffer.sample(500)
    gc.collect()
    assert resident_bytes() - before < 1.5 * batch_bytes
