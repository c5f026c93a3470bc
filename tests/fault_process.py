"""Faults in a process of its own, which a crash or a limit may end: `python -m tests.fault_process soak 1000`."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import resource
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces

from sb3_extra_buffers.codecs import available_codecs
from sb3_extra_buffers.compressed import CompressedReplayBuffer, CompressedRolloutBuffer
from tests.fault_injection import CASES, HOST_CASES, Case, Twins, refuse, run_function, wrong_steps
from tests.interrupts import Interrupts
from tests.oracle import SPACES, assert_same_samples
from tests.transitions import Step

_REFUSED = (ValueError, TypeError, AttributeError, IndexError, KeyError, KeyboardInterrupt, MemoryError)

# ---- signals


class Alarms:
    """A timer that raises KeyboardInterrupt in a call, as Ctrl-C does."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._is_armed, self._rng, self._usual = False, rng, 1e-4
        self.count = 0
        signal.signal(signal.SIGALRM, self._raise)

    def _raise(self, *_: Any) -> None:
        if self._is_armed:
            self.count += 1
            raise KeyboardInterrupt

    def during(self, call: Callable[[], None]) -> None:
        """Call something, with an alarm at a random moment, and perhaps more of them."""
        rng, start = self._rng, time.perf_counter()
        pause = rng.uniform(3e-5, 2e-4) if rng.random() < 0.3 else 0
        signal.setitimer(signal.ITIMER_REAL, max(rng.uniform(0, 1.3 * self._usual), 1e-6), pause)
        try:
            try:
                self._is_armed = True
                call()
            finally:
                self._is_armed = False
        except KeyboardInterrupt:
            self._is_armed = False
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._usual += 0.1 * (time.perf_counter() - start - self._usual)


def signals(n: int) -> dict[str, int]:
    """Add and sample under alarms, until there were n, and enough was accepted between them to be worth looking at."""
    rng = np.random.default_rng(n)
    players = [(Twins(case, seed=i), Alarms(rng)) for i, case in enumerate(CASES)]
    steps: list[Step | None] = [None] * len(players)
    for t in itertools.count():
        if sum(alarms.count for _, alarms in players) >= n and sum(one.n_accepted for one, _ in players) > 100:
            break
        i = t % len(players)
        twins, alarms = players[i]
        signal.signal(signal.SIGALRM, alarms._raise)
        steps[i] = steps[i] or next(twins.steps)
        try:
            twins.add(steps[i], alarms.during)
        except KeyboardInterrupt:
            twins.check()
        if twins.undefined is None:
            steps[i] = None
            twins.check_samples(seed=t)
            if twins.can_sample():
                np.random.seed(t)
                try:
                    alarms.during(lambda twins=twins: twins.ours.sample(8))
                except KeyboardInterrupt:
                    assert_same_samples(twins.ours, twins.theirs, 8, seed=t)
    for twins, _ in players:
        twins.add_next()
        twins.check()
    return {"interrupts": sum(alarms.count for _, alarms in players), "accepted": sum(one.n_accepted for one, _ in players)}


# ---- a limit of memory


def memory(*methods: str) -> dict[str, list[int]]:
    """Fill buffers until memory is refused, go on with pictures that take less, and again."""
    results = [_fill_memory(method) for method in methods]
    return {"refused": [one[0] for one in results], "accepted": [one[1] for one in results]}


def _fill_memory(method: str) -> tuple[int, int]:
    space = spaces.Box(0, 255, (1, 160, 160), np.uint8)
    slots, mebibyte = 100, 1 << 20
    buffer = CompressedReplayBuffer(slots, space, spaces.Discrete(2), compression_method=method, device="cpu")

    def picture(t: int) -> np.ndarray:
        if t % 4 == 0:  # noise; else a bar that moves
            return np.random.default_rng(t).integers(0, 256, (1, *space.shape), dtype=np.uint8)
        still = np.zeros((1, *space.shape), np.uint8)
        still[..., t % 160, :7] = t % 4
        return still

    kept: dict[int, tuple[int, int]] = {}
    refused = accepted = quiet = 0
    gc.collect()  # what buffers before this one have held would be room for this one
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = _address_space() + 3 * mebibyte
    for t in range(6 * slots):
        step = (8 * t + 1, 8 * t + 2) if quiet > 0 else (8 * t, 8 * t + 4)
        quiet -= 1
        first, second = picture(step[0]), picture(step[1])
        slot = buffer.pos
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            buffer.add(first, second, np.zeros(1), np.full(1, t), np.zeros(1), [{}])
        except MemoryError:
            refused += 1
            quiet = 20
            if refused % 5 == 0:
                limit += mebibyte
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        if t % slots == 0:
            limit = min(limit, _address_space() + mebibyte)
        if buffer.pos != slot:
            accepted += 1
            kept[slot] = step
        else:
            kept.pop(slot, None)  # undefined, until it is written
        if t % slots == slots - 1:
            for place, (one, other) in kept.items():
                assert np.array_equal(buffer.observations[place], picture(one)), place
                assert np.array_equal(buffer.next_observations[place], picture(other)), place
                assert buffer.rewards[place] == one // 8, place
    return refused, accepted // slots


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


# ---- everything


def soak(n: int) -> dict[str, int]:
    """All kinds of faults in random buffers, until there were n."""
    rng, faults, accepted, seed = np.random.default_rng(n), 0, 0, 0
    while faults < n:
        seed += 1
        twins = Twins(_random_case(rng), seed, steps=int(rng.integers(2, 25)))
        faults += _mistreat(twins, rng, alarms=Alarms(rng))
        accepted += twins.n_accepted
    return {"faults": faults, "accepted": accepted, "buffers": seed}


def _random_case(rng: np.random.Generator) -> Case:
    case = CASES[int(rng.integers(len(CASES)))]
    options = dict(case.options)
    if case in HOST_CASES and "compression_method" in options:
        options["compression_method"] = rng.choice(["auto", *available_codecs()])
        if rng.random() < 0.5:
            options["block_frames"] = int(rng.integers(12, 20))
    space = case.space
    if space is not None and not isinstance(space, spaces.Dict) and "frame_stack" not in options:
        space = SPACES[rng.choice(list(SPACES))]
    return dataclasses.replace(case, options=options, space=space, n_envs=int(rng.integers(1, 4)))


def _mistreat(twins: Twins, rng: np.random.Generator, alarms: Alarms) -> int:
    """A few laps under faults; how many there were."""
    faults, step = 0, next(twins.steps)
    for t in range(100):
        during = _random_fault(rng, alarms)
        try:
            wrong = [one for _, one in wrong_steps(step, twins.case)] if rng.random() < 0.1 else []
            twins.add(wrong[int(rng.integers(len(wrong)))] if wrong else step, during)
        except _REFUSED:
            faults += 1
            if rng.random() < 0.5:  # reading may hide what a fault has left
                twins.check()
            if twins.undefined is not None and rng.random() < 0.5:
                twins.add(step)
        if twins.undefined is None:
            step = next(twins.steps)
            twins.check()
            twins.check_samples(seed=t)
            faults += _mistreat_reading(twins, rng, during, seed=t)
        if rng.random() < 0.05:
            twins.reload()
    twins.add_next()
    twins.check()
    return faults


def _mistreat_reading(twins: Twins, rng: np.random.Generator, during: Callable[..., None], seed: int) -> int:
    try:
        if twins.can_sample():
            np.random.seed(seed)
            during(lambda: twins.ours.sample(9))
        elif twins.case.is_rollout and twins.theirs.full:
            during(lambda: list(twins.ours.get(5)))
            twins.reset()
        elif rng.random() < 0.1:
            during(twins.ours.reset)
            twins.reset()
    except (KeyboardInterrupt, MemoryError):
        if twins.can_sample():
            assert_same_samples(twins.ours, twins.theirs, 9, seed=seed)
        else:
            twins.reset()
        return 1
    return 0


def _random_fault(rng: np.random.Generator, alarms: Alarms) -> Callable[..., None]:
    interrupts = Interrupts(KeyboardInterrupt if rng.random() < 0.7 else MemoryError)
    number, again = int(rng.integers(1, 1200)), int(rng.integers(1, 12))
    faults: list[Callable[..., None]] = [
        lambda call: interrupts.at_bytecode(number, call),
        lambda call: interrupts.at_call(number // 6 + 1, call),
        lambda call: interrupts.at_bytecode(number, call, again),
        lambda call: refuse(again // 3, forever=number % 2 == 0, call=call),
        alarms.during,
        lambda call: call(),
    ]
    return faults[int(rng.integers(len(faults)))]


# ---- large batches


def large(n: int, *methods: str) -> dict[str, list[int]]:
    """Interrupt batches that threads read, reset the buffer at once, and go on."""
    return {"interrupts": [_interrupt_large(method, n) for method in methods]}


def _interrupt_large(method: str, n: int) -> int:
    space, rng = spaces.Box(0, 255, (4, 84, 84), np.uint8), np.random.default_rng(0)
    buffer = CompressedRolloutBuffer(96, space, spaces.Discrete(2), n_envs=2, device="cpu", compression_method=method)
    pictures = rng.integers(0, 256, (100, 84, 84), dtype=np.uint8) * (rng.random((100, 84, 84)) < 0.1)
    alarms = Alarms(rng)
    for lap in range(n):
        for t in range(96):
            obs = np.stack([pictures[(np.arange(t, t + 4) + env + lap) % 100] for env in range(2)])
            buffer.add(obs, np.zeros(2), np.zeros(2), np.zeros(2), th.full((2,), float(t)), th.tensor([0.0, 1.0]))
        try:
            alarms.during(lambda: list(buffer.get(192)))
        except KeyboardInterrupt:
            pass
        else:
            for batch in buffer.get(192):  # 5 MiB
                marks = zip(batch.old_values.int().tolist(), batch.old_log_prob.int().tolist(), strict=True)
                for i, (t, env) in enumerate(marks):
                    expected = pictures[(np.arange(t, t + 4) + env + lap) % 100]
                    assert np.array_equal(batch.observations[i].numpy(), expected), (t, env)
        buffer.reset()
    return alarms.count


if __name__ == "__main__":
    run_function(signals, soak, memory, large)
