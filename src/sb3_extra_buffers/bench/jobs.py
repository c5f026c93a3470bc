"""Processes: starts one for each job, in turns, and takes medians over the repeats.

In turns, because machines change their mind within minutes: sb3, ours, sb3, ours ... see the same machine, so that their
ratios mean something where their times do not.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .frames import Update
from .measure import Job
from .peers import PeerUnavailableError, peer_of, python_of
from .standalone import HERE
from .training import Training

Result = dict[str, Any]
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
#: Figures that are whole numbers and yet differ from run to run.
MEASURED = ("rss_bytes", "process_bytes")


def run_in_turns(jobs: Sequence[Job | Training], repeats: int, update: Update, workers: int = 1) -> list[Result]:
    """Run all jobs, then all again; the result of each is the median of its repeats.

    :param update: progress, called with the number of processes that have ended
    :param workers: processes at a time; more than one where times do not matter
    """
    turns = list(turns_of(jobs, repeats))
    found: list[list[Result]] = [[] for _ in jobs]
    with ThreadPoolExecutor(workers) as pool:
        for count, (i, result) in enumerate(zip(turns, pool.map(lambda i: run(jobs[i]), turns), strict=True), 1):
            found[i].append(result)
            update(count, f"{jobs[i].buffer}, {count} of {len(turns)} runs")
    return weigh(compare_batches([median_of(results) for results in found]))


def turns_of(jobs: Sequence[Job | Training], repeats: int) -> Iterator[int]:
    """Numbers of the jobs in the order in which they are run; slow ones have their turn once."""
    for turn in range(repeats):
        yield from (i for i, job in enumerate(jobs) if turn == 0 or not (isinstance(job, Job) and job.slow))


def run(job: Job | Training) -> Result:
    """The result of one job, from a process of its own. A peer that fails gives a result that says so."""
    peer = peer_of(job.buffer)
    try:
        if peer is None or isinstance(job, Training):
            return _start(sys.executable, job)
        return _start(str(python_of(peer, Path(job.cache))), job)
    except (RuntimeError, PeerUnavailableError) as error:
        if peer is None:
            raise
        return {**asdict(job), "error": str(error)}


def _start(python: str, job: Job | Training) -> Result:
    command = [python, str(HERE / "standalone.py"), json.dumps(asdict(job))]
    environment = {**os.environ, **ONE_THREAD}
    if peer_of(job.buffer) is not None:
        environment.pop("PYTHONPATH", None)  # it may name this library, which the peer's environment must not see
    with tempfile.TemporaryDirectory() as empty:
        if isinstance(job, Job) and job.fresh:
            environment["NUMBA_CACHE_DIR"] = empty
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise RuntimeError(f"Measuring {job.buffer} failed: {reason}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def median_of(results: Sequence[Result]) -> Result:
    """One result for several of the same job: medians of what was measured."""
    first = results[0]
    if any("error" in result for result in results):
        return next(result for result in results if "error" in result)
    if len({result["digest"] for result in results}) > 1:
        raise RuntimeError(f"{first['buffer']} gave other batches when it was run again")
    measured = [key for key, value in first.items() if isinstance(value, float) or (key in MEASURED and value is not None)]
    return {
        **first,
        **{key: statistics.median(result[key] for result in results) for key in measured},
        "repeats": len(results),
    }


def compare_batches(results: list[Result]) -> list[Result]:
    """Say in each result whether its batches are those of SB3's buffer, bit for bit; None where that cannot be said."""
    references = {_same_work(result): result for result in results if _is_reference(result)}
    for result in results:
        reference = references.get(_same_work(result))
        if reference is None or not result.get("digest"):
            result["identical"] = None
            continue
        keys = ["digest"] if result.get("slow") else ["digest", "digest_later"]  # a slow one did not get as far
        result["identical"] = all(result.get(key) == reference.get(key) for key in keys)
    return results


def weigh(results: list[Result]) -> list[Result]:
    """Say in each result of a fresh process what the library adds to it, beyond what SB3's buffer takes there.

    ``library_bytes`` is memory, ``first_batch_seconds`` the time from before the import to the first batch.
    """
    references = {_same_work(result): result for result in results if result.get("fresh") and _is_reference(result)}
    for result in results:
        reference = references.get(_same_work(result))
        if reference is not None and result is not reference and "error" not in result:
            result["library_bytes"] = result["process_bytes"] - reference["process_bytes"]
            result["first_batch_seconds"] = result["start_seconds"] - reference["start_seconds"]
    return results


def _is_reference(result: Result) -> bool:
    return "error" not in result and result["buffer"] == ("sb3" if "algorithm" in result else "sb3-default")


def _same_work(result: Result) -> tuple[Any, ...]:
    return tuple(result.get(key) for key in ("algorithm", "game", "steps", "workload", "transitions"))
