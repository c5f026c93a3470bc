"""Refused memory, nonsense and broken codecs: a transition is written whole or not at all, in every buffer."""

from __future__ import annotations

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
    HOST_CASES,
    N_ENVS,
    STEPS,
    Case,
    Twins,
    refuse,
    run_in_process,
    wrong_steps,
)  # fmt: skip
from tests.oracle import assert_same_minibatches

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
sampled_cases = pytest.mark.parametrize("case", [case for case in CASES if not case.is_rollout], ids=lambda case: case.name)
rollout_cases = pytest.mark.parametrize("case", [case for case in CASES if case.is_rollout], ids=lambda case: case.name)


# ---- refused memory


@pytest.fixture(autouse=True)
def _all_memory_afterwards() -> Iterator[None]:
    yield
    core().sb3x_fail_allocation(-1, 0)


def keeps_in_the_core(case: Case) -> bool:
    return case in HOST_CASES and case.space is not None and case.name not in ("vectors", "discrete", "rollout-vectors")


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
