"""The demo's plot: memory of both trainings over steps, labelled at the lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sb3_extra_buffers._optional import require
from sb3_extra_buffers._text import human_bytes

INK, FAINT = "#22272e", "#6b7280"
LINES = ("#9aa1ab", "#0f766e")
MEGABYTE = 1e6
#: Labels that need a second line beside the plot.
BROKEN = {"SB3 ReplayBuffer": "SB3\nReplayBuffer", "CompressedReplayBuffer": "Compressed\nReplayBuffer"}


def draw(curves: Mapping[str, Sequence[tuple[int, int]]], path: Path) -> None:
    """Save the plot as PNG.

    :param curves: label -> (step, bytes) of SB3's buffer and of ours, in this order
    """
    require("matplotlib", extra="extra", what="The plot")
    from matplotlib.figure import Figure  # not pyplot: no window system, no global state

    figure = Figure(figsize=(6.4, 4.0), dpi=200)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.115, right=0.76, top=0.8, bottom=0.13)
    for (label, curve), line, ink, side in zip(curves.items(), LINES, (FAINT, LINES[1]), ("center", "bottom"), strict=True):
        steps, growth = [step for step, _ in curve], [n / MEGABYTE for _, n in curve]
        axes.plot(steps, growth, color=line, linewidth=2.4, solid_capstyle="round", clip_on=False)
        axes.annotate(
            f"{BROKEN.get(label, label)}\n+{human_bytes(max(curve[-1][1], 0))}", (steps[-1], growth[-1]),
            xytext=(8, -4 if side == "bottom" else 0), textcoords="offset points", annotation_clip=False,
            va=side, color=ink, fontsize=10, fontweight="bold",
        )  # fmt: skip
    last = max(curve[-1][0] for curve in curves.values())
    axes.set_xlim(0, last)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("environment steps", color=FAINT, fontsize=10)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.locator_params(nbins=5)
    axes.tick_params(length=0, labelsize=10, labelcolor=FAINT)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.text(0.03, 0.93, "Memory while DQN learns Pong", fontsize=14, fontweight="bold", color=INK)
    figure.text(0.03, 0.865, "growth of the process's resident memory (MB), same seed", fontsize=10.5, color=FAINT)
    figure.savefig(path)
