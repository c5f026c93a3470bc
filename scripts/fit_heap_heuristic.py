"""Fit the table of gpu_buffers/estimates.py from committed benchmark results.

    python scripts/fit_heap_heuristic.py          # reads sizes.json, which `bench --sizes` writes
    python scripts/fit_heap_heuristic.py --check  # fails if the table is not the one that would be written

Both print the table.

A ratio is what observations take, index tables and spare room included, as a part of SB3's array of stacked observations. That
of a method is the one of the game that compresses worst.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sb3_extra_buffers.bench.sizes import SIZES
from sb3_extra_buffers.gpu_buffers.methods import DEFAULT_LEVEL, split_method

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "src/sb3_extra_buffers/gpu_buffers/estimates.py"
BEGIN, END = "# BEGIN TABLE\n", "# END TABLE\n"
GPU = "gpu-"

Ratios = dict[str, dict[int, float]]


class Row(NamedTuple):
    """What a method was measured at on a game."""

    method: str
    game: str
    ratio: float


def read_rows(path: Path) -> list[Row]:
    """Rows of GPU buffers in a file of sizes."""
    rows = json.loads(path.read_text()).get("gpu", [])
    return [Row(row["buffer"].removeprefix(GPU), row["workload"], row["ratio"]) for row in rows]


def fit(rows: Iterable[Row]) -> Ratios:
    """Family -> level -> ratio of the worst row."""
    ratios: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        family, level = split_method(row.method)
        level = DEFAULT_LEVEL.get(family, 0) if level is None else level
        ratios[family][level] = max(row.ratio, ratios[family].get(level, 0.0))
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
    parser.add_argument("sizes", nargs="?", type=Path, default=SIZES, help="the file that `bench --sizes` has written")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the table would change")
    parser.add_argument("--table", type=Path, default=TABLE, help="the module that holds the table")
    options = parser.parse_args(arguments)
    if not options.sizes.is_file():
        parser.error(f"no such file: {options.sizes}")
    rows = read_rows(options.sizes)
    ratios = fit(rows)
    unmeasured = [family for family in ("none", "rle", "tiles", "zstd") if family not in ratios]
    if unmeasured:
        print(f"No rows of {', '.join(GPU + family for family in unmeasured)}: the table stays as it is", file=sys.stderr)
        return 1
    text = options.table.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    table = table_of(ratios, (row.game for row in rows))
    fitted = head + BEGIN + table + END + tail
    print(table)
    if options.check:
        print("The table is up to date" if fitted == text else "The table is out of date: run this without --check")
        return int(fitted != text)
    options.table.write_text(fitted)
    print(f"{options.table}: fitted from {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
