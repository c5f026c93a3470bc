"""Which buffer `recommend` recommends, by what was measured. The rule is in its help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sb3_extra_buffers._text import counted, human_bytes, human_share, round_down

if TYPE_CHECKING:
    from sb3_extra_buffers.cli.measuring import Measurement, Reference, Task

#: How many times SB3's time a codec may take.
SLOWEST = 1.5
#: How much larger and slower than the best the default may be: times differ as much from run to run.
CLOSE, AS_FAST = 1.1, 1.25
#: A codec is worth it if it takes at most this part of SB3's memory, and SB3's buffer is small at this part of what there is.
WORTH_IT, SMALL = 0.8, 0.04
#: Steps of a rollout are whole minibatches of PPO, which warns otherwise.
MINIBATCH = 64


@dataclass(frozen=True)
class Verdict:
    """What is recommended.

    :param best: the codec; None for SB3's own buffer
    :param size: transitions, as many as were asked for or the most that fit; 0 if none do
    :param reason: in words
    """

    best: Measurement | None
    size: int
    reason: str


def decide(measurements: Sequence[Measurement], reference: Reference, task: Task) -> Verdict:
    """The verdict.

    :param measurements: the default's first
    """
    sb3_bytes, sb3_largest = reference.bytes_at(task.size), reference.largest(task.memory)
    sb3_fits = sb3_largest >= task.size
    if sb3_fits and sb3_bytes <= SMALL * task.memory:
        share = f"{human_share(sb3_bytes / task.memory)} of the {human_bytes(task.memory)} that it may take"
        return Verdict(None, task.size, f"SB3's own buffer takes {human_bytes(sb3_bytes)}, only {share}: keep it.")
    best = smallest_that_is_fast(measurements, task.size)
    if best.buffer_bytes > WORTH_IT * sb3_bytes and (sb3_fits or best.largest < task.size):
        words = "Compression saves less than a fifth here: keep SB3's own buffer."
        return _fitted(None, sb3_largest, words, sb3_bytes, task)
    words = f"Recommended: {best.label}, {human_bytes(best.buffer_bytes)} instead of {human_bytes(sb3_bytes)}."
    return _fitted(best, best.largest, words, best.buffer_bytes, task)


def smallest_that_is_fast(measurements: Sequence[Measurement], size: int) -> Measurement:
    """Of the codecs that fit, or else of the one that fits most, the smallest that is fast, or the default if it is close.

    :param measurements: the default's first
    """
    default = measurements[0]
    fitting = [m for m in measurements if m.largest >= size]
    able = fitting or [max(measurements, key=lambda m: m.largest)]
    fast = [m for m in able if m.time_ratio <= SLOWEST]
    best = min(fast, key=lambda m: m.buffer_bytes) if fast else min(able, key=lambda m: m.time_ratio)
    is_as_fast = default.time_ratio <= max(SLOWEST, AS_FAST * best.time_ratio)
    is_as_small = default.buffer_bytes <= CLOSE * best.buffer_bytes and (default in fitting or not fitting)
    return default if is_as_fast and is_as_small else best


def _fitted(best: Measurement | None, largest: int, words: str, needed: float, task: Task) -> Verdict:
    """A verdict with the size that was asked for, or with the largest that fits.

    :param words: why this buffer, where it fits
    """
    if largest >= task.size:
        return Verdict(best, task.size, words)
    name, n_envs, unit = ("n_steps", task.experience.n_envs, MINIBATCH) if task.kind == "rollout" else ("buffer_size", 1, 1)
    fitting = round_down(largest // n_envs, 2)
    fitting = fitting // unit * unit or fitting
    label = best.label if best else "SB3's own buffer, of which compression saves less than a fifth,"
    words = (
        f"{counted(task.size, 'transition')} {'do' if needed > task.memory else 'may'} not fit into "
        f"{human_bytes(task.memory)}: {label} would take about {human_bytes(needed)}."
    )
    if not fitting:
        return Verdict(best, 0, f"{words} Nothing fits: give it more --memory, or make observations smaller.")
    return Verdict(best, fitting * n_envs, f"{words} The largest {name} that fits is {fitting:_}.")
