"""Run in a process of its own: save a buffer of noise and print the bytes it stores and by how many the process grew at most.

python -m tests.saving_peak FILE METHOD

The peak is the kernel's own count (VmHWM): it sees every allocation, however short it lives. It is counted from what is
resident before saving, so that an earlier, higher peak can only make the figure larger.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.save_util import save_to_pkl

from sb3_extra_buffers.compressed import CompressedReplayBuffer

SPACE = spaces.Box(0, 255, (4, 84, 84), np.uint8)
STATUS = Path("/proc/self/status")
TRANSITIONS = 8000


def status(field: str) -> int:
    """A field of this process's status, in bytes."""
    [line] = [line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:")]
    return 1024 * int(line.split()[1])


def filled(method: str, transitions: int) -> CompressedReplayBuffer:
    """A buffer of frames that no codec can shrink."""
    buffer = CompressedReplayBuffer(transitions, SPACE, spaces.Discrete(2), "cpu", compression_method=method)
    rng = np.random.default_rng(0)
    obs = np.zeros((1, *SPACE.shape), np.uint8)
    for _ in range(transitions):
        frame = rng.integers(0, 256, (1, 1, 84, 84), np.uint8)
        next_obs = np.concatenate((obs[:, 1:], frame), axis=1)
        buffer.add(obs, next_obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
        obs = next_obs
    return buffer


def main() -> None:
    path, method = sys.argv[1:]
    save_to_pkl(path, filled(method, 200))  # what is imported or compiled for it is not what is asked
    buffer = filled(method, TRANSITIONS)
    before = status("VmRSS")
    save_to_pkl(path, buffer)
    sys.stdout.write(json.dumps({"stored": buffer.memory_usage().stored_bytes, "grown": status("VmHWM") - before}))


if __name__ == "__main__":
    main()
