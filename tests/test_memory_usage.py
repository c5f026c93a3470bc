"""`memory_usage()` and `repr` of a buffer: counted as SB3 would really take it, and said so that a person understands it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer

from sb3_extra_buffers.compressed import (
    CompressedArray,
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.compressed.rollout import RolloutObservations
from sb3_extra_buffers.errors import LossyStorageWarning
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer
from sb3_extra_buffers.store import MemoryUsage
from tests.oracle import DICT_SPACE, IMAGE, SPACES, add_to_replay, add_to_rollout
from tests.transitions import play

ACTIONS = spaces.Discrete(4)
STEPS, SIZE, N_ENVS = 15, 40, 2


def bytes_of(arrays: Any, share: float) -> int:
    """What the filled part of SB3's arrays has."""
    return int(share * sum(array.nbytes for array in (arrays.values() if isinstance(arrays, dict) else [arrays])))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_raw_bytes_of_replay_are_those_of_sb3(space: Any) -> None:
    is_dict = isinstance(space, spaces.Dict)
    theirs = (DictReplayBuffer if is_dict else ReplayBuffer)(SIZE, space, ACTIONS, "cpu", n_envs=N_ENVS)
    ours = (CompressedDictReplayBuffer if is_dict else CompressedReplayBuffer)(SIZE, space, ACTIONS, "cpu", n_envs=N_ENVS)
    for step in play(space, ACTIONS, N_ENVS, STEPS):
        add_to_replay([theirs, ours], step)
    share = STEPS / (SIZE // N_ENVS)
    usage = ours.memory_usage()
    assert usage.raw_bytes == bytes_of(theirs.observations, share) + bytes_of(theirs.next_observations, share)
    assert usage.ratio == usage.stored_bytes / usage.raw_bytes


@pytest.mark.parametrize("space", [IMAGE, DICT_SPACE], ids=["image", "dict"])
def test_raw_bytes_of_a_rollout_are_those_of_sb3(space: Any) -> None:
    is_dict = isinstance(space, spaces.Dict)
    theirs = (DictRolloutBuffer if is_dict else RolloutBuffer)(SIZE, space, ACTIONS, "cpu", n_envs=N_ENVS)
    ours = (CompressedDictRolloutBuffer if is_dict else CompressedRolloutBuffer)(SIZE, space, ACTIONS, "cpu", n_envs=N_ENVS)
    for step in play(space, ACTIONS, N_ENVS, STEPS):
        add_to_rollout([theirs, ours], step)
    assert ours.memory_usage().raw_bytes == bytes_of(theirs.observations, STEPS / SIZE)


def test_optimize_memory_usage_is_compared_with_one_array() -> None:
    options: dict[str, Any] = {"device": "cpu", "optimize_memory_usage": True, "handle_timeout_termination": False}
    theirs, ours = (buffer_class(SIZE, IMAGE, ACTIONS, **options) for buffer_class in (ReplayBuffer, CompressedReplayBuffer))
    for step in play(IMAGE, ACTIONS, 1, STEPS):
        add_to_replay([theirs, ours], step)
    assert ours.memory_usage().raw_bytes == bytes_of(theirs.observations, STEPS / SIZE)


def test_a_smaller_dtype_is_compared_with_the_dtype_that_sb3_keeps() -> None:
    space = spaces.Box(0, 200, (30, 30), np.int64)
    with pytest.warns(LossyStorageWarning):
        ours = CompressedReplayBuffer(SIZE, space, ACTIONS, "cpu", dtypes={"elem_type": np.uint8})
    obs = np.ones((1, 30, 30), np.int64)
    for _ in range(STEPS):
        ours.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    assert ours.memory_usage().raw_bytes == STEPS * 2 * obs.nbytes


class Float32Rollout(RolloutBuffer):
    """What RolloutBuffer was in SB3 2.7: observations are float32, whatever their space says."""

    def reset(self) -> None:
        super().reset()
        self.observations = np.zeros((self.buffer_size, self.n_envs, *self.obs_shape), np.float32)


class OursOverFloat32(RolloutObservations, Float32Rollout):
    pass


def test_the_dtype_that_counts_is_the_one_that_the_installed_sb3_chooses() -> None:
    buffer = OursOverFloat32(SIZE, IMAGE, ACTIONS)
    for step in play(IMAGE, ACTIONS, 1, STEPS):
        add_to_rollout([buffer], step)
    assert buffer.memory_usage().raw_bytes == STEPS * int(np.prod(IMAGE.shape)) * 4
    buffer.reset()
    assert buffer.memory_usage().raw_bytes == 0


# ---- for people


def test_a_buffer_says_what_it_holds() -> None:
    buffer = CompressedReplayBuffer(4000, IMAGE, ACTIONS, "cpu", n_envs=2, compression_method="gzip6")
    assert repr(buffer) == (
        "<CompressedReplayBuffer: 0 of 4,000 transitions (2 envs), observations: nothing stored yet, gzip/6>"
    )
    for step in play(IMAGE, ACTIONS, 2, STEPS):
        add_to_replay([buffer], step)
    size = r"[\d.]+ [kMG]?B"
    assert re.fullmatch(
        rf"<CompressedReplayBuffer: 30 of 4,000 transitions \(2 envs\), observations: {size} instead of SB3's {size} "
        r"\([\d.]+ %\), gzip/6>",
        repr(buffer),
    )
    assert re.fullmatch(rf"observations: {size} instead of SB3's {size} \([\d.]+ %\); gzip/6", str(buffer.memory_usage()))


def test_a_buffer_of_a_dict_says_the_codec_of_each_key() -> None:
    space = spaces.Dict(observation=spaces.Box(0, 255, (20, 20), np.uint8), joints=spaces.Box(-1, 1, (3,)))
    buffer = CompressedDictReplayBuffer(
        SIZE, space, ACTIONS, "cpu", compression_method={"observation": "gzip", "joints": "none"}, frame_stack=1
    )
    for step in play(space, ACTIONS, 1, STEPS):
        add_to_replay([buffer], step)
    assert repr(buffer).endswith("%), observation: gzip/1, joints: none>")
    first, *keys = str(buffer.memory_usage()).splitlines()
    assert first.startswith("observations: ")
    assert {line.split(":")[0].strip(): line.rpartition("; ")[2] for line in keys} == {
        "observation": "gzip/1",
        "joints": "none",
    }


def test_an_undecided_codec_is_said() -> None:
    buffer = CompressedReplayBuffer(SIZE, spaces.Box(0, 255, (4, 84, 84), np.uint8), ACTIONS, "cpu")
    assert repr(buffer).endswith(", codec undecided yet>")
    assert str(buffer.memory_usage()) == "observations: nothing stored yet; not encoded until the frame stack is known"


def test_gpu_buffers_and_arrays_say_it_too() -> None:
    buffer = GpuReplayBuffer(SIZE, IMAGE, ACTIONS, device="cpu", compression_method="none", frame_stack=1)
    assert repr(buffer) == "<GpuReplayBuffer: 0 of 40 transitions (1 env), observations: nothing stored yet, none>"
    array = CompressedArray(4, np.uint8, (10, 100), compression_method="gzip")
    array[0] = 1
    assert re.fullmatch(r"[\d.]+ k?B instead of 1 kB \([\d.]+ %\); gzip/1", str(array.memory_usage()))


def test_a_usage_can_still_be_unpacked() -> None:
    raw, stored, ratio, blocks, codec = MemoryUsage.of(1000, 100, 3, "zstd/3")
    assert (raw, stored, ratio, blocks, codec) == (1000, 100, 0.1, 3, "zstd/3")
    assert str(MemoryUsage.of(1000, 100, 3, "zstd/3")) == "100 B instead of 1 kB (10 %); zstd/3"
