"""Ctrl-C at every moment: a transition is written whole or not at all, and reading leaves nothing behind."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import numpy as np
import pytest

from tests.fault_injection import CASES, FAULTS, STEPS, Case, Twins, run_in_process
from tests.interrupts import Interrupts, is_free
from tests.oracle import assert_same_samples

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
sampled_cases = pytest.mark.parametrize("case", [case for case in CASES if not case.is_rollout], ids=lambda case: case.name)
rollout_cases = pytest.mark.parametrize("case", [case for case in CASES if case.is_rollout], ids=lambda case: case.name)


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
            if twins.undefined is None and rng.random() < 0.5:  # else the next `add` makes up for it
                twins.check_samples()
        if twins.undefined is None:
            step = next(twins.steps)
        if rng.random() < 0.5:
            assert twins.add(step)
            step = next(twins.steps)
            twins.check()
    twins.add_next()
    twins.check()


@every_case
@pytest.mark.parametrize("where", ["end of the buffer", "end of an episode"])
def test_interrupts_when_a_transition_is_just_accepted_lose_nothing(case: Case, where: str) -> None:
    """SB3 moves `pos` and then has a little more to do, above all at the end of the buffer or of an episode."""
    twins, interrupts, number = Twins(case), Interrupts(), 0
    while interrupts.has_fired:
        if case.is_rollout and twins.theirs.full:
            twins.finish_rollout()
        step, slot = next(twins.steps), twins.theirs.pos
        if slot % STEPS != STEPS - 1 if where == "end of the buffer" else not step.done.any():
            twins.add(step)
            continue
        number += 1 if number < 120 or FAULTS >= 10_000 else 9

        def interrupted(call: Any, number: int = number, slot: int = slot) -> None:
            interrupts.at_bytecode(number, call, begins=lambda: twins.ours.pos != slot)

        with contextlib.suppress(KeyboardInterrupt):
            twins.add(step, interrupted)
        assert twins.undefined is None
        twins.check()
        twins.check_samples()
    assert number > 20


@every_case
def test_a_buffer_can_be_saved_after_an_interrupt(case: Case) -> None:
    """Ctrl-C, save, load, go on: with a buffer that is not full yet."""
    size = 2000 if FAULTS >= 10_000 else 500  # every check reads all of it
    twins, interrupts, number, rng = Twins(case, steps=size), Interrupts(), 0, np.random.default_rng(0)
    while interrupts.has_fired:
        twins.add_next()
        number = after(number, "at_call", rng)
        with contextlib.suppress(KeyboardInterrupt):
            twins.add(next(twins.steps), lambda call, number=number: interrupts.at_call(number, call))
        twins.reload()
        twins.check()
    assert not twins.theirs.full


@sampled_cases
@pytest.mark.parametrize("moment", ["at_bytecode", "at_call"])
@pytest.mark.parametrize("then", ["sample", "add"])
def test_an_interrupted_sample_leaves_nothing_behind(case: Case, moment: str, then: str) -> None:
    """No array that was read ahead, and nothing that SB3 or a store changes meanwhile."""
    twins, interrupts, number, rng = Twins(case), Interrupts(), 0, np.random.default_rng(0)
    for _ in range(2 * STEPS + 3):
        twins.add_next()
    while interrupts.has_fired:
        number = number + 1 if case.name == "vectors" else after(number, moment, rng)
        while not twins.can_sample():
            twins.add_next()
        np.random.seed(number)
        with contextlib.suppress(KeyboardInterrupt):
            getattr(interrupts, moment)(number, lambda: twins.ours.sample(9))
        if moment == "at_call":
            assert is_free(twins.ours._lock)
        if then == "add" or rng.random() < 0.2:
            twins.add_next()
        if then == "sample" and twins.can_sample():
            assert_same_samples(twins.ours, twins.theirs, 9, seed=number)  # the same cells again
        elif number % 2:
            twins.check()
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
        if what == "reset" and twins.ours.pos == 0:  # the reset was completed, or the next call does it
            twins.theirs.reset()
        else:
            twins.reset()
    for _ in range(3 * STEPS):
        twins.add_next()


def test_signals_at_random_moments_lose_nothing() -> None:
    """Real ones: a timer interrupts thousands of calls of all buffers."""
    result = run_in_process("fault_process", "signals", min(FAULTS, 2000))
    assert result["interrupts"] >= min(FAULTS, 2000)
    assert result["accepted"] > FAULTS // 10
