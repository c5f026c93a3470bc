"""Fit the table of gpu_buffers/size_estimation.py from committed benchmark results.

    python scripts/fit_heap_heuristic.py                       # reads benchmarks/results/*.json
    python scripts/fit_heap_heuristic.py results.json --check  # fails if the table is not the one that would be written

A result file is a list of rows, or an object with such a list under "rows". Rows that matter have

    "method"                    e.g. "tiles" or "zstd3"
    "bytes_per_transition"      what the observations of a transition take on the device
    "raw_bytes_per_transition"  what they take in SB3's buffer
    "columns"                   stacked observations in a raw transition: 2 for obs and next_obs (the default), 1 for a rollout
    "buffer"                    if given, only those whose name begins with "Gpu" count
    "game"                      for the comment above the table

The ratio of a method is that of the game that compresses worst.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sb3_extra_buffers.gpu_buffers.methods import split_method

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "src/sb3_extra_buffers/gpu_buffers/size_estimation.py"
BEGIN, END = "# BEGIN TABLE\n", "# END TABLE\n"

Ratios = dict[str, dict[int, float]]


def read_rows(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Rows of GPU buffers in result files."""
    for path in paths:
        content = json.loads(path.read_text())
        for row in content.get("rows", []) if isinstance(content, dict) else content:
            if isinstance(row, dict) and "bytes_per_transition" in row and row.get("buffer", "Gpu").startswith("Gpu"):
                yield row


def fit(rows: Iterable[dict[str, Any]]) -> Ratios:
    """Family -> level -> bytes per transition as a part of one stacked observation, of the worst row.

    :param rows: see the module's docstring
    """
    ratios: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        family, level = split_method(row["method"])
        level = level if level is not None else 3 if family == "zstd" else 0
        ratio = row["bytes_per_transition"] / (row["raw_bytes_per_transition"] / row.get("columns", 2))
        ratios[family][level] = max(ratio, ratios[family].get(level, 0.0))
    return {family: dict(sorted(levels.items())) for family, levels in sorted(ratios.items())}


def table_of(ratios: Ratios, games: Iterable[str]) -> str:
    """The lines between the marks."""
    lines = [
        f"# Worst of: {', '.join(sorted(set(games)))}.",
        "# Family -> level (0 for families without levels) -> ratio.",
        "RATIOS: dict[str, dict[int, float]] = {",
    ]
    for family, levels in ratios.items():
        entries = ", ".join(f"{level}: {ratio:.4f}" for level, ratio in levels.items())
        lines.append(f'    "{family}": {{{entries}}},')
    return "\n".join([*lines, "}", ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=Path, help="result files; benchmarks/results/*.json if none is given")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the table would change")
    parser.add_argument("--table", type=Path, default=TABLE, help="the module that holds the table")
    options = parser.parse_args(arguments)
    rows = list(read_rows(options.results or sorted((ROOT / "benchmarks/results").glob("*.json"))))
    if not rows:
        print("No rows with bytes_per_transition of a GPU buffer: the table stays as it is", file=sys.stderr)
        return 1
    text = options.table.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    fitted = head + BEGIN + table_of(fit(rows), (row.get("game", "?") for row in rows)) + END + tail
    if options.check:
        print("The table is up to date" if fitted == text else "The table is out of date: run this without --check")
        return int(fitted != text)
    options.table.write_text(fitted)
    print(f"{options.table}: fitted from {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
