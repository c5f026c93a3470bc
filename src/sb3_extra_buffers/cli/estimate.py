"""Estimate the memory of a replay buffer from the shape and dtype of its observations, without playing.

The figures are committed ones: games and scenarios were recorded, and buffers filled with them, by `bench --sizes`. What you
get is the least, the median and the most over these recordings, so yours may well be outside. `recommend` measures your env.

Kinds: atari (gray frames, a camera that stands still), masks (segmentation), rgb (a camera that moves), vector.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sb3_extra_buffers._text import human_bytes, human_share
from sb3_extra_buffers.cli.arguments import positive
from sb3_extra_buffers.cli.output import Table, say, share_of_ram, show, show_json

if TYPE_CHECKING:
    from sb3_extra_buffers.bench.sizes import Size
    from sb3_extra_buffers.store.layout import FrameLayout

HELP = "memory of a buffer by shape and dtype, without playing"
EXAMPLES = """\
  sb3-extra-buffers estimate --shape 4,84,84 --dtype uint8 --buffer-size 1000000
  sb3-extra-buffers estimate --shape 1,120,160 --env-kind masks --n-envs 8
  sb3-extra-buffers estimate --shape 12,120,160 --frame-stack 4 --env-kind rgb
  sb3-extra-buffers estimate --shape 17 --dtype float32 --json"""

#: The keys of `bench.sizes.KINDS`, here for --help, which imports nothing.
KINDS = ("atari", "masks", "rgb", "vector")
#: What SB3 keeps of a transition beside the observations: action (one number of 8 bytes), reward, done, timeout.
OTHER_BYTES = 8 + 4 + 4 + 4
MEASURE = "Measure your env: sb3-extra-buffers recommend --env ID"


@dataclass(frozen=True)
class Estimate:
    """Memory of a buffer with one codec, over the recordings of a kind."""

    codec: str
    least_bytes: float
    typical_bytes: float
    most_bytes: float
    of_sb3: float


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--shape", type=_shape, required=True, metavar="N,N,...", help="one observation, e.g. 4,84,84")
    parser.add_argument("--dtype", default="uint8", metavar="NAME", help="of the observations (default: %(default)s)")
    parser.add_argument(
        "--buffer-size", type=positive, default=1_000_000, metavar="N", help="transitions to hold (default: %(default)s)"
    )
    parser.add_argument("--n-envs", type=positive, default=1, metavar="N", help="envs side by side (default: %(default)s)")
    parser.add_argument("--env-kind", choices=KINDS, help="what is seen (default: guessed from shape and dtype)")
    parser.add_argument("--frame-stack", type=positive, metavar="N", help="frames in an observation (default: guessed)")


def run(args: argparse.Namespace) -> int:
    """Look up, scale, print."""
    from sb3_extra_buffers.bench.sizes import load
    from sb3_extra_buffers.cli.machine import ram_bytes

    layout, kind = layout_of(args.shape, args.dtype, args.env_kind, args.frame_stack)
    sizes, source = load()
    sizes = [size for size in sizes if size.kind == kind]
    transitions = max(args.buffer_size // args.n_envs, 1) * args.n_envs  # as SB3 rounds it
    default, optimized = (transitions * (copies * layout.observation_bytes + OTHER_BYTES) for copies in (2, 1))
    estimates = estimates_of(sizes, layout.frame_bytes, transitions, args.n_envs, default)
    recordings = list(dict.fromkeys(size.workload for size in sizes))
    ram = ram_bytes()
    if args.json:
        show_json({
            "shape": layout.shape, "dtype": str(layout.dtype), "frame_stack": layout.stack, "frame_bytes": layout.frame_bytes,
            "env_kind": kind, "guessed": args.env_kind is None, "transitions": transitions, "n_envs": args.n_envs,
            "ram_bytes": ram, "sb3_bytes": default, "sb3_optimize_memory_usage_bytes": optimized,
            "codecs": [asdict(one) for one in estimates], "measured": {**source, "recordings": recordings},
        })  # fmt: skip
        return 0
    guessed = "" if args.env_kind else " (guessed; --env-kind sets it)"
    say(f"Observations {layout.shape} {layout.dtype}: {frames_of(layout)}; kind: {kind}{guessed}")
    say(
        f"Memory of a replay buffer of {transitions:,} transitions of {args.n_envs} env{'s' * (args.n_envs > 1)}; "
        f"this machine has {human_bytes(ram)} of RAM"
    )
    say()
    present(estimates, {"SB3's own": default, "SB3, optimize_memory_usage": optimized}, ram)
    say()
    say(provenance(kind, recordings, source))
    return 0


def layout_of(shape: tuple[int, ...], dtype_name: str, kind: str | None, stack: int | None) -> tuple[FrameLayout, str]:
    """How an observation is cut into frames, and what it shows; guessed where it is not given."""
    import numpy as np

    from sb3_extra_buffers.store.layout import LONGEST_STACK, layout_for_stack

    try:
        dtype = np.dtype(dtype_name)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "uifb":
        raise ValueError(f"--dtype must be a NumPy dtype of numbers, such as uint8 or float32, got {dtype_name!r}")
    channels = min(shape[0], shape[-1]) if len(shape) == 3 else 1
    kind = kind or _guess(shape, dtype, channels)
    if len(shape) > 2 if kind == "vector" else len(shape) not in (2, 3) or dtype != np.uint8:
        fitting = "one or two axes" if kind == "vector" else "uint8 with two or three axes"
        raise ValueError(f"--env-kind {kind} has figures for {fitting}, got {shape} {dtype}. {MEASURE}")
    if kind == "rgb" and channels % 3:
        raise ValueError(f"--env-kind rgb needs channels in threes on the first or last axis, got {shape}")
    if stack is None:
        frames = 1 if kind == "vector" else channels // 3 if kind == "rgb" else channels
        stack = frames if frames <= LONGEST_STACK else 1
    return layout_for_stack(shape, dtype, stack), kind


def _guess(shape: tuple[int, ...], dtype: Any, channels: int) -> str:
    """The kind that an observation most likely is."""
    if len(shape) == 1 or (len(shape) == 2 and dtype != "uint8"):
        return "vector"
    if dtype != "uint8" or len(shape) > 3:
        raise ValueError(f"There are no figures for {shape} {dtype}: images are uint8 with two or three axes. {MEASURE}")
    return "rgb" if channels % 3 == 0 else "atari"


def estimates_of(sizes: Sequence[Size], frame_bytes: int, transitions: int, n_envs: int, sb3_bytes: float) -> list[Estimate]:
    """Memory by codec: the least, the median and the most over the recordings."""
    estimates = []
    for codec in dict.fromkeys(size.buffer for size in sizes):
        found = [
            size.observation_bytes(transitions, n_envs, frame_bytes) + transitions * OTHER_BYTES
            for size in sizes
            if size.buffer == codec
        ]
        middle = statistics.median(found)
        estimates.append(Estimate(codec, min(found), middle, max(found), middle / sb3_bytes))
    return estimates


def present(estimates: Sequence[Estimate], dense: dict[str, float], ram: int) -> None:
    """Print the table."""
    from sb3_extra_buffers.bench.report import label_of

    default = max(dense.values())
    rows = [["", human_bytes(n), "", human_share(n / default), share_of_ram(n, ram)] for n in dense.values()]
    rows = [[label, *row] for label, row in zip(dense, rows, strict=True)]
    rows += [
        [
            label_of(one.codec), human_bytes(one.least_bytes), human_bytes(one.typical_bytes), human_bytes(one.most_bytes),
            human_share(one.of_sb3), share_of_ram(one.typical_bytes, ram),
        ]
        for one in estimates
    ]  # fmt: skip
    show(Table(["codec", "least", "typical", "most", "of SB3's", "of RAM"], rows, "lrrrrr", marked=len(dense)))


def frames_of(layout: FrameLayout) -> str:
    """How an observation is cut, in words."""
    return f"{layout.stack} frame{'s' * (layout.stack > 1)} of {layout.frame_bytes:,} bytes"


def provenance(kind: str, recordings: Sequence[str], source: dict[str, Any]) -> str:
    """Where the figures come from, and what was assumed."""
    from sb3_extra_buffers.bench.sizes import DESCRIPTIONS

    commit = f", commit {source['revision']}" if source["revision"] else ""
    return (
        f"Least, median and most of {len(recordings)} recordings, {DESCRIPTIONS[kind]}:\n{', '.join(recordings)}.\n"
        f"Measured by `{source['command']}` with version {source['version']}{commit}.\n"
        "Assumed: each transition brings one new frame, which takes memory by its bytes; actions are discrete; a random\n"
        f"policy, which sees less than one that has learned. {MEASURE}"
    )


def _shape(text: str) -> tuple[int, ...]:
    """``4,84,84``, or as Python prints it, ``(4, 84, 84)``."""
    try:
        shape = tuple(int(part) for part in text.strip("() ").rstrip(",").split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise argparse.ArgumentTypeError(
            f"must be whole numbers above 0 with commas between them, such as 4,84,84, got {text!r}"
        )
    return shape
