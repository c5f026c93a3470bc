"""How a buffer grows: from what a sample of transitions takes to what a full buffer will take, and how sure that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sb3_extra_buffers._text import MOST

#: Memory is read after every so many steps, and so often at most.
MARK_STEPS, MOST_MARKS = 16, 20
#: It is read when a block has just been sealed, or memory would seem to grow by leaps; no block is longer than this.
LONGEST_BLOCK = 64
#: Parts of a sample that are needed to say how much they vary.
FEWEST_PARTS = 3
#: Student's t: so many standard errors around a mean are a range of 95 %, by degrees of freedom.
_T = {2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}
#: Where that cannot be said, a full buffer may take so many times as much.
UNSURE = 2.0


@dataclass(frozen=True)
class Growth:
    """Memory while a buffer was filled: numbers of transitions, with the bytes that they took.

    :param marks: moments at which a block had just been sealed
    :param end: after the last step
    :param overwriting: bytes more that a buffer takes that is full and overwritten: of blocks that are partly in use
    """

    marks: tuple[tuple[int, float], ...]
    end: tuple[int, float]
    overwriting: float = 0.0

    @property
    def rate(self) -> float:
        """Bytes that another transition takes: a mean of the second half, when codecs were chosen and first blocks opened."""
        (first, before), (last, after) = self._later[0], self._later[-1]
        return max(after - before, 0.0) / (last - first) if last > first else self.end[1] / self.end[0]

    @property
    def error(self) -> float | None:
        """How far off the rate may be, by its spread over parts of the sample; None if there are too few parts."""
        rates = [(b - a) / (m - n) for (n, a), (m, b) in pairwise(self._later)]
        if len(rates) < FEWEST_PARTS:
            return None
        return _T.get(len(rates) - 1, 2.2) * statistics.stdev(rates) / math.sqrt(len(rates))

    def bytes_at(self, transitions: int) -> float:
        """Memory of a buffer with so many transitions, at least as many as there were."""
        return self._bytes(transitions, self.rate)

    def range_at(self, transitions: int) -> tuple[float, float] | None:
        """The least and the most that it probably takes; None if the sample is too small to tell."""
        if transitions <= self.end[0]:
            return self.bytes_at(transitions), self.bytes_at(transitions)
        if self.error is None:
            return None
        low = max(self.rate - self.error, 0.0)
        return self._bytes(transitions, low), self._bytes(transitions, self.rate + self.error)

    def largest(self, memory: float) -> int:
        """Transitions that surely fit into so much memory."""
        seen, taken = self.end[0], self.end[1] + self.overwriting
        if taken > memory:
            return max((n for n, bytes_ in self.marks if bytes_ + self.overwriting <= memory), default=0)
        rate = self.rate + self.error if self.error is not None else UNSURE * self.rate
        return int(min(seen + (memory - taken) / rate, MOST)) if rate > 0 else MOST

    @property
    def _later(self) -> tuple[tuple[int, float], ...]:
        marks = self.marks or (self.end,)
        return marks[(len(marks) - 1) // 2 :]

    def _bytes(self, transitions: int, rate: float) -> float:
        seen, taken = self.end
        return taken + self.overwriting + rate * max(transitions - seen, 0)


def grow(buffer: Any, steps: list[Any], usage_of: Callable[[Any], Any]) -> Growth:
    """Fill a buffer, and read its memory again and again.

    :param steps: arguments of `add`
    :param usage_of: gives the `MemoryUsage` of a buffer
    """
    every, marks = max(MARK_STEPS, len(steps) // MOST_MARKS), []
    due, blocks = every, None
    for done, step in enumerate(steps, 1):
        buffer.add(*step)
        if done < due:
            continue
        usage = usage_of(buffer)
        is_sealed = usage.blocks == 0 or (blocks is not None and usage.blocks > blocks)
        blocks = usage.blocks
        if is_sealed or done >= due + LONGEST_BLOCK:
            marks.append((done * buffer.n_envs, float(usage.stored_bytes)))
            due, blocks = done + every, None
    return Growth(tuple(marks), (len(steps) * buffer.n_envs, float(usage_of(buffer).stored_bytes)))
