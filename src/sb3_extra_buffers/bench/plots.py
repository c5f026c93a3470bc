"""Two plots: memory against the time of a sample, and against that of an add; one labelled point per buffer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sb3_extra_buffers._optional import require

from .bars import DEFAULT, MEGABYTE
from .jobs import Result
from .report import label_of, title_of

INK, FAINT, OURS, THEIRS, PEER = "#22272e", "#6b7280", "#0f766e", "#9aa1ab", "#b45309"
#: File name -> figure on the x axis, and what it is called.
PLOTS = {"memory-sample": ("sample_256_us", "sample(256), ms"), "memory-add": ("add_us", "add, 4 envs, later laps, ms")}
#: Places that are tried for a label, in points from its dot: (x, y, side of the text that is anchored).
PLACES = [
    (sign * (6 + away), up, "left" if sign > 0 else "right")
    for away in (0, 8, 18) for up in (0, 8, -8, 16, -16, 26, -26, 38, -38, 52, -52) for sign in (1, -1)
]  # fmt: skip


def draw_all(workload: str, results: Sequence[Result], folder: Path) -> list[Path]:
    """Save both plots of a workload as PNG."""
    require("matplotlib", extra="extra", what="The plots")
    measured = [result for result in results if "error" not in result]
    paths = []
    for name, (key, label) in PLOTS.items():
        paths.append(folder / f"{workload}-{name}.png")
        _draw([result for result in measured if result.get(key)], key, label, paths[-1])
    return paths


def _draw(results: Sequence[Result], key: str, label: str, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # not pyplot: no window system, no global state
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 5.6), dpi=160)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.09, right=0.97, top=0.86, bottom=0.1)
    points = [(result[key] / 1000, result["rss_bytes"] / MEGABYTE, result["buffer"]) for result in results]
    for x, y, name in points:
        axes.scatter([x], [y], s=70 if name == DEFAULT else 34, color=_color(name), zorder=3, linewidths=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.16, y=0.12)
    _decorate(axes)
    axes.set_xlabel(label, color=FAINT, fontsize=10)
    figure.text(0.03, 0.945, title_of(results), fontsize=14, fontweight="bold", color=INK)
    figure.text(0.03, 0.9, "growth of the process's resident memory (MB); lower left is better", fontsize=10.5, color=FAINT)
    _place_labels(figure, axes, points)
    figure.savefig(path)


def _decorate(axes: Any) -> None:
    from matplotlib.ticker import LogLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda *_: "")
    axes.tick_params(which="both", length=0, labelsize=10, labelcolor=FAINT)
    axes.grid(which="major", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _place_labels(figure: Any, axes: Any, points: Sequence[tuple[float, float, str]]) -> None:
    """Put each label at the first place beside its dot where it covers no dot, no other label, and stays inside."""
    from matplotlib.transforms import Bbox

    figure.canvas.draw()  # settles the limits of the axes, on which all places depend
    renderer = figure.canvas.get_renderer()
    pixel = figure.dpi / 72
    centers = [axes.transData.transform((x, y)) for x, y, _ in points]
    taken = [Bbox([center - 4 * pixel, center + 4 * pixel]) for center in centers]
    inside = axes.get_window_extent(renderer).expanded(1.02, 1.02)
    for i, (x, y, name) in sorted(enumerate(points), key=lambda item: item[1][2] != DEFAULT):
        text = axes.annotate(
            label_of(name), (x, y), xytext=(6, 0), textcoords="offset points", va="center", color=_color(name, text=True),
            fontsize=9.5 if name == DEFAULT else 8, fontweight="bold" if name == DEFAULT else "normal",
            arrowprops={"arrowstyle": "-", "color": "#cbd0d6", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 5},
        )  # fmt: skip
        for right, up, side in PLACES:
            text.set_position((right, up))
            text.set_ha(side)
            text.update_positions(renderer)
            box = _text_box(text, renderer)
            free = not any(box.overlaps(other) for j, other in enumerate(taken) if j != i)
            if (
                free
                and inside.containsx(box.x0)
                and inside.containsx(box.x1)
                and inside.containsy(box.y0)
                and inside.containsy(box.y1)
            ):
                break
        taken.append(box)


def _text_box(annotation: Any, renderer: Any) -> Any:
    """Where the letters are, without the line to the dot."""
    from matplotlib.text import Text

    return Text.get_window_extent(annotation, renderer)


def _color(name: str, *, text: bool = False) -> str:
    if name.startswith("sb3"):
        return FAINT if text else THEIRS
    return PEER if name.startswith(("0.5.0", "cpprb", "torchrl")) else OURS
