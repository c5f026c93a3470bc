"""GPU buffers under faults: torch refuses memory, Ctrl-C comes, threads read beside writers, files are damaged."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    ReplayBuffer,
    RolloutBuffer,
)

from sb3_extra_buffers.errors import CorruptDataError, SegmentVersionError
from sb3_extra_buffers.gpu_buffers import GpuDictReplayBuffer, GpuDictRolloutBuffer, GpuReplayBuffer, GpuRolloutBuffer
from tests.fault_injection import FAULTS, Case, Twins
from tests.gpu_memories import METHODS, TorchFault, store_of
from tests.interrupts import Interrupts, is_free
from tests.oracle import add_to_replay, assert_same_samples
from tests.store_segments import flips
from tests.test_gpu_limits import assert_same_where_both_are
from tests.transitions import play

ACTIONS = spaces.Discrete(4)
IMAGE = spaces.Box(0, 255, (4, 20, 20), np.uint8)
VIEWS = spaces.Dict({"a": IMAGE, "b": spaces.Box(0, 255, (4, 24, 24), np.uint8), "speed": spaces.Box(-1, 1, (5,), np.float32)})


def case_of(method: str, kind: str = "replay", **options: Any) -> Case:
    ours, theirs, space = {
        "replay": (GpuReplayBuffer, ReplayBuffer, IMAGE),
        "rollout": (GpuRolloutBuffer, RolloutBuffer, IMAGE),
        "dict": (GpuDictReplayBuffer, DictReplayBuffer, VIEWS),
        "dict-rollout": (GpuDictRolloutBuffer, DictRolloutBuffer, VIEWS),
    }[kind]
    stacks = {"a": 4, "b": 4} if kind.startswith("dict") else 4
    defaults = {"compression_method": method, "buffer_device": "cpu", "frame_stack": stacks, "heap_bytes": 1}
    return Case(f"{kind}-{method}", ours, theirs, space, {**defaults, **options})


CASES = [
    *(case_of(method) for method in METHODS),
    *(case_of(method, "rollout") for method in METHODS),
    case_of("tiles", frame_stack="auto"),
    case_of("rle", "dict"),  # leaves that share a heap
    case_of("zstd", "dict-rollout"),
    case_of("tiles", "dict", compression_method={"a": "tiles", "b": "rle"}),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def fill(case: Case, n_steps: int = 70, slots: int = 20) -> Twins:
    """Twins that are full, with frames in the memory and frames that wait."""
    twins = Twins(case, steps=slots)
    for _ in range(n_steps):
        twins.add_next()
    return twins


def finish_reset(twins: Twins) -> None:
    """After a reset of ours that may have been interrupted. A replay buffer needs no other one."""
    if twins.case.is_rollout:
        twins.reset()
    elif twins.ours.size() == 0:
        twins.theirs.reset()
        twins.undefined = None


# ---- torch refuses memory


@every_case
def test_a_refused_allocation_loses_nothing(case: Case) -> None:
    """At each torch call of each `add` in turn: what is refused is tried again, with the fault one call later."""
    twins, n_faults, rng = fill(case), 0, np.random.default_rng(0)
    for _ in range(70 if FAULTS >= 10_000 else 45):  # the 20 slots are overwritten in any case
        step, number = next(twins.steps), 0
        while True:
            fault = TorchFault(number)
            with contextlib.suppress(th.OutOfMemoryError):
                twins.add(step, lambda call, fault=fault: under(fault, call))
            n_faults += fault.has_fired
            number += 1 if number < 20 or FAULTS >= 10_000 else int(rng.integers(1, 8))
            if rng.random() < 0.1:
                twins.check()
            if twins.undefined is None:
                break
    twins.check()
    twins.check_samples()
    assert n_faults > 150


def under(fault: TorchFault, call: Callable[[], Any]) -> None:
    with fault:
        call()


@every_case
def test_a_refused_allocation_in_a_read_a_copy_or_a_reset_loses_nothing(case: Case) -> None:
    twins, n_faults, rng = fill(case), 0, np.random.default_rng(0)
    calls: dict[str, Callable[[], Any]] = {
        "copy": lambda: copy.deepcopy(twins.ours),
        "pickle": lambda: pickle.dumps(twins.ours),
        "compact": lambda: twins.ours.compact(),
        "read": lambda: [np.asarray(leaf.column(0)) for leaf in twins.ours._leaves.values()],
        "reset": lambda: twins.ours.reset(),
    }
    for name, call in calls.items():
        number = 0
        while True:
            with TorchFault(number) as fault, contextlib.suppress(th.OutOfMemoryError):
                call()
            n_faults += fault.has_fired
            if name == "reset":
                finish_reset(twins)
                for _ in range(30):
                    twins.add_next()
            elif number % 3 == 0:
                twins.add_next()
            twins.check()
            if not fault.has_fired:
                break
            number += 1 if number < 6 or FAULTS >= 10_000 else int(rng.integers(1, 8))
    assert n_faults > 20


# ---- Ctrl-C


@every_case
def test_an_interrupt_loses_nothing(case: Case) -> None:
    twins, interrupts, rng = fill(case), Interrupts(), np.random.default_rng(0)
    n_faults, step = 0, next(twins.steps)
    while n_faults < max(FAULTS // 3, 100):
        number = 1 + int(rng.exponential(700))
        with contextlib.suppress(KeyboardInterrupt):
            twins.add(step, lambda call, number=number: interrupts.at_bytecode(number, call))
        n_faults += interrupts.has_fired
        if twins.undefined is None:
            step = next(twins.steps)
        if rng.random() < 0.1:
            twins.check()
            twins.check_samples(seed=n_faults)
    twins.add_next()
    twins.check()
    twins.check_samples()


@every_case
def test_an_interrupt_in_a_read_a_copy_or_a_reset_loses_nothing(case: Case) -> None:
    twins, interrupts, rng = fill(case), Interrupts(), np.random.default_rng(1)
    calls: list[Callable[[], Any]] = [
        lambda: pickle.dumps(twins.ours),
        lambda: twins.ours.compact(),
        lambda: [np.asarray(leaf.column(0)) for leaf in twins.ours._leaves.values()],
        lambda: twins.ours.reset(),
    ]
    for n_faults in range(max(FAULTS // 6, 40)):
        call = calls[n_faults % len(calls)]
        with contextlib.suppress(KeyboardInterrupt):
            interrupts.at_call(1 + int(rng.exponential(60)), call)
        assert is_free(twins.ours._lock)
        if call is calls[-1]:
            finish_reset(twins)
        for _ in range(int(rng.integers(0, 40))):
            twins.add_next()
        twins.check()


# ---- eviction


#: Bytes that are too few for 60 steps of two envs, but enough for some of them.
TOO_FEW = {"none": 24_000, "tiles": 14_000, "rle": 24_000, "zstd": 24_000}


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # an interrupt while a weak reference is cleared
@pytest.mark.parametrize("fault", ["memory", "interrupt"])
@pytest.mark.parametrize("method", METHODS)
def test_faults_while_transitions_are_evicted_lose_nothing_else(method: str, fault: str) -> None:
    args = (120, IMAGE, ACTIONS, "cpu", 2)
    options: dict[str, Any] = {"compression_method": method, "frame_stack": 4, "on_full": "evict"}
    ours, theirs = GpuReplayBuffer(*args, heap_bytes=TOO_FEW[method], **options), ReplayBuffer(*args)
    interrupts, rng, sizes = Interrupts(), np.random.default_rng(0), []
    for t, step in enumerate(play(IMAGE, ACTIONS, 2, max(2 * FAULTS, 400))):
        before = ours.pos, ours.full
        with contextlib.suppress(KeyboardInterrupt, th.OutOfMemoryError):
            if t % 2:
                add_to_replay([ours], step)
            elif fault == "memory":
                under(TorchFault(int(rng.integers(60))), lambda step=step: add_to_replay([ours], step))
            else:
                interrupts.at_bytecode(1 + int(rng.exponential(900)), lambda step=step: add_to_replay([ours], step))
        ours.size()
        if (ours.pos, ours.full) != before:
            add_to_replay([theirs], step)
        sizes.append(ours.size())
        if t % 11 == 0:
            assert_same_where_both_are(ours, theirs)
            store_of(ours).check()
    assert 5 < min(sizes[150:]) < 60  # some were evicted
    assert_same_where_both_are(ours, theirs)


def marked(number: int) -> Any:
    """A step of one env whose obs, next_obs and reward all say which it is."""
    obs = np.full((1, 700), 1 + number % 250, np.uint8)
    obs[:, 3:] = np.random.default_rng(number).integers(0, 256, (1, 697), dtype=np.uint8)
    return obs, obs[:, ::-1].copy(), np.zeros((1, 1)), np.array([1 + number % 250], np.float32), np.zeros(1), [{}]


@pytest.mark.parametrize("method", METHODS)
def test_a_thread_that_samples_never_sees_what_is_evicted(method: str) -> None:
    options: dict[str, Any] = {"compression_method": method, "on_full": "evict", "frame_stack": 1, "heap_bytes": 40_000}
    buffer = GpuReplayBuffer(200, spaces.Box(0, 255, (700,), np.uint8), ACTIONS, "cpu", **options)
    buffer.add(*marked(0))
    wrong: list[str] = []
    is_done = threading.Event()

    def sample() -> None:
        while not is_done.is_set():
            try:
                batch = buffer.sample(64)
                size = buffer.size()
            except Exception as error:
                wrong.append(repr(error))
                return
            marks = batch.rewards[:, 0]
            if not (
                th.equal(batch.observations[:, 0].float(), marks) and th.equal(batch.next_observations[:, -1].float(), marks)
            ):
                wrong.append(f"{int((batch.observations[:, 0].float() != marks).sum())} wrong observations")
            if not 0 < size <= 200:
                wrong.append(f"size {size}")

    threads = [threading.Thread(target=sample) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 900):
        buffer.add(*marked(number))
    is_done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert buffer.size() < 120


# ---- many envs


@pytest.mark.parametrize("method", METHODS)
def test_as_many_frames_as_4096_envs_have_at_once(method: str) -> None:
    """More than the frames that wait, and more than 16 bits can count."""
    n_envs, space = 4096, spaces.Box(0, 255, (4, 24, 24), np.uint8)
    args = (2 * n_envs, space, ACTIONS, "cpu", n_envs)
    options: dict[str, Any] = {"compression_method": method, "frame_stack": 4, "heap_bytes": 1}
    ours, theirs = GpuReplayBuffer(*args, **options), ReplayBuffer(*args)
    rng = np.random.default_rng(0)
    frames = np.repeat(rng.integers(0, 256, (8, n_envs, 24, 1), dtype=np.uint8), 24, 3)
    for t in range(3):
        obs, after = (np.ascontiguousarray(frames[t + k : t + k + 4].swapaxes(0, 1)) for k in (0, 1))
        zeros = np.zeros(n_envs, np.float32)
        for buffer in (ours, theirs):
            buffer.add(obs, after, np.zeros((n_envs, 1)), zeros, zeros, [{}] * n_envs)
    assert np.array_equal(np.asarray(ours.observations), theirs.observations)
    assert np.array_equal(np.asarray(ours.next_observations), theirs.next_observations)
    assert_same_samples(ours, theirs, 500)


# ---- files


def loaded(state: dict[str, Any], like: Any) -> Any:
    other = type(like).__new__(type(like))
    other.__setstate__(state)
    return other


def assert_same_observations(buffer: Any, other: Any) -> None:
    for key, leaf in buffer._leaves.items():
        cells = np.arange(leaf.plan.n_cells)
        for column in range(leaf.plan.n_columns):
            assert th.equal(leaf.read(column, cells), other._leaves[key].read(column, cells))


@pytest.mark.parametrize("method", [*METHODS, "dict", "rollout"])
def test_one_flipped_bit_in_a_saved_buffer_is_noticed(method: str) -> None:
    buffer = fill(case_of(method) if method in METHODS else case_of("rle", method)).ours
    state = buffer.__getstate__()
    assert not [name for name, value in state.items() if isinstance(value, (np.ndarray, th.Tensor))]  # all have checksums
    n_noticed = 0
    for data, means_something in flips(state["_segments"], np.random.default_rng(0), 6):
        if means_something:
            with pytest.raises(CorruptDataError, match=r"damaged|cut off|format version|does not belong where it stands"):
                loaded({**state, "_segments": data}, buffer)
            n_noticed += 1
        else:
            assert_same_observations(buffer, loaded({**state, "_segments": data}, buffer))
    assert n_noticed >= 40
    assert_same_observations(buffer, loaded(state, buffer))


def test_a_saved_buffer_of_another_format_is_refused() -> None:
    buffer = fill(case_of("tiles"), 3).ours
    state = buffer.__getstate__()
    data = state["_segments"][:8] + (99).to_bytes(4, "little") + state["_segments"][12:]
    with pytest.raises(SegmentVersionError, match="format version 99"):
        loaded({**state, "_segments": data}, buffer)
