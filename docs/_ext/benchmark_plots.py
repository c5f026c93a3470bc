"""The directive `benchmark-plot`: a plot of the committed results, drawn when the pages are built.

The argument names the plot, one of `PLOTS`. It becomes SVG inside of the page. Its colours are variables of the page's style,
so it follows the light and the dark theme. It is drawn as narrow as a phone, so that its letters can be read there.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
from benchmark_summary import (
    FIGURES,
    RESULTS,
    as_percent,
    load,
    measured,
    span,
)
from docutils import nodes
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from sb3_extra_buffers.bench.report import label_of

#: Colours while drawing, and what stands for them in the page.
INK, FAINT, GRID, OURS, THEIRS, OTHER = (f"#0{i}0{i}0{i}" for i in range(1, 7))
VARIABLES = {
    INK: "var(--color-foreground-primary)",
    FAINT: "var(--color-foreground-secondary)",
    GRID: "var(--color-background-border)",
    OURS: "var(--color-brand-primary)",
    THEIRS: "var(--color-foreground-muted)",
    OTHER: "var(--plot-other)",
}
SETTINGS = {
    "svg.fonttype": "none",
    "font.size": 7.5,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": INK,
}
WIDTH = 3.9  # inches; 281 units of the viewBox, so that a phone shows letters of about 10 pixels
#: Buffers of the codec plot, from bench.json.
BUFFERS = (
    "sb3-default",
    "sb3",
    "auto",
    "none",
    "zstd-5",
    "zstd3",
    "zstd9@64",
    "lz4-frame/1",
    "lz4-frame/9",
    "igzip1",
    "gzip1",
    "rle",
    "0.5.0:zstd-3",
    "0.5.0:lz4-frame/1",
    "cpprb",
    "torchrl",
    "torchrl-compressed",
)
#: Labels that have to be shorter than those of the tables.
SHORT = {
    "sb3": "SB3, optimized",
    "0.5.0:zstd-3": "0.5.0, zstd-3",
    "0.5.0:lz4-frame/1": "0.5.0, lz4-frame/1",
    "torchrl": "TorchRL",
    "torchrl-compressed": "TorchRL, compressed",
}


def draw_memory() -> tuple[Figure, str]:
    """Bars: memory by kind of observation."""
    rows = measured()
    figure, axes = canvas(len(rows) + 1)
    axes.barh(0, 100, color=THEIRS, height=0.6)
    axes.text(101, 0, "100 %", va="center")
    for y, (_, values) in enumerate(rows, 1):
        shares = [100 * ratio for ratio in values["rss_bytes"]]
        axes.barh(y, max(shares), color=OURS, height=0.6)
        text = span(values["rss_bytes"], as_percent)
        axes.text(max(shares) + 1, y, text, va="center", color=INK)
    name_rows(axes, ["SB3's own buffer", *(row.kind for row in rows)])
    axes.set_xlim(0, 126)
    axes.set_xticks([0, 25, 50, 75, 100], ["0", "", "50 %", "", "100 %"])
    return figure, "Memory of the process, of what SB3's buffer takes"


def draw_times() -> tuple[Figure, str]:
    """Dots: times by kind of observation, as ratios to SB3's."""
    rows = measured()
    figure, axes = canvas(len(rows), top=0.35)
    series = {"add_us": OTHER, "sample_32_us": INK, "sample_256_us": OURS}
    for offset, (key, color) in zip(
        (-0.24, 0, 0.24), series.items(), strict=True
    ):
        for y, (_, values) in enumerate(rows):
            ratios, height = values[key], y + offset
            axes.plot(
                [min(ratios), max(ratios)], [height] * 2, color=color, lw=1
            )
            axes.plot(ratios, [height] * len(ratios), "o", ms=3, color=color)
    axes.axvline(1, color=FAINT, lw=0.9, ls=(0, (3, 2)))
    axes.text(1, -0.75, "SB3", ha="center", color=FAINT)
    for x, (key, color) in zip(
        (0.05, 0.21, 1.75), reversed(series.items()), strict=True
    ):
        axes.text(
            x,
            -0.75,
            FIGURES[key].strip("`"),
            color=color,
            fontweight="bold",
            fontsize=7,
        )
    axes.set_xscale("log")
    axes.set_xlim(0.065, 5.5)
    ticks = [0.1, 0.3, 1, 3]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.set_xticks([], minor=True)
    name_rows(axes, [row.kind for row in rows])
    return (
        figure,
        "Times, of what SB3's buffer takes (left of the line: faster than SB3)",
    )


def draw_codecs() -> tuple[Figure, str]:
    """Two panels of dots, one row per buffer: memory, and the time of a batch."""
    [results] = load("bench.json")["workloads"].values()
    found = {one["buffer"]: one for one in results if "error" not in one}
    names = [name for name in BUFFERS if name in found]
    figure, panels = canvas(len(names), columns=2, top=0.25)
    figures = {
        "rss_bytes": (1e6, "memory, MB"),
        "sample_256_us": (1e3, "sample(256), ms"),
    }
    for axes, (key, (unit, title)) in zip(panels, figures.items(), strict=True):
        for y, name in enumerate(names):
            value = found[name][key] / unit
            axes.plot(
                [value],
                [y],
                "o",
                ms=5 if name == "auto" else 3.6,
                color=color_of(name),
            )
            axes.text(
                value * 1.22,
                y,
                human(value),
                va="center",
                color=FAINT,
                fontsize=6.5,
            )
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(low, high * 2.2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda *_: "")
        axes.set_title(
            title, loc="left", fontsize=7.5, color=INK, fontweight="bold"
        )
    name_rows(panels[0], [SHORT.get(name, label_of(name)) for name in names])
    for label, name in zip(panels[0].get_yticklabels(), names, strict=True):
        label.set_color(color_of(name) if name == "auto" else INK)
        label.set_fontweight("bold" if name == "auto" else "normal")
    panels[1].set_yticks([])
    return (
        figure,
        "MsPacman, 40,000 transitions: memory and the time of a batch, by buffer (both axes logarithmic)",
    )


PLOTS: dict[str, Callable[[], tuple[Figure, str]]] = {
    "memory": draw_memory,
    "times": draw_times,
    "codecs": draw_codecs,
}


def canvas(rows: int, columns: int = 1, top: float = 0.1) -> tuple[Figure, Any]:
    """A figure of `rows` rows, with one or more panels.

    :param top: inches above the panels
    """
    height = 0.21 * rows + top + 0.3
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots(1, columns)
    left = 0.385 if columns == 1 else 0.33
    figure.subplots_adjust(
        left=left,
        right=0.99,
        top=1 - top / height,
        bottom=0.26 / height,
        wspace=0.08,
    )
    for one in axes if columns > 1 else [axes]:
        one.tick_params(which="both", length=0)
        one.grid(axis="x", color=GRID, linewidth=0.7)
        one.set_axisbelow(True)
        one.set_ylim(rows - 0.4, -0.6)  # the first row on top
        for spine in one.spines.values():
            spine.set_visible(False)
    return figure, axes


def name_rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)


def human(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def color_of(buffer: str) -> str:
    if buffer.startswith("sb3"):
        return THEIRS
    others = ("0.5.0", "cpprb", "torchrl")
    return OTHER if buffer.startswith(others) else OURS


def as_svg(figure: Figure, title: str) -> str:
    """The figure as SVG for a page: its colours, no font of its own, no ids that nothing refers to."""
    file = io.StringIO()
    figure.savefig(
        file,
        format="svg",
        transparent=True,
        metadata={"Date": None, "Creator": None},
    )
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    for color, variable in VARIABLES.items():
        svg = svg.replace(color, variable)
    svg = re.sub(r"font: (?:(bold|\d+) )?([\d.]+)px [^;\"]*", _font, svg)
    used = set(re.findall(r"#([\w-]+)", svg))
    svg = re.sub(
        r' id="([\w.-]+)"',
        lambda found: found[0] if found[1] in used else "",
        svg,
    )
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', svg)
    opening = f'<svg class="plot" {box[0] if box else ""} role="img" aria-label="{title}" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    return re.sub(r"<svg.*?>", lambda _: opening, svg, count=1, flags=re.DOTALL)


def _font(found: re.Match[str]) -> str:
    weight = f"font-weight: {found[1]}; " if found[1] else ""
    return f"{weight}font-size: {found[2]}px"


class BenchmarkPlot(SphinxDirective):
    """Used in a Markdown page, with the name of the plot."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in PLOTS:
            raise self.error(f"No plot {name!r}. There are {', '.join(PLOTS)}")
        for path in RESULTS.glob("*.json"):
            self.env.note_dependency(str(path))
        with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
            svg = as_svg(*PLOTS[name]())
        title = re.search(r'aria-label="(.*?)"', svg)
        html = f'<figure class="plot">\n<figcaption>{title[1] if title else ""}</figcaption>\n{svg}\n</figure>'
        return [nodes.raw("", html, format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("benchmark-plot", BenchmarkPlot)
    return {"version": "1", "parallel_read_safe": True}
