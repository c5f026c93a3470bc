"""Rewards of many episodes -> two lines to read. Stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RewardSummary:
    """Statistics of the rewards of episodes; `str` gives two lines."""

    episodes: int
    mean: float
    std: float
    q1: float
    q2: float
    q3: float
    lowest: float
    highest: float

    @property
    def relative_iqr(self) -> float:
        """The interquartile range divided by the median; 0 if the middle half does not vary."""
        spread = self.q3 - self.q1
        return spread / abs(self.q2) if self.q2 else (float("inf") if spread else 0.0)

    def __str__(self) -> str:
        quartiles = f"Q1: {_short(self.q1)} | Q2: {_short(self.q2)} | Q3: {_short(self.q3)}"
        return (
            f"Evaluated {self.episodes} episodes, mean reward: {round(self.mean, 1) + 0.0:.1f} +/- {self.std:.2f}\n"
            f"{quartiles} | Relative IQR: {self.relative_iqr:.2f} | Min: {_short(self.lowest)} | Max: {_short(self.highest)}"
        )


def summarize(rewards: Sequence[float] | NDArray[np.floating]) -> RewardSummary:
    """Statistics of the rewards of some episodes.

    :param rewards: one reward per episode, as `eval_model` returns them
    """
    if not len(rewards):
        raise ValueError("No rewards to summarize: no episode was finished")
    lowest, q1, q2, q3, highest = (float(x) for x in np.quantile(rewards, (0, 0.25, 0.5, 0.75, 1)))
    return RewardSummary(len(rewards), float(np.mean(rewards)), float(np.std(rewards)), q1, q2, q3, lowest, highest)


def _short(value: float) -> str:
    """At most two decimals, without trailing zeros and without -0."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")
