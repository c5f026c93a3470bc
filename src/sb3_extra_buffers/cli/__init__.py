"""The command `sb3-extra-buffers`: one subcommand per module, and one place where errors become a line and an exit code.

A subcommand is a module with `HELP`, `EXAMPLES`, `configure(parser)` and `run(args)`. Its module imports little; what is
heavy is imported when it runs, so that `--help` answers at once and Ctrl-C is met by `main`.

Exit codes: 0 done; 1 `demo`: the weights differ, `bench --check`: a bar was missed, or `verify`: something is damaged; 2 a
mistake or something missing; 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from sb3_extra_buffers import __version__
from sb3_extra_buffers.cli.help import Parser
from sb3_extra_buffers.cli.output import complain

PROGRAM = "sb3-extra-buffers"
#: Subcommand -> module below this package, in the order of --help.
COMMANDS = {
    "info": "info", "demo": "demo", "recommend": "recommend", "estimate": "estimate", "inspect": "inspect_file",
    "view": "view", "convert": "convert", "verify": "verify", "repair": "repair",
    "bench": "bench",
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code.

    :param argv: arguments without the program's name; None for those of the process
    """
    parser = build_parser()
    given = sys.argv[1:] if argv is None else argv
    if not given:
        parser.print_help()
        return 0
    args = parser.parse_args(given)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        complain("Interrupted.")
        return 130
    except BrokenPipeError:  # the reader, e.g. `head`, has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:
        if args.debug:
            raise
        complain(f"{PROGRAM} {args.command}: {one_line(error)}")
        return 2


def build_parser() -> argparse.ArgumentParser:
    """The parser with all subcommands."""
    parser = Parser(
        prog=PROGRAM,
        description="Losslessly compressed replay and rollout buffers for Stable-Baselines3.",
        epilog=f"`{PROGRAM} COMMAND --help` tells more about a command. Numbers may be written 1000000, 1_000_000, 1e6 or 1M.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    subparsers = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for name, where in COMMANDS.items():
        module = importlib.import_module(f"{__name__}.{where}")
        sub = subparsers.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            epilog=f"examples:\n{module.EXAMPLES}",
        )
        module.configure(sub)
        sub.add_argument("--json", action="store_true", help="print the result as JSON")
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
        sub.set_defaults(run=module.run)
    return parser


def one_line(error: BaseException) -> str:
    """An error in one line; its kind too where the text alone would not tell."""
    text = " ".join(str(error).split())
    if isinstance(error, (ValueError, ImportError, OSError, NotImplementedError)) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
