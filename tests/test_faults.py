"""Refused memory, Ctrl-C, nonsense and broken codecs: a transition is written whole or not at all, in every buffer."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import zlib
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.codecs import register_codec
from sb3_extra_buffers.codecs.base import Bytes, Codec
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.native.binding import core
from tests.fault_injection import (
    CASES,
    FAULTS,
    N_ENVS,
    STEPS,
    Case,
    Interrupts,
    Twins,
    is_free,
    refuse,
    run_in_process,
    wrong_steps,
)  # fmt: skip
from tests.oracle import assert_same_minibatches, assert_same_samples

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
sampled_cases = pytest.mark.parametrize("case", [case for case in CASES if not case.is_rollout], ids=lambda case: case.name)
rollout_cases = pytest.mark.parametrize("case", [case for case in CASES if case.is_rollout], ids=lambda case: case.name)


# ---- refused memory


@pytest.fixture(autouse=True)
def _all_memory_afterwards() -> Iterator[None]:
    yield
    core().sb3x_fail_allocation(-1, 0)


def keeps_in_the_core(case: Case) -> bool:
    return case.space is not None and case.name not in ("vectors", "discrete", "rollout-vectors")


@every_case
@pytest.mark.parametrize("forever", [False, True])
def test_refused_memory_in_add_refuses_the_transition(case: Case, forever: bool) -> None:
    """At each single allocation, or from it on, for several laps."""
    twins, refused = Twins(case), 0
    for t in range(4 * STEPS):
        step = next(twins.steps)
        for number in itertools.count():
            try:
                assert twins.add(step, lambda call, number=number: refuse(number, forever=forever, call=call))
                break
            except MemoryError:
                refused += 1
                assert twins.undefined is not None, "raised, and yet accepted"
                twins.check()
        twins.check()
        twins.check_samples(seed=t)
    assert refused > 0 or not keeps_in_the_core(case)


@sampled_cases
@pytest.mark.parametrize("forever", [False, True])
def test_refused_memory_in_sample_changes_nothing(case: Case, forever: bool) -> None:
    twins, refused = Twins(case), 0
    for t in range(3 * STEPS):
        twins.add_next()
        if t < STEPS or not twins.can_sample():
            continue
        for number in itertools.count():
            try:
                np.random.seed(t)
                refuse(number, forever=forever, call=lambda: twins.ours.sample(20))
                break
            except MemoryError:
                refused += 1
        twins.check_samples(seed=t)
        twins.check()
    assert refused > 0 or not keeps_in_the_core(case)


@rollout_cases
def test_refused_memory_in_get_can_be_tried_again(case: Case) -> None:
    twins, refused = Twins(case), 0
    for _ in range(STEPS):
        twins.add_next()
    assert_same_minibatches(twins.ours, twins.theirs, None)
    for number in range(3):
        try:
            refuse(number, forever=False, call=lambda: list(twins.ours.get(5)))
        except MemoryError:
            refused += 1
        assert_same_minibatches(twins.ours, twins.theirs, 5)
    assert refused > 0 or not keeps_in_the_core(case)
    twins.reset()
    for _ in range(2 * STEPS):
        twins.add_next()


def test_a_real_memory_limit_loses_nothing() -> None:
    """RLIMIT_AS: noise until it is refused, then pictures that take less, then noise again."""
    result = run_in_process("fault_process", "memory", "delta", "none", "zstd", "rle", "lz4-frame")
    assert min(result["refused"]) > 20
    assert min(result["accepted"]) > 3  # laps


# ---- interrupts


def after(number: int, moment: str, rng: np.random.Generator) -> int:
    """The moment that follows: the next one; to save time, if FAULTS does not ask for all, one of the next."""
    if FAULTS >= 10_000:
        return number + 1
    return number + int(rng.integers(1, (2 if moment == "at_call" else 16) + number // 100))


@every_case
@pytest.mark.parametrize("moment", ["at_bytecode", "at_call"])
def test_interrupts_at_every_moment_of_add_lose_nothing(case: Case, moment: str) -> None:
    """Once through all moments, at least: refused steps are tried again, accepted ones are followed by the next."""
    twins, interrupts, number, rng = Twins(case), Interrupts(), 0, np.random.default_rng(0)
    for _ in range(STEPS + 3):
        twins.add_next()
    step = next(twins.steps)
    while interrupts.has_fired:
        number = after(number, moment, rng)
        with contextlib.suppress(KeyboardInterrupt):
            twins.add(step, lambda call, number=number: getattr(interrupts, moment)(number, call))
        if rng.random() < 0.5:  # reading may hide what an interrupt has left
            twins.check()
        if moment == "at_call":  # the interpreter never looks for signals between a `with` block and its end
            assert is_free(twins.ours._lock)
        if twins.undefined is None:
            step = next(twins.steps)
            twins.check_samples(seed=number)
    assert number > 20
    for _ in range(2 * STEPS):
        twins.check()
        twins.add_next()
    twins.check_samples()


@every_case
def test_a_second_interrupt_is_made_up_for_by_the_next_call(case: Case) -> None:
    """Ctrl-C, and again while the first is dealt with."""
    twins, interrupts, rng = Twins(case), Interrupts(), np.random.default_rng(0)
    step = next(twins.steps)
    for _ in range(min(FAULTS, 150)):
        moments = int(rng.integers(1, 900)), int(rng.integers(1, 12))
        try:
            twins.add(step, lambda call, moments=moments: interrupts.at_bytecode(moments[0], call, moments[1]))
        except KeyboardInterrupt:
            if twins.undefined is None:
                twins.check_samples()
        if twins.undefined is None:
            step = next(twins.steps)
        if rng.random() < 0.5:
            assert twins.add(step)
            step = next(twins.steps)
            twins.check()
    twins.add_next()
    twins.check()


@sampled_cases
@pytest.mark.parametrize("moment", ["at_bytecode", "at_call"])
def test_an_interrupted_sample_leaves_nothing_behind(case: Case, moment: str) -> None:
    """No array that was read ahead, and nothing that SB3 changes meanwhile."""
    twins, interrupts, number, rng = Twins(case), Interrupts(), 0, np.random.default_rng(0)
    for _ in range(2 * STEPS + 3):
        twins.add_next()
    while interrupts.has_fired:
        number = after(number, moment, rng)
        while not twins.can_sample():
            twins.add_next()
        np.random.seed(number)
        with contextlib.suppress(KeyboardInterrupt):
            getattr(interrupts, moment)(number, lambda: twins.ours.sample(9))
        if moment == "at_call":
            assert is_free(twins.ours._lock)
        if rng.random() < 0.2:
            twins.add_next()
        if twins.can_sample():
            assert_same_samples(twins.ours, twins.theirs, 9, seed=number)  # the same cells again
    twins.check()


@rollout_cases
@pytest.mark.parametrize("moment", ["at_bytecode", "at_call"])
def test_after_an_interrupted_get_or_reset_the_next_rollout_is_right(case: Case, moment: str) -> None:
    twins, interrupts, rng = Twins(case), Interrupts(), np.random.default_rng(1)
    done = {"get": False, "reset": False}
    for lap in itertools.count():
        what = "get" if lap % 2 else "reset"
        number = lap // 2 * 3 + 1 if lap < 40 else int(rng.integers(1, 1500))
        if all(done.values()) or lap > min(FAULTS, 80):
            break
        for _ in range(STEPS - 1 if what == "reset" else STEPS):
            twins.add_next()
        call = (lambda: list(twins.ours.get(6))) if what == "get" else twins.ours.reset
        with contextlib.suppress(KeyboardInterrupt):
            getattr(interrupts, moment)(number, call)
        done[what] = done[what] or not interrupts.has_fired
        twins.reset()
    for _ in range(3 * STEPS):
        twins.add_next()


def test_signals_at_random_moments_lose_nothing() -> None:
    """Real ones: a timer interrupts thousands of calls of all buffers."""
    result = run_in_process("fault_process", "signals", min(FAULTS, 2000))
    assert result["interrupts"] >= min(FAULTS, 2000)
    assert result["accepted"] > 100


# ---- nonsense


@every_case
def test_what_does_not_fit_is_refused(case: Case) -> None:
    twins = Twins(case)
    for _ in range(2 * STEPS + 5):
        step = next(twins.steps)
        for what, wrong in wrong_steps(step, case):
            with pytest.raises((ValueError, TypeError, AttributeError, IndexError, KeyError)):
                twins.add(wrong)
            assert twins.undefined is not None, what
            twins.check()
        assert twins.add(step)
        twins.check()
        twins.check_samples()


# ---- codecs that fail


@dataclasses.dataclass(frozen=True)
class Failing(Codec):
    """Deflate, which fails when it is told to."""

    name: ClassVar[str] = "failing"
    fails: ClassVar[str] = ""

    def compress(self, frames: Bytes, base: Bytes | None) -> bytes:
        if type(self).fails == "compress":
            raise RuntimeError("cannot compress")
        return zlib.compress(frames, 1)

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        if type(self).fails == "decompress":
            raise RuntimeError("cannot decompress")
        out.reshape(-1)[:] = np.frombuffer(zlib.decompress(payload), np.uint8)[: out.nbytes]


@pytest.mark.parametrize("n_envs", [1, N_ENVS, 20])  # the last one decodes in threads
def test_a_codec_that_raises_loses_nothing(n_envs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SB3_EXTRA_BUFFERS_THREADS", "3")
    register_codec("failing", Failing)
    space = spaces.Box(0, 255, (4, 12, 12), np.uint8)
    options = {"compression_method": "failing", "block_frames": 6, "frame_stack": 4}
    twins = Twins(Case("failing", CompressedReplayBuffer, ReplayBuffer, space, options, n_envs))
    refused = {"compress": 0, "decompress": 0}
    for t in range(4 * STEPS):
        step = next(twins.steps)
        with monkeypatch.context() as patch:
            patch.setattr(Failing, "fails", "compress")
            try:
                twins.add(step)
            except RuntimeError:
                refused["compress"] += 1
                assert twins.undefined is not None
                twins.check()
        if twins.undefined is not None:
            assert twins.add(step)
        with monkeypatch.context() as patch:
            patch.setattr(Failing, "fails", "decompress")
            try:
                twins.ours.sample(20)
            except RuntimeError:
                refused["decompress"] += 1
        twins.check()
        twins.check_samples(seed=t)
    assert min(refused.values()) > 5


# ---- all of it


def test_a_soak_of_faults_loses_nothing() -> None:
    """FAULTS=10000 makes it long."""
    result = run_in_process("fault_process", "soak", FAULTS)
    assert result["faults"] >= FAULTS
    assert result["accepted"] > FAULTS // 10
