"""Check every checksum of a saved buffer or checkpoint folder, and say what is damaged and what can be saved.

Exit code 1 if anything is damaged. Nothing is changed: `repair` writes what is undamaged to another place.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sb3_extra_buffers._text import human_bytes
from sb3_extra_buffers.cli.opening import check_path
from sb3_extra_buffers.cli.output import Table, progress, say, show, show_json

HELP = "check every checksum of a saved buffer"
EXAMPLES = """\
  sb3-extra-buffers verify buffer.sb3x
  sb3-extra-buffers verify checkpoints --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("path", type=Path, metavar="PATH", help="file made by buffer.save, or checkpoint folder")


def run(args: argparse.Namespace) -> int:
    """Look at all segments."""
    from sb3_extra_buffers.errors import CorruptDataError
    from sb3_extra_buffers.persistence import open_stored
    from sb3_extra_buffers.segments.scanning import scan

    path: Path = args.path
    check_path(path)
    total = path.stat().st_size if path.is_file() else sum(one.stat().st_size for one in path.iterdir())
    with scan(path) as findings, progress(f"Verifying {path}", max(total, 1)) as update:
        found, done = [], 0
        for one in findings:
            found.append(one)
            done += one.n_bytes
            update(min(done, total), one.where)
    problem = None
    if not any(one.problems for one in found):
        try:  # each segment is fine: do they belong together?
            with open_stored(path):
                pass
        except CorruptDataError as error:
            problem = str(error)
    damaged = [one for one in found if one.problems]
    facts = {
        "path": str(path), "segments": len(found), "damaged": len(damaged), "problem": problem,
        "steps": sum(one.steps for one in found),
        "findings": [
            {"where": one.where, "bytes": one.n_bytes, "steps": one.steps, "problems": one.problems} for one in found
        ],
    }  # fmt: skip
    if args.json:
        show_json(facts)
    elif not damaged and problem is None:
        say(f"{path}: all {len(found)} segments are undamaged, {facts['steps']:,} steps")
    else:
        rows = [
            [one.where, human_bytes(one.n_bytes), f"{one.steps:,}", "; ".join(one.problems) or "undamaged"] for one in found
        ]
        show(Table(["segment", "bytes", "usable steps", ""], rows, "lrrl"))
        if problem is not None:
            say(problem)
        say(
            f"{len(damaged)} of {len(found)} segments are damaged; {facts['steps']:,} steps can be saved: "
            "sb3-extra-buffers repair"
        )
    return 1 if damaged or problem is not None else 0
