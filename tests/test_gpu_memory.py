"""What keeps frames on a device: exact, small, packed, and within its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from torch.utils._python_dispatch import TorchDispatchMode

from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer
from sb3_extra_buffers.native.store import OUTSIDE, NativeStore
from sb3_extra_buffers.store.device.budget import ByteBudget
from sb3_extra_buffers.store.device.coded import DeviceRle
from sb3_extra_buffers.store.device.memory import DenseMemory, Expected, FrameMemory
from sb3_extra_buffers.store.device.rows import select_rows, wide
from sb3_extra_buffers.store.device.tiles import TileMemory
from tests.gpu_memories import ACTIONS, METHODS, SPACE, encoder_of, make_memory, pictures, store_of
from tests.oracle import add_to_replay
from tests.transitions import Step, play

# ---- every memory


@pytest.mark.parametrize("frame_bytes", [1, 7, 28, 255, 784, 1000, 4099, 7056])
@pytest.mark.parametrize("method", METHODS)
def test_frames_come_back_as_they_were(method: str, frame_bytes: int) -> None:
    memory = make_memory(method, frame_bytes)
    zeros = th.zeros(frame_bytes, dtype=th.uint8)
    kept: dict[int, th.Tensor] = {-1: zeros, 77: zeros}  # no frame, and a token that nothing is put for
    rng = np.random.default_rng(1)
    for round_ in range(12):
        tokens = rng.permutation(np.arange(60))[:20]
        if round_ % 3 == 2:
            frames = th.from_numpy(rng.integers(0, 256, (20, frame_bytes), dtype=np.uint8))
        else:
            frames = pictures(20, frame_bytes, round_)
        memory.free(tokens[tokens < 30])
        memory.put(tokens, frames)
        kept.update(zip(tokens.tolist(), frames, strict=True))
        if round_ % 4 == 3:
            gone = rng.permutation(np.arange(60))[:15]
            memory.free(gone)
            for token in gone.tolist():
                kept[token] = zeros
            memory.compact()
        tokens = rng.permutation(np.array(list(kept)))
        order = rng.integers(0, len(tokens), 50)
        assert th.equal(memory.gather(tokens), th.stack([kept[token] for token in tokens.tolist()]))
        assert th.equal(memory.gather(tokens, order), th.stack([kept[token] for token in tokens[order].tolist()]))
        memory.check()
        assert memory.tokens().tolist() == sorted(
            token for token, frame in kept.items() if frame is not kept[-1] and token != 77
        )
    memory.clear()
    assert not len(memory.tokens())
    assert not memory.gather(np.array([-1, 3, 1000])).any()
    memory.put(np.arange(20), frames)
    assert th.equal(memory.gather(np.arange(20)), frames)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_single_frame_comes_back_and_can_be_read_as_words(method: str, waits: bool) -> None:
    for frame_bytes in (*range(1, 33), 296, 1000, 4099, 7056):
        memory = make_memory(method, frame_bytes, waits=waits)
        [frame] = frames = pictures(1, frame_bytes)
        for tokens in (np.array([0]), np.array([5])):
            memory.put(tokens, frames)
            read = memory.gather(tokens)
            assert th.equal(read[0], frame), frame_bytes
            assert th.equal(wide(read).view(th.uint8)[0], frame), frame_bytes
            memory.flush()
            assert th.equal(wide(memory.gather(tokens)).view(th.uint8)[0], frame), frame_bytes


@pytest.mark.parametrize("method", METHODS)
def test_a_memory_that_is_full_says_so_and_keeps_what_it_has(method: str) -> None:
    memory = make_memory(method, 784, limit=40_000)
    noise = th.from_numpy(np.random.default_rng(0).integers(0, 256, (200, 784), dtype=np.uint8))
    n = 0

    def fill() -> None:
        nonlocal n
        for n in range(0, 200, 8):
            memory.put(np.arange(n + 1, n + 9), noise[n : n + 8], strict=True)

    with pytest.raises(HeapFullError) as caught:
        fill()
    assert 16 <= n <= 48
    assert caught.value.needed_bytes > 40_000
    assert memory.nbytes <= 41_000
    assert th.equal(memory.gather(np.arange(1, n + 1)), noise[:n])
    memory.free(np.arange(1, 17))
    memory.put(np.arange(1, 9), noise[100:108], strict=True)
    assert th.equal(memory.gather(np.arange(1, 9)), noise[100:108])
    assert th.equal(memory.gather(np.arange(17, n + 1)), noise[16:n])
    memory.put(np.arange(300, 308), noise[108:116])  # not strict: it grows
    assert th.equal(memory.gather(np.arange(300, 308)), noise[108:116])


@pytest.mark.parametrize("method", METHODS)
def test_frames_that_are_overwritten_while_they_wait_are_never_stored(method: str) -> None:
    ours = GpuReplayBuffer(6, SPACE, ACTIONS, "cpu", 2, compression_method=method, frame_stack=4)
    theirs = ReplayBuffer(6, SPACE, ACTIONS, "cpu", 2)
    for t, step in enumerate(play(SPACE, ACTIONS, 2, 200)):
        add_to_replay([ours, theirs], step)
        if t % 7 == 0:
            store = store_of(ours)
            store.memory.flush()
            store.check()
            # Three cells and the end of the stream; frames are freed by four of a stream at a time.
            assert len(encoder_of(ours).tokens()) <= 2 * (3 + 1) * 4 + 2 * 4
            assert len(encoder_of(ours).tokens()) <= 4 * store.memory_usage().blocks
        assert np.array_equal(np.asarray(ours.observations), theirs.observations)
        assert np.array_equal(np.asarray(ours.next_observations), theirs.next_observations)


@pytest.mark.parametrize("method", METHODS)
def test_noise_takes_no_more_than_a_fifth_above_dense_frames(method: str) -> None:
    space = spaces.Box(0, 255, (4, 40, 40), np.uint8)
    rng = np.random.default_rng(0)
    ours, theirs = (
        GpuReplayBuffer(600, space, ACTIONS, "cpu", 2, compression_method=method, frame_stack=4, heap_bytes=1),
        ReplayBuffer(600, space, ACTIONS, "cpu", 2),
    )
    stack = rng.integers(0, 256, (2, 4, 40, 40), dtype=np.uint8)
    for t in range(700):
        after = np.concatenate((stack[:, 1:], rng.integers(0, 256, (2, 1, 40, 40), dtype=np.uint8)), 1)
        step = Step(stack, after, np.zeros((2, 1)), np.zeros(2), np.zeros(2, bool), [{}, {}])
        add_to_replay([ours, theirs], step)
        stack = after
        if t >= 60 and t % 20 == 0:
            dense = 1600 * (2 * min(t, 300) + 8)
            assert encoder_of(ours).nbytes <= 1.2 * dense
    assert np.array_equal(np.asarray(ours.observations), theirs.observations)
    assert np.array_equal(np.asarray(ours.next_observations), theirs.next_observations)


# ---- decoding: each frame once, a fixed number of calls, without a wait for the device


def test_frames_are_listed_once_and_put_in_order_again() -> None:
    index = NativeStore(n_cells=40, n_streams=2, n_columns=2, stack=3, frame_bytes=5, block_frames=3, frames=OUTSIDE)
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (60, 2, 5), dtype=np.uint8)
    for slot in range(15):
        stacks = [np.ascontiguousarray(frames[slot + k : slot + k + 3].swapaxes(0, 1)) for k in (0, 1)]
        index.plan(slot, *stacks)
        index.commit()
    slots, envs = rng.integers(0, 20, 300), rng.integers(0, 2, 300)
    tokens, order = index.tokens(slots, envs, 3)
    assert len(np.unique(tokens)) == len(tokens)
    every = tokens[order].reshape(2, 300, 3)
    assert list(dict.fromkeys(every.transpose(0, 1, 2).reshape(-1).tolist())) == tokens.tolist()
    assert (every[:, slots >= 15] == -1).all()
    assert (every[:, slots < 15] >= 0).all()
    same_frame = every[0, :, 1:] == every[1, :, :-1]  # next_obs is obs, one frame on
    assert same_frame[slots < 15].all()


class Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", ["none", "tiles", "rle"])
def test_sampling_takes_as_many_torch_calls_for_any_batch(method: str) -> None:
    buffer = GpuReplayBuffer(80, SPACE, ACTIONS, "cpu", 2, compression_method=method)
    for step in play(SPACE, ACTIONS, 2, 60):
        add_to_replay([buffer], step)
    store_of(buffer).memory.flush()
    counts = []
    for batch_size in (2, 64, 300):
        with Calls() as calls:
            buffer.sample(batch_size)
        counts.append(len(calls.names))
        assert not any("_local_scalar_dense" in name or "nonzero" in name for name in calls.names)
    assert counts[0] == counts[1] == counts[2]
    assert counts[0] < 60


@pytest.mark.parametrize("kind", [DenseMemory, TileMemory])
def test_decoding_never_waits_for_the_device(kind: type[FrameMemory]) -> None:
    """On `meta` there is nothing to wait for: a transfer to the host, or a shape that depends on data, is an error."""
    memory = kind(Expected(784, 100, 2, line_bytes=28), th.device("meta"), ByteBudget(0))
    frames = memory.gather(np.arange(-1, 7), np.zeros(33, np.int64))
    assert frames.shape == (33, 784)
    assert frames.dtype == th.uint8
    assert frames.device.type == "meta"


@pytest.mark.parametrize("dtype", [th.int32, th.uint8, th.int64])
def test_the_core_selects_rows_as_torch_does(dtype: th.dtype) -> None:
    for width in (*range(1, 45), 252):
        rows = th.from_numpy(np.random.default_rng(width).integers(0, 256, (50, width * dtype.itemsize), np.uint8)).view(dtype)
        numbers = th.randint(0, 50, (width % 7 * 20, 2), dtype=th.int32)[:, 0]  # with gaps, and none at all
        assert th.equal(select_rows(rows, numbers), rows.index_select(0, numbers))
        for wrong in (50, -1, 2**31 - 1):
            with pytest.raises(IndexError):
                select_rows(rows, th.tensor([3, wrong, 4], dtype=th.int32))


@pytest.mark.parametrize("frame_bytes", [1, 2, 6, 12, 24, 7056])
def test_rows_in_wider_words_are_the_same_rows(frame_bytes: int) -> None:
    rows = th.from_numpy(np.random.default_rng(0).integers(0, 256, (9, frame_bytes), np.uint8))
    assert wide(rows).dtype.itemsize == min(8, frame_bytes & -frame_bytes)
    assert wide(rows).data_ptr() == rows.data_ptr()
    assert th.equal(wide(rows).view(th.uint8), rows)


# ---- rle


@pytest.mark.parametrize("frame_bytes", [8, 64, 511, 512, 513, 7056])
def test_rle_payloads_are_no_longer_than_the_frames(frame_bytes: int) -> None:
    noise = th.from_numpy(np.random.default_rng(0).integers(0, 256, (5, frame_bytes), dtype=np.uint8))
    frames = th.cat((noise, pictures(5, frame_bytes), th.zeros((2, frame_bytes), dtype=th.uint8)))
    _, lengths = DeviceRle().encode(frames)
    assert (lengths <= -(-frame_bytes // 8) * 8).all()
    if frame_bytes == 7056:
        assert (lengths[-2:] == 112 + 8).all()  # the map, and one word
