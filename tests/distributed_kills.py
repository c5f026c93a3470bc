"""Trainings on Ray whose processes are killed at random: collectors, shards, the learner. `make kills` runs it.

    parent: starts a training, kills one of its processes now and then, starts it again when it was the learner
    child:  trains with a checkpoint folder, writes down its processes and its warnings, and checks every transition at the end

Each transition can be checked by itself: the observation after step n is that of step n + 1, and the reward is n. So data that
was lost, mixed up or made up would be seen. Writes benchmarks/campaigns/kills.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from .experience import EPISODE, IMAGES, Walk

OUT = Path(__file__).parents[1] / "benchmarks" / "campaigns" / "kills.json"
SIZE = 4000
KINDS = ("collector", "shard", "learner")
#: What can never be needed: a training that takes so long hangs.
MOST_SECONDS = 240


class WalkEnv(gym.Env[Any, Any]):
    """Shows the observations of `Walk`, one episode after the other."""

    observation_space, action_space = IMAGES, gym.spaces.Discrete(5)

    def __init__(self) -> None:
        self._walk = Walk(IMAGES)
        self._step = int(np.random.default_rng().integers(50)) * EPISODE

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = -(-self._step // EPISODE) * EPISODE
        return self._walk.observation(0, self._step), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, self._step = float(self._step), self._step + 1
        time.sleep(0.001)  # so that a training lasts long enough to be killed
        return self._walk.observation(0, self._step), reward, self._step % EPISODE == 0, False, {}


# ---- the child


def train(folder: Path, total: int, n_collectors: int, n_shards: int) -> None:
    """Train up to `total` steps, from the checkpoint if there is one."""
    import ray
    from stable_baselines3 import DQN

    from sb3_extra_buffers import distributed, resume

    def write_down(message: Any, category: Any, *_: Any) -> None:
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps([category.__name__, str(message)]) + "\n")

    warnings.showwarning = write_down
    warnings.simplefilter("always")
    run = folder / "run"
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    if run.exists() and (run / "checkpoint.json").exists():
        model = resume(run, WalkEnv())
    else:
        small = {"net_arch": [8]}
        model = DQN("MlpPolicy", WalkEnv(), buffer_size=SIZE, learning_starts=100, policy_kwargs=small, train_freq=8)
    begun = model.num_timesteps
    noted = [0.0]

    def note(*_: Any) -> bool:
        if time.monotonic() - noted[0] > 0.5:
            noted[0] = time.monotonic()
            pids = {"learner": [os.getpid()], **_pids(model)}
            partial = folder / ".pids"
            partial.write_text(json.dumps({"pids": pids, "steps": model.num_timesteps}))
            partial.replace(folder / "pids.json")
        return True

    distributed.learn(
        model, WalkEnv, total - begun, n_collectors, n_shards, note, checkpoint=run,
        checkpoint_freq=total // 10, reset_num_timesteps=False, timeout=60, log_interval=None, push_steps=32,
    )  # fmt: skip
    held = model.replay_buffer.to_local()
    result = {"steps": model.num_timesteps, "begun": begun, "transitions": held.size(), "wrong": count_wrong(held)}
    model.replay_buffer.close()
    ray.shutdown()
    (folder / "result.json").write_text(json.dumps(result))


def _pids(model: Any) -> dict[str, list[int]]:
    """The processes of the shards and the collectors, as far as they answer."""
    import psutil

    names = {"shard": "ray::Shard", "collector": "ray::Collector"}
    found: dict[str, list[int]] = {kind: [] for kind in names}
    for process in psutil.Process().children(recursive=True):
        for kind, name in names.items():
            try:
                if process.name().startswith(name) or (process.cmdline() or [""])[0].startswith(name):
                    found[kind].append(process.pid)
            except psutil.Error:
                continue
    return found


def count_wrong(buffer: Any) -> int:
    """Transitions of a buffer that are not what an env gave."""
    walk, n, wrong = Walk(IMAGES), buffer.size(), 0
    slots, envs = np.arange(n), np.zeros(n, int)
    seen, after = buffer.observations[slots, envs], buffer.next_observations[slots, envs]
    for i in range(n):
        step = int(buffer.rewards[i, 0])
        expected = [walk.observation(0, step), walk.observation(0, step + 1)]
        ends = bool(buffer.dones[i, 0]) == ((step + 1) % EPISODE == 0)
        wrong += not (ends and np.array_equal(seen[i], expected[0]) and np.array_equal(after[i], expected[1]))
    return wrong


# ---- the parent


class Training:
    """A training in a process of its own, in a folder of its own."""

    def __init__(self, folder: Path, total: int, n_collectors: int, n_shards: int) -> None:
        self.folder, self.total, self.n_collectors, self.n_shards = folder, total, n_collectors, n_shards
        self.n_started = 0
        self.start()

    def start(self) -> None:
        """Start it, or go on after the learner was killed."""
        (self.folder / "pids.json").unlink(missing_ok=True)
        self.n_started += 1
        command = [
            sys.executable, "-m", "tests.distributed_kills", "--child", str(self.folder), "--total", str(self.total),
            "--collectors", str(self.n_collectors), "--shards", str(self.n_shards),
        ]  # fmt: skip
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=log, stderr=log)

    def wait_for(self, kind: str, steps: int) -> int | None:
        """The process to kill, once the training has come so far. None if it is over."""
        deadline = time.monotonic() + MOST_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return None
            try:
                noted = json.loads((self.folder / "pids.json").read_text())
            except FileNotFoundError:
                noted = {"steps": -1}
            if noted["steps"] >= steps and noted["pids"][kind]:
                return int(random.choice(noted["pids"][kind]))
            time.sleep(0.1)
        raise TimeoutError(f"The training in {self.folder} did not get to {steps} steps; see its log.txt")

    def kill(self, kind: str, steps: int) -> bool:
        """Kill a process of it after so many steps. False if there is none any more."""
        pid = self.wait_for(kind, steps)
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        if kind == "learner":
            self.process.wait(MOST_SECONDS)
            self.start()
        return True

    def saved_transitions(self) -> int:
        """Transitions in the checkpoints of its shards now."""
        from sb3_extra_buffers.segments.folders import is_checkpoint, read_list

        lists = [read_list(one) for one in (self.folder / "run").glob("shard-*") if is_checkpoint(one)]
        return sum(one.entries[-1].last - one.oldest for one in lists if one.entries)

    def result(self) -> dict[str, Any]:
        """How it ended."""
        code = self.process.wait(MOST_SECONDS)
        if code or not (self.folder / "result.json").exists():
            raise RuntimeError(f"The training ended with {code}: {(self.folder / 'log.txt').read_text()[-3000:]}")
        events = self.folder / "events.jsonl"
        warned = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        return {**json.loads((self.folder / "result.json").read_text()), "warnings": warned, "starts": self.n_started}


def run(kinds: list[str], total: int, folder: Path, n_collectors: int = 2, n_shards: int = 2) -> dict[str, Any]:
    """One training with these kills, spread over its steps."""
    training, killed = Training(folder, total, n_collectors, n_shards), []
    for i, kind in enumerate(kinds):
        if training.kill(kind, (i + 1) * total // (len(kinds) + 2)):
            killed.append(kind)
    return {"killed": killed, "saved": training.saved_transitions(), **training.result()}


def main() -> None:
    """The campaign, or a child of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", type=Path)
    parser.add_argument("--total", type=int, default=4000)
    parser.add_argument("--collectors", type=int, default=2)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--per-training", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.child:
        train(given.child, given.total, given.collectors, given.shards)
        return
    random.seed(given.seed)
    runs: list[dict[str, Any]] = []
    while (n := sum(len(one["killed"]) for one in runs)) < given.kills:
        kinds = [random.choice(KINDS) for _ in range(min(given.per_training, given.kills - n))]
        with tempfile.TemporaryDirectory() as folder:
            runs.append(run(kinds, given.total, Path(folder), given.collectors, given.shards))
        print(runs[-1]["killed"], runs[-1]["steps"], "steps,", runs[-1]["wrong"], "wrong", flush=True)  # noqa: T201
        write(runs, given.total)


def write(runs: list[dict[str, Any]], total: int) -> None:
    """Write what there is so far."""
    killed = [kind for one in runs for kind in one["killed"]]
    result = {
        "kills": {kind: killed.count(kind) for kind in KINDS}, "trainings": len(runs),
        "finished": sum(one["steps"] >= total for one in runs),
        "transitions": sum(one["transitions"] for one in runs), "wrong_transitions": sum(one["wrong"] for one in runs),
        "runs": runs,
    }  # fmt: skip
    OUT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
