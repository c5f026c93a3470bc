"""Measure buffers on real Atari frames: memory as the process has it, add and sample, as ratios to SB3's own buffer.

Frames are recorded once and kept in a cache. Each buffer is measured in a process of its own, in turns, on one thread.
Memory is what the process grows by (RSS): the buffer alone, and the whole process from before this library is imported. What
the library itself takes is measured with a tiny buffer.

A name is a compression_method, with @ and a number for block_frames, e.g. zstd9@64.

--check measures all that is promised, and fails where it is not kept. --sizes measures what `estimate` goes by.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sb3_extra_buffers.cli.arguments import at_least, positive
from sb3_extra_buffers.cli.output import Table, complain, progress, say, show, show_json

if TYPE_CHECKING:
    from sb3_extra_buffers.bench.groups import Group, Verdict

HELP = "measure buffers on real frames, beside SB3's own"
EXAMPLES = """\
  sb3-extra-buffers bench
  sb3-extra-buffers bench --game Pong Breakout --methods auto zstd3 zstd9@64
  sb3-extra-buffers bench --full-table --peers --out benchmarks/results
  sb3-extra-buffers bench --check
  sb3-extra-buffers bench --sizes
  sb3-extra-buffers bench --render benchmarks/results/bench.json"""

METHODS = ("auto", "none", "rle-jit", "igzip1", "zstd-5", "zstd1", "zstd3", "zstd9@64", "lz4-frame/1", "lz4-block/1")
FULL_TABLE = (
    "auto", "none", "rle", "rle-jit", "gzip0", "gzip1", "gzip3", "igzip0", "igzip1", "igzip3",
    *(f"zstd{level}" for level in (-100, -50, -20, -5, -3, -1, 1, 3, 5, 10, 15, 22)), "zstd9@64",
    *(f"{name}/{level}" for name in ("lz4-frame", "lz4-block") for level in (1, 5, 9, 12)),
)  # fmt: skip
#: A lap of these takes a minute or more.
SLOW = (
    "zstd15", "zstd22", "gpu-zstd15", "gpu-zstd19", "lz4-frame/12",
    "lz4-block/12", "0.5.0:rle-jit", "torchrl", "torchrl-compressed",
)  # fmt: skip
#: Processes at a time where only memory is looked at; each may take a GB.
SIZES_WORKERS = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--game",
        nargs="+",
        default=["MsPacman"],
        metavar="NAME",
        help="Atari games, or CarRacing, MiniGrid, AtariRGB, ViZDoom, Walker2d, RobotRGB, RobotDepth16, "
        "RobotDepth; CarRacing/3 for a stack of three (default: MsPacman)",
    )
    parser.add_argument("--methods", nargs="+", metavar="NAME", help=f"default: {' '.join(METHODS)}")
    parser.add_argument("--full-table", action="store_true", help="all codecs with many levels; slow ones are run once")
    parser.add_argument("--peers", action="store_true", help="other libraries too, each installed into its own environment")
    parser.add_argument(
        "--transitions", type=at_least(1000), default=40_000, metavar="N", help="size of the buffers (default: 40,000)"
    )
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="runs of each, in turns (default: 3)")
    parser.add_argument("--check", action="store_true", help="compare with the bars; exit code 1 when one is missed")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="of --check: only these, e.g. main game colour named; of --sizes: only these kinds, e.g. rgb",
    )
    small_or_sizes = parser.add_mutually_exclusive_group()
    small_or_sizes.add_argument("--quick", action="store_true", help="everything in small, nothing is judged: a smoke test")
    small_or_sizes.add_argument(
        "--sizes", action="store_true", help="memory alone, of games, ViZDoom and vectors: what `estimate` goes by"
    )
    parser.add_argument("--smallest", metavar="NAME", help="the setting that --check takes for the smallest")
    parser.add_argument("--out", type=Path, default=Path("bench_output"), metavar="DIR", help="results (default: %(default)s)")
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="recordings (default: $SB3_EXTRA_BUFFERS_CACHE or the user's)"
    )
    parser.add_argument(
        "--name", default="bench", help="of the file in --out, where nothing is checked (default: %(default)s)"
    )
    parser.add_argument("--render", type=Path, metavar="FILE", help="print a saved result as Markdown, and do nothing else")


def run(args: argparse.Namespace) -> int:
    """Measure and report."""
    from sb3_extra_buffers.bench.frames import default_cache
    from sb3_extra_buffers.bench.report import render

    if args.render:
        text = args.render.read_bytes()
        try:
            say(render(json.loads(text)))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ValueError(f"{args.render} is no result of bench (bench.json, check.json or sizes.json)") from None
        return 0
    args.cache = args.cache or default_cache()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.sizes:
        return measure_sizes(args)
    return check(args) if args.check or args.quick else compare(args)


def compare(args: argparse.Namespace) -> int:
    """A table and two plots per game."""
    from sb3_extra_buffers.bench.bars import weight_group
    from sb3_extra_buffers.bench.groups import Group

    groups = [Group("compare", game, tuple(jobs_for(args, game))) for game in args.game]
    groups.append(weight_group(args.cache))
    groups = recordable(groups, args)
    results = measure(groups, args)
    saved = save(args, args.name, {group.label: found for group, found in zip(groups, results, strict=True)})
    for game in (group.label for group in groups if group.judged == "compare"):
        draw(game, saved["workloads"][game], args.out)
    present(args, saved)
    return 0


def jobs_for(args: argparse.Namespace, game: str) -> list[Any]:
    """SB3's two buffers, then what was asked for."""
    from sb3_extra_buffers.bench.buffers import PEERS, check_name
    from sb3_extra_buffers.bench.measure import Job

    methods = args.methods or (FULL_TABLE if args.full_table else METHODS)
    for name in methods:
        check_name(name)
    names = ["sb3", "sb3-default", *methods, *(PEERS if args.peers else ())]
    return [Job(name, game, args.transitions, str(args.cache), slow=name in SLOW) for name in names]


def check(args: argparse.Namespace) -> int:
    """All bars, or with --quick the same ratios in small."""
    from sb3_extra_buffers.bench.bars import SMALLEST, check_groups, verdicts_of

    groups = check_groups(args.cache, smallest=args.smallest or SMALLEST, quick=args.quick, peers=args.peers)
    known = {group.judged for group in groups}
    unknown = set(args.only or ()) - known
    if unknown:
        raise ValueError(f"--only {' '.join(sorted(unknown))}: there are {', '.join(sorted(known))}")
    groups = recordable([group for group in groups if not args.only or group.judged in args.only], args)
    results = measure(groups, args)
    verdicts = [verdict for group, found in zip(groups, results, strict=True) for verdict in verdicts_of(group, found)]
    workloads = {group.label: found for group, found in zip(groups, results, strict=True) if group.judged != "training"}
    trainings = [
        result for group, found in zip(groups, results, strict=True) if group.judged == "training" for result in found
    ]
    name = "quick" if args.quick else "-".join(["check", *(args.only or ())])
    saved = save(args, name, workloads, trainings, verdicts)
    present(args, saved, verdicts)
    different = [result["buffer"] for found in results for result in found if result["identical"] is False]
    if different:
        complain(f"Other batches or weights than SB3's: {', '.join(different)}")
    missed = [] if args.quick else [verdict.label for verdict in verdicts if verdict.kept is False]
    if missed:
        complain(f"Missed: {'; '.join(missed)}")
    return 1 if missed or different else 0


def measure_sizes(args: argparse.Namespace) -> int:
    """Bytes per frame, by kind of observation and codec."""
    from sb3_extra_buffers.bench.groups import Group
    from sb3_extra_buffers.bench.kinds import KINDS
    from sb3_extra_buffers.bench.report import machine
    from sb3_extra_buffers.bench.sizes import (
        document,
        gpu_jobs,
        gpu_ratios_of,
        jobs_for,
        sizes_of,
        table_of,
        with_earlier,
    )  # fmt: skip

    unknown = set(args.only or ()) - set(KINDS)
    if unknown:
        raise ValueError(f"--only {' '.join(sorted(unknown))}: there are {', '.join(KINDS)}")
    args.repeats = 1  # memory is the same each time
    groups = [Group("sizes", kind, tuple(jobs_for(kind, args.cache))) for kind in args.only or KINDS]
    if not args.only:
        groups.append(Group("gpu", "GPU buffers", tuple(gpu_jobs(args.cache))))
    groups = recordable(groups, args)
    found = list(zip(groups, measure(groups, args), strict=True))
    sizes = [size for group, results in found if group.judged == "sizes" for size in sizes_of(group.label, results)]
    gpu = [ratio for group, results in found if group.judged == "gpu" for ratio in gpu_ratios_of(results)]
    saved = document(sizes, gpu, command_line(), machine())
    if args.only:
        saved = with_earlier(saved)
    (args.out / "sizes.json").write_text(json.dumps(saved, indent=1) + "\n")
    if args.json:
        show_json(saved)
    else:
        show(Table(*table_of(sizes)))
    return 0


def recordable(groups: list[Group], args: argparse.Namespace) -> list[Group]:
    """Record what is needed. Groups without those whose env cannot be played here: MuJoCo, say, needs a library that draws."""
    from sb3_extra_buffers.bench.bars import recordings_of
    from sb3_extra_buffers.bench.frames import CAMERAS, most_recorded, split_stack
    from sb3_extra_buffers.bench.recording import ensure_recording

    missing = set()
    for game, steps in recordings_of(groups).items():
        try:
            with progress(f"Recording {game}", min(steps, most_recorded(game))) as update:
                ensure_recording(args.cache, game, steps, update)
        except Exception as error:
            if game not in CAMERAS:
                raise
            complain(f"{game} is left out, it cannot be played here: {error}")
            missing.add(game)

    def is_missing(job: Any) -> bool:
        return (split_stack(job.workload)[0] if hasattr(job, "workload") else job.game) in missing

    return [group for group in groups if not any(map(is_missing, group.jobs))]


def measure(groups: list[Group], args: argparse.Namespace) -> list[list[dict[str, Any]]]:
    """Run the jobs of each group in turns."""
    from sb3_extra_buffers.bench.jobs import run_in_turns, turns_of

    repeats = 1 if args.quick else args.repeats
    workers = os.cpu_count() or 1 if args.quick else SIZES_WORKERS if args.sizes else 1
    results = []
    for group in groups:
        turns = max(repeats, group.turns)
        with progress(f"Measuring {group.label}", len(list(turns_of(group.jobs, turns)))) as update:
            results.append(run_in_turns(group.jobs, turns, update, workers))
    return results


def save(
    args: argparse.Namespace,
    name: str,
    workloads: dict[str, list[dict[str, Any]]],
    trainings: list[dict[str, Any]] | None = None,
    verdicts: list[Verdict] | None = None,
) -> dict[str, Any]:
    """Write all figures as JSON, with the command and the versions that made them."""
    from sb3_extra_buffers.bench.report import machine

    for result in (result for results in workloads.values() for result in results):
        result.pop("cache", None)  # a folder of this machine says nothing about the buffers
    saved = {
        "command": command_line(),
        "machine": machine(), "judged": not args.quick, "bars": [asdict(verdict) for verdict in verdicts or ()],
        "workloads": workloads, "trainings": trainings or [],
    }  # fmt: skip
    (args.out / f"{name}.json").write_text(json.dumps(saved, indent=1) + "\n")
    return saved


def command_line() -> str:
    """The command that is running, as it can be repeated."""
    return " ".join(["python -m sb3_extra_buffers", *map(shlex.quote, command_of(sys.argv[1:]))])


def command_of(argv: list[str]) -> list[str]:
    """The arguments, without folders of this machine."""
    kept, skip = [], False
    for word in argv:
        if not skip and word not in ("--cache", "--out") and not word.startswith(("--cache=", "--out=")):
            kept.append(word)
        skip = word in ("--cache", "--out")
    return kept


def draw(game: str, results: list[dict[str, Any]], folder: Path) -> None:
    """Save the plots, or say what is missing to do so."""
    from sb3_extra_buffers.bench.plots import draw_all
    from sb3_extra_buffers.errors import MissingBackendError

    try:
        for path in draw_all(game, results, folder):
            complain(f"Plot: {path}")
    except MissingBackendError as error:
        complain(f"No plots: {error}")


def present(args: argparse.Namespace, saved: dict[str, Any], verdicts: list[Verdict] | None = None) -> None:
    """Print what was measured."""
    from sb3_extra_buffers.bench import report

    if args.json:
        show_json(saved)
        return
    for results in saved["workloads"].values():
        say(report.title_of(results))
        show(Table(report.COLUMNS, report.rows_of(results), report.ALIGN))
        say()
    if saved["trainings"]:
        show(Table(report.TRAINING_COLUMNS, report.training_rows(saved["trainings"]), report.TRAINING_ALIGN))
        say()
    if verdicts:
        show(Table(report.BAR_COLUMNS, report.bar_rows(verdicts, judged=not args.quick), report.BAR_ALIGN))
        say()
    say("Memory is growth of the process (RSS) from when the buffer is made; the whole process counts from before this")
    say("library is imported. Ratios are to SB3's ReplayBuffer in the same run, the one with optimize_memory_usage where it")
    say("was measured. Batches of ours were compared with those of SB3's default.")
