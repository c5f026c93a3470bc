"""One job in this process, and its result as JSON: `python path/to/standalone.py '{"buffer": "auto", ...}'`.

    workload loaded, torch and SB3 imported
      |  <- the whole process is counted from here, and the time to the first batch
    library imported, a small buffer filled and sampled: the core and codecs are loaded
      |  <- the buffer is counted from here
    buffer made, first lap
      |  <- to here
    later laps and samples

Memory is what the process gains in RSS; SB3's arrays count as their pages are touched, in the first lap. Each `add` is timed
alone; the step is made before its time begins.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .buffers import Subject, fill, make_subject
from .frames import Step, Workload, envs_of, load_workload
from .memory import resident_bytes

#: Steps and samples of the small buffer that warms everything up.
WARM_STEPS, WARM_SAMPLES = 200, 8
#: Adds of a later lap: its slowest is looked at.
LAP = 10_000
BATCHES = (32, 256)
#: What a training with SB3 has imported anyway, with any buffer.
FOUNDATION = ("torch", "gymnasium", "stable_baselines3")
LIBRARY = "sb3_extra_buffers"


@dataclass(frozen=True)
class Job:
    """What to measure.

    :param buffer: see `buffers`
    :param workload: see `frames.load_workload`
    :param transitions: size of the buffer; it is filled once, then overwritten
    :param laps: later laps
    :param slow: whether a lap takes so long that one run and one short later lap must do
    :param samples: batches of 32 to time, in all laps together; as many observations for 256
    :param fresh: whether kernels that were compiled before are hidden, as after an installation
    :param cache: where recordings are
    """

    buffer: str
    workload: str
    transitions: int
    cache: str
    laps: int = 4
    samples: int = 960
    slow: bool = False
    fresh: bool = False


def measure(job: Job) -> dict[str, Any]:
    """Run a job; times are in microseconds.

    ``rss_bytes`` is the buffer, ``process_bytes`` all that the process has gained: the library, what it has compiled, the
    buffer. ``process_bytes`` is None where the library was imported before, and its weight cannot be seen.
    """
    n_steps = job.transitions // envs_of(job.workload)
    workload = load_workload(job.workload, n_steps, Path(job.cache))
    import_foundation()
    gc.collect()
    unseen, at_start = LIBRARY in sys.modules, resident_bytes()
    start_seconds = warm_up(job, workload)
    gc.collect()
    before = resident_bytes()
    subject = make_subject(job.buffer, job.transitions, workload)
    steps = workload.steps()
    first = time_adds(subject, steps, n_steps)
    gc.collect()
    after = resident_bytes() - first.nbytes  # what the clock has noted is not the buffer's
    digest = subject.digest()
    lap, laps = (LAP // 10, 1) if job.slow else (LAP, job.laps)
    later: list[NDArray[np.float64]] = []
    sampled: dict[int, list[float]] = {size: [] for size in BATCHES}
    for turn in range(laps):  # adds and samples by turns, so that a bad moment of the machine does not fall on one of them
        later.append(time_adds(subject, steps, min(n_steps, lap)))
        for size, times in sampled.items():
            times += time_samples(subject, size, job.samples * 32 // size // laps, seed=turn)
    return {
        **asdict(job),
        "rss_bytes": after - before,
        "process_bytes": None if unseen else after - at_start,
        "start_seconds": start_seconds,
        "observation_bytes": subject.observation_bytes(),
        "frame_bytes": workload.frame_bytes,
        "other_bytes": other_bytes(workload),
        "add_first_us": float(first.mean()),
        "add_first_median_us": float(np.median(first)),
        **summary_of(later),
        **{f"sample_{size}_us": statistics.median(times) if times else None for size, times in sampled.items()},
        "digest": digest,
        "digest_later": subject.digest(),
    }


def import_foundation() -> None:
    """Import what is no part of any buffer's weight; a peer's environment may lack some of it."""
    for name in FOUNDATION:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def warm_up(job: Job, workload: Workload) -> float:
    """Do all that is timed later once in small, so that nothing is compiled, loaded or first allocated then.

    :return: seconds to the first batch, from before the import of what the buffer is made with
    """
    start = time.perf_counter()
    subject = make_subject(job.buffer, WARM_STEPS * workload.n_envs // 2, workload)
    fill(subject, list(islice(workload.steps(), WARM_STEPS)))
    subject.sample(BATCHES[0])
    seconds = time.perf_counter() - start
    for size in BATCHES:
        for _ in range(WARM_SAMPLES):
            subject.sample(size)
    return seconds


def other_bytes(workload: Workload) -> int:
    """What SB3 keeps of a transition beside the observations: action, reward and done."""
    action = workload.action_space
    return math.prod(action.shape or ()) * np.dtype(action.dtype).itemsize + 2 * np.dtype(np.float32).itemsize


def time_adds(subject: Subject, steps: Iterator[Step], count: int) -> NDArray[np.float64]:
    """Microseconds of each `add`."""
    times = np.empty(count)
    add, clock = subject.add, time.perf_counter
    for i, step in enumerate(islice(steps, count)):
        start = clock()
        add(*step)
        times[i] = clock() - start
    return times * 1e6


def summary_of(laps: list[NDArray[np.float64]]) -> dict[str, float | None]:
    """The steady state. The slowest `add` is that of the calmest lap: what the buffer does comes back in every lap, what
    the machine does in between does not."""
    if not laps:
        return dict.fromkeys(("add_us", "add_median_us", "add_p999_us", "add_max_us"))
    return {
        "add_us": statistics.median(float(lap.mean()) for lap in laps),
        "add_median_us": statistics.median(float(np.median(lap)) for lap in laps),
        "add_p999_us": statistics.median(float(np.quantile(lap, 0.999)) for lap in laps),
        "add_max_us": min(float(lap.max()) for lap in laps),
    }


def time_samples(subject: Subject, size: int, count: int, seed: int) -> list[float]:
    """Microseconds of each `sample`."""
    np.random.seed(seed)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        batch = subject.sample(size)
        times.append((time.perf_counter() - start) * 1e6)
        del batch  # in training, too, a batch is gone before the next one is made
    return times


def main(text: str) -> None:
    """Run the job that a line of JSON describes, and print the result as one."""
    values = json.loads(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3 counts memory and other things that are not asked here
        try:
            import torch as th

            th.set_num_threads(1)
        except ImportError:  # cpprb does without
            pass
        if "algorithm" in values:
            from .training import Training, train

            result = train(Training(**values))
        else:
            result = measure(Job(**values))
    sys.stdout.write(f"{json.dumps(result)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
