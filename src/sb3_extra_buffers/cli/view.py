"""Look at saved buffers in the browser: an overview with warnings, a table of episodes, and a player for their frames.

Takes files made by `buffer.save` and `record.save`, checkpoint folders, also while a training writes to them, and pickles made
by SB3's `model.save_replay_buffer`. The page is answered to this machine alone; with another --host, its address has a token.
"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from contextlib import ExitStack
from pathlib import Path

from sb3_extra_buffers.cli.arguments import port
from sb3_extra_buffers.cli.opening import add_trust, check_segments, open_buffer, write_buffer
from sb3_extra_buffers.cli.output import say, show_json

HELP = "look at saved buffers in the browser"
EXAMPLES = """\
  sb3-extra-buffers view buffer.sb3x
  sb3-extra-buffers view run  # a checkpoint folder, also of a running training
  sb3-extra-buffers view before.sb3x after.sb3x  # side by side
  sb3-extra-buffers view buffer.sb3x --host 0.0.0.0 --no-browser"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="saved buffer, checkpoint folder or record")
    parser.add_argument("--port", type=port, help="port of the page (default: 8733, or a free one; 0: a free one)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s, this machine alone)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open no browser")
    parser.add_argument(
        "--action-names", metavar="A,B,...", help="names of discrete actions, where the file has none: NOOP,FIRE,RIGHT,LEFT"
    )
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    from sb3_extra_buffers.viewer import Viewer

    names = [name.strip() for name in args.action_names.split(",")] if args.action_names else None
    with ExitStack() as stack:
        paths = [_viewable(path, args.trust, stack) for path in args.paths]
        viewer = Viewer(*paths, host=args.host, port=args.port, action_names=names)
        if args.json:
            show_json({"url": viewer.url})
        else:
            say(f"{', '.join(map(str, args.paths))}: {viewer.url}")
            say("Ctrl-C ends it.")
        sys.stdout.flush()
        if not args.no_browser:
            webbrowser.open(viewer.url)  # the socket listens already: the page waits for its answer
        viewer.run()
    return 0


def _viewable(path: Path, trust: bool, stack: ExitStack) -> Path:
    """The path itself, or a file with what is in a pickle."""
    from sb3_extra_buffers.segments.files import is_pickle

    if not is_pickle(path):
        check_segments(path)
        return path
    from tempfile import TemporaryDirectory

    from sb3_extra_buffers.converting import compress_buffer

    buffer = compress_buffer(open_buffer(path, trust=trust))
    copy = Path(stack.enter_context(TemporaryDirectory(prefix="sb3x-"))) / f"{path.stem}.sb3x"
    write_buffer(buffer, copy)
    return copy
