"""More than uniform replay, measured: `python benchmarks/sampling.py` makes campaigns/sampling.json.

    frames      MsPacman, 1,000,000 transitions: `sample(32)` and `update_priorities`, beside uniform `sample(32)`
    vectors     17 float32, 1,000,000 transitions: the same, beside cpprb's and TorchRL's prioritized buffers, and beside
                `sample(32)` of SB3's own ReplayBuffer
    sequences   MsPacman: `sample_sequences(32, 20)` beside `sample(640)`, which draws as many steps
    max_memory  frames that compress well, badly and well again, for 20 laps: RSS beside the limit

Each buffer has a process of its own, and the result says with which torch. cpprb has none; TorchRL gets that which its wheels
were built for. Needs the extras of `bench`. Close other programs first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import mspacman, rss

OUT = Path(__file__).parent / "campaigns" / "sampling.json"
N = 1_000_000
BATCH, LENGTH, DIM = 32, 20, 17
LIMIT, SIDE, LAPS = 300, 84, 20  # MB, pixels


def microseconds(run: Callable[[], Any], n: int = 3000) -> float:
    """Median time of a call."""
    times = []
    for _ in range(n):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times[n // 10 :])


# ---- frames


def frames_uniform() -> dict[str, float]:
    from sb3_extra_buffers.compressed import CompressedReplayBuffer

    buffer, _ = mspacman(CompressedReplayBuffer, N)
    return {"us": microseconds(lambda: buffer.sample(BATCH))}


def frames_prioritized() -> dict[str, float]:
    from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer

    buffer, _ = mspacman(CompressedPrioritizedReplayBuffer, N)
    return {"us": _sampled_and_updated(buffer, lambda batch, errors: buffer.update_priorities(batch.indices, errors))}


def _sampled_and_updated(buffer: Any, update: Callable[[Any, Any], None], sample: Callable[[], Any] | None = None) -> float:
    rng = np.random.default_rng(0)
    errors = [rng.random(BATCH).astype(np.float32) for _ in range(100)]
    numbers = iter(range(10**9))
    sample = sample or (lambda: buffer.sample(BATCH))
    for _ in range(2000):  # priorities as after some training
        update(sample(), errors[next(numbers) % 100])
    return microseconds(lambda: update(sample(), errors[next(numbers) % 100]))


# ---- vectors


def vectors_ours() -> dict[str, float]:
    from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer

    buffer = _with_vectors(CompressedPrioritizedReplayBuffer)
    return {"us": _sampled_and_updated(buffer, lambda batch, errors: buffer.update_priorities(batch.indices, errors))}


def _with_vectors(made_class: Any) -> Any:
    from gymnasium import spaces

    space, actions = spaces.Box(-np.inf, np.inf, (DIM,), np.float32), spaces.Box(-1, 1, (6,), np.float32)
    n_envs = 100
    buffer = made_class(N, space, actions, "cpu", n_envs)
    rng = np.random.default_rng(0)
    obs, action = rng.standard_normal((n_envs, DIM), np.float32), rng.standard_normal((n_envs, 6), np.float32)
    while not buffer.full:
        buffer.add(obs, obs, action, np.zeros(n_envs), np.zeros(n_envs), [{}] * n_envs)
    return buffer


def vectors_sb3() -> dict[str, float]:
    from stable_baselines3.common.buffers import ReplayBuffer

    buffer = _with_vectors(ReplayBuffer)
    return {"us": microseconds(lambda: buffer.sample(BATCH))}


def vectors_cpprb() -> dict[str, float]:
    from cpprb import PrioritizedReplayBuffer

    fields = {"obs": DIM, "next_obs": DIM, "act": 6, "rew": 1, "done": 1}
    buffer = PrioritizedReplayBuffer(N, {name: {"shape": shape} for name, shape in fields.items()}, alpha=0.6)
    rng = np.random.default_rng(0)
    part = {name: rng.standard_normal((1000, shape), np.float32) for name, shape in fields.items()}
    for _ in range(N // 1000):
        buffer.add(**part)
    return {
        "us": _sampled_and_updated(
            buffer,
            lambda batch, errors: buffer.update_priorities(batch["indexes"], errors),
            lambda: buffer.sample(BATCH, beta=0.4),
        )
    }


def vectors_torchrl() -> dict[str, float]:
    import torch as th
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer

    buffer = ReplayBuffer(
        storage=LazyTensorStorage(N), sampler=PrioritizedSampler(max_capacity=N, alpha=0.6, beta=0.4), batch_size=BATCH
    )
    fields = {"obs": DIM, "next_obs": DIM, "act": 6, "rew": 1, "done": 1}
    part = TensorDict({name: th.randn(10_000, shape) for name, shape in fields.items()}, batch_size=[10_000])
    for _ in range(N // 10_000):
        buffer.extend(part)

    def update(drawn: Any, errors: Any) -> None:
        buffer.update_priority(drawn[1]["index"], th.from_numpy(errors))

    return {"us": _sampled_and_updated(buffer, update, lambda: buffer.sample(return_info=True))}


# ---- sequences


def sequences() -> dict[str, float]:
    from sb3_extra_buffers.compressed import CompressedReplayBuffer

    buffer, _ = mspacman(CompressedReplayBuffer, N)
    n = 300
    return {
        "us": microseconds(lambda: buffer.sample_sequences(BATCH, LENGTH), n),
        "same steps by sample us": microseconds(lambda: buffer.sample(BATCH * LENGTH), n),
    }


# ---- max_memory


def max_memory() -> dict[str, float]:
    from gymnasium import spaces

    from sb3_extra_buffers.compressed import CompressedReplayBuffer

    space, rng = spaces.Box(0, 255, (4, SIDE, SIDE), np.uint8), np.random.default_rng(0)
    pool = rng.integers(0, 256, (4 << 20,), dtype=np.uint8)

    def play(buffer: Any, n_steps: int, noise: float) -> None:
        nonlocal frames, obs
        for _ in range(n_steps):
            frames += 1
            following = np.roll(obs, -1, axis=1)
            frame, rows = following[0, -1], int(SIDE * noise)
            frame[:] = 0
            at = int(rng.integers(0, pool.size - SIDE * SIDE))
            frame[:rows] = pool[at : at + rows * SIDE].reshape(rows, SIDE)
            frame[-1, frames % SIDE] = 255
            buffer.add(obs, following, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
            obs = following

    frames, obs = 0, np.zeros((1, 4, SIDE, SIDE), np.uint8)
    warm = CompressedReplayBuffer(500, space, spaces.Discrete(4), "cpu")
    play(warm, 1000, 0.5)
    warm.sample(BATCH)
    del warm
    before = rss()
    buffer = CompressedReplayBuffer(10**9, space, spaces.Discrete(4), "cpu", max_memory=f"{LIMIT}MB")
    while not buffer.full:
        play(buffer, 500, 0.5)
    shares, held, sizes = [0.5, 0.25, 0.9, 0.1, 1.0], [], []
    for lap in range(LAPS):
        for _ in range(8):
            play(buffer, max(buffer.size() // 8, 1), shares[lap % len(shares)])
            buffer.sample(BATCH)
            held.append(rss() - before)
            sizes.append(buffer.size())
    return {
        "limit MB": LIMIT,
        "most MB": max(held),
        "least MB": min(held),
        "most / limit": max(held) / LIMIT,
        "allowed MB": 1.02 * LIMIT + 4,
        "fewest transitions": min(sizes),
        "most transitions": max(sizes),
    }


PARTS: dict[str, Callable[[], dict[str, float]]] = {
    "frames, uniform": frames_uniform, "frames, prioritized": frames_prioritized, "vectors, ours": vectors_ours,
    "vectors, SB3's uniform": vectors_sb3,
    "vectors, cpprb": vectors_cpprb, "vectors, torchrl": vectors_torchrl, "sequences": sequences, "max_memory": max_memory,
}  # fmt: skip


def measured(part: str) -> dict[str, Any]:
    """What a process of its own measures; cpprb and TorchRL have environments of their own, or say why they do not run."""
    from sb3_extra_buffers.bench.frames import default_cache
    from sb3_extra_buffers.bench.peers import peer_of, python_of

    peer = peer_of(part.partition(", ")[2])
    python = str(python_of(peer, default_cache())) if peer else sys.executable
    done = subprocess.run([python, __file__, "--part", part], capture_output=True, text=True, check=False)
    if done.returncode and not peer:
        raise RuntimeError(f"{part}: {done.stderr}")
    found: dict[str, Any] = (
        {"failed": done.stderr.splitlines()[-1]} if done.returncode else json.loads(done.stdout.splitlines()[-1])
    )
    print(part, found, flush=True)
    return found


def _median(values: list[Any]) -> Any:
    """The median of numbers; what is no number is the same in all runs."""
    return statistics.median(values) if isinstance(values[0], int | float) else values[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="measure one part, here, and print it as JSON")
    parser.add_argument("--repeats", type=int, default=3, help="how often, in turns; the median counts (default: %(default)s)")
    args = parser.parse_args()
    if args.part:
        version = None
        try:
            import torch as th

            th.set_num_threads(1)
            version = th.__version__
        except ImportError:  # cpprb needs none
            pass
        print(json.dumps({**PARTS[args.part](), "torch": version}))
        return
    runs = [{part: measured(part) for part in PARTS} for _ in range(args.repeats)]
    found = {
        part: runs[0][part] if "failed" in runs[0][part]
        else {name: _median([run[part][name] for run in runs]) for name in runs[0][part]}
        for part in PARTS
    }  # fmt: skip
    us = {part: values["us"] for part, values in found.items() if "us" in values}
    peers = [part for part in us if part.endswith(("cpprb", "torchrl"))]
    ratios = {
        "prioritized / uniform": us["frames, prioritized"] / us["frames, uniform"],
        **{f"ours / {part.partition(', ')[2]}": us["vectors, ours"] / us[part] for part in peers},
        "sequences / sample": us["sequences"] / found["sequences"]["same steps by sample us"],
        "max_memory: most / limit": found["max_memory"]["most / limit"],
    }
    OUT.write_text(
        json.dumps({"command": "python benchmarks/sampling.py", "ratios": ratios, "measured": found}, indent=1) + "\n"
    )
    print(json.dumps(ratios, indent=1))


if __name__ == "__main__":
    main()
