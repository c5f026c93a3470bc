"""The full campaign against saved buffers: `make torture`, with results in benchmarks/campaigns. Tests run parts of it.

    kills       kill -9 at random moments while a file or a checkpoint folder is written: the state before always loads
    accidents   flipped, cut, swapped bytes over all classes: refused, or equal to what was saved
    hostile     files whose checksums are right and whose contents are not: refused, or harmless
    full        a disk that is full at random points: the state before always loads, and the error says so

A kill is real: a forked child saves again and again, and is killed. What it saves is known, so what is loaded can be checked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.compressed import CompressedReplayBuffer

SPACE = spaces.Box(0, 255, (4, 24, 24), np.uint8)
SLOTS, N_ENVS = 400, 2
#: What a child says when it is about to save. Only then the time to its end begins, or a busy machine would save nothing.
READY = b"r"


def observation(step: int) -> np.ndarray:
    """The stack of frames of all envs before a step: frame f is full of f, but for a bit of noise that f seeds."""
    frames = np.stack([np.full((24, 24), max(step - 3 + k, 0) % 256, np.uint8) for k in range(4)])
    frames[:, step % 24, :] = np.random.default_rng(step).integers(0, 256, 24)
    both = np.stack([frames, 255 - frames])
    return np.ascontiguousarray(both)


def new_buffer() -> CompressedReplayBuffer:
    return CompressedReplayBuffer(SLOTS * N_ENVS, SPACE, spaces.Discrete(4), "cpu", N_ENVS)


def add(buffer: CompressedReplayBuffer, step: int) -> None:
    buffer.add(
        observation(step), observation(step + 1), np.full((N_ENVS, 1), step % 4), np.full(N_ENVS, float(step)),
        np.zeros(N_ENVS), [{}] * N_ENVS,
    )  # fmt: skip


def check(path: Path) -> int:
    """Load what is there and check all of it. The number of the newest step."""
    loaded = load_buffer(path, device="cpu", truncate_last_traj=False)
    slots = loaded._kept_slots()
    newest = int(loaded.rewards[slots[-1], 0])
    assert loaded.size() == min(newest + 1, SLOTS), (loaded.size(), newest)
    for slot, step in zip(slots, range(newest + 1 - len(slots), newest + 1), strict=True):
        assert (loaded.rewards[slot] == step).all()
        assert np.array_equal(loaded.observations[slot], observation(step)), step
        assert np.array_equal(loaded.next_observations[slot], observation(step + 1)), step
    return newest


def saves_for_ever(path: Path, report: int, *, folder: bool, seed: int) -> None:
    """Add some steps, save, say so; never ends."""
    rng = random.Random(seed)
    buffer, step = new_buffer(), 0
    if (path / "checkpoint.json").exists() if folder else path.exists():
        buffer = load_buffer(path, device="cpu", truncate_last_traj=False)
        step = int(buffer.rewards[buffer._kept_slots()[-1], 0]) + 1
    os.write(report, READY)
    while True:
        for _ in range(rng.randrange(1, 60)):
            add(buffer, step)
            step += 1
        if folder:
            buffer.checkpoint(path, background=rng.random() < 0.3)
            buffer.wait_for_checkpoint()
        else:
            buffer.save(path)
        os.write(report, step.to_bytes(8, "little"))


def kill_while_saving(path: Path, *, folder: bool, seed: int, longest: float = 0.12) -> bool:
    """Kill a child at a random moment. Whether it had saved anything before; an AssertionError if what it saved is lost."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(out)
            saves_for_ever(path, into, folder=folder, seed=seed)
        finally:
            os._exit(9)
    os.close(into)
    assert os.read(out, len(READY)) == READY
    time.sleep(random.Random(seed).uniform(0.001, longest))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the child ended by itself: {status}"
    said = b""
    while part := os.read(out, 1 << 16):
        said += part
    os.close(out)
    if not path.exists():
        assert not said, "what was saved is gone"
        return False
    if len(said) < 8 and folder and not (path / "checkpoint.json").exists():
        return False
    newest = check(path)
    if said:
        assert newest >= int.from_bytes(said[-8:], "little") - 1, "an older state than the one that was acknowledged"
    return True


def kills(n: int, seed: int) -> dict[str, Any]:
    th.set_num_threads(1)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n):
            kind = ("file", "folder")[i % 2]
            path = Path(folder) / kind
            if i % 40 < 2:  # from the beginning now and then
                shutil.rmtree(path, ignore_errors=True)
                path.unlink(missing_ok=True)
            saved = kill_while_saving(path, folder=kind == "folder", seed=seed + i)
            found["state loaded" if saved else "nothing saved yet"] += 1
    return {"kills": n, "lost": 0, **found}


def damages(n: int, seed: int, *, hostile: bool) -> dict[str, Any]:
    from tests.damage import by_accident, on_purpose, outcome
    from tests.saved_buffers import EVERYTHING

    rng, found = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer"
        originals = {}
        for kind, make in EVERYTHING.items():
            original = make()
            original.save(path)
            originals[kind] = original, path.read_bytes()
        kinds = list(originals)
        for i in range(n):
            original, data = originals[kinds[i % len(kinds)]]
            path.write_bytes((on_purpose if hostile else by_accident)(data, rng))
            found[outcome(path, original, is_hostile=hostile)] += 1
    return {"files": n, "classes": len(kinds), "crashes": 0, "silently wrong": 0, "unclear errors": 0, **found}


def full_disks(n: int, seed: int) -> dict[str, Any]:
    """A tmpfs with less and less room."""
    rng, found = random.Random(seed), Counter[str]()
    folder = Path(tempfile.mkdtemp())
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode:
        folder.rmdir()
        return {"skipped": "cannot mount a small disk here"}
    try:
        buffer = new_buffer()
        step = 0
        for i in range(n):
            for _ in range(rng.randrange(1, 80)):
                add(buffer, step)
                step += 1
            path = folder / ("file", "folder")[i % 2]
            write = buffer.checkpoint if i % 2 else buffer.save
            if i < 2 or rng.random() < 0.3:
                write(path)
                continue
            before = check(path)
            free = shutil.disk_usage(folder).free
            filler = folder / "filler"
            filler.write_bytes(bytes(max(free - rng.randrange(0, 120_000), 0)))
            try:
                write(path)
                found["fitted"] += 1
            except OSError as error:
                if "as it was" not in str(error) or check(path) != before:
                    raise AssertionError("something is lost, or the error does not say that nothing is") from error
                found["refused"] += 1
            filler.unlink()
            write(path)  # when there is room again
            assert check(path) == step - 1
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()
    return {"writes": n, "lost": 0, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--full", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/campaigns/torture.json"))
    args = parser.parse_args()
    results: dict[str, Any] = {"command": "make torture", "seed": args.seed}
    for name, run in (
        ("kill -9 while saving", lambda: kills(args.kills, args.seed)),
        ("damaged by accident", lambda: damages(args.files, args.seed, hostile=False)),
        ("damaged on purpose", lambda: damages(args.files, args.seed, hostile=True)),
        ("full disk", lambda: full_disks(args.full, args.seed)),
    ):
        start = time.time()
        results[name] = {**run(), "seconds": round(time.time() - start)}
        sys.stdout.write(f"{name}: {results[name]}\n")
        sys.stdout.flush()
    args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
