"""Reading replay logs of Dopamine, measured: `python benchmarks/datasets.py` makes campaigns/datasets.json.

First a log of 1,000,000 entries is written, in the layout of the DQN Replay Dataset, from recorded MsPacman frames: one gzip
member at level 9, as Dopamine writes it. Then `from_dqn_replay` reads it into a `CompressedReplayBuffer`, each time in a new
process: with ISA-L (the extra `isal`), and with Python's own gzip. The bars are meant for ISA-L. This takes some minutes and
300 MB of disk. Close other programs first.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from common import Peak, rss

FRAMES_PER_SECOND = 100_000
MORE_THAN_A_FILE = 100  # MB
STACK = 4


# ---- the log


def recorded_entries() -> dict[str, np.ndarray]:
    """What Dopamine would have logged of the recorded games: episodes one behind the other, padded with zeros."""
    from sb3_extra_buffers.bench.frames import Frames, default_cache, load_workload
    from sb3_extra_buffers.bench.recording import ensure_recording

    ensure_recording(default_cache(), "MsPacman", 10_000, lambda *_: None)
    recording = load_workload("MsPacman", 10_000, default_cache())
    assert isinstance(recording, Frames)
    first, new, dones = recording.first, recording.new, recording.dones
    frames, terminals = [], []
    for env in range(len(first)):
        ends = dones[:, env].copy()
        ends[-1] = True
        seen = np.concatenate((first[env][None], new[:-1, env]))
        begin = 0
        for end in (np.flatnonzero(ends) + 1).tolist():
            frames += [np.zeros((STACK - 1, 84, 84), np.uint8), seen[begin:end]]
            terminals += [np.zeros(STACK - 1 + end - begin, np.uint8)]
            terminals[-1][-1] = 1
            begin = end
    all_frames, all_terminals = np.concatenate(frames), np.concatenate(terminals)
    rng, is_step = np.random.default_rng(0), all_frames.any(axis=(1, 2))
    actions = np.where(is_step, rng.integers(0, 9, len(all_frames)), 0).astype(np.int32)
    rewards = np.where(is_step, rng.random(len(all_frames)) < 0.05, 0).astype(np.float32)
    return {"observation": all_frames, "action": actions, "reward": rewards, "terminal": all_terminals}


def write_repeated(path: Path, rows: np.ndarray, n: int) -> None:
    """A gzipped .npy file of n rows, the given ones again and again: one gzip member, each lap of which is compressed once."""
    header = BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": rows.dtype.str, "fortran_order": False, "shape": (n, *rows.shape[1:])}
    )
    laps = [rows] * (n // len(rows)) + [rows[: n % len(rows)]]
    packed: dict[int, bytes] = {}
    checksum, length = 0, 0
    with open(path, "wb") as file:
        file.write(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff")
        for data in (header.getvalue(), *(memoryview(np.ascontiguousarray(lap)).cast("B") for lap in laps if len(lap))):
            checksum, length = zlib.crc32(data, checksum), length + len(data)
            if len(data) not in packed:
                compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
                packed[len(data)] = compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)
            file.write(packed[len(data)])
        file.write(b"\x03\x00" + struct.pack("<II", checksum, length % 2**32))


def write_log(folder: Path, n: int) -> None:
    """A checkpoint of n entries, of which the last was not written yet, as in the first file of a log."""
    for name, rows in recorded_entries().items():
        write_repeated(folder / f"$store$_{name}_ckpt.0.gz", rows, n)
    for name, array in (("add_count", np.array(n - 1)), ("invalid_range", (n - 2 + np.arange(STACK + 1)) % n)):
        with gzip.open(folder / f"{name}_ckpt.0.gz", "wb") as file:
            np.save(file, array, allow_pickle=False)


# ---- reading it


def read_log(folder: Path, without_isal: bool) -> dict[str, Any]:
    """Read it in this process, and measure."""
    if without_isal:
        sys.modules["isal"] = sys.modules["isal.igzip"] = None  # type: ignore[assignment]
    import torch as th

    from sb3_extra_buffers.datasets import from_dqn_replay

    th.set_num_threads(1)
    logging.disable(logging.WARNING)  # the report of the import
    with gzip.open(folder / "add_count_ckpt.0.gz") as file:
        n = int(np.load(file)) + 1
    before, load = rss(), os.getloadavg()[0]
    with Peak() as peak:
        start, worked = time.perf_counter(), time.process_time()
        buffer = from_dqn_replay(folder, progress_bar=False, buffer_kwargs={"device": "cpu"})
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
    arrays = sum(getattr(buffer, name).nbytes for name in ("actions", "rewards", "dones", "timeouts"))
    return {
        "frames/s": n / seconds,
        "seconds": seconds,
        "processor seconds": worked,
        "load before": load,
        "steps": buffer.size(),
        "peak MB": peak.peak - before,
        "buffer MB": (buffer.memory_usage().stored_bytes + arrays) / 1e6,
        "grown MB": rss() - before,
    }


def judged(found: dict[str, Any], file_mb: float) -> list[str]:
    """The bars beside what was measured. The peak includes the buffer."""
    limit = file_mb + MORE_THAN_A_FILE
    return [
        f"  {found['frames/s']:,.0f} frames/s; bar: at least {FRAMES_PER_SECOND:,}: "
        f"{'kept' if found['frames/s'] >= FRAMES_PER_SECOND else 'MISSED'} (load average {found['load before']:.1f})",
        f"  peak {found['peak MB']:.0f} MB, with the buffer of {found['buffer MB']:.0f} MB; bar: at most {limit:.0f} MB "
        f"({file_mb:.0f} MB checkpoint + {MORE_THAN_A_FILE} MB): {'kept' if found['peak MB'] <= limit else 'MISSED'}",
    ]


def main() -> None:
    """Write the log and read it, or read it where this is the process for that."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "campaigns" / "datasets.json")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--without-isal", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        sys.stdout.write(json.dumps(read_log(args.read, args.without_isal)))
        return
    folder = Path(tempfile.mkdtemp())
    results: dict[str, Any] = {"command": " ".join(["python benchmarks/datasets.py", *sys.argv[1:]]), "frames": args.frames}
    try:
        write_log(folder, args.frames)
        file_mb = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        results["file MB"], results["decompressed MB"] = file_mb, args.frames * 84 * 84 / 1e6
        for name, more in (("isal", []), ("gzip", ["--without-isal"])):
            command = [sys.executable, __file__, "--read", str(folder), *more]
            runs = [
                json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
                for _ in range(args.repeats)
            ]
            runs.sort(key=lambda run: run["frames/s"])
            results[name] = {"median": runs[len(runs) // 2], "frames/s of all": [run["frames/s"] for run in runs]}
            print(f"{name}, {args.repeats} times, the median:", *judged(results[name]["median"], file_mb), sep="\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
