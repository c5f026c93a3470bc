"""The heap behind `rle` and `zstd`: payloads never overlap, are packed, and go with the buffers that own them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_extra_buffers.gpu_buffers import GpuDictReplayBuffer, GpuReplayBuffer, GpuRolloutBuffer
from sb3_extra_buffers.store.device.heap import SharedRawHeap
from sb3_extra_buffers.store.device.payloads import RawBuffer
from tests.gpu_memories import ACTIONS, METHODS, SPACE, encoder_of, store_of
from tests.oracle import add_to_replay
from tests.transitions import play


def assert_live_cells_do_not_overlap(heap: SharedRawHeap, buffers: list[RawBuffer]) -> None:
    spans = sorted(
        (int(start), int(start) + int(length))
        for buffer in buffers
        for start, length in zip(buffer.start_idx, buffer.lengths, strict=True)
        if start >= 0
    )
    for (_, end), (start, _) in pairwise(spans):
        assert end <= start
    assert not spans or spans[-1][1] <= heap.data_end <= heap.capacity


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_live_cells_never_overlap_and_keep_their_bytes(data: st.DataObject) -> None:
    heap = SharedRawHeap(64)
    buffers = [RawBuffer(2, heap), RawBuffer(9, heap)]
    kept: dict[tuple[int, int], bytes] = {}
    for _ in range(data.draw(st.integers(1, 25))):
        which = data.draw(st.integers(0, 1))
        cells = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True))
        kind = data.draw(st.sampled_from(["write", "write", "free", "compact"]))
        if kind == "compact":
            heap.compact()
            total = sum(-(-int(buffer.lengths.sum()) // 8) * 8 for buffer in buffers)
            assert heap.data_end <= total + 8 * len(kept)
        elif kind == "free":
            buffers[which].free(np.array(cells))
            for cell in cells:
                kept.pop((which, cell), None)
        else:
            payloads = [data.draw(st.binary(min_size=1, max_size=70)) for _ in cells]
            padded = b"".join(payload.ljust(-(-len(payload) // 8) * 8, b"\0") for payload in payloads)
            lengths = np.array([len(payload) for payload in payloads])
            buffers[which].write(np.array(cells), th.frombuffer(bytearray(padded), dtype=th.int64), lengths)
            kept.update({(which, cell): payload for cell, payload in zip(cells, payloads, strict=True)})
        assert_live_cells_do_not_overlap(heap, buffers)
        assert heap.live_bytes == sum(-(-len(payload) // 8) * 8 for payload in kept.values())
        for (owner, cell), payload in kept.items():
            words, _ = buffers[owner].read(np.array([cell]))
            assert words.numpy().tobytes()[: len(payload)] == payload


def test_compact_packs_what_is_alive() -> None:
    heap = SharedRawHeap(1 << 16)
    buffer = RawBuffer(100, heap)
    buffer.write(np.arange(100), th.arange(400), np.full(100, 32))
    buffer.free(np.arange(0, 100, 2))
    assert heap.data_end == 3200
    buffer.compact()
    assert heap.data_end == int(buffer.lengths.sum()) == 1600
    words, starts = buffer.read(np.arange(1, 100, 2))
    assert words.view(50, 4)[:, 0].tolist() == list(range(4, 400, 8))
    assert starts.tolist() == list(range(0, 1600, 32))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))], ids=["copy", "pickle"])
def test_a_copy_of_buffers_has_their_payloads_in_a_heap_of_its_own(copied: Callable[[Any], Any]) -> None:
    heap = SharedRawHeap(1 << 10)
    buffers = [RawBuffer(5, heap), RawBuffer(9, heap)]
    for i, buffer in enumerate(buffers):
        buffer.write(np.array([1, 3]), th.arange(6) + 10 * i, np.array([9, 30]))
    again = copied(buffers)
    assert again[0].heap is again[1].heap is not heap
    heap.data[:] = 0
    for i, buffer in enumerate(again):
        words, starts = buffer.read(np.array([3, 1]))
        assert words.tolist() == [10 * i + n for n in (2, 3, 4, 5, 0, 1)]
        assert starts.tolist() == [0, 32]
        assert buffer.lengths[:5].tolist() == [0, 9, 0, 30, 0]
    again[0].heap.check()


def test_bad_payloads_are_refused_and_change_nothing() -> None:
    heap = SharedRawHeap(64)
    buffer = RawBuffer(4, heap)
    words = th.arange(2)
    for cells, payloads, lengths, message in (
        ([1, 1], words, [8, 8], "each once"),
        ([-1, 1], words, [8, 8], "numbers from 0"),
        ([0, 1], words, [8, 16], "3 int64 words"),
        ([0, 1], words, [8], "int64 words"),
        ([0, 1], words.to(th.int32), [8, 8], "of torch.int32"),
    ):
        with pytest.raises(ValueError, match=message):
            buffer.write(np.array(cells), payloads, np.array(lengths))
    assert heap.data_end == heap.live_bytes == 0
    with pytest.raises(IndexError, match="numbered from 0"):
        buffer.read(np.array([-1]))
    with pytest.raises(ValueError, match="capacity must be a number of bytes"):
        SharedRawHeap(-8)


def test_leaves_that_share_a_heap_count_it_once() -> None:
    space = spaces.Dict({"a": SPACE, "b": spaces.Box(0, 255, (4, 40, 40), np.uint8)})
    buffer = GpuDictReplayBuffer(60, space, ACTIONS, "cpu", 2, compression_method="rle", frame_stack=4)
    for step in play(space, ACTIONS, 2, 50):
        add_to_replay([buffer], step)
    memories = [encoder_of(buffer, key) for key in "ab"]
    assert memories[0].heap is memories[1].heap
    assert memories[0].heap.capacity - 2 <= sum(memory.nbytes for memory in memories) <= memories[0].heap.capacity
    assert memories[0].nbytes < memories[1].nbytes


@pytest.mark.parametrize("method", ["rle", "zstd"])
def test_replay_compacts_when_the_cursor_wraps(method: str) -> None:
    buffer = GpuReplayBuffer(60, SPACE, ACTIONS, "cpu", 2, compression_method=method, frame_stack=4)
    for t, step in enumerate(play(SPACE, ACTIONS, 2, 120), 1):
        add_to_replay([buffer], step)
        if t > 30 and t % 30 == 0:
            memory = encoder_of(buffer)
            assert memory.heap.data_end <= int(memory.payloads.lengths.sum()) + 8 * len(memory.payloads.lengths)


@pytest.mark.parametrize("method", METHODS)
def test_a_rollout_compacts_when_it_becomes_full(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = GpuRolloutBuffer(20, SPACE, ACTIONS, "cpu", n_envs=2, compression_method=method, frame_stack=4)
    packed_at: list[int] = []
    monkeypatch.setattr(store_of(buffer), "compact", lambda: packed_at.append(buffer.pos))
    for _ in range(2):
        for step in play(SPACE, ACTIONS, 2, 20):
            buffer.add(step.obs, step.action, step.reward, step.done, th.zeros(2), th.zeros(2))
        buffer.reset()
    assert packed_at == [20, 20]
