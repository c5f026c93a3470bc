"""What is promised, mostly as ratios to SB3's buffer in the same run, and whether it is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .colour import CAMERA_TRAINING_BARS, colour_groups, colour_verdicts, named_groups, named_verdicts
from .frames import CAMERAS, MADE_UP, N_ENVS, STACK, envs_of, is_vectors, split_stack
from .groups import TIMES, Group, Limits, Verdict, slowest_verdicts
from .jobs import Result
from .kinds import MAIN_GAME, OTHER_GAMES
from .measure import Job
from .training import PPO, PPO_ENVS, Training

DEFAULT = "auto"
#: The smallest setting that is documented.
SMALLEST = "zstd9@64"
MEGABYTE = 1e6
#: The buffer is a hundredth of a training's time, so that mostly the machine decides who is faster in one turn.
TRAINING_TURNS = 5
#: The weight of the library is a difference of two processes, each of which is over in seconds.
WEIGHT_TURNS, WEIGHT_TRANSITIONS = 5, 64


#: Bars and stretches, ours divided by SB3's.
MAIN_BARS: Limits = {
    "rss_bytes": (0.0092, 0.008),
    "add_first_us": (0.09, 0.07),
    "add_us": (0.8, 0.6),
    "sample_32_us": (0.6, 0.5),
    "sample_256_us": (0.35, 0.25),
}
GAME_BARS: Limits = {**MAIN_BARS, "rss_bytes": (0.016, None), "add_first_us": (0.25, 0.1), "sample_32_us": (1.0, 0.8)}
VECTOR_BARS: Limits = {"observation_bytes": (0.6, 0.5), "add_us": (1.2, 1.0), "sample_256_us": (0.9, 0.8)}
SMALLEST_BARS = (0.008, 0.005)
NOISE_MEMORY, NOISE_TIME = 0.27, 2.0
#: Steps per second, ours divided by SB3's.
TRAINING_BARS = (1.0, 1.05)
#: Megabytes of a million transitions, and times against those of a smaller buffer.
LARGE_MEGABYTES, LARGE_TIMES = (230, 200), (1.3, 1.1)
#: What the library adds to a process.
WEIGHT_MEGABYTES, WEIGHT_SECONDS = (8, 3), (0.2, 0.05)

#: GPU buffers, on CPU tensors: stored bytes as a part of SB3's array of stacked observations; sample(256) with its stretch.
GPU_BARS: dict[str, tuple[float | None, float, float | None]] = {
    "gpu-tiles": (0.016, 1.2, 1.0),
    "gpu-none": (0.26, 1.0, None),
    "gpu-rle": (None, 4.0, None),
}
#: Microseconds to encode a frame.
GPU_ENCODE_US = 60
GPU_BUFFERS = (*GPU_BARS, "gpu-zstd3")


def check_groups(cache: Path, *, smallest: str = SMALLEST, quick: bool = False, peers: bool = False) -> list[Group]:
    """All that has to be run for the bars.

    :param quick: everything in small, without the other games and cameras: a smoke test
    :param peers: also named codecs beside those of sb3-extra-buffers 0.5.0
    """
    size, noise_size, vector_size, large = (1000, 1000, 1000, 2000) if quick else (40_000, 20_000, 200_000, 1_000_000)
    options = {"cache": str(cache), "laps": 1 if quick else 4, "samples": 16 if quick else 960}

    def jobs(workload: str, transitions: int, *buffers: str) -> tuple[Job, ...]:
        return tuple(Job(buffer, workload, transitions, **options) for buffer in buffers)  # type: ignore[arg-type]

    def trainings(algorithm: str, steps: int, warm: int) -> tuple[Training, ...]:
        return tuple(Training(algorithm, buffer, MAIN_GAME, steps, 0 if quick else warm) for buffer in ("sb3", DEFAULT))

    rollout, turns = PPO["n_steps"] * PPO_ENVS, 1 if quick else TRAINING_TURNS
    groups = [Group("main", MAIN_GAME, jobs(MAIN_GAME, size, "sb3", "sb3-default", DEFAULT, smallest))]
    if not quick:
        groups += [Group("game", game, jobs(game, size, "sb3", DEFAULT)) for game in OTHER_GAMES]
        groups += colour_groups(cache)
    if peers:
        groups += named_groups(cache)
    return [
        weight_group(cache, quick=quick),
        *groups,
        Group("gpu", f"{MAIN_GAME}, GPU buffers", jobs(MAIN_GAME, size, "sb3", "sb3-default", *GPU_BUFFERS)),
        Group("gpu-noise", "noise, GPU buffers", jobs("noise", noise_size, "sb3-default", *GPU_BUFFERS)),
        Group("noise", "noise", jobs("noise", noise_size, "sb3", DEFAULT)),
        Group("large", f"{large:,} transitions", (*jobs(MAIN_GAME, size, DEFAULT), *jobs(MAIN_GAME, large, DEFAULT))),
        Group("vectors", "vectors", jobs("vectors", vector_size, "sb3-default", DEFAULT)),
        Group("training", "DQN", trainings("dqn", 160 if quick else 2000, warm=400), turns),
        Group("training", "PPO", trainings("ppo", rollout // 16 if quick else 3 * rollout, warm=rollout), turns),
    ]


def weight_group(cache: Path, *, quick: bool = False) -> Group:
    """What the library itself takes of a process, beside SB3's buffer that does the same with hardly any observations."""
    options = {"cache": str(cache), "laps": 0, "samples": 0, "fresh": True}
    jobs = [Job(buffer, "tiny", WEIGHT_TRANSITIONS, **options) for buffer in ("sb3-default", DEFAULT)]  # type: ignore[arg-type]
    return Group("weight", "the library itself", tuple(jobs), 1 if quick else WEIGHT_TURNS)


def recordings_of(groups: Sequence[Group]) -> dict[str, int]:
    """Games that the groups need, and how many steps of them."""
    needed: dict[str, int] = {}
    for job in (job for group in groups for job in group.jobs):
        if isinstance(job, Job) and job.workload not in MADE_UP and not is_vectors(job.workload):
            recorded = split_stack(job.workload)[0]
            needed[recorded] = max(needed.get(recorded, 0), job.transitions // envs_of(recorded))
    return needed


def verdicts_of(group: Group, results: Sequence[Result]) -> Iterator[Verdict]:
    """The ratios of a group, beside their bars."""
    if group.judged == "gpu":
        yield from gpu_verdicts(results)
    elif group.judged == "gpu-noise":
        yield from gpu_noise_verdicts(results)
    elif group.judged in ("main", "game"):
        yield from game_verdicts(group, results)
    elif group.judged == "large":
        yield from large_verdicts(group, results)
    elif group.judged == "colour":
        yield from colour_verdicts(group, results)
    elif group.judged == "named":
        yield from named_verdicts(group, results)
    else:
        first, ours = results[0], default_of(results)
        if group.judged == "weight":
            megabytes, seconds = ours["library_bytes"] / MEGABYTE, ours["first_batch_seconds"]
            yield Verdict("library: memory that it adds to a process", megabytes, *WEIGHT_MEGABYTES, "MB")
            yield Verdict("library: from its import to the first batch, beyond SB3's", seconds, *WEIGHT_SECONDS, "s")
        elif group.judged == "noise":
            yield Verdict("noise: memory (RSS)", ours["rss_bytes"] / first["rss_bytes"], NOISE_MEMORY)
            for key, label in TIMES.items():
                yield Verdict(f"noise: {label}", ours[key] / first[key], NOISE_TIME)
        elif group.judged == "vectors":
            labels = {"observation_bytes": "memory of observations", **TIMES}
            for key, limits in VECTOR_BARS.items():
                yield Verdict(f"vectors: {labels[key]}", ours[key] / first[key], *limits)
            # Actions, rewards and dones are half of such a transition, and SB3's own arrays here as there.
            yield Verdict("vectors: memory with actions and rewards (RSS)", ours["rss_bytes"] / first["rss_bytes"])
        else:
            ratio = ours["steps_per_second"] / first["steps_per_second"]
            bars = CAMERA_TRAINING_BARS if first["game"] in CAMERAS else TRAINING_BARS
            yield Verdict(f"{group.label}: steps per second", ratio, *bars, at_least=True)


def default_of(results: Sequence[Result]) -> Result:
    """The result of the default codec."""
    return next(result for result in results if result["buffer"] == DEFAULT)


def game_verdicts(group: Group, results: Sequence[Result]) -> Iterator[Verdict]:
    """A game: memory, and the times of each operation."""
    first, ours, is_main = results[0], default_of(results), group.judged == "main"
    bars = MAIN_BARS if is_main else GAME_BARS

    def share(result: Result, key: str = "rss_bytes") -> float:
        return float(100 * result[key] / first[key])

    yield Verdict(f"{group.label}: memory (RSS)", share(ours), *_percent(bars["rss_bytes"]), "%")
    if is_main:
        smallest = results[-1]
        label = f"{group.label}: memory (RSS), {smallest['buffer']}"
        yield Verdict(label, share(smallest), *_percent(SMALLEST_BARS), "%")
    if ours.get("process_bytes") and first.get("process_bytes"):
        yield Verdict(f"{group.label}: memory of the whole process", share(ours, "process_bytes"), unit="%")
    for key, label in TIMES.items():
        yield Verdict(f"{group.label}: {label}", ours[key] / first[key], *bars[key])
    if is_main:
        yield from slowest_verdicts(group.label, first, ours)


def large_verdicts(group: Group, results: Sequence[Result]) -> Iterator[Verdict]:
    """A large buffer: its memory, and its times against those of a smaller one."""
    small, large = results[0], results[-1]
    yield Verdict(f"{group.label}: memory (RSS)", large["rss_bytes"] / MEGABYTE, *LARGE_MEGABYTES, "MB")
    if large.get("process_bytes"):
        yield Verdict(f"{group.label}: memory of the whole process", large["process_bytes"] / MEGABYTE, unit="MB")
    for key in ("add_us", "sample_256_us"):
        label = f"{group.label}: {TIMES[key]}, against {small['transitions']:,}"
        yield Verdict(label, large[key] / small[key], *LARGE_TIMES)


def gpu_verdicts(results: Sequence[Result]) -> Iterator[Verdict]:
    """Stored bytes by the buffer's own count: index tables, spare rows and frames that wait included."""
    found = {result["buffer"]: result for result in results}
    for name, (size_bar, sample_bar, sample_stretch) in GPU_BARS.items():
        for unit, label in (("sb3", "obs"), ("sb3-default", "obs and next_obs")):
            share = 100 * found[name]["observation_bytes"] / found[unit]["observation_bytes"]
            bar = None if size_bar is None or unit != "sb3" else 100 * size_bar
            yield Verdict(f"{name}: stored bytes, of SB3's {label}", share, bar, unit="%")
        ratio = found[name]["sample_256_us"] / found["sb3"]["sample_256_us"]
        yield Verdict(f"{name}: sample(256)", ratio, sample_bar, sample_stretch)
    # What an `add` of tiles takes beyond one that stores the same frames as they are.
    encoding = (found["gpu-tiles"]["add_us"] - found["gpu-none"]["add_us"]) / N_ENVS
    yield Verdict("gpu-tiles: encoding a frame", encoding, GPU_ENCODE_US, unit="us")


def gpu_noise_verdicts(results: Sequence[Result]) -> Iterator[Verdict]:
    """Against frames that are stored once, as they are: a stack is four of them, and SB3 has two of these."""
    dense = results[0]["observation_bytes"] / (2 * STACK)
    for result in results[1:]:
        yield Verdict(f"noise, {result['buffer']}: stored bytes, of dense frames", result["observation_bytes"] / dense, 1.2)


def _percent(shares: tuple[float, float | None]) -> tuple[float, float | None]:
    return 100 * shares[0], None if shares[1] is None else 100 * shares[1]
