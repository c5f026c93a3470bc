"""What is promised, as ratios to SB3's buffer in the same run, and whether it is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .frames import N_ENVS, STACK, is_vectors
from .jobs import Result
from .measure import Job
from .training import PPO, PPO_ENVS, Training

MAIN_GAME = "MsPacman"
OTHER_GAMES = ("Pong", "Seaquest", "Breakout", "Qbert", "SpaceInvaders", "BeamRider")
DEFAULT = "auto"
#: The smallest setting that is documented.
SMALLEST = "zstd9@64"
MEGABYTE = 1e6
#: The buffer is a hundredth of a training's time, so that mostly the machine decides who is faster in one turn.
TRAINING_TURNS = 5


@dataclass(frozen=True)
class Group:
    """Jobs that are run in turns, for ratios among them.

    :param judged: which bars look at it, see `verdicts_of`
    :param turns: at least so many, where a few percent decide
    """

    judged: str
    label: str
    jobs: tuple[Job | Training, ...]
    turns: int = 1


@dataclass(frozen=True)
class Verdict:
    """A ratio beside its bar.

    :param unit: how it is read: ``%``, ``x``, ``us`` or ``MB``
    :param at_least: whether more is better
    :param bar: None for a figure that only informs
    """

    label: str
    value: float
    bar: float | None = None
    stretch: float | None = None
    unit: str = "x"
    at_least: bool = False

    @property
    def kept(self) -> bool | None:
        return None if self.bar is None else self._reaches(self.bar)

    @property
    def stretched(self) -> bool:
        return self.stretch is not None and self._reaches(self.stretch)

    def _reaches(self, limit: float) -> bool:
        return self.value >= limit if self.at_least else self.value <= limit


#: Figure, what it is called, bar, stretch, unit: ours divided by SB3's.
TIMES = (
    ("add_first_us", "add, first lap", 0.25, 0.1),
    ("add_us", "add, later laps", 1.0, 0.6),
    ("sample_32_us", "sample(32)", 1.0, 0.5),
    ("sample_256_us", "sample(256)", 0.8, 0.4),
)


#: GPU buffers, on CPU tensors: stored bytes as a part of SB3's array of stacked observations, and sample(256).
GPU_BARS: dict[str, tuple[float | None, float | None]] = {
    "gpu-tiles": (0.016, 1.5),
    "gpu-none": (0.26, 1.0),
    "gpu-rle": (None, 4.0),
}
#: Microseconds to encode a frame.
GPU_ENCODE_US = 60
GPU_BUFFERS = (*GPU_BARS, "gpu-zstd3")


def check_groups(cache: Path, *, smallest: str = SMALLEST, quick: bool = False) -> list[Group]:
    """All that has to be run for the bars.

    :param quick: everything in small, without the other games: a smoke test
    """
    size, noise_size, vector_size, large = (2000, 2000, 2000, 4000) if quick else (40_000, 20_000, 200_000, 1_000_000)
    options = {"cache": str(cache), "laps": 1 if quick else 4, "samples": 16 if quick else 960}

    def jobs(workload: str, transitions: int, *buffers: str) -> tuple[Job, ...]:
        return tuple(Job(buffer, workload, transitions, **options) for buffer in buffers)  # type: ignore[arg-type]

    def trainings(algorithm: str, steps: int, warm: int) -> tuple[Training, ...]:
        return tuple(Training(algorithm, buffer, MAIN_GAME, steps, 0 if quick else warm) for buffer in ("sb3", DEFAULT))

    rollout, turns = PPO["n_steps"] * PPO_ENVS, 1 if quick else TRAINING_TURNS
    groups = [Group("main", MAIN_GAME, jobs(MAIN_GAME, size, "sb3", "sb3-default", DEFAULT, smallest))]
    if not quick:
        groups += [Group("game", game, jobs(game, size, "sb3", DEFAULT)) for game in OTHER_GAMES]
    return [
        *groups,
        Group("gpu", f"{MAIN_GAME}, GPU buffers", jobs(MAIN_GAME, size, "sb3", "sb3-default", *GPU_BUFFERS)),
        Group("gpu-noise", "noise, GPU buffers", jobs("noise", noise_size, "sb3-default", *GPU_BUFFERS)),
        Group("noise", "noise", jobs("noise", noise_size, "sb3", DEFAULT)),
        Group("large", f"{large:,} transitions", (*jobs(MAIN_GAME, size, DEFAULT), *jobs(MAIN_GAME, large, DEFAULT))),
        Group("vectors", "vectors", jobs("vectors", vector_size, "sb3-default", DEFAULT)),
        Group("training", "DQN", trainings("dqn", 160 if quick else 2000, warm=400), turns),
        Group("training", "PPO", trainings("ppo", rollout // 4 if quick else 3 * rollout, warm=rollout), turns),
    ]


def recordings_of(groups: Sequence[Group]) -> dict[str, int]:
    """Games that the groups need, and how many steps of them."""
    needed: dict[str, int] = {}
    for job in (job for group in groups for job in group.jobs):
        if isinstance(job, Job) and job.workload != "noise" and not is_vectors(job.workload):
            needed[job.workload] = max(needed.get(job.workload, 0), job.transitions // N_ENVS)
    return needed


def verdicts_of(group: Group, results: Sequence[Result]) -> Iterator[Verdict]:
    """The ratios of a group, beside their bars."""
    if group.judged.startswith("gpu"):
        yield from gpu_verdicts(results) if group.judged == "gpu" else gpu_noise_verdicts(results)
        return
    first, ours = results[0], next(result for result in results if result["buffer"] == DEFAULT)

    def ratio(key: str) -> float:
        return float(ours[key] / first[key])

    if group.judged in ("main", "game"):
        memory = (0.012, 0.009) if group.judged == "main" else (0.016, None)
        yield Verdict(f"{group.label}: memory (RSS)", 100 * ratio("rss_bytes"), *_percent(memory), "%")
        if group.judged == "main":
            share = 100 * results[-1]["rss_bytes"] / first["rss_bytes"]
            yield Verdict(f"{group.label}: memory (RSS), {results[-1]['buffer']}", share, *_percent((0.008, 0.005)), "%")
        for key, label, bar, stretch in TIMES:
            yield Verdict(f"{group.label}: {label}", ratio(key), bar, stretch)
        if group.judged == "main":
            yield Verdict(f"{group.label}: slowest add / median add", ours["add_max_us"] / ours["add_median_us"], 10.0)
    elif group.judged == "noise":
        yield Verdict("noise: memory (RSS)", ratio("rss_bytes"), 0.27)
        for key, label, _, _ in TIMES:
            yield Verdict(f"noise: {label}", ratio(key), 2.0)
    elif group.judged == "large":
        large = results[-1]
        yield Verdict(f"{group.label}: memory (RSS)", large["rss_bytes"] / MEGABYTE, 350, 250, "MB")
        for key, label in (("add_us", "add, later laps"), ("sample_256_us", "sample(256)")):
            yield Verdict(f"{group.label}: {label}, against {first['transitions']:,}", large[key] / first[key], 1.3, 1.1)
    elif group.judged == "vectors":
        yield Verdict("vectors: memory of observations", ratio("observation_bytes"), 0.6, 0.5)
        # Actions, rewards and dones are half of such a transition, and SB3's own arrays here as there.
        yield Verdict("vectors: memory of the process (RSS)", ratio("rss_bytes"))
        for key, label in (("add_us", "add, later laps"), ("sample_256_us", "sample(256)")):
            yield Verdict(f"vectors: {label}", ratio(key), 1.5, 1.1)
    else:
        bar = 0.98 if group.label == "DQN" else 0.97
        yield Verdict(f"{group.label}: steps per second", ratio("steps_per_second"), bar, 1.0, at_least=True)


def gpu_verdicts(results: Sequence[Result]) -> Iterator[Verdict]:
    """Stored bytes by the buffer's own count: index tables, spare rows and frames that wait included."""
    found = {result["buffer"]: result for result in results}
    for name, (size_bar, sample_bar) in GPU_BARS.items():
        for unit, label in (("sb3", "obs"), ("sb3-default", "obs and next_obs")):
            share = 100 * found[name]["observation_bytes"] / found[unit]["observation_bytes"]
            bar = None if size_bar is None or unit != "sb3" else 100 * size_bar
            yield Verdict(f"{name}: stored bytes, of SB3's {label}", share, bar, unit="%")
        yield Verdict(f"{name}: sample(256)", found[name]["sample_256_us"] / found["sb3"]["sample_256_us"], sample_bar)
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
