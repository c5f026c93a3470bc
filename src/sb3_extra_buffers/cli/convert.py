"""Write a saved buffer anew: with another size, another number of envs or another codec, as a file or as a checkpoint folder.

IN is a file made by `buffer.save`, a checkpoint folder, or a pickle made by `model.save_replay_buffer`, also of SB3's buffers.
OUT is a folder if it exists as one or has no suffix, a pickle for `model.load_replay_buffer` if it ends with .pkl, else a
file.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sb3_extra_buffers._text import human_bytes
from sb3_extra_buffers.cli.arguments import positive
from sb3_extra_buffers.cli.opening import add_trust, bytes_of, open_buffer, stage, write_buffer
from sb3_extra_buffers.cli.output import progress, say, show_json

HELP = "write a saved buffer with another size, number of envs or codec"
EXAMPLES = """\
  sb3-extra-buffers convert buffer.sb3x smaller.sb3x --buffer-size 100000
  sb3-extra-buffers convert checkpoints buffer.sb3x --n-envs 8
  sb3-extra-buffers convert replay_buffer.pkl buffer.sb3x --codec zstd9 --trust"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("input", type=Path, metavar="IN", help="file or checkpoint folder to read")
    parser.add_argument("output", type=Path, metavar="OUT", help="file or checkpoint folder to write")
    parser.add_argument("--buffer-size", type=positive, metavar="N", help="transitions of the new buffer; the newest are kept")
    parser.add_argument("--n-envs", type=positive, metavar="N", help="envs of the new buffer; episodes are dealt to them")
    parser.add_argument("--codec", metavar="NAME", help="encode observations anew, e.g. zstd9")
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Load and save."""
    sizes = {"buffer_size": args.buffer_size, "n_envs": args.n_envs, "compression_method": args.codec}
    given = {name: value for name, value in sizes.items() if value is not None}
    total = bytes_of(args.input) if args.input.exists() else 0
    with progress(f"Converting {args.input}", 200) as update:
        with stage(update, 0, total, "read"):
            buffer = _ours(open_buffer(args.input, trust=args.trust, **given))
        with stage(update, 1, buffer.memory_usage().stored_bytes, "written"):
            write_buffer(buffer, args.output)
    facts = {"output": str(args.output), "bytes": bytes_of(args.output), "buffer": repr(buffer)}
    if args.json:
        show_json(facts)
    else:
        say(f"{facts['output']}: {human_bytes(float(str(facts['bytes'])))}, {facts['buffer']}")
    return 0


def _ours(buffer: Any) -> Any:
    """The same, compressed if it is one of SB3's own."""
    from stable_baselines3.common.buffers import BaseBuffer

    from sb3_extra_buffers.converting import compress_buffer

    return compress_buffer(buffer) if isinstance(buffer, BaseBuffer) else buffer
