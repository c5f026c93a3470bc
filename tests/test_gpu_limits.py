"""GPU buffers whose observations need more than they may take: nothing is lost but what is evicted, and limits are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers import decompress_buffer
from sb3_extra_buffers.errors import HeapFullError, ObservationError
from sb3_extra_buffers.gpu_buffers import GpuDictReplayBuffer, GpuReplayBuffer, GpuRolloutBuffer
from sb3_extra_buffers.store.device.budget import ByteBudget
from sb3_extra_buffers.store.device.heap import SharedRawHeap
from sb3_extra_buffers.store.device.payloads import RawBuffer
from tests.gpu_memories import ACTIONS, METHODS, SPACE, encoder_of, store_of
from tests.oracle import add_to_replay
from tests.transitions import Step, play

STEPS = 120


def too_small(method: str) -> int:
    buffer = GpuReplayBuffer(2 * STEPS, SPACE, ACTIONS, "cpu", 2, compression_method=method, frame_stack=4)
    for step in play(SPACE, ACTIONS, 2, STEPS):
        add_to_replay([buffer], step)
    store_of(buffer).memory.flush()
    memory = encoder_of(buffer)
    return int(0.8 * (memory.heap.data_end if hasattr(memory, "heap") else memory.nbytes))


def assert_same_where_both_are(ours: Any, theirs: Any) -> None:
    first = theirs.pos if theirs.full else 0
    slots = (first + theirs.size() - ours.size() + np.arange(ours.size())) % theirs.buffer_size
    for name in ("observations", "next_observations"):
        assert np.array_equal(np.asarray(getattr(ours, name))[slots], getattr(theirs, name)[slots])


@pytest.mark.parametrize("on_full", ["grow", "evict"])
@pytest.mark.parametrize("method", METHODS)
def test_ten_laps_with_a_heap_that_is_too_small(method: str, on_full: Any) -> None:
    options: dict[str, Any] = {"compression_method": method, "frame_stack": 4, "heap_bytes": too_small(method)}
    ours = GpuReplayBuffer(2 * STEPS, SPACE, ACTIONS, "cpu", 2, on_full=on_full, **options)
    theirs = ReplayBuffer(2 * STEPS, SPACE, ACTIONS, "cpu", 2)
    sizes = []
    for t, step in enumerate(play(SPACE, ACTIONS, 2, 10 * STEPS)):
        add_to_replay([ours, theirs], step._replace(reward=np.full(2, t, np.float32)))
        sizes.append(ours.size())
        if t % 29 == 0:
            assert_same_where_both_are(ours, theirs)
            rewards = ours.sample(50).rewards
            assert rewards.min() > t - ours.size()  # never one that is gone
    if on_full == "grow":
        assert sizes[-1] == STEPS
    else:
        assert min(sizes[STEPS:]) < STEPS
        assert min(sizes[STEPS:]) > STEPS // 4
        assert store_of(ours).budget.taken <= 1.05 * store_of(ours).budget.limit + 1000
    ours.reset()
    assert ours.size() == 0


@pytest.mark.parametrize("method", METHODS)
def test_raise_says_how_much_to_ask_for_and_leaves_the_buffer_readable(method: str) -> None:
    options: dict[str, Any] = {"compression_method": method, "frame_stack": 4, "on_full": "raise"}
    ours = GpuReplayBuffer(2 * STEPS, SPACE, ACTIONS, "cpu", 2, heap_bytes=too_small(method), **options)
    theirs = ReplayBuffer(2 * STEPS, SPACE, ACTIONS, "cpu", 2)
    steps = list(play(SPACE, ACTIONS, 2, 10 * STEPS))

    def fill() -> None:
        for step in steps:
            add_to_replay([ours, theirs], step)

    with pytest.raises(HeapFullError, match="heap_bytes=") as caught:
        fill()
    assert 0 < ours.size() == theirs.size() < STEPS
    assert_same_where_both_are(ours, theirs)
    ours.sample(10)
    enough = GpuReplayBuffer(2 * STEPS, SPACE, ACTIONS, "cpu", 2, heap_bytes=caught.value.needed_bytes, **options)
    for step in steps:
        add_to_replay([enough], step)


@pytest.mark.parametrize("method", METHODS)
def test_what_the_error_asks_for_is_enough_even_if_nearly_nothing_was_given(method: str) -> None:
    options: dict[str, Any] = {"compression_method": method, "frame_stack": 4, "on_full": "raise"}
    steps = list(play(SPACE, ACTIONS, 2, 100))

    def fill(heap_bytes: int) -> None:
        buffer = GpuReplayBuffer(60, SPACE, ACTIONS, "cpu", 2, heap_bytes=heap_bytes, **options)
        for step in steps:
            add_to_replay([buffer], step)

    with pytest.raises(HeapFullError) as caught:
        fill(100)
    fill(caught.value.needed_bytes)


def test_evicting_takes_whole_transitions_of_a_dict() -> None:
    space = spaces.Dict({"a": SPACE, "b": spaces.Box(-1, 1, (5,), np.float32)})
    ours = GpuDictReplayBuffer(120, space, ACTIONS, "cpu", 2, compression_method="rle", heap_bytes=25_000, on_full="evict")
    for t, step in enumerate(play(space, ACTIONS, 2, 300)):
        add_to_replay([ours], step)
        if t > 60:
            assert ours.sample(30).observations["b"].abs().sum(1).min() > 0  # no evicted one, which would be zeros
    assert ours.size() < 60


def test_a_plain_copy_holds_what_was_not_evicted() -> None:
    args = (2 * STEPS, SPACE, ACTIONS, "cpu", 2)
    ours = GpuReplayBuffer(*args, compression_method="tiles", frame_stack=4, heap_bytes=too_small("tiles"), on_full="evict")
    theirs = ReplayBuffer(*args)
    for step in play(SPACE, ACTIONS, 2, 4 * STEPS):
        add_to_replay([ours, theirs], step)
    n = ours.size()
    assert n < theirs.size()
    plain, newest = decompress_buffer(ours), (theirs.pos - n + np.arange(n)) % theirs.buffer_size
    assert plain.size() == n
    for name in ("observations", "next_observations", "actions", "rewards", "dones"):
        assert np.array_equal(getattr(plain, name)[:n], getattr(theirs, name)[newest]), name


def test_a_rollout_cannot_evict() -> None:
    with pytest.raises(ValueError, match="needs all of its steps"):
        GpuRolloutBuffer(20, SPACE, ACTIONS, "cpu", on_full="evict")


def flat(n: int, values: np.ndarray) -> Step:
    """A step of one env whose obs and next_obs are two vectors."""
    zeros = np.zeros(1, np.float32)
    return Step(values[n % len(values)][None], values[(n + 1) % len(values)][None], np.zeros((1, 1)), zeros, zeros, [{}])


@pytest.mark.parametrize("on_full", ["grow", "evict"])
def test_frames_that_return_are_evicted_for_what_they_take(on_full: str) -> None:
    """What fills the room is then not the pieces but the slots that name them."""
    space = spaces.Box(0, 255, (256,), np.uint8)
    few = np.random.default_rng(0).integers(0, 256, (3, 256), dtype=np.uint8)
    buffer = GpuReplayBuffer(1000, space, ACTIONS, "cpu", heap_bytes=20_000, on_full=on_full, frame_stack=1)
    for t in range(3000):
        add_to_replay([buffer], flat(t, few))
        budget = store_of(buffer).budget
        assert on_full == "grow" or budget.taken <= budget.limit
    assert buffer.size() > 500
    newest = (buffer.pos - 1) % 1000
    assert np.array_equal(buffer.observations[newest].numpy()[0], few[2999 % 3])
    assert np.array_equal(buffer.next_observations[newest].numpy()[0], few[0])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("on_full", ["evict", "raise"])
def test_noise_fits_where_it_fits_dense(method: str, on_full: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1000, 1000), dtype=np.uint8)
    options: dict[str, Any] = {"compression_method": method, "on_full": on_full, "frame_stack": 1}
    buffer = GpuReplayBuffer(100, spaces.Box(0, 255, (1000,), np.uint8), ACTIONS, "cpu", heap_bytes=150_000, **options)
    for t in range(300):
        add_to_replay([buffer], flat(t, noise))
        assert store_of(buffer).budget.taken <= 150_000
    assert buffer.size() == 100
    assert np.array_equal(np.asarray(buffer.observations)[:, 0], noise[200:300])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("on_full", ["evict", "raise"])
def test_a_replay_buffer_that_was_reset_has_all_its_room_again(method: str, on_full: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (500, 1000), dtype=np.uint8)
    options: dict[str, Any] = {"compression_method": method, "on_full": on_full, "frame_stack": 1}
    heap_bytes = 60_000 if on_full == "evict" else 150_000
    buffer = GpuReplayBuffer(100, spaces.Box(0, 255, (1000,), np.uint8), ACTIONS, "cpu", heap_bytes=heap_bytes, **options)
    sizes = []
    for _ in range(3):
        for t in range(300):
            add_to_replay([buffer], flat(t, noise))
        sizes.append(buffer.size())
        buffer.reset()
        assert buffer.size() == 0
    assert sizes[0] == sizes[1] == sizes[2] > 30


def test_nothing_is_evicted_for_what_is_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (500, 1000), dtype=np.uint8)
    options: dict[str, Any] = {"compression_method": "none", "on_full": "evict", "frame_stack": 1, "heap_bytes": 50_000}
    buffer = GpuReplayBuffer(100, spaces.Box(0, 255, (1000,), np.uint8), ACTIONS, "cpu", **options)
    for t in range(200):
        add_to_replay([buffer], flat(t, noise))
        size = buffer.size()
        with pytest.raises(ObservationError):
            add_to_replay([buffer], flat(t, noise[:, :7]))
        assert buffer.size() == size


def test_a_heap_of_its_own_keeps_to_its_room() -> None:
    heap = SharedRawHeap(1024, "cpu", ByteBudget(1024, is_hard=True))
    cells = RawBuffer(4, heap)
    for cell in range(2):
        cells.write(np.array([cell]), th.arange(64), np.array([512]), strict=True)
    with pytest.raises(HeapFullError):
        cells.write(np.array([2]), th.arange(64), np.array([512]), strict=True)
    cells.free(np.array([1, 1, 1]))
    assert heap.live_bytes == 512
    with pytest.raises(IndexError, match="numbered from 0"):
        cells.free(np.array([-1]))
    del cells
    heap.compact()
    assert (heap.live_bytes, heap.data_end) == (0, 0)
