"""Saving, loading, checkpoints and blocks in files, measured: `python benchmarks/saving.py` makes campaigns/saving.json.

    a million   MsPacman, 1,000,000 transitions of 4 envs: save, load, a checkpoint after 10,000 more; peak RSS while it lasts
    directory   2 GB of stored noise, once with `directory=` and once in memory: RSS, and sample(256) when the files are cached

Each part has a process of its own. Needs the extras of `bench`. Close other programs first.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from common import Peak, mspacman, rss

#: Frames of 84x84 bytes that make 2 GB.
NOISE = 285_000


def a_million(folder: Path, n: int) -> dict[str, Any]:
    """Save and load a filled buffer."""
    import torch as th

    from sb3_extra_buffers import load_buffer
    from sb3_extra_buffers.compressed import CompressedReplayBuffer

    th.set_num_threads(1)
    buffer, workload = mspacman(CompressedReplayBuffer, n)
    stored, before, file = buffer.memory_usage().stored_bytes, rss(), folder / "buffer.sb3x"
    found: dict[str, Any] = {"transitions": n, "stored MB": stored / 1e6}

    def timed(run: Any) -> tuple[float, float]:
        with Peak() as peak:
            start = time.perf_counter()
            run()
            seconds = time.perf_counter() - start
        return seconds, peak.peak

    saves = [timed(partial(buffer.save, file)) for _ in range(3)]
    found["save s"] = statistics.median(one[0] for one in saves)
    found["save: peak RSS / before"] = max(one[1] for one in saves) / before
    found["file / stored"] = file.stat().st_size / stored
    buffer.checkpoint(folder / "checkpoint")
    checkpoints, written = [], []
    for _ in range(3):
        for step in islice(workload.steps(), 2500):
            buffer.add(*step)
        old = set((folder / "checkpoint").iterdir())
        checkpoints.append(timed(partial(buffer.checkpoint, folder / "checkpoint"))[0])
        new = sum(path.stat().st_size for path in (folder / "checkpoint").iterdir() if path not in old)
        written.append(new / (stored / n * 10_000))
    found["checkpoint s"], found["checkpoint: written / new"] = statistics.median(checkpoints), statistics.median(written)
    del buffer
    gc.collect()
    loads = []
    for _ in range(3):
        loaded: list[Any] = []
        seconds, peak = timed(lambda loaded=loaded: loaded.append(load_buffer(file, device="cpu")))
        loads.append((seconds, peak / rss()))
        loaded.clear()
        gc.collect()
    found["load s"], found["load: peak RSS / after"] = statistics.median(one[0] for one in loads), max(one[1] for one in loads)
    return found


def noise(folder: Path | None, n: int) -> dict[str, Any]:
    """Fill a buffer with noise, and sample."""
    import torch as th
    from gymnasium import spaces

    from sb3_extra_buffers.compressed import CompressedReplayBuffer

    th.set_num_threads(1)
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = CompressedReplayBuffer(n, space, spaces.Discrete(4), "cpu", 1, directory=folder)
    rng, peak = np.random.default_rng(0), 0.0
    pool = rng.integers(0, 256, (64 << 20,), dtype=np.uint8)
    obs = np.zeros((1, 4, 84, 84), np.uint8)
    for i in range(n):
        following = np.roll(obs, -1, axis=1)
        at = int(rng.integers(0, pool.size - 7056))
        following[0, -1] = pool[at : at + 7056].reshape(84, 84) ^ np.uint8(i % 251)
        buffer.add(obs, following, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
        obs = following
        if i % 5000 == 0:
            peak = max(peak, rss())
    times = []
    for i in range(600):
        start = time.perf_counter()
        buffer.sample(256)
        if i >= 300:
            times.append(time.perf_counter() - start)
        peak = max(peak, rss())
    return {
        "stored MB": buffer.memory_usage().stored_bytes / 1e6,
        "peak RSS MB": peak,
        "sample(256) ms": 1e3 * statistics.median(times),
    }


def main() -> None:
    """Run all parts, or one of them where this is its process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("a million", "directory", "memory"))
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--noise", type=int, default=NOISE)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "campaigns" / "saving.json")
    args = parser.parse_args()
    if args.part:
        folder = Path(tempfile.mkdtemp())
        try:
            if args.part == "a million":
                found = a_million(folder, args.transitions)
            else:
                found = noise(folder if args.part == "directory" else None, args.noise)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        sys.stdout.write(json.dumps(found))
        return
    results: dict[str, Any] = {"command": " ".join(["python benchmarks/saving.py", *sys.argv[1:]])}
    sizes = ["--transitions", str(args.transitions), "--noise", str(args.noise)]
    for part in ("a million", "directory", "memory"):
        done = subprocess.run([sys.executable, __file__, "--part", part, *sizes], capture_output=True, text=True, check=True)
        results[part] = json.loads(done.stdout)
        sys.stdout.write(f"{part}: {results[part]}\n")
    results["sample(256): directory / memory"] = results["directory"]["sample(256) ms"] / results["memory"]["sample(256) ms"]
    args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
