"""Run in a process of its own: fill a buffer with recorded Atari steps and print by how many bytes the process grew.

python -m tests.rss RECORDING METHOD     METHOD is "sb3", "default" or a codec
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.compressed import CompressedReplayBuffer

N_ENVS, TRANSITIONS = 4, 12_000
SPACE = spaces.Box(0, 255, (4, 84, 84), np.uint8)


def make(method: str, transitions: int) -> Any:
    args = (transitions, SPACE, spaces.Discrete(9), "cpu", N_ENVS)
    if method == "sb3":
        return ReplayBuffer(*args, optimize_memory_usage=True, handle_timeout_termination=False)
    options = {} if method == "default" else {"compression_method": method}
    return CompressedReplayBuffer(*args, optimize_memory_usage=True, handle_timeout_termination=False, **options)


def fill(buffer: Any, path: str, n_steps: int) -> None:
    """Stacks are made of the recorded frames as VecFrameStack does it: zeros before an episode's first frame.

    Frames are read step by step, so that the recording takes no memory of this process.
    """
    with open(f"{path}/frames", "rb") as frames:
        _fill(buffer, lambda: np.fromfile(frames, np.uint8, N_ENVS * 84 * 84), np.load(f"{path}/dones.npy"), n_steps)


def _fill(buffer: Any, read: Callable[[], np.ndarray], dones: np.ndarray, n_steps: int) -> None:
    stack = np.zeros((N_ENVS, 4, 84, 84), np.uint8)
    stack[:, -1] = read().reshape(N_ENVS, 84, 84)
    for t in range(n_steps):
        next_stack = np.concatenate((stack[:, 1:], read().reshape(N_ENVS, 1, 84, 84)), axis=1)
        buffer.add(stack, next_stack, np.zeros((N_ENVS, 1)), np.zeros(N_ENVS), dones[t], [{}] * N_ENVS)
        stack = next_stack
        for env in np.flatnonzero(dones[t]):
            stack[env, :-1] = 0


def main() -> None:
    path, method = sys.argv[1:]
    warm = make(method, 200)  # imports and kernels are no part of the buffer
    fill(warm, path, 45)
    warm.sample(8)
    del warm
    gc.collect()
    before = psutil.Process().memory_info().rss
    buffer = make(method, TRANSITIONS)
    fill(buffer, path, TRANSITIONS // N_ENVS)
    gc.collect()
    sys.stdout.write(str(psutil.Process().memory_info().rss - before))


if __name__ == "__main__":
    main()
