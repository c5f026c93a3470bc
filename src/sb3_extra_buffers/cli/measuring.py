"""Codecs measured on experience: real buffers are filled, beside one of SB3's that gives the unit of time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_extra_buffers.cli.columns import codecs_of, columns_of
from sb3_extra_buffers.cli.playing import Experience
from sb3_extra_buffers.codecs import AUTO, available_codecs, make_codec
from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedReplayBuffer

#: Levels that are worth a row of their own; codecs that are not named here have none.
LEVELS = {"gzip": (1, 6), "igzip": (0, 3), "zstd": (1, 3, 9), "lz4-frame": (0, 9), "lz4-block": (0, 9)}
#: How long a codec may fill a buffer, and how long a series of calls is timed; large frames reach these.
FILL_SECONDS, TIMED_SECONDS = 1.0, 0.5
ADD_PASSES, PASS_STEPS, SAMPLES, BATCH = 4, 100, 40, 32
#: Memory is read every so many steps, enough for each env to fill two blocks; and so often at least.
MARK_STEPS, FEWEST_MARKS = 32, 4


@dataclass(frozen=True)
class Reference:
    """SB3's own buffer, filled with the experience."""

    buffer: ReplayBuffer
    buffer_bytes: float
    other_bytes: float  # actions, rewards and the like, the same for every buffer
    shapes: str


@dataclass(frozen=True)
class Measurement:
    """What one codec does with the experience. Ratios are to SB3's times; ``time_ratio`` is for add and sample together."""

    method: str
    label: str
    buffer_bytes: float
    add_ratio: float
    sample_ratio: float
    time_ratio: float


def candidates() -> list[str]:
    """The default first, then all that is installed."""
    with_levels = [_shorthand(name, level) for name in available_codecs() for level in LEVELS.get(name, (None,))]
    return [*AUTO, *with_levels]


def measure_sb3(experience: Experience, buffer_size: int) -> Reference:
    """Fill SB3's buffer, and compute what a whole one takes."""
    th.set_num_threads(1)  # waking threads to copy a batch takes longer than the copy, now and then a hundred times
    is_dict = isinstance(experience.observation_space, spaces.Dict)
    buffer = _make(DictReplayBuffer if is_dict else ReplayBuffer, experience, experience.transitions)
    _add(buffer, experience.steps)
    columns = columns_of(buffer)
    per_observation = sum(math.prod(column.shape[2:]) * column.dtype.itemsize for column in columns.values())
    arrays = (buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts)
    other = buffer_size * sum(array.nbytes for array in arrays) / experience.transitions
    shapes = ", ".join(f"{key} {tuple(column.shape[2:])} {column.dtype}".lstrip() for key, column in columns.items())
    return Reference(buffer, 2 * per_observation * buffer_size + other, other, shapes)


def measure(method: str, experience: Experience, reference: Reference, buffer_size: int) -> Measurement:
    """Fill buffers with a codec: one of the real size for the memory, one that is full for the times.

    :param method: codec, as `compression_method` takes it
    """
    is_dict = isinstance(experience.observation_space, spaces.Dict)
    kind = CompressedDictReplayBuffer if is_dict else CompressedReplayBuffer
    if method not in AUTO:
        for column in columns_of(reference.buffer).values():
            make_codec(method, elem_type=column.dtype.name).prepare()
    whole = _make(kind, experience, max(buffer_size, experience.transitions), compression_method=method)
    n_steps, stored = _extrapolated(whole, experience, buffer_size)
    full = _make(kind, experience, n_steps * experience.n_envs, compression_method=method)
    _add(full, experience.steps[:n_steps])
    pair = [full, reference.buffer]
    full.sample(BATCH)
    add, sb3_add = _add_seconds(pair, experience)
    sample, sb3_sample = map(statistics.median, _time_in_turns([[partial(b.sample, BATCH) for b in pair]] * SAMPLES))
    names = sorted({spec.partition("/")[0] for spec in codecs_of(full).values()})
    label = f"{method} ({', '.join(names)})" if method in AUTO else method
    return Measurement(
        method, label, stored + reference.other_bytes, add / sb3_add, sample / sb3_sample,
        (add + sample) / (sb3_add + sb3_sample),
    )  # fmt: skip


def _extrapolated(buffer: Any, experience: Experience, buffer_size: int) -> tuple[int, float]:
    """Fill a buffer: steps that there was time for, and bytes when it will be full.

    To what it takes now comes, for each transition that is still to come, what one of the second half took.
    """
    start, every = time.perf_counter(), max(MARK_STEPS, len(experience.steps) // 20)
    marks: list[tuple[int, int]] = []
    for i in range(0, len(experience.steps), every):
        _add(buffer, experience.steps[i : i + every])
        marks.append((min(i + every, len(experience.steps)), buffer.memory_usage().stored_bytes))
        if time.perf_counter() - start > FILL_SECONDS and len(marks) >= FEWEST_MARKS:
            break
    (half, before), (n_steps, now) = marks[(len(marks) - 1) // 2], marks[-1]
    per_transition = max(now - before, 0) / (max(n_steps - half, 1) * experience.n_envs)
    return n_steps, float(now + per_transition * max(buffer_size - n_steps * experience.n_envs, 0))


def _add_seconds(buffers: Sequence[Any], experience: Experience) -> list[float]:
    """Seconds of an `add`, by buffer: a mean, because some seal a block and most do not; of the pass that went undisturbed."""
    means = []
    for start in range(0, ADD_PASSES * PASS_STEPS, PASS_STEPS):
        steps = experience.steps[start : start + PASS_STEPS]
        if steps:
            times = _time_in_turns([[partial(buffer.add, *step) for buffer in buffers] for step in steps])
            means.append([statistics.mean(of_one) for of_one in times])
    return [min(of_one) for of_one in zip(*means, strict=True)]


def _time_in_turns(rounds: Sequence[Sequence[Callable[[], Any]]]) -> list[list[float]]:
    """Seconds of each call, by place in its round; stops early when time is up."""
    times: list[list[float]] = [[] for _ in rounds[0]]
    start = time.perf_counter()
    for calls in rounds:
        for i, call in enumerate(calls):
            before = time.perf_counter()
            call()
            times[i].append(time.perf_counter() - before)
        if time.perf_counter() - start > TIMED_SECONDS:
            break
    return times


def _make(kind: Any, experience: Experience, transitions: int, **options: Any) -> Any:
    space, n_envs = experience.observation_space, experience.n_envs
    return kind(max(transitions, n_envs), space, experience.action_space, device="cpu", n_envs=n_envs, **options)


def _add(buffer: Any, steps: list[Any]) -> None:
    for step in steps:
        buffer.add(*step)


def _shorthand(name: str, level: int | None) -> str:
    if level is None:
        return name
    return f"{name}/{level}" if "-" in name else f"{name}{level}"
