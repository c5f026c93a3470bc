"""Estimate the memory of a replay buffer from the shape and dtype of its observations, without playing.

The figures are committed ones: games and scenarios were recorded, and buffers filled with them, by `bench --sizes`. What you
get is the least, the median and the most over these recordings, so yours may well be outside. `recommend` measures your env.

With --memory it answers the other way around: how many transitions fit.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sb3_extra_buffers._text import counted, human_bytes, human_share, round_down
from sb3_extra_buffers.bench.kinds import KINDS, guess_kind
from sb3_extra_buffers.cli.arguments import byte_size, positive
from sb3_extra_buffers.cli.help import filled
from sb3_extra_buffers.cli.output import Table, say, share_of_ram, show, show_json

if TYPE_CHECKING:
    from sb3_extra_buffers.bench.sizes import Size
    from sb3_extra_buffers.store.layout import FrameLayout

HELP = "memory of a buffer, or what fits into memory, by shape and dtype"
EXAMPLES = """\
  sb3-extra-buffers estimate --shape 4,84,84 --buffer-size 1e6
  sb3-extra-buffers estimate --shape 4,84,84 --memory 8GB
  sb3-extra-buffers estimate --shape 1,120,160 --env-kind masks --n-envs 8
  sb3-extra-buffers estimate --shape 12,120,160 --frame-stack 4 --env-kind rgb
  sb3-extra-buffers estimate --shape 17 --dtype float32 --json"""

#: What SB3 keeps of a transition beside the observations: action (one number of 8 bytes), reward, done, timeout.
OTHER_BYTES = 8 + 4 + 4 + 4
MEASURE = "Measure your env: sb3-extra-buffers recommend --env ID"


@dataclass(frozen=True)
class Estimate:
    """A buffer with one codec, over the recordings of a kind: bytes, or transitions where the memory is given."""

    codec: str
    least: float
    typical: float
    most: float

    @classmethod
    def over(cls, codec: str, found: Sequence[float]) -> Estimate:
        """The least, the median and the most."""
        return cls(codec, min(found), statistics.median(found), max(found))


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--shape", type=_shape, required=True, metavar="N,N,...", help="one observation, e.g. 4,84,84")
    parser.add_argument("--dtype", default="uint8", metavar="NAME", help="of the observations (default: %(default)s)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--buffer-size", type=positive, default=1_000_000, metavar="N", help="transitions (default: 1,000,000)")
    size.add_argument("--memory", type=byte_size, metavar="SIZE", help="how many transitions fit into it, e.g. 8GB or 500MB")
    parser.add_argument("--n-envs", type=positive, default=1, metavar="N", help="envs side by side (default: %(default)s)")
    kinds = "; ".join(f"{name}: {kind.shows}" for name, kind in KINDS.items())
    parser.add_argument(
        "--env-kind",
        choices=tuple(KINDS),
        metavar="KIND",
        help=f"what is seen (default: guessed from shape and dtype). {kinds}",
    )
    parser.add_argument("--frame-stack", type=positive, metavar="N", help="frames in an observation (default: guessed)")


def run(args: argparse.Namespace) -> int:
    """Look up, scale, print."""
    from sb3_extra_buffers._machine import ram_bytes
    from sb3_extra_buffers.bench.sizes import load, source_of

    layout, kind = layout_of(args.shape, args.dtype, args.env_kind, args.frame_stack)
    sizes, source = load()
    sizes = [size for size in sizes if size.kind == kind]
    if not sizes:
        raise ValueError(f"There are no figures for --env-kind {kind} yet. {MEASURE}")
    facts: dict[str, Any] = {
        "shape": layout.shape, "dtype": str(layout.dtype), "frame_stack": layout.stack, "frame_bytes": layout.frame_bytes,
        "env_kind": kind, "guessed": args.env_kind is None, "n_envs": args.n_envs, "ram_bytes": ram_bytes(),
        "measured": {**source_of(kind, source), "recordings": list(dict.fromkeys(size.workload for size in sizes))},
    }  # fmt: skip
    facts |= fitting(sizes, layout, args) if args.memory else needed(sizes, layout, args)
    if args.json:
        show_json(facts)
        return 0
    guessed = "" if args.env_kind else " (guessed; --env-kind sets it)"
    say(filled(f"Observations {layout.shape} {layout.dtype}: {frames_of(layout)}; kind: {kind}{guessed}"))
    present_fitting(facts) if args.memory else present_needed(facts)
    say()
    say(provenance(facts))
    return 0


def needed(sizes: Sequence[Size], layout: FrameLayout, args: argparse.Namespace) -> dict[str, Any]:
    """Memory for a number of transitions."""
    transitions = max(args.buffer_size // args.n_envs, 1) * args.n_envs  # as SB3 rounds it
    default, optimized = (transitions * one for one in sb3_bytes(layout))
    estimates = [
        Estimate.over(codec, [
            size.observation_bytes(transitions, args.n_envs, layout.frame_bytes) + transitions * OTHER_BYTES for size in found
        ])
        for codec, found in by_codec(sizes)
    ]  # fmt: skip
    return {
        "transitions": transitions, "sb3_bytes": default, "sb3_optimize_memory_usage_bytes": optimized,
        "codecs": [
            {
                "codec": one.codec, "least_bytes": one.least, "typical_bytes": one.typical, "most_bytes": one.most,
                "of_sb3": one.typical / default,
            }
            for one in estimates
        ],
    }  # fmt: skip


def fitting(sizes: Sequence[Size], layout: FrameLayout, args: argparse.Namespace) -> dict[str, Any]:
    """Transitions for a size of memory, in whole steps of all envs."""

    n_envs: int = args.n_envs

    def whole(transitions: float) -> int:
        return int(transitions) // n_envs * n_envs

    default, optimized = (whole(args.memory // one) for one in sb3_bytes(layout))
    estimates = [
        Estimate.over(codec, [
            size.most_transitions(args.memory, n_envs, layout.frame_bytes, OTHER_BYTES) for size in found
        ])
        for codec, found in by_codec(sizes)
    ]  # fmt: skip
    return {
        "memory_bytes": args.memory, "sb3_transitions": default, "sb3_optimize_memory_usage_transitions": optimized,
        "codecs": [
            {
                "codec": one.codec, "fewest_transitions": whole(one.least), "typical_transitions": whole(one.typical),
                "most_transitions": whole(one.most),
            }
            for one in estimates
        ],
    }  # fmt: skip


def sb3_bytes(layout: FrameLayout) -> tuple[int, int]:
    """What SB3 keeps of a transition: with `obs` and `next_obs`, and with one array for both."""
    return 2 * layout.observation_bytes + OTHER_BYTES, layout.observation_bytes + OTHER_BYTES


def by_codec(sizes: Sequence[Size]) -> list[tuple[str, list[Size]]]:
    """The figures of each codec."""
    return [(codec, [size for size in sizes if size.buffer == codec]) for codec in dict.fromkeys(one.buffer for one in sizes)]


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
    kind = kind or guess_kind(shape, dtype.name)
    if kind is None:
        known = "; ".join(f"{name}: {one.needs}" for name, one in KINDS.items())
        raise ValueError(f"There are no figures for {shape} {dtype}, only for {known}. {MEASURE}")
    if not KINDS[kind].fits(shape, dtype.name):
        raise ValueError(f"--env-kind {kind} has figures for {KINDS[kind].needs}, got {shape} {dtype}. {MEASURE}")
    if stack is None:
        frames = KINDS[kind].frames_in(shape)
        stack = frames if frames <= LONGEST_STACK else 1
    return layout_for_stack(shape, dtype, stack), kind


def present_needed(facts: dict[str, Any]) -> None:
    """Print a table of memory."""
    from sb3_extra_buffers.bench.report import label_of

    ram, default = facts["ram_bytes"], facts["sb3_bytes"]
    say(
        filled(
            f"Memory of a replay buffer of {facts['transitions']:,} transitions of {counted(facts['n_envs'], 'env')}; "
            f"this machine has {human_bytes(ram)} of RAM"
        )
    )
    say()
    dense = {"SB3's own": default, "SB3, optimize_memory_usage": facts["sb3_optimize_memory_usage_bytes"]}
    rows = [[name, "", human_bytes(n), "", human_share(n / default), share_of_ram(n, ram)] for name, n in dense.items()]
    rows += [
        [
            label_of(one["codec"]), *(human_bytes(one[f"{name}_bytes"]) for name in ("least", "typical", "most")),
            human_share(one["of_sb3"]), share_of_ram(one["typical_bytes"], ram),
        ]
        for one in facts["codecs"]
    ]  # fmt: skip
    show(Table(["codec", "least", "typical", "most", "of SB3's", "of RAM"], rows, "lrrrrr", marked=len(dense)))


def present_fitting(facts: dict[str, Any]) -> None:
    """Print a table of transitions."""
    from sb3_extra_buffers.bench.report import label_of

    memory, default = human_bytes(facts["memory_bytes"]), facts["sb3_transitions"]
    say(filled(f"Transitions of a replay buffer of {counted(facts['n_envs'], 'env')} that fit into {memory}"))
    say()
    dense = {"SB3's own": default, "SB3, optimize_memory_usage": facts["sb3_optimize_memory_usage_transitions"]}
    rows = [[name, "", f"{n:,}", "", times_of(n, default)] for name, n in dense.items()]
    rows += [
        [
            label_of(one["codec"]), *(f"{round_down(one[f'{name}_transitions']):,}" for name in ("fewest", "typical", "most")),
            times_of(one["typical_transitions"], default),
        ]
        for one in facts["codecs"]
    ]  # fmt: skip
    show(Table(["codec", "fewest", "typical", "most", "of SB3's"], rows, "lrrrr", marked=len(dense)))
    safe = round_down(facts["codecs"][0]["fewest_transitions"])
    say()
    if safe:
        say(f"To be safe, take the fewest of auto, the default: buffer_size={safe:_}")
    else:
        say(filled("That is too little: each env keeps some frames uncompressed, until there are enough of them for a block."))


def times_of(n: float, other: float) -> str:
    """How many times as many, in words."""
    return f"{n / other:.3g} x" if other else ""


def frames_of(layout: FrameLayout) -> str:
    """How an observation is cut, in words."""
    return f"{counted(layout.stack, 'frame')} of {layout.frame_bytes:,} bytes"


def provenance(facts: dict[str, Any]) -> str:
    """Where the figures come from, and what was assumed."""
    source = facts["measured"]
    commit = f", commit {source['revision']}" if source["revision"] else ""
    words = "Fewest" if "memory_bytes" in facts else "Least"
    return filled(
        f"{words}, median and most of {len(source['recordings'])} recordings, {KINDS[facts['env_kind']].description}: "
        f"{', '.join(source['recordings'])}.\n\n"
        f"Measured by `{source['command']}` with version {source['version']}{commit}.\n\n"
        "Assumed: each transition brings one new frame, which takes memory by its bytes; actions are discrete; a random "
        f"policy, which sees less than one that has learned. {MEASURE}"
    )


def _shape(text: str) -> tuple[int, ...]:
    """``4,84,84``, or as Python prints it, ``(4, 84, 84)``."""
    try:
        return tuple(positive(part) for part in text.strip("() ").rstrip(",").split(","))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"must be whole numbers above 0 with commas between them, such as 4,84,84, got {text!r}"
        ) from None
