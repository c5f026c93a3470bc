"""The directive `benchmark-summary`: what the buffers cost and save by kind of observation, from the committed results.

The same table stands in the README, where a test compares it with `summary_table`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
GAMES = (
    "MsPacman",
    "Pong",
    "Seaquest",
    "Breakout",
    "Qbert",
    "SpaceInvaders",
    "BeamRider",
)
FLAT = ("AtariRGB", "MiniGrid", "CarRacing")
#: Kind of observation -> the workloads that stand for it.
KINDS = {
    "Atari, gray, stack of 4": GAMES,
    "flat colour, stack of 3": [f"{name}, stack 3" for name in FLAT],
    "flat colour, single": [f"{name}, stack 1" for name in FLAT],
    "rendered robot, stack of 3": ["Walker2d, stack 3"],
    "rendered robot, single": ["Walker2d, stack 1"],
    "Doom RGB, stack of 3": ["ViZDoom, stack 3"],
    "Doom RGB, single": ["ViZDoom, stack 1"],
    "noise, stack of 4": ["noise"],
    "vectors, 17 floats": ["vectors"],
}
#: A figure of the results -> its column.
FIGURES = {
    "rss_bytes": "memory",
    "add_us": "`add`",
    "sample_32_us": "`sample(32)`",
    "sample_256_us": "`sample(256)`",
}


class Ratios(NamedTuple):
    """A kind of observation, and the ratios to SB3's buffer by figure: one for each workload."""

    kind: str
    values: dict[str, list[float]]


def load(name: str) -> dict[str, Any]:
    """A committed results file."""
    return json.loads((RESULTS / name).read_text())


def measured() -> list[Ratios]:
    """The ratios of all kinds. SB3's buffer comes first in a workload, with its smallest setting."""
    workloads = (
        load("check.json")["workloads"] | load("check-colour.json")["workloads"]
    )
    found = []
    for kind, names in KINDS.items():
        values: dict[str, list[float]] = {}
        for name in names:
            theirs = workloads[name][0]
            ours = next(
                one for one in workloads[name] if one["buffer"] == "auto"
            )
            for figure in FIGURES:
                ratio = ours[figure] / theirs[figure]
                values.setdefault(figure, []).append(ratio)
        found.append(Ratios(kind, values))
    return found


def summary_table() -> list[str]:
    """The table as Markdown, a line per kind."""
    lines = [
        f"| observations | {' | '.join(FIGURES.values())} |",
        "|---" + "|---:" * len(FIGURES) + "|",
    ]
    for kind, values in measured():
        cells = [
            span(
                values[figure],
                as_percent if figure == "rss_bytes" else as_times,
            )
            for figure in FIGURES
        ]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def span(values: Iterable[float], text: Any) -> str:
    """The least and the most of several ratios."""
    least, most = text(min(values)), text(max(values))
    if least == most:
        return least
    number, _, unit = least.partition(" ")
    return f"{number} to {most}" if unit else f"{least[:-1]} to {most}"


def as_percent(ratio: float) -> str:
    percent = 100 * ratio
    digits = 2 if percent < 1 else 1 if percent < 10 else 0
    return f"{percent:.{digits}f} %"


def as_times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def bars_kept(name: str) -> tuple[int, int]:
    """How many bars of a results file are kept, and how many there are."""
    bars = [bar for bar in load(name)["bars"] if bar["bar"] is not None]
    kept = [
        bar["value"] >= bar["bar"]
        if bar["at_least"]
        else bar["value"] <= bar["bar"]
        for bar in bars
    ]
    return sum(kept), len(kept)


class BenchmarkSummary(SphinxDirective):
    """The table, and how many bars are kept."""

    def run(self) -> list[nodes.Node]:
        for name in ("check.json", "check-colour.json"):
            self.env.note_dependency(str(RESULTS / name))
        kept = [bars_kept(name) for name in ("check.json", "check-colour.json")]
        lines = [
            *summary_table(),
            "",
            f"The project holds itself to [bars](#terms). In these runs {kept[0][0]} of {kept[0][1]} were kept for Atari, "
            f"vectors and GPU buffers, and {kept[1][0]} of {kept[1][1]} for colour.",
        ]
        node = nodes.container(classes=["benchmark-results"])
        text = StringList(lines, self.env.docname)
        self.state.nested_parse(text, self.content_offset, node)
        return [node]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("benchmark-summary", BenchmarkSummary)
    return {"version": "1", "parallel_read_safe": True}
