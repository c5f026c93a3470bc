"""Training end to end, with SB3's buffer or with ours: steps per second, and a fingerprint of the weights.

A first, short `learn` compiles and allocates; the second is timed.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass
from typing import Any

from .frames import CAMERAS, STACK

#: RL Zoo's DQN for Atari; but learning starts early, as only the speed is asked.
DQN: dict[str, Any] = {
    "buffer_size": 100_000, "learning_rate": 1e-4, "batch_size": 32, "learning_starts": 100, "target_update_interval": 1000,
    "train_freq": 4, "gradient_steps": 1, "exploration_fraction": 0.1, "exploration_final_eps": 0.01,
}  # fmt: skip
PPO: dict[str, Any] = {
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "learning_rate": 2.5e-4,
    "clip_range": 0.1,
    "ent_coef": 0.01,
}
PPO_ENVS = 8


@dataclass(frozen=True)
class Training:
    """A training to time.

    :param algorithm: ``dqn`` or ``ppo``
    :param buffer: ``sb3`` for SB3's own, otherwise a compression_method
    :param game: e.g. ``MsPacman``, or one of `frames.CAMERAS`
    :param steps: transitions of the timed part
    :param warm: transitions of the part before it
    """

    algorithm: str
    buffer: str
    game: str
    steps: int
    warm: int


def train(job: Training) -> dict[str, Any]:
    """Train, and time it."""
    env = _make_env(job)
    model = _make_model(job, env)
    if job.warm:
        model.learn(job.warm)
    start, done = time.perf_counter(), model.num_timesteps
    model.learn(job.steps, reset_num_timesteps=not job.warm)
    seconds = time.perf_counter() - start
    env.close()
    digest = hashlib.sha256()
    for _, tensor in sorted(model.policy.state_dict().items()):
        digest.update(tensor.cpu().numpy().tobytes())
    return {**asdict(job), "steps_per_second": (model.num_timesteps - done) / seconds, "digest": digest.hexdigest()}


def _make_env(job: Training) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv

    from sb3_extra_buffers.training_utils.atari import make_env

    from .cameras import make_camera

    if job.game in CAMERAS:
        return make_camera(job.game)
    return make_env(f"{job.game}NoFrameskip-v4", PPO_ENVS if job.algorithm == "ppo" else 1, DummyVecEnv, STACK, seed=0)


def _make_model(job: Training, env: Any) -> Any:
    import stable_baselines3 as sb3

    from sb3_extra_buffers.compressed import CompressedReplayBuffer, CompressedRolloutBuffer

    common: dict[str, Any] = {"seed": 0, "device": "cpu"}
    options = {"compression_method": job.buffer}
    if job.algorithm == "dqn":
        if job.buffer != "sb3":
            common.update(replay_buffer_class=CompressedReplayBuffer, replay_buffer_kwargs=options)
        return sb3.DQN("CnnPolicy", env, **common, **DQN)
    if job.buffer != "sb3":
        common.update(rollout_buffer_class=CompressedRolloutBuffer, rollout_buffer_kwargs=options)
    n_steps = min(PPO["n_steps"], job.steps // PPO_ENVS)  # fewer for a smoke test
    return sb3.PPO("CnnPolicy", env, **common, **{**PPO, "n_steps": n_steps})
