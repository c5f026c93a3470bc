"""Results as people read them: rows of text for the terminal, the same as Markdown for the documents."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .bars import MEGABYTE
from .groups import Verdict
from .jobs import Result
from .sizes import Size, table_of

PACKAGES = ("stable-baselines3", "torch", "numpy", "zstandard", "lz4", "isal", "ale-py", "vizdoom")
COLUMNS = ("buffer", "memory", "of SB3's", "whole process", "add, first lap", "add, later laps", "slowest add", "sample(32)",
           "sample(256)", "")  # fmt: skip
BAR_COLUMNS = ("ratio", "measured", "bar", "stretch", "")
TRAINING_COLUMNS = ("training", "buffer", "steps per second", "of SB3's", "weights")
#: One letter per column: left or right.
ALIGN, BAR_ALIGN, TRAINING_ALIGN = "lrrrrrrrrl", "lrrrl", "llrrl"
#: A figure that an older version has not measured.
MISSING = "-"

LABELS = {"sb3": "SB3, optimize_memory_usage", "sb3-default": "SB3", "cpprb": "cpprb", "torchrl": "TorchRL LazyTensorStorage",
          "torchrl-compressed": "TorchRL CompressedListStorage"}  # fmt: skip
Rows = list[list[str]]


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {"python": platform.python_version(), "system": platform.system(), "machine": platform.machine(),
            "cores": os.cpu_count(), **versions}  # fmt: skip


def label_of(buffer: str) -> str:
    """A buffer's name as it stands in tables and plots."""
    if buffer.startswith("0.5.0:"):
        return f"sb3-extra-buffers 0.5.0, {buffer.partition(':')[2]}"
    method, _, block_frames = buffer.partition("@")
    return LABELS.get(buffer) or (f"{method}, blocks of {block_frames}" if block_frames else method)


def reference_of(result: Result, results: Sequence[Result]) -> Result | None:
    """The buffer that gives the unit: SB3's with optimize_memory_usage, of the same size, with the same work."""
    same = [one for one in results if "rss_bytes" in one and _work(one) == _work(result)]
    return next((one for name in ("sb3", "sb3-default") for one in same if one["buffer"] == name), None)


def rows_of(results: Sequence[Result]) -> Rows:
    """A row per buffer of one workload."""
    largest = max((result["transitions"] for result in results), default=0)
    return [_row(result, reference_of(result, results), largest) for result in results]


def _row(result: Result, reference: Result | None, largest: int) -> list[str]:
    label = label_of(result["buffer"])
    if "error" in result:
        return [label, *("" for _ in COLUMNS[2:]), f"could not be measured: {result['error']}"]

    def time(key: str) -> str:
        if result.get(key) is None or result.get("fresh"):  # in a fresh process a handful of adds is all there is
            return ""
        ratio = f"{result[key] / reference[key]:.2f}x" if reference and reference.get(key) else ""
        return f"{_human_us(result[key])} {ratio}".strip()

    process = result.get("process_bytes")
    notes = ["other batches than SB3's"] if result.get("identical") is False else []
    if "library_bytes" in result:
        weight = _human_mb(result["library_bytes"] / MEGABYTE)
        notes.append(f"beyond SB3's: {weight}, {result['first_batch_seconds']:.2f} s to the first batch")
    if result.get("slow"):
        notes.append("one run")
    if result["transitions"] < largest:
        notes.append(f"{result['transitions']:,} transitions")
    share = result["rss_bytes"] / reference["rss_bytes"] if reference else None
    return [
        label, _human_mb(result["rss_bytes"] / MEGABYTE),
        "" if share is None else _human_percent(100 * share), MISSING if process is None else _human_mb(process / MEGABYTE),
        time("add_first_us"), time("add_us"),
        _human_us(result["add_max_us"]) if result.get("add_max_us") is not None else "",
        time("sample_32_us"), time("sample_256_us"), "; ".join(notes),
    ]  # fmt: skip


def training_rows(trainings: Sequence[Result]) -> Rows:
    """A row per training; the one with SB3's buffer comes first."""
    rows = []
    for result in trainings:
        unit = next(one for one in trainings if one["algorithm"] == result["algorithm"] and one["buffer"] == "sb3")
        weights = "" if result is unit else "identical" if result["identical"] else "DIFFERENT"
        ratio = result["steps_per_second"] / unit["steps_per_second"]
        label = "SB3" if result is unit else result["buffer"]
        rows.append([result["algorithm"].upper(), label, f"{result['steps_per_second']:.0f}", f"{ratio:.2f}x", weights])
    return rows


def bar_rows(verdicts: Sequence[Verdict], *, judged: bool = True) -> Rows:
    """A row per ratio, with its bar.

    :param judged: whether it says PASS or MISS
    """
    rows = []
    for verdict in verdicts:
        sign = ">=" if verdict.at_least else "<="
        bar = "" if verdict.bar is None else f"{sign} {_in_unit(verdict.bar, verdict.unit)}"
        stretch = "" if verdict.stretch is None else f"{sign} {_in_unit(verdict.stretch, verdict.unit)}"
        word = "" if verdict.kept is None or not judged else "MISS" if not verdict.kept else "PASS"
        word += ", stretch too" if word == "PASS" and verdict.stretched else ""
        rows.append([verdict.label, _in_unit(verdict.value, verdict.unit), bar, stretch, word])
    return rows


def markdown(columns: Sequence[str], rows: Rows, align: str) -> str:
    """A Markdown table."""
    rule = ["---:" if side == "r" else "---" for side in align]
    return "\n".join("| " + " | ".join(line) + " |" for line in (columns, rule, *rows))


def render(saved: dict[str, Any]) -> str:
    """All tables of a saved run, as Markdown.

    :param saved: what `bench` has written
    """
    if "sizes" in saved:
        table = markdown(*table_of([Size(**values) for values in saved["sizes"]]))
        return "\n\n".join(["Memory of a transition, of the bytes of one frame", table, made_by(saved)])
    parts = []
    if saved.get("bars"):
        verdicts = [Verdict(**values) for values in saved["bars"]]
        parts.append(
            "Ratios to SB3's buffer, beside their bars\n\n"
            + markdown(BAR_COLUMNS, bar_rows(verdicts, judged=saved.get("judged", True)), BAR_ALIGN)
        )
    for results in saved["workloads"].values():
        parts.append(f"{title_of(results)}\n\n{markdown(COLUMNS, rows_of(results), ALIGN)}")
    if saved.get("trainings"):
        parts.append("Training end to end\n\n" + markdown(TRAINING_COLUMNS, training_rows(saved["trainings"]), TRAINING_ALIGN))
    parts.append(made_by(saved))
    return "\n\n".join(parts)


def made_by(saved: dict[str, Any]) -> str:
    """What a run is to be repeated with."""
    versions = ", ".join(f"{key} {value}" for key, value in saved["machine"].items())
    return f"Made by `{saved['command']}` with {versions}"


def title_of(results: Sequence[Result]) -> str:
    """What a table is about."""
    if results[0].get("fresh"):
        return "What the library itself adds to a process: a tiny buffer in a fresh process"
    return f"{results[0]['workload']}, {max(result['transitions'] for result in results):,} transitions"


def _work(result: Result) -> tuple[Any, ...]:
    return tuple(result.get(key) for key in ("workload", "transitions"))


def _human_us(microseconds: float) -> str:
    return f"{microseconds:.3g} us" if microseconds < 999.5 else f"{microseconds / 1000:.3g} ms"


def _human_mb(megabytes: float) -> str:
    return f"{megabytes:.3g} MB" if megabytes < 999.5 else f"{megabytes:.0f} MB"


def _human_percent(percent: float) -> str:
    return f"{percent:.2f} %" if percent < 9.995 else f"{percent:.0f} %"


def _in_unit(value: float, unit: str) -> str:
    if unit == "MB":
        return f"{value:.0f} MB" if value >= 99.95 else f"{value:.1f} MB"
    digits = 0 if unit == "us" else 2
    return f"{value:.{digits}f}{'x' if unit == 'x' else f' {unit}'}"
