"""What is promised for colour and for named codecs. Above: bars, which adds these groups to its own.

Flat-shaded pictures have areas of one colour: CarRacing, MiniGrid, Atari. In those of a camera, or of an engine that imitates
one, nearly every pixel differs from its neighbours: ViZDoom, MuJoCo.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .frames import split_stack
from .groups import TIMES, Group, Limits, Verdict, slowest_verdicts
from .jobs import Result
from .measure import Job
from .training import Training

FLAT, CAMERA = ("CarRacing", "MiniGrid", "AtariRGB"), ("ViZDoom", "Walker2d")
STACKS = (1, 3)
TRANSITIONS = 5000
SMALL, DEFAULT = "auto-small", "auto"


def _limits(rss: float, add: float, sample_32: float, sample_256: float) -> Limits:
    times = {"add_us": add, "sample_32_us": sample_32, "sample_256_us": sample_256}
    return {"rss_bytes": (rss, None), **{key: (bar, bar / 2) for key, bar in times.items()}}


#: By whether pictures are flat-shaded, and by stack.
BARS = {
    (True, 1): _limits(0.12, 3.0, 2.0, 1.0),
    (True, 3): _limits(0.05, 2.0, 1.0, 1.0),
    (False, 1): _limits(0.68, 5.0, 3.0, 1.5),
    (False, 3): _limits(0.23, 3.0, 1.5, 1.0),
}
#: Memory of `auto-small`, single frames.
SMALL_BARS = {"CarRacing": 0.07, "ViZDoom": 0.5}
SLOWEST_ADD = 10.0
#: Steps per second of DQN, ours divided by SB3's.
CAMERA_TRAINING_BARS = (0.95, 1.0)
TRAINED = ("CarRacing", "ViZDoom")

#: Codecs that a user may name, beside the same of 0.5.0.
NAMED = ("zstd3", "zstd-3", "lz4-frame/1", "lz4-block/1", "igzip1", "gzip1", "rle")
NAMED_BARS: Limits = {
    "rss_bytes": (0.25, None),
    "add_us": (0.4, None),
    "sample_32_us": (0.6, None),
    "sample_256_us": (0.5, None),
}
NAMED_GAME, NAMED_TRANSITIONS = "MsPacman", 12_000


def colour_groups(cache: Path) -> list[Group]:
    """Every env with a camera, single frames and stacks; then trainings on two of them."""

    def jobs(name: str, stack: int) -> tuple[Job, ...]:
        buffers = ("sb3", DEFAULT, SMALL) if stack == 1 and name in SMALL_BARS else ("sb3", DEFAULT)
        return tuple(Job(buffer, f"{name}/{stack}", TRANSITIONS, str(cache)) for buffer in buffers)

    groups = [Group("colour", f"{name}, stack {stack}", jobs(name, stack)) for name in (*FLAT, *CAMERA) for stack in STACKS]
    for name in TRAINED:
        trainings = tuple(Training("dqn", buffer, name, 800, 200) for buffer in ("sb3", DEFAULT))
        groups.append(Group("training", f"DQN on {name}", trainings, 3))
    return groups


def named_groups(cache: Path) -> list[Group]:
    """A codec of ours beside the same of 0.5.0."""
    return [
        Group("named", name, tuple(Job(one, NAMED_GAME, NAMED_TRANSITIONS, str(cache)) for one in (f"0.5.0:{name}", name)))
        for name in NAMED
    ]


def colour_verdicts(group: Group, results: Sequence[Result]) -> Iterator[Verdict]:
    """Memory and times beside SB3's, and whether an `add` stands out."""
    first, ours = results[0], results[1]
    name, stack = split_stack(first["workload"])
    for key, limits in BARS[name in FLAT, stack].items():
        yield _ratio(f"{group.label}: {_label(key)}", ours[key] / first[key], limits)
    yield from slowest_verdicts(group.label, first, ours)
    for small in results[2:]:
        label = f"{group.label}: memory (RSS), {small['buffer']}"
        yield Verdict(label, 100 * small["rss_bytes"] / first["rss_bytes"], 100 * SMALL_BARS[name], unit="%")


def named_verdicts(group: Group, results: Sequence[Result]) -> Iterator[Verdict]:
    """Ours divided by 0.5.0's; nothing where that could not be measured."""
    theirs, ours = results
    if "error" not in theirs:
        for key, limits in NAMED_BARS.items():
            yield Verdict(f"{group.label} beside 0.5.0: {_label(key)}", ours[key] / theirs[key], *limits)


def _ratio(label: str, ratio: float, limits: tuple[float, float | None]) -> Verdict:
    bar, stretch = limits
    return Verdict(label, ratio, bar, stretch) if stretch else Verdict(label, 100 * ratio, 100 * bar, unit="%")


def _label(key: str) -> str:
    return TIMES.get(key, "memory (RSS)")
