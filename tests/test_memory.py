"""What the process really takes: 12,000 Atari transitions in at most 2 % of SB3's memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_atari_env

from tests.rss import N_ENVS, TRANSITIONS

STEPS = TRANSITIONS // N_ENVS


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Frames of MsPacman played at random by four envs, as SB3 prepares them."""
    gym.register_envs(ale_py)
    env = make_atari_env("MsPacmanNoFrameskip-v4", n_envs=N_ENVS, seed=0)
    rng = np.random.default_rng(0)
    frames, dones = np.empty((STEPS + 1, N_ENVS, 84, 84), np.uint8), np.empty((STEPS, N_ENVS), bool)
    frames[0] = env.reset()[..., 0]
    actions = rng.integers(0, 9, N_ENVS)
    for t in range(STEPS):
        actions = np.where(rng.random(N_ENVS) < 0.3, rng.integers(0, 9, N_ENVS), actions)
        observation, _, dones[t], _ = env.step(actions)
        frames[t + 1] = observation[..., 0]
    env.close()
    frames.tofile(tmp_path / "frames")
    np.save(tmp_path / "dones.npy", dones)
    return tmp_path


def grown_by(recording: Path, method: str) -> int:
    command = [sys.executable, "-m", "tests.rss", str(recording), method]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return int(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def test_atari_takes_at_most_two_percent_of_sb3(recording: Path) -> None:
    theirs = grown_by(recording, "sb3")
    assert theirs >= 0.99 * TRANSITIONS * 4 * 84 * 84  # the comparison is with a buffer that is really filled
    for method in ("default", "zstd3"):
        ours = grown_by(recording, method)
        assert ours <= 0.02 * theirs, f"{method}: {ours / 1e6:.1f} MB, {100 * ours / theirs:.2f} % of {theirs / 1e6:.0f} MB"
