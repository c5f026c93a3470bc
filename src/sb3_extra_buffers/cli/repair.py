"""Write all undamaged segments of a saved buffer or checkpoint folder to another place.

Where steps are missing, an episode ends by a timeout: no transition pairs what did not follow. IN is not changed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sb3_extra_buffers.cli.opening import bytes_of, check_segments, stage, write_buffer
from sb3_extra_buffers.cli.output import progress, say, show_json

HELP = "save what is undamaged of a saved buffer"
EXAMPLES = """\
  sb3-extra-buffers repair damaged.sb3x repaired.sb3x
  sb3-extra-buffers repair checkpoints repaired"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("input", type=Path, metavar="IN", help="file made by buffer.save, or checkpoint folder")
    parser.add_argument("output", type=Path, metavar="OUT", help="file or checkpoint folder to write")


def run(args: argparse.Namespace) -> int:
    """Scan, keep, and write."""
    from sb3_extra_buffers.persistence import rescue_buffer
    from sb3_extra_buffers.segments.scanning import scan, usable

    check_segments(args.input)
    if args.output.exists() and args.output.resolve() == args.input.resolve():
        raise ValueError(f"OUT is IN: {args.input} stays as it is, so that nothing is lost. Name another place")
    total = bytes_of(args.input)
    with scan(args.input) as findings, progress(f"Repairing {args.input}", 300) as update:
        with stage(update, 0, total, "scanned"):
            found = list(findings)
        stored, gaps = usable(found)
        n_steps, n_bytes = stored.n_steps, sum(one.n_bytes for one in found if one.is_usable)
        with stage(update, 1, n_bytes, "read"):
            buffer = rescue_buffer(stored, gaps, device="cpu")
        with stage(update, 2, n_bytes, "written"):
            write_buffer(buffer, args.output)
    damaged = sum(bool(one.problems) for one in found)
    steps = min(n_steps, stored.about["slots"])
    facts = {"output": str(args.output), "steps": steps, "damaged": damaged, "segments": len(found), "gaps": len(gaps)}
    if args.json:
        show_json(facts)
    else:
        say(
            f"{facts['output']}: {facts['steps']:,} steps of {len(found) - damaged} segments; "
            f"{damaged} damaged ones were left out"
        )
    return 0
