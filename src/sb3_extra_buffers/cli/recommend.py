"""Find the codec for an env: play it for some seconds, measure all installed codecs on what was seen, and recommend one.

Atari games (ids of ale-py) get SB3's preprocessing and a stack of 4 frames. Actions are random and held for a few steps.
Every codec fills a real buffer; memory is extrapolated to the buffer size. Times are ratios to SB3's own buffer,
measured side by side: `add` is for a buffer that is full and overwritten, `sample` is for batches of 32.

Of the codecs whose buffer fits into half of this machine's RAM, the smallest is recommended that takes at most 1.5 times
SB3's time for an add and a sample together, or the fastest where none does. The default is preferred where it is at most
10 % larger. Where nothing fits, it is the smallest; where less than a fifth would be saved, SB3's own buffer.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from sb3_extra_buffers._text import human_bytes, human_share
from sb3_extra_buffers.cli.arguments import positive
from sb3_extra_buffers.cli.output import Table, progress, say, share_of_ram, show, show_json

if TYPE_CHECKING:
    from sb3_extra_buffers.cli.measuring import Measurement
    from sb3_extra_buffers.cli.playing import Experience

HELP = "play an env, measure the codecs on it, recommend one"
EXAMPLES = """\
  sb3-extra-buffers recommend --env PongNoFrameskip-v4
  sb3-extra-buffers recommend --env ALE/MsPacman-v5 --n-envs 4 --buffer-size 1e5
  sb3-extra-buffers recommend --env VizdoomDeadlyCorridor-v1 --seconds 5
  sb3-extra-buffers recommend --env CartPole-v1 --json"""

SLOWEST, CLOSE, WORTH_IT, MOST_OF_RAM = 1.5, 1.1, 0.8, 0.5
WIDEST_CODE = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--env", required=True, metavar="ID", help="any id that gymnasium, ale-py or ViZDoom registers")
    parser.add_argument("--frame-stack", type=positive, metavar="N", help="frames to stack (default: 4 for Atari, else 1)")
    parser.add_argument("--n-envs", type=positive, default=1, metavar="N", help="envs side by side (default: %(default)s)")
    parser.add_argument(
        "--buffer-size", type=positive, default=1_000_000, metavar="N", help="transitions to hold (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=_seconds, default=10.0, metavar="S", help="how long to play (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Play, measure, recommend."""
    from sb3_extra_buffers.cli.machine import ram_bytes
    from sb3_extra_buffers.cli.measuring import candidates, measure, measure_sb3
    from sb3_extra_buffers.cli.playing import play

    with progress(f"Playing {args.env}", 100) as update:
        experience = play(
            args.env, n_envs=args.n_envs, frame_stack=args.frame_stack, seconds=args.seconds,
            most_steps=max(args.buffer_size // args.n_envs, 2), update=update,
        )  # fmt: skip
    reference = measure_sb3(experience, args.buffer_size)
    names = candidates()
    measurements: list[Measurement] = []
    with progress("Measuring codecs", len(names)) as update:
        for i, name in enumerate(names):
            update(i, name)
            if not measurements or measurements[0].label != f"auto ({name})":
                measured = measure(name, experience, reference, args.buffer_size)
                if not measurements or not is_same_choice(measured, measurements[0]):
                    measurements.append(measured)
        update(len(names), "")
    ram = ram_bytes()
    best = recommended(measurements, reference.buffer_bytes, ram)
    code = code_to_paste(best, experience, args.buffer_size)
    if args.json:
        show_json({
            "env": args.env, "transitions": experience.transitions, "buffer_size": args.buffer_size,
            "ram_bytes": ram, "sb3_bytes": reference.buffer_bytes, "codecs": [asdict(m) for m in measurements],
            "recommended": best.method if best else None, "code": code,
        })  # fmt: skip
    else:
        say(f"{args.env}: observations {reference.shapes}; measured on {experience.transitions:,} transitions")
        present(measurements, best, reference.buffer_bytes, args.buffer_size, ram)
        say(code)
    return 0


def is_same_choice(measured: Measurement, default: Measurement) -> bool:
    """Whether another taste has chosen what `auto` chooses: it is not worth a row."""
    from sb3_extra_buffers.codecs import AUTO

    chosen = [one.label.partition(" ")[2] for one in (measured, default)]
    return measured.method in AUTO and chosen[0] == chosen[1] and measured.buffer_bytes == default.buffer_bytes


def recommended(measurements: list[Measurement], sb3_bytes: float, ram: int) -> Measurement | None:
    """The measurement to recommend by the rule at the top of this file; None for SB3's own buffer.

    :param measurements: the default's first
    :param sb3_bytes: memory of SB3's buffer
    """
    default = measurements[0]
    smallest = min(measurements, key=lambda m: m.buffer_bytes)
    fitting = [m for m in measurements if m.buffer_bytes <= MOST_OF_RAM * ram] or [smallest]
    fast = [m for m in fitting if m.time_ratio <= SLOWEST]
    best = min(fast, key=lambda m: m.buffer_bytes) if fast else min(fitting, key=lambda m: m.time_ratio)
    if default.buffer_bytes <= CLOSE * best.buffer_bytes and default.time_ratio <= max(SLOWEST, best.time_ratio):
        best = default
    return best if best.buffer_bytes <= WORTH_IT * sb3_bytes else None


def present(measurements: list[Measurement], best: Measurement | None, sb3_bytes: float, buffer_size: int, ram: int) -> None:
    """Print the table and what it says."""
    say(f"Memory of a buffer of {buffer_size:,} transitions, extrapolated; this machine has {human_bytes(ram)} of RAM")
    say()
    rows = [["SB3's own", human_bytes(sb3_bytes), "100 %", share_of_ram(sb3_bytes, ram), "1.00", "1.00"]]
    rows += [
        [
            m.label, human_bytes(m.buffer_bytes), human_share(m.buffer_bytes / sb3_bytes), share_of_ram(m.buffer_bytes, ram),
            f"{m.add_ratio:.2f}", f"{m.sample_ratio:.2f}",
        ]
        for m in measurements
    ]  # fmt: skip
    marked = 0 if best is None else 1 + measurements.index(best)
    rows = [[*row, "<- recommended" if i == marked else ""] for i, row in enumerate(rows)]
    show(Table(["codec", "memory", "of SB3's", "of RAM", "add time", "sample time", ""], rows, "lrrrrrl", marked))
    say()
    say("Times are ratios to SB3's: below 1 is faster.")
    if best is None:
        say("Compression saves little here: keep SB3's own buffer.")
    needed = sb3_bytes if best is None else best.buffer_bytes
    if needed > MOST_OF_RAM * ram:
        fitting = int(buffer_size * MOST_OF_RAM * ram / needed)
        say(f"That is more than half of this machine's RAM, which would hold about {fitting:,} transitions.")
    say()


def code_to_paste(best: Measurement | None, experience: Experience, buffer_size: int) -> str:
    """Lines that make a model with the recommended buffer."""
    from gymnasium import spaces

    is_dict = isinstance(experience.observation_space, spaces.Dict)
    algorithm = {spaces.Discrete: "DQN", spaces.Box: "SAC"}.get(type(experience.action_space), "PPO")
    policy = "MultiInputPolicy" if is_dict else "CnnPolicy" if experience.has_images else "MlpPolicy"
    kind = "rollout" if algorithm == "PPO" else "replay"  # SB3's replay algorithms take no other actions
    imports, arguments = [f"from stable_baselines3 import {algorithm}"], [f'"{policy}"', "env"]
    if kind == "replay":
        arguments.append(f"buffer_size={buffer_size:_}")
    if best is not None:
        name = f"Compressed{'Dict' if is_dict else ''}{kind.capitalize()}Buffer"
        imports.append(f"from sb3_extra_buffers.compressed import {name}")
        arguments.append(f"{kind}_buffer_class={name}")
        if best.method != "auto":
            arguments.append(f'{kind}_buffer_kwargs=dict(compression_method="{best.method}")')
    call = f"model = {algorithm}({', '.join(arguments)})"
    if len(call) > WIDEST_CODE:
        call = "\n".join([f"model = {algorithm}(", *(f"    {argument}," for argument in arguments), ")"])
    return "\n".join([*imports, "", call])


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"must be more than 0 and at most 3600, got {text}")
    return value
