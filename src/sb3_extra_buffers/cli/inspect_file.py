"""Show what a saved buffer holds: a file made by `buffer.save`, a checkpoint folder, or a pickle made by SB3's
`model.save_replay_buffer`.

Opening a pickle can run any code that is in it, so that is asked about first. The other files hold no code.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sb3_extra_buffers.cli.describing import describe, rows
from sb3_extra_buffers.cli.opening import add_trust, bytes_of, open_buffer
from sb3_extra_buffers.cli.output import Table, say, show, show_json

HELP = "what a saved buffer holds"
EXAMPLES = """\
  sb3-extra-buffers inspect buffer.sb3x
  sb3-extra-buffers inspect checkpoints --frames frames.png
  sb3-extra-buffers inspect replay_buffer.pkl --trust --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="saved buffer: a file, a checkpoint folder, or a pickle")
    add_trust(parser)
    parser.add_argument("--frames", type=_picture, metavar="PNG", help="save a contact sheet of stored frames, as a PNG")
    parser.add_argument("--key", help="key of a Dict observation to show frames of (default: the first with images)")


def run(args: argparse.Namespace) -> int:
    """Load, describe, and draw the frames if asked to."""
    buffer = open_buffer(args.file, trust=args.trust)
    facts = {"file": str(args.file), "file_bytes": bytes_of(args.file), **describe(buffer)}
    if args.frames:
        from sb3_extra_buffers.cli.contact_sheet import save_contact_sheet

        facts["frames"] = save_contact_sheet(buffer, args.frames, args.key)
    if args.json:
        show_json(facts)
    else:
        show(Table(["", facts["file"]], rows(facts), "ll"))
        if args.frames:
            say(f"Frames: {args.frames}")
    return 0


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"must name a PNG, such as {path.stem or 'frames'}.png, got {text!r}")
    return path
