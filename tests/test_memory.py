"""What the process really takes: 12,000 Atari transitions in at most 2 % of SB3's memory; and pages, lap after lap."""

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

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.store import BlockStore, FrameLayout
from tests.rss import N_ENVS, TRANSITIONS

STEPS = TRANSITIONS // N_ENVS
#: Steps by which an env is ahead of the one before it.
LATER = 250


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Frames of MsPacman played at random, as SB3 prepares them.

    One env plays; what the others show are later parts of its game. Streams are stored by themselves, so that the frames that
    two of them share are stored for each.
    """
    gym.register_envs(ale_py)
    env = make_atari_env("MsPacmanNoFrameskip-v4", n_envs=1, seed=0)
    rng = np.random.default_rng(0)
    played = STEPS + (N_ENVS - 1) * LATER
    game, ends = np.empty((played + 1, 84, 84), np.uint8), np.empty(played, bool)
    game[0] = env.reset()[0, ..., 0]
    action = rng.integers(0, 9, 1)
    for t in range(played):
        action = np.where(rng.random(1) < 0.3, rng.integers(0, 9, 1), action)
        observation, _, done, _ = env.step(action)
        game[t + 1], ends[t] = observation[0, ..., 0], done[0]
    env.close()
    starts = LATER * np.arange(N_ENVS)
    game[np.arange(STEPS + 1)[:, None] + starts].tofile(tmp_path / "frames")
    np.save(tmp_path / "dones.npy", ends[np.arange(STEPS)[:, None] + starts])
    return tmp_path


def grown_by(recording: Path, method: str) -> int:
    command = [sys.executable, "-m", "tests.rss", str(recording), method]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return int(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


@pytest.mark.long
def test_atari_takes_at_most_two_percent_of_sb3(recording: Path) -> None:
    theirs = grown_by(recording, "sb3")
    assert theirs >= 0.99 * TRANSITIONS * 4 * 84 * 84  # the comparison is with a buffer that is really filled
    for method in ("default", "zstd3"):
        ours = grown_by(recording, method)
        assert ours <= 0.02 * theirs, f"{method}: {ours / 1e6:.1f} MB, {100 * ours / theirs:.2f} % of {theirs / 1e6:.0f} MB"


@pytest.mark.skipif(sys.platform == "win32", reason="counts the page faults of Unix")
def test_later_laps_write_into_the_memory_of_earlier_ones() -> None:
    """Memory that goes back to the system and is asked for again costs a pause at every chunk."""
    import resource

    layout = FrameLayout((84, 84), np.dtype(np.uint8))
    store = BlockStore(layout, 1500, make_codec("delta"))
    frames = np.zeros((61, 84 * 84), np.uint8)
    frames[:, :600] = np.random.default_rng(0).integers(256, size=(61, 600))

    def faults_of_laps(n: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for t in range(1500 * n):
            store.write(0, np.array([t % 1500]), frames[t % 61].reshape(1, 84, 84))
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults_of_laps(2)
    pages = 3 * store.memory_usage().stored_bytes // resource.getpagesize()
    assert faults_of_laps(3) < 0.3 * pages
