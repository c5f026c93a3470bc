"""Find the codec for an env: play it for some seconds, measure all installed codecs on what was seen, and recommend one.

--env takes what gym.make takes: an id, or package:Env-v0. --import imports a package before, which registers its envs. It also
takes a file, my_env.py, or my_env.py:Name with an env class, a function that makes an env or a VecEnv, or an id. Atari games
get SB3's preprocessing and a stack of 4 frames, unless --wrapper says otherwise. Actions are random and held for a few steps.

Every codec fills a real buffer with the same steps. Memory is extrapolated to the size that is asked for; +/- is how far off
that may be, by how much parts of the sample differ (95 %). An agent that has learned may see more than a random one. Times are
ratios to SB3's own buffer, measured side by side: `add` is for a buffer that is full and overwritten, `sample` (of a rollout
`get`) is for one batch.

Of the codecs whose buffer fits into memory, the smallest is recommended that takes at most 1.5 times SB3's time for an add
and a sample together, or the fastest where none does. The default is preferred where it is at most 10 % larger and 25 %
slower. SB3's own buffer is recommended where it fits and is small beside the memory, or where less than a fifth would be
saved. Where nothing fits, the code has the largest size that does.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from sb3_extra_buffers._text import counted, human_bytes, human_share, round_down
from sb3_extra_buffers.cli.algorithms import ALGORITHMS, Algorithm, choose, code_to_paste
from sb3_extra_buffers.cli.arguments import byte_size, named_value, positive, seconds
from sb3_extra_buffers.cli.help import filled
from sb3_extra_buffers.cli.output import Table, progress, say, show, show_json
from sb3_extra_buffers.cli.verdict import Verdict, decide

if TYPE_CHECKING:
    from sb3_extra_buffers.cli.measuring import Measurement, Reference, Task
    from sb3_extra_buffers.cli.playing import Experience

HELP = "play an env, measure the codecs on it, recommend one"
EXAMPLES = """\
  sb3-extra-buffers recommend --env PongNoFrameskip-v4
  sb3-extra-buffers recommend --env ALE/MsPacman-v5 --n-envs 4 --memory 4GB
  sb3-extra-buffers recommend --env VizdoomDeadlyCorridor-v1 --seconds 5
  sb3-extra-buffers recommend --env minigrid:MiniGrid-Empty-8x8-v0 \\
    --wrapper minigrid.wrappers.ImgObsWrapper
  sb3-extra-buffers recommend --env CarRacing-v3 --algo ppo --n-steps 512 \\
    --env-kwargs continuous=False --wrapper 'ResizeObservation(shape=(64, 64))'
  sb3-extra-buffers recommend --env my_env.py:MyEnv --json"""

REPLAY_SIZE = 1_000_000
#: Of this machine's RAM, a buffer may take a half.
MOST_OF_RAM = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("--env", required=True, metavar="ENV", help="an id, package:Env-v0, or my_env.py:Name")
    add("--import", dest="imports", action="append", default=[], metavar="MODULE", help="import this before; may be repeated")
    add(
        "--env-kwargs", nargs="+", action="extend", type=named_value, default=[], metavar="K=V",
        help="arguments of the env, e.g. continuous=False",
    )  # fmt: skip
    add(
        "--wrapper", dest="wrappers", action="append", default=[], metavar="WRAPPER",
        help="module.Name, my_env.py:Name or a Name of gymnasium.wrappers, with '(size=84)' behind or not; may be repeated, "
        "the first is the innermost",
    )  # fmt: skip
    names = {kind: ", ".join(name for name, one in ALGORITHMS.items() if one.kind == kind) for kind in ("replay", "rollout")}
    algorithms = f"with a replay buffer {names['replay']}; with a rollout buffer {names['rollout']} (default: by the actions)"
    add("--algo", type=str.lower, choices=tuple(ALGORITHMS), metavar="NAME", help=algorithms)
    add("--frame-stack", type=positive, metavar="N", help="frames to stack (default: 4 for Atari, else 1)")
    add("--n-envs", type=positive, metavar="N", help="envs side by side (default: 1)")
    add("--buffer-size", type=positive, metavar="N", help="transitions of a replay buffer (default: 1,000,000)")
    add("--n-steps", type=positive, metavar="N", help="steps of a rollout, by each env (default: the algorithm's)")
    add("--memory", type=byte_size, metavar="SIZE", help="what the buffer may take, e.g. 8GB (default: half of RAM)")
    add(
        "--seconds",
        type=seconds,
        default=10.0,
        metavar="S",
        help="how long to play (default: 10); slow envs a bit longer",
    )


def run(args: argparse.Namespace) -> int:
    """Play, measure, recommend."""
    from sb3_extra_buffers._machine import available_bytes, ram_bytes

    ram = ram_bytes()
    memory = args.memory or min(MOST_OF_RAM * ram, available_bytes())
    algorithm, experience = played(args)
    size = (args.n_steps or algorithm.n_steps) * experience.n_envs or args.buffer_size or REPLAY_SIZE
    task, reference, measurements = measured(algorithm, experience, size, memory)
    verdict = decide(measurements, reference, task)
    code = None
    if verdict.size:
        per_env = verdict.size // (experience.n_envs if algorithm.kind == "rollout" else 1)
        code = code_to_paste(algorithm, experience, per_env, verdict.best.method if verdict.best else None)
    if args.json:
        show_json({
            "env": args.env, "algorithm": algorithm.name, "buffer": algorithm.kind, "n_envs": experience.n_envs,
            "transitions": experience.transitions, "buffer_size": size, "ram_bytes": ram, "memory_bytes": memory,
            "sb3_bytes": reference.bytes_at(size), "codecs": [asdict(m) for m in measurements],
            "recommended": verdict.best.method if verdict.best else None, "recommended_size": verdict.size,
            "reason": verdict.reason, "code": code,
        })  # fmt: skip
        return 0
    share = "" if args.memory else ", half of this machine's RAM" if memory == MOST_OF_RAM * ram else ", what is free now"
    say(filled(f"{args.env}: observations {reference.shapes}; measured on {experience.transitions:,} transitions"))
    say(
        filled(
            f"Memory of a {algorithm.kind} buffer of {counted(size, 'transition')} of {counted(experience.n_envs, 'env')}; it "
            f"may take {human_bytes(memory)}{share}"
        )
    )
    present(measurements, verdict, reference, task)
    if code is not None:
        say(code)
    return 0


def played(args: argparse.Namespace) -> tuple[Algorithm, Experience]:
    """The algorithm, and what it would see. What envs print goes to stderr: stdout is for the result."""
    import contextlib
    import sys
    import warnings

    from sb3_extra_buffers.cli.envs import EnvOptions, make_env
    from sb3_extra_buffers.cli.playing import play

    options = EnvOptions(args.imports, dict(args.env_kwargs), args.wrappers)
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of envs, about themselves
        env = make_env(args.env, n_envs=args.n_envs, frame_stack=args.frame_stack, options=options)
        with contextlib.closing(env):
            algorithm = choose(args.algo, env.action_space)
            check_size(algorithm, args)
            steps = args.n_steps or algorithm.n_steps or (args.buffer_size or REPLAY_SIZE) // env.num_envs
            with progress(f"Playing {args.env}", 100) as update:
                return algorithm, play(env, seconds=args.seconds, most_steps=steps, update=update)


def check_size(algorithm: Algorithm, args: argparse.Namespace) -> None:
    """Refuse the size of another kind of buffer."""
    if algorithm.kind == "rollout" and args.buffer_size:
        raise ValueError(f"{algorithm.name} has a rollout buffer: --n-steps sets its size, not --buffer-size")
    if algorithm.kind == "replay" and args.n_steps:
        raise ValueError(f"{algorithm.name} has a replay buffer: --buffer-size sets its size, not --n-steps")


def measured(
    algorithm: Algorithm, experience: Experience, size: int, memory: float
) -> tuple[Task, Reference, list[Measurement]]:
    """All codecs, the default first, without those that a taste has chosen anyway."""
    from sb3_extra_buffers.cli.measuring import Task, candidates, measure, measure_sb3

    task = Task.of(algorithm.kind, experience, size, memory)
    reference = measure_sb3(task)
    names = candidates()
    measurements: list[Measurement] = []
    with progress("Measuring codecs", len(names)) as update:
        for i, name in enumerate(names):
            update(i, name)
            if not measurements or measurements[0].label != f"auto ({name})":
                one = measure(name, task, reference)
                if not measurements or not is_same_choice(one, measurements[0]):
                    measurements.append(one)
        update(len(names), "")
    return task, reference, measurements


def is_same_choice(measured: Measurement, default: Measurement) -> bool:
    """Whether another taste has chosen what `auto` chooses: it is not worth a row."""
    from sb3_extra_buffers.codecs import AUTO

    chosen = [one.label.partition(" ")[2] for one in (measured, default)]
    return measured.method in AUTO and chosen[0] == chosen[1] and measured.buffer_bytes == default.buffer_bytes


def present(measurements: list[Measurement], verdict: Verdict, reference: Reference, task: Task) -> None:
    """Print the table and what it says."""
    say()
    sb3_bytes = reference.bytes_at(task.size)
    rows = [
        ["SB3's own", human_bytes(sb3_bytes), "", "100 %", fits(reference.largest(task.memory), task.size), "1.00", "1.00"]
    ]
    rows += [
        [
            m.label, human_bytes(m.buffer_bytes), error_of(m), human_share(m.buffer_bytes / sb3_bytes),
            fits(m.largest, task.size), f"{m.add_ratio:.2f}", f"{m.read_ratio:.2f}",
        ]
        for m in measurements
    ]  # fmt: skip
    marked = 0 if verdict.best is None else 1 + measurements.index(verdict.best)
    rows = [[*row, "<-" if i == marked else ""] for i, row in enumerate(rows)]
    read = "sample" if task.kind == "replay" else "get"
    show(Table(["codec", "memory", "+/-", "of SB3's", "fits", "add", read, ""], rows, "lrrrrrrl", marked))
    say()
    notes = [f"`add` and `{read}` are times, as ratios to SB3's: below 1 is faster.", uncertainty(measurements, task)]
    say(filled(" ".join([*notes, *larger_pieces(measurements)])))
    say()
    say(filled(verdict.reason))
    say()


def fits(largest: int, size: int) -> str:
    """Whether so many transitions fit, or how many do."""
    return "yes" if largest >= size else f"{round_down(largest, 2):,}"


def error_of(measured: Measurement) -> str:
    """How far off the memory may be, in percent; a question mark if the sample is too small to tell."""
    if measured.low_bytes is None or measured.high_bytes is None:
        return "?"
    return human_share((measured.high_bytes - measured.low_bytes) / (2 * measured.buffer_bytes))


def uncertainty(measurements: list[Measurement], task: Task) -> str:
    """How much the sample can tell, in words."""
    if any(m.low_bytes is None for m in measurements):
        return (
            f"{counted(task.experience.transitions, 'transition')} are too few to say how far off the memory may be; for what "
            "fits, twice as much is assumed. Play longer: --seconds 60."
        )
    if task.experience.transitions >= task.size:
        return "All transitions were played, nothing is extrapolated."
    return "Memory is extrapolated; +/- is how far off it may be, by how much parts of the sample differ."


def larger_pieces(measurements: list[Measurement]) -> list[str]:
    """Why `auto-small` is smaller than the codec that it has chosen, where both are shown."""
    small = next((m for m in measurements if m.method == "auto-small"), None)
    # The codec of each key; `none` of small vectors encodes nothing.
    chosen = set(small.label.partition("(")[2].rstrip(")").split(", ")) - {"none"} if small else set()
    larger = [m.label for m in measurements if small and m.label in chosen and m.buffer_bytes > small.buffer_bytes]
    return [f"auto-small encodes more frames together than {larger[0]} does: smaller, and slower to read."] if larger else []
