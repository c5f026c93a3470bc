"""Jobs that are measured together, and what is said about their ratios. Above: bars and colour, which set the limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .jobs import Result
from .measure import Job
from .training import Training


@dataclass(frozen=True)
class Group:
    """Jobs that are run in turns, for ratios among them.

    :param judged: which bars look at it, see `verdicts_of`
    :param turns: at least so many, where a few percent decide
    """

    judged: str
    label: str
    jobs: tuple[Job | Training, ...]
    turns: int = 1


@dataclass(frozen=True)
class Verdict:
    """A ratio beside its bar.

    :param unit: how it is read: ``%``, ``x``, ``us``, ``s`` or ``MB``
    :param at_least: whether more is better
    :param bar: None for a figure that only informs
    """

    label: str
    value: float
    bar: float | None = None
    stretch: float | None = None
    unit: str = "x"
    at_least: bool = False

    @property
    def kept(self) -> bool | None:
        return None if self.bar is None else self._reaches(self.bar)

    @property
    def stretched(self) -> bool:
        return self.stretch is not None and self._reaches(self.stretch)

    def _reaches(self, limit: float) -> bool:
        return self.value >= limit if self.at_least else self.value <= limit


#: What a single `add` may take, as a multiple of the median.
SLOWEST_ADD = 10.0


def slowest_verdicts(label: str, theirs: Result, ours: Result) -> Iterator[Verdict]:
    """Whether an `add` stands out; and beside it, for what the machine does in between, how far one of SB3's does."""
    for whose, result, bar in (("", ours, SLOWEST_ADD), (", SB3's", theirs, None)):
        yield Verdict(f"{label}: slowest add / median add{whose}", result["add_max_us"] / result["add_median_us"], bar)


#: Times, and what they are called.
TIMES = {
    "add_first_us": "add, first lap",
    "add_us": "add, later laps",
    "sample_32_us": "sample(32)",
    "sample_256_us": "sample(256)",
}
#: Bars and stretches of figures, ours divided by SB3's.
Limits = dict[str, tuple[float, float | None]]
