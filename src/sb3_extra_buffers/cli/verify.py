"""Check every checksum of a saved buffer or checkpoint folder, and say what is damaged and what can be saved.

Exit code 1 if anything is damaged. Nothing is changed: `repair` writes what is undamaged to another place.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sb3_extra_buffers._text import human_bytes
from sb3_extra_buffers.cli.opening import bytes_of, check_segments
from sb3_extra_buffers.cli.output import Table, progress, say, show, show_json

if TYPE_CHECKING:
    from sb3_extra_buffers.segments.scanning import Finding

HELP = "check every checksum of a saved buffer"
EXAMPLES = """\
  sb3-extra-buffers verify buffer.sb3x
  sb3-extra-buffers verify checkpoints --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("path", type=Path, metavar="PATH", help="file made by buffer.save, or checkpoint folder")


def run(args: argparse.Namespace) -> int:
    """Look at all segments."""
    from sb3_extra_buffers.segments.scanning import scan

    path: Path = args.path
    check_segments(path)
    total = max(bytes_of(path), 1)
    with scan(path) as findings, progress(f"Verifying {path}", total) as update:
        found, done = [], 0
        for one in findings:
            found.append(one)
            done += one.n_bytes
            update(min(done, total), one.where)
        damaged = [one for one in found if one.problems]
        problem = None if damaged else _why_not_one(path)
        lost = _why_lost(found) if damaged or problem is not None else None
    facts = {
        "path": str(path), "segments": len(found), "damaged": len(damaged), "problem": problem,
        "steps": sum(one.steps for one in found), "can_be_saved": lost is None,
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
        saved = f"{facts['steps']:,} steps can be saved: sb3-extra-buffers repair {path} OUT"
        say(f"{len(damaged)} of {len(found)} segments are damaged; {saved if lost is None else lost}")
    return 1 if damaged or problem is not None else 0


def _why_lost(found: list[Finding]) -> str | None:
    """Why nothing can be saved; None if something can."""
    from sb3_extra_buffers.errors import CorruptDataError
    from sb3_extra_buffers.persistence import check_rescue
    from sb3_extra_buffers.segments.scanning import usable

    try:
        check_rescue(*usable(found))
    except (CorruptDataError, ImportError) as error:
        return str(error)
    return None


def _why_not_one(path: Path) -> str | None:
    """Why segments, each of them fine, do not belong together."""
    from sb3_extra_buffers.errors import CorruptDataError
    from sb3_extra_buffers.segments.opening import open_stored

    try:
        with open_stored(path):
            return None
    except CorruptDataError as error:
        return str(error)
