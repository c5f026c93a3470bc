"""Replay and collection on Ray, measured: `python benchmarks/distributed.py` makes campaigns/distributed.json.

    costs     MsPacman: bytes and microseconds of a transition that is pushed, appended, drawn and read, each in one process
    add       MsPacman: transitions/s that 2 processes encode and push to 2 shards, in segments of 64 and of 256 steps
    batches   MsPacman: batches of 32 per second that one learner gets from 2 shards, uniform and prioritized
    chance    how often each transition of 3 shards of different sizes is drawn: chi-square
    training  DQN on Pong, 1 collector and 1 shard beside plain `model.learn`: env steps per second while it trains, in turns

Needs the extras atari, extra and ray. Close other programs first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch as th
from common import mspacman
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

from sb3_extra_buffers import distributed
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.compressed.contents import contents_of
from sb3_extra_buffers.distributed.collector import weights_of
from sb3_extra_buffers.distributed.remote import RemoteShard
from sb3_extra_buffers.distributed.shard import Shard
from sb3_extra_buffers.distributed.spec import BufferSpec
from sb3_extra_buffers.distributed.wire import steps_from_wire, steps_to_wire
from sb3_extra_buffers.segments.runs import put_run
from sb3_extra_buffers.training_utils.atari import make_env

OUT = Path(__file__).parent / "campaigns" / "distributed.json"
N, BATCH, STEPS, LONG_STEPS, PREFETCH = 40_000, 32, 64, 256, 16


def seconds(run: Callable[[], Any], n: int) -> float:
    """Median time of a call."""
    times = []
    for _ in range(n):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@contextmanager
def local_ray() -> Iterator[None]:
    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        yield
    finally:
        ray.shutdown()


def spec_of(workload: Any) -> BufferSpec:
    return BufferSpec(CompressedReplayBuffer, workload.observation_space, workload.action_space)


def segments_of(workload: Any, spec: BufferSpec, n_steps: int) -> list[Any]:
    """The recording as segments, as a collector of 4 envs pushes them."""
    staging, steps, made = spec.make(STEPS, 4), workload.steps(), []
    for _ in range(n_steps // STEPS):
        for step in islice(steps, STEPS):
            staging.add(*step)
        with staging._at_rest() as contents:
            made.append(steps_to_wire(staging, contents.slots, {}))
        staging.reset()
    return made


# ---- costs


def costs() -> dict[str, Any]:
    """What the simulation of docs/scaling.md is made of."""
    _, workload = mspacman(CompressedReplayBuffer, 4000)
    spec = spec_of(workload)
    segments = segments_of(workload, spec, N // 4)
    steps = list(islice(workload.steps(), STEPS))
    staging, rows, per_segment = spec.make(STEPS, 4), BATCH * PREFETCH // 2, STEPS * 4

    def add() -> None:
        staging.reset()
        for step in steps:
            staging.add(*step)

    def take() -> None:
        with staging._at_rest() as contents:
            steps_to_wire(staging, contents.slots, {})

    shard, window = Shard(spec, N, seed=0), spec.make(2 * BATCH * PREFETCH)
    window.full = True
    add_s, take_s = seconds(add, 40), seconds(take, 40)
    arriving = iter(segments)
    append_s = seconds(lambda: shard.append(next(arriving)), len(segments))
    draw_s = seconds(lambda: shard.draw(rows), 100)
    drawn = shard.draw(rows)

    def put() -> None:
        put_run(contents_of(window, np.arange(0)), steps_from_wire(drawn), np.arange(rows)[:, None])

    put_s = seconds(put, 100)
    slots = np.random.default_rng(0).integers(0, rows, (300, BATCH))
    numbers = iter(slots)
    read_s = seconds(lambda: window._reading(lambda: window._get_samples(next(numbers))), len(slots))
    observation = int(np.prod(workload.observation_space.shape))
    return {
        "steps_of_a_segment": STEPS, "envs": 4, "rows_of_a_draw": rows, "raw_bytes_per_transition": 2 * observation,
        "pushed_bytes_per_transition": sum(map(len, segments)) / (len(segments) * per_segment),
        "drawn_bytes_per_transition": len(drawn) / rows,
        "add_us": 1e6 * add_s / per_segment, "take_us": 1e6 * take_s / per_segment, "append_us": 1e6 * append_s / per_segment,
        "draw_us": 1e6 * draw_s / rows, "put_us": 1e6 * put_s / rows, "read_us": 1e6 * read_s / BATCH,
    }  # fmt: skip


def ray_costs() -> dict[str, float]:
    """Microseconds of an empty call and of weights, under Ray."""
    with local_ray():
        shard = ray.remote(Shard).remote(BufferSpec(CompressedReplayBuffer, spaces.Box(0, 1, (3,)), spaces.Discrete(2)), 100)
        remote = RemoteShard(shard, 0, 60)
        remote.call("state")
        env = make_env("PongNoFrameskip-v4")
        model = DQN("CnnPolicy", env, buffer_size=100)
        weights = weights_of(model)
        observation = env.reset()
        filled, _ = mspacman(CompressedReplayBuffer, 4000)
        model.replay_buffer = filled
        _, callbacks = model._setup_learn(100, _Clock(0))

        def step() -> None:  # what a step costs the learner, without env and policy
            callbacks.update_locals({"infos": [{}], "dones": [False]})
            callbacks.on_step()
            model._update_info_buffer([{}], np.zeros(1, bool))
            model._update_current_progress_remaining(1, 100)

        return {
            "call_us": 1e6 * seconds(lambda: remote.call("state"), 300),
            "put_weights_us": 1e6 * seconds(lambda: ray.put(weights), 30),
            "weights_bytes": sum(one.nbytes for one in weights.values()),
            "env_step_us": 1e6 * seconds(lambda: env.step(np.array([0])), 300),
            "policy_us": 1e6 * seconds(lambda: model.predict(observation), 100),
            "train_us": 1e6 * seconds(lambda: model.train(gradient_steps=1, batch_size=BATCH), 60),
            "callback_us": 1e6 * seconds(step, 1000),
        }


# ---- add and batches


class Pusher:
    """Encodes recorded frames and pushes them, as a collector does."""

    def __init__(self, handles: list[Any], number: int) -> None:
        _, workload = mspacman(CompressedReplayBuffer, 4000)
        self.steps, self.spec = list(islice(workload.steps(), 2000)), spec_of(workload)
        self.remotes = [RemoteShard(handle, i, 60) for i, handle in enumerate(handles)]
        self.number = number

    def push(self, n_segments: int, n_steps: int = STEPS) -> tuple[int, int]:
        """Transitions and bytes that were pushed, in segments of so many steps."""
        staging, under_way, n_bytes, at = self.spec.make(n_steps, 4), [], 0, 0
        for i in range(n_segments):
            for step in self.steps[at : at + n_steps]:
                staging.add(*step)
            at = (at + n_steps) % (len(self.steps) - n_steps)
            with staging._at_rest() as contents:
                data = steps_to_wire(staging, contents.slots, {})
            staging.reset()
            n_bytes += len(data)
            under_way.append(self.remotes[(self.number + i) % len(self.remotes)].start("append", data))
            if len(under_way) > 4:
                ray.get(under_way.pop(0), timeout=60)
        ray.get(under_way, timeout=60)
        return n_segments * n_steps * 4, n_bytes


def add(rounds: int = 5) -> dict[str, float]:
    """2 processes push to 2 shards."""
    _, workload = mspacman(CompressedReplayBuffer, 4000)
    with local_ray():
        buffer = distributed.RayReplayBuffer(N, workload.observation_space, workload.action_space, n_shards=2)
        made = ray.remote(Pusher).options(num_cpus=0)
        pushers = [made.remote(buffer.shards, i) for i in range(2)]
        ray.get([one.push.remote(2) for one in pushers], timeout=300)
        segments = segments_of(workload, buffer.spec, N // 8)
        encoded, wire = [], 0.0
        rates: dict[int, list[float]] = {STEPS: [], LONG_STEPS: []}
        for _ in range(rounds):
            for n_steps, measured in rates.items():
                start = time.perf_counter()
                counts = ray.get([one.push.remote(60 * STEPS // n_steps, n_steps) for one in pushers], timeout=300)
                measured.append(sum(n for n, _ in counts) / (time.perf_counter() - start))
                if n_steps == STEPS:
                    wire = sum(n_bytes for _, n_bytes in counts) / sum(n for n, _ in counts)
            start = time.perf_counter()
            for data in segments:
                buffer.push(data)
            buffer._pushing.drop()
            encoded.append(len(segments) * STEPS * 4 / (time.perf_counter() - start))
        buffer.close()
    return {
        "transitions_per_s": statistics.median(rates[STEPS]), "best": max(rates[STEPS]), "bytes_per_transition": wire,
        "long_transitions_per_s": statistics.median(rates[LONG_STEPS]), "long_best": max(rates[LONG_STEPS]),
        "made_before_per_s": statistics.median(encoded), "made_before_best": max(encoded),
    }  # fmt: skip


def batches(rounds: int = 7) -> dict[str, float]:
    """One learner and 2 shards."""
    _, workload = mspacman(CompressedReplayBuffer, 4000)
    result = {}
    with local_ray():
        for name, made in {
            "uniform": distributed.RayReplayBuffer,
            "prioritized": distributed.RayPrioritizedReplayBuffer,
        }.items():
            buffer = made(N, workload.observation_space, workload.action_space, "cpu", n_shards=2, prefetch=PREFETCH)
            for data in segments_of(workload, buffer.spec, N // 4):
                buffer.push(data)
            rates = []
            for _ in range(rounds):
                start = time.perf_counter()
                for _ in range(200):
                    batch = buffer.sample(BATCH)
                    if name == "prioritized":
                        buffer.update_priorities(batch.indices, np.ones(BATCH))
                rates.append(200 / (time.perf_counter() - start))
            result |= {f"{name}_per_s": statistics.median(rates), f"{name}_best": max(rates)}
            buffer.close()
    return result


def chance() -> dict[str, float]:
    """Transitions that are all drawn alike, over shards that hold different numbers of them."""
    space, sizes, draws = spaces.Box(-np.inf, np.inf, (1,)), (100, 400, 1500), 400_000
    with local_ray():
        buffer = distributed.RayReplayBuffer(
            6000, space, spaces.Discrete(2), "cpu", n_shards=3, push_steps=10**6, prefetch=PREFETCH
        )
        number = 0
        for size in sizes:
            for _ in range(size):
                one = np.array([[number]], np.float32)
                buffer.add(one, one, np.zeros((1, 1)), np.array([number]), np.zeros(1), [{}])
                number += 1
            buffer.flush()
        counts = np.zeros(number)
        for _ in range(draws // 1000):
            counts += np.bincount(buffer.sample(1000).rewards.numpy().astype(int).reshape(-1), minlength=number)
        buffer.close()
    expected = draws / number
    return {"transitions": number, "draws": draws, "chi_square": float(((counts - expected) ** 2 / expected).sum())}


# ---- training


class _Clock(BaseCallback):
    """When training begins and ends."""

    def __init__(self, begin: int) -> None:
        super().__init__()
        self.begin, self.times = begin, [0.0, 0.0]
        self.steps = [0, 0]

    def _on_step(self) -> bool:
        which = 0 if self.num_timesteps <= self.begin else 1
        self.times[which], self.steps[which] = time.perf_counter(), self.num_timesteps
        return True

    @property
    def rate(self) -> float:
        return (self.steps[1] - self.steps[0]) / (self.times[1] - self.times[0])


def _pong() -> Any:
    return make_env("PongNoFrameskip-v4")


def training(steps: int, rounds: int, threads: int) -> dict[str, Any]:
    """Plain and distributed in turns, with SB3's settings for DQN but for the start and the size."""
    th.set_num_threads(threads)
    rates: dict[str, list[float]] = {"plain": [], "distributed": []}
    with local_ray():
        for _ in range(rounds):
            for name in rates:
                model = DQN(
                    "CnnPolicy", _pong(), buffer_size=10_000, learning_starts=500, replay_buffer_class=CompressedReplayBuffer
                )
                clock = _Clock(1000)
                if name == "plain":
                    model.learn(steps, clock)
                else:
                    distributed.learn(model, _pong, steps, 1, 1, clock)
                    model.replay_buffer.close()
                rates[name].append(clock.rate)
    return {
        "steps": steps, "torch_threads": threads, "all": rates,
        "env_steps_per_s": {name: statistics.median(one) for name, one in rates.items()},
        "ratio": statistics.median(rates["distributed"]) / statistics.median(rates["plain"]),
    }  # fmt: skip


PARTS = {"costs": costs, "ray_costs": ray_costs, "add": add, "batches": batches, "chance": chance, "training": training}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all, if none is named")
    parser.add_argument("--steps", type=int, default=6000, help="of each training")
    parser.add_argument("--rounds", type=int, default=3, help="of trainings")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch, in trainings")
    given = parser.parse_args()
    th.set_num_threads(1)
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name in given.parts or PARTS:
        results[name] = training(given.steps, given.rounds, given.threads) if name == "training" else PARTS[name]()
        print(name, json.dumps(results[name], indent=1), flush=True)
        OUT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
