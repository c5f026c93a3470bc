"""Fit the table of gpu_buffers/size_estimation.py from committed benchmark results.

    python scripts/fit_heap_heuristic.py                       # reads all of benchmarks/results
    python scripts/fit_heap_heuristic.py results.json --check  # fails if the table is not the one that would be written

The results are those of

    python -m sb3_extra_buffers bench --repeats 1 --out benchmarks/results/gpu \\
        --game MsPacman Pong Seaquest Breakout Qbert SpaceInvaders BeamRider \\
        --methods gpu-tiles gpu-none gpu-rle gpu-zstd-5 gpu-zstd1 gpu-zstd3 gpu-zstd9 gpu-zstd15 gpu-zstd19

Rows of GPU buffers count, in whatever file they are; those of noise do not. A ratio is what observations take, index tables
and spare room included, as a part of SB3's array of stacked observations. That of a method is the one of the game that
compresses worst.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sb3_extra_buffers.gpu_buffers.methods import split_method
from sb3_extra_buffers.gpu_buffers.size_estimation import DEFAULT_LEVEL

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "src/sb3_extra_buffers/gpu_buffers/size_estimation.py"
BEGIN, END = "# BEGIN TABLE\n", "# END TABLE\n"
GPU = "gpu-"
#: SB3's buffers, and how many stacked observations of a transition they hold.
UNITS = {"sb3": 1, "sb3-default": 2}

Ratios = dict[str, dict[int, float]]


class Row(NamedTuple):
    """What a method was measured at on a game."""

    method: str
    game: str
    ratio: float


def read_rows(paths: Iterable[Path]) -> Iterator[Row]:
    """Rows of GPU buffers on games in result files."""
    for path in paths:
        saved = json.loads(path.read_text())
        for results in saved.get("workloads", {}).values():
            raw = {_work(one): one["observation_bytes"] / UNITS[one["buffer"]] for one in results if one["buffer"] in UNITS}
            for result in results:
                if result["buffer"].startswith(GPU) and result["workload"] != "noise" and _work(result) in raw:
                    ratio = result["observation_bytes"] / raw[_work(result)]
                    yield Row(result["buffer"].removeprefix(GPU), result["workload"], ratio)


def _work(result: dict[str, Any]) -> tuple[str, int]:
    return result["workload"], result["transitions"]


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
    parser.add_argument("results", nargs="*", type=Path, help="result files; all in benchmarks/results if none is given")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the table would change")
    parser.add_argument("--table", type=Path, default=TABLE, help="the module that holds the table")
    options = parser.parse_args(arguments)
    missing = [str(path) for path in options.results if not path.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    rows = list(read_rows(options.results or sorted((ROOT / "benchmarks/results").rglob("*.json"))))
    ratios = fit(rows)
    unmeasured = [family for family in ("none", "rle", "tiles", "zstd") if family not in ratios]
    if unmeasured:
        print(f"No rows of {', '.join(GPU + family for family in unmeasured)}: the table stays as it is", file=sys.stderr)
        return 1
    text = options.table.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    fitted = head + BEGIN + table_of(ratios, (row.game for row in rows)) + END + tail
    if options.check:
        print("The table is up to date" if fitted == text else "The table is out of date: run this without --check")
        return int(fitted != text)
    options.table.write_text(fitted)
    print(f"{options.table}: fitted from {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
