"""Sizes at the limit of what can be counted: right, or refused when the buffer is made, with an error that helps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.store import BlockStore, FrameLayout, LeafStore, StorePlan
from tests.fault_injection import FAULTS, STEPS, Case, Twins, refuse
from tests.oracle import IMAGE

UINT8, FLOAT32 = np.dtype(np.uint8), np.dtype(np.float32)


@pytest.mark.parametrize("method", ["delta", "none", "zstd", "auto"])
@pytest.mark.parametrize("frame_stack", [1, 4, "auto"])
@pytest.mark.parametrize("block_frames", [2**28, 2**64])
def test_longer_blocks_than_a_buffer_are_cut_down(method: str, frame_stack: Any, block_frames: int) -> None:
    options = {"compression_method": method, "frame_stack": frame_stack, "block_frames": block_frames}
    twins = Twins(Case("long blocks", CompressedReplayBuffer, ReplayBuffer, IMAGE, options, n_envs=8))
    for _ in range(3 * STEPS):
        twins.add_next()
    twins.check()
    twins.check_samples()
    raw = twins.theirs.observations.nbytes + twins.theirs.next_observations.nbytes
    assert twins.ours.memory_usage().stored_bytes < 3 * raw


@pytest.mark.parametrize("method", ["delta", "none", "zstd"])
def test_4096_envs_with_stacked_frames(method: str) -> None:
    n_envs, steps = 4096, 3
    space = spaces.Box(0, 255, (4, 8, 8), np.uint8)
    args = (n_envs * steps, space, spaces.Discrete(2), "cpu", n_envs)
    ours, theirs = CompressedReplayBuffer(*args, compression_method=method, frame_stack=4), ReplayBuffer(*args)
    frames = np.random.default_rng(0).integers(0, 3, (3 * steps + 5, n_envs, 8, 8), dtype=np.uint8)
    frames[:, :, 0, :2] = np.arange(n_envs, dtype="<u2").view(np.uint8).reshape(n_envs, 2)
    for t in range(3 * steps):
        obs, next_obs = (np.ascontiguousarray(frames[at : at + 4].swapaxes(0, 1)) for at in (t, t + 1))
        for buffer in (ours, theirs):
            buffer.add(obs, next_obs, np.zeros(n_envs), np.arange(n_envs) + t, np.zeros(n_envs), [{}] * n_envs)
    assert np.array_equal(np.asarray(ours.observations), theirs.observations)
    assert np.array_equal(np.asarray(ours.next_observations), theirs.next_observations)


@pytest.mark.parametrize("frame_stack", [None, 1])
@pytest.mark.parametrize(("shape", "dtype"), [((4, 84, 84), UINT8), ((3,), FLOAT32)], ids=["blocks", "rows"])
@pytest.mark.parametrize(("n_cells", "n_columns"), [(2**31, 1), (2**30, 2), (2**40, 2), (2**62, 1)])
def test_more_cells_than_can_be_counted_are_refused_at_construction(
    n_cells: int, n_columns: int, shape: tuple[int, ...], dtype: np.dtype[Any], frame_stack: int | None
) -> None:
    plan = StorePlan(shape, dtype, n_cells, 1, n_columns, frame_stack=frame_stack)
    with pytest.raises(ValueError, match="smaller buffer_size"):
        LeafStore(plan)


@pytest.mark.parametrize("frame_stack", [None, 4])
def test_blocks_that_cannot_be_counted_are_refused_at_construction(frame_stack: int | None) -> None:
    plan = StorePlan((4, 84, 84), UINT8, 2**29, 1, 2, codec=make_codec("none"), frame_stack=frame_stack, block_frames=2**33)
    with pytest.raises(ValueError, match="smaller blocks"):
        LeafStore(plan)


@pytest.mark.parametrize("frame_stack", [None, 4])
def test_blocks_that_there_is_no_memory_for_are_refused_at_construction(frame_stack: int | None) -> None:
    plan = StorePlan((4, 84, 84), UINT8, 2**20, 8, 2, codec=make_codec("delta"), frame_stack=frame_stack, block_frames=2**28)
    with pytest.raises(MemoryError, match="smaller blocks"):
        refuse(0, forever=True, call=lambda: LeafStore(plan))


@pytest.mark.skipif(FAULTS < 10_000, reason="takes 5 GiB")
@pytest.mark.parametrize("method", ["none", "delta", "zstd"])
def test_a_block_of_more_than_2_gib(method: str) -> None:
    n, nbytes = 37, 1 << 26
    store = BlockStore(FrameLayout((nbytes,), UINT8), n + 3, make_codec(method), block_frames=n)
    frame = np.zeros((1, nbytes), np.uint8)
    for cell in range(n + 3):
        frame[0, [0, cell, nbytes // 2, nbytes - 1]] = cell + 1
        store.write(0, np.array([cell]), frame)
    for cell in (0, 1, 30, 31, 32, n - 1, n, n + 2):
        read = store.read(0, np.array([cell]))[0]
        assert read[[0, nbytes // 2, nbytes - 1]].tolist() == [cell + 1] * 3
        assert read[1 : n + 3].tolist() == [i + 1 if i <= cell else 0 for i in range(1, n + 3)]
        assert np.count_nonzero(read) == cell + 3
