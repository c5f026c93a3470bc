"""One training of the demo, in a process of its own: DQN on Pong with SB3's buffer or ours, told line by line as JSON.

Everything is counted from a baseline that is read when a few gradient steps are done: by then the envs, the network, its
optimizer and the native core are in memory, and the buffer is still nearly empty. What grows from there on is the buffer.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from typing import Any, cast

import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback

from sb3_extra_buffers.bench.memory import resident_bytes
from sb3_extra_buffers.cli.envs import make_env
from sb3_extra_buffers.compressed import CompressedReplayBuffer

ENV_ID, N_ENVS = "PongNoFrameskip-v4", 4
#: RL Zoo's DQN for Atari, but it learns from early on: a demo has no time for 100,000 random steps.
HYPERPARAMETERS: dict[str, Any] = {
    "learning_rate": 1e-4, "batch_size": 32, "learning_starts": 64, "target_update_interval": 1000, "train_freq": 4,
    "gradient_steps": 1, "exploration_fraction": 0.1, "exploration_final_eps": 0.01,
}  # fmt: skip
BUFFERS: dict[str, type[ReplayBuffer]] = {"ReplayBuffer": ReplayBuffer, "CompressedReplayBuffer": CompressedReplayBuffer}
#: Gradient steps before the baseline is read.
WARM_UPDATES = 4
SAMPLES = 200


class Watch(BaseCallback):
    """Reads the baseline, and from there on the process's memory about a hundred times.

    :param every: steps between two reports
    """

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.next_report = every, 0
        self.baseline: int | None = None
        self.start_step, self.start_time = 0, 0.0

    def _on_step(self) -> bool:
        if self.baseline is None:
            if cast(DQN, self.model)._n_updates >= WARM_UPDATES:
                self.baseline, self.start_step, self.start_time = resident_bytes(), self.num_timesteps, time.perf_counter()
                self.report()
        elif self.num_timesteps >= self.next_report:
            self.report()
        return True

    def report(self) -> None:
        self.next_report = self.num_timesteps + self.every
        tell({"step": self.num_timesteps, "growth_bytes": self.growth()})

    def growth(self) -> int:
        if self.baseline is None:
            raise ValueError(f"{self.num_timesteps} steps are too few to learn anything")
        return resident_bytes() - self.baseline


def train(buffer_name: str, steps: int, seed: int) -> dict[str, Any]:
    """Train and measure; what is measured is described where `demo` shows it."""
    th.set_num_threads(1)  # sums are split the same way, so that weights can be compared
    env = make_env(ENV_ID, n_envs=N_ENVS, seed=seed)
    model = DQN(
        "CnnPolicy", env, replay_buffer_class=BUFFERS[buffer_name], buffer_size=steps, seed=seed, device="cpu",
        **HYPERPARAMETERS,
    )  # fmt: skip
    watch = Watch(every=max(steps // 100, N_ENVS))
    model.learn(steps, callback=watch)
    seconds = time.perf_counter() - watch.start_time
    watch.report()
    growth, buffer = watch.growth(), cast(ReplayBuffer, model.replay_buffer)
    return {
        "buffer": buffer_name,
        "steps": model.num_timesteps,
        "gradient_steps": model._n_updates,
        "growth_bytes": growth,
        "stored_bytes": stored_bytes(buffer),
        "steps_per_second": (model.num_timesteps - watch.start_step) / seconds,
        "sample_seconds": median_sample_seconds(buffer, HYPERPARAMETERS["batch_size"]),
        "weights_sha256": sha256_of_weights(model),
    }


def stored_bytes(buffer: ReplayBuffer) -> int:
    """What the observations take, as the buffer counts it."""
    if isinstance(buffer, CompressedReplayBuffer):
        return buffer.memory_usage().stored_bytes
    share = buffer.size() / buffer.buffer_size
    return int(share * (buffer.observations.nbytes + buffer.next_observations.nbytes))


def median_sample_seconds(buffer: ReplayBuffer, batch_size: int) -> float:
    """How long a `sample` takes."""
    times = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        buffer.sample(batch_size)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def sha256_of_weights(model: DQN) -> str:
    """A fingerprint of every bit of the networks."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.policy.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


def tell(message: dict[str, Any]) -> None:
    """A line for the process that started this one."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    tell({"result": train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))})
