"""Codecs measured on experience: real buffers are filled, beside one of SB3's that gives the unit of time.

Every codec gets the same steps, all of them: so the same codec always gives the same figure.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer

from sb3_extra_buffers.callbacks import transition_memory
from sb3_extra_buffers.cli.columns import codecs_of, columns_of
from sb3_extra_buffers.cli.growth import grow
from sb3_extra_buffers.cli.playing import Experience
from sb3_extra_buffers.codecs import AUTO, available_codecs, make_codec
from sb3_extra_buffers.codecs.registry import shorthand, split_spec
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)

#: Levels that are worth a row of their own; codecs that are not named here have none.
LEVELS = {"gzip": (1, 6), "igzip": (0, 3), "zstd": (1, 3, 9), "lz4-frame": (0, 9), "lz4-block": (0, 9)}
#: Time that this process has worked, so that others on the machine do not count; where that is too coarse, time that passes.
CLOCK = time.process_time if time.get_clock_info("process_time").resolution <= 1e-6 else time.perf_counter
#: How long a series of calls is timed; large frames reach this.
TIMED_SECONDS = 0.5
ADD_PASSES, PASS_STEPS, READS = 4, 100, 40
#: What is read at once, by kind of buffer.
BATCH = {"replay": 32, "rollout": 64}
CLASSES: dict[tuple[str, bool], tuple[Any, Any]] = {
    ("replay", False): (ReplayBuffer, CompressedReplayBuffer),
    ("replay", True): (DictReplayBuffer, CompressedDictReplayBuffer),
    ("rollout", False): (RolloutBuffer, CompressedRolloutBuffer),
    ("rollout", True): (DictRolloutBuffer, CompressedDictRolloutBuffer),
}


@dataclass(frozen=True)
class Task:
    """What is measured: a kind of buffer, and the steps that go into it.

    :param steps: arguments of `add`
    :param size: transitions of the buffer that is asked for
    :param memory: bytes that it may take
    """

    kind: str
    experience: Experience
    steps: list[Any]
    size: int
    memory: float

    @classmethod
    def of(cls, kind: str, experience: Experience, size: int, memory: float) -> Task:
        """The task for some experience."""
        steps = rollout_steps(experience) if kind == "rollout" else list(experience.steps)
        return cls(kind, experience, steps, size, memory)

    def make(self, *, ours: bool, transitions: int, **options: Any) -> Any:
        """An empty buffer."""
        made, n_envs = CLASSES[self.kind, self.experience.is_dict][ours], self.experience.n_envs
        size = max(transitions, n_envs) // (n_envs if self.kind == "rollout" else 1)
        space, actions = self.experience.observation_space, self.experience.action_space
        return made(size, space, actions, device="cpu", n_envs=n_envs, **options)

    def full(self, *, ours: bool, **options: Any) -> Any:
        """A buffer that all steps have filled."""
        buffer = self.make(ours=ours, transitions=self.experience.transitions, **options)
        _add(buffer, self.steps)
        return buffer

    def reader(self, buffer: Any) -> Callable[[], Any]:
        """A call that reads one batch of a full buffer."""
        if self.kind == "replay":
            return partial(buffer.sample, BATCH[self.kind])

        def minibatches() -> Iterator[Any]:
            while True:
                yield from buffer.get(BATCH[self.kind])

        return partial(next, minibatches())


@dataclass(frozen=True)
class Reference:
    """SB3's own buffer, filled with the experience."""

    buffer: Any
    transition_bytes: float
    shapes: str

    def bytes_at(self, transitions: int) -> float:
        """Memory of a buffer with so many transitions."""
        return self.transition_bytes * transitions

    def largest(self, memory: float) -> int:
        """Transitions that fit into so much memory."""
        return int(memory / self.transition_bytes)


@dataclass(frozen=True)
class Measurement:
    """What one codec does with the experience.

    :param low_bytes: with `high_bytes` the range that the sample leaves open; None if it is too small to tell
    :param largest: transitions that surely fit into the memory that the buffer may take
    :param time_ratio: time of an add and a read together; ratios are to SB3's times
    """

    method: str
    label: str
    buffer_bytes: float
    low_bytes: float | None
    high_bytes: float | None
    largest: int
    add_ratio: float
    read_ratio: float
    time_ratio: float


def candidates() -> list[str]:
    """The default first, then all that is installed."""
    with_levels = [shorthand(name, level) for name in available_codecs() for level in LEVELS.get(name, (None,))]
    return [*AUTO, *with_levels]


def rollout_steps(experience: Experience) -> list[Any]:
    """The experience as a rollout buffer is given it, with values and probabilities of a policy that knows nothing."""
    start, nothing = np.ones(experience.n_envs, bool), th.zeros(experience.n_envs)
    steps = []
    for step in experience.steps:
        steps.append((step.obs, step.action, step.reward, start, nothing, nothing))
        start = np.asarray(step.done, bool)
    return steps


def measure_sb3(task: Task) -> Reference:
    """Fill SB3's buffer."""
    th.set_num_threads(1)  # waking threads to copy a batch takes longer than the copy, now and then a hundred times
    buffer = task.full(ours=False)
    columns = columns_of(buffer)
    shapes = ", ".join(f"{key} {tuple(column.shape[2:])} {column.dtype}".lstrip() for key, column in columns.items())
    return Reference(buffer, transition_memory(buffer).stored_bytes / task.experience.transitions, shapes)


def measure(method: str, task: Task, reference: Reference) -> Measurement:
    """Fill buffers with a codec: one of the real size for the memory, one that is full for the times.

    :param method: codec, as `compression_method` takes it
    """
    if method not in AUTO:
        for column in columns_of(reference.buffer).values():
            make_codec(method, elem_type=column.dtype.name).prepare()
    whole = task.make(ours=True, transitions=max(task.size, task.experience.transitions), compression_method=method)
    growth, full = grow(whole, task.steps, transition_memory), task.full(ours=True, compression_method=method)
    (add, sb3_add), (read, sb3_read) = _times(task, full, reference.buffer)
    growth = replace(growth, overwriting=growth.rate * task.experience.n_envs * block_frames_of(task, full))
    low, high = growth.range_at(task.size) or (None, None)
    return Measurement(
        method, label_of(method, whole), growth.bytes_at(task.size), low, high, growth.largest(task.memory),
        add / sb3_add, read / sb3_read, (add + read) / (sb3_add + sb3_read),
    )  # fmt: skip


def block_frames_of(task: Task, buffer: Any) -> int:
    """Frames of a block in which most may be overwritten already, and which is there all the same. A rollout has none."""
    stores = [column.leaf.store for column in columns_of(buffer).values()] if task.kind == "replay" else []
    return max((getattr(store, "block_frames", 0) for store in stores), default=0)


def label_of(method: str, buffer: Any) -> str:
    """The codec; for a taste also what it has chosen."""
    if method not in AUTO:
        return method
    chosen = dict.fromkeys(shorthand(*split_spec(spec)) for spec in codecs_of(buffer).values())
    return f"{method} ({', '.join(chosen)})"


# ---- times


def _times(task: Task, ours: Any, theirs: Any) -> tuple[list[float], list[float]]:
    """Seconds of an `add` and of reading a batch, each of both buffers; of reads that went undisturbed."""
    pair = [ours, theirs]
    add = _add_seconds(task, pair)
    if task.kind == "rollout":
        for buffer in pair:
            buffer.reset()
            _add(buffer, task.steps)
    readers = [task.reader(buffer) for buffer in pair]
    for read in readers:
        read()
    return add, [sorted(of_one)[len(of_one) // 4] for of_one in _time_in_turns([readers] * READS)]


def _add_seconds(task: Task, buffers: Sequence[Any]) -> list[float]:
    """Seconds of an `add`, by buffer: a mean, because some seal a block and most do not; of the pass that went undisturbed."""
    means = []
    for start in range(0, ADD_PASSES * PASS_STEPS, PASS_STEPS):
        steps = task.steps[start : start + PASS_STEPS]
        if not steps:
            break
        if task.kind == "rollout":  # which is full until it is reset
            for buffer in buffers:
                buffer.reset()
        times = _time_in_turns([[partial(buffer.add, *step) for buffer in buffers] for step in steps])
        means.append([statistics.mean(of_one) for of_one in times])
    return [min(of_one) for of_one in zip(*means, strict=True)]


def _time_in_turns(rounds: Sequence[Sequence[Callable[[], Any]]]) -> list[list[float]]:
    """Seconds of each call, by place in its round; stops early when time is up."""
    times: list[list[float]] = [[] for _ in rounds[0]]
    start = CLOCK()
    for calls in rounds:
        for i, call in enumerate(calls):
            before = CLOCK()
            call()
            times[i].append(CLOCK() - before)
        if CLOCK() - start > TIMED_SECONDS:
            break
    return times


def _add(buffer: Any, steps: list[Any]) -> None:
    for step in steps:
        buffer.add(*step)
