"""Write a saved buffer anew: with another size, another number of envs or another codec, as a file or as a checkpoint folder.

IN is a file made by `buffer.save`, a checkpoint folder, or a pickle made by `model.save_replay_buffer`, also of SB3's buffers.
OUT is a folder if it exists as one or has no suffix, else a file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sb3_extra_buffers._text import human_bytes
from sb3_extra_buffers.cli.arguments import positive
from sb3_extra_buffers.cli.opening import add_trust, is_pickle, open_buffer, write_buffer
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
    with progress(f"Converting {args.input}", 2) as update:
        buffer = open_buffer(args.input, trust=args.trust, **({} if is_pickle(args.input) else given))
        if is_pickle(args.input):
            buffer = _from_pickle(buffer, given)
        update(1, "read")
        write_buffer(buffer, args.output)
        update(2, "written")
    files = [args.output] if args.output.is_file() else list(args.output.iterdir())
    facts = {"output": str(args.output), "bytes": sum(file.stat().st_size for file in files), "buffer": repr(buffer)}
    if args.json:
        show_json(facts)
    else:
        say(f"{facts['output']}: {human_bytes(float(str(facts['bytes'])))}, {facts['buffer']}")
    return 0


def _from_pickle(buffer: object, given: dict[str, object]) -> object:
    """A buffer of this library with these sizes: through a file, which knows how."""
    import tempfile

    from sb3_extra_buffers.converting import compress_buffer
    from sb3_extra_buffers.persistence import load_buffer

    compressed = compress_buffer(buffer)  # type: ignore[arg-type]
    if not given:
        return compressed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer.sb3x"
        compressed.save(path)
        return load_buffer(path, device="cpu", **given)  # type: ignore[arg-type]
