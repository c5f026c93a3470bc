"""What the tests of GPU buffers' memories share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces

from sb3_extra_buffers.gpu_buffers import COMPRESSION_METHOD_MAP
from sb3_extra_buffers.gpu_buffers.methods import memory_maker
from sb3_extra_buffers.gpu_buffers.raw_buffer import Room, SharedRawHeap
from sb3_extra_buffers.store.device_memory import Expected, FrameMemory

METHODS = list(COMPRESSION_METHOD_MAP)
ACTIONS = spaces.Discrete(4)
SPACE = spaces.Box(0, 255, (4, 28, 28), np.uint8)
CPU = th.device("cpu")


def make_memory(method: str, frame_bytes: int, n_frames: int = 100, limit: int | None = None) -> FrameMemory:
    room = Room(10_000 if limit is None else limit, is_hard=limit is not None)
    return memory_maker(method, {}, SharedRawHeap(room.limit, CPU, room))(Expected(frame_bytes, n_frames, 2), CPU, room)


def pictures(n: int, frame_bytes: int, seed: int = 0) -> th.Tensor:
    """Frames that change a little from one to the next."""
    rng = np.random.default_rng(seed)
    frame = np.repeat(rng.integers(0, 4, frame_bytes // 16 + 1), 16)[:frame_bytes].astype(np.uint8)
    frames = []
    for _ in range(n):
        frame = frame.copy()
        frame[rng.integers(0, frame_bytes, 3)] = rng.integers(0, 256, 3)
        frames.append(frame)
    return th.from_numpy(np.stack(frames))


def store_of(buffer: Any, key: str = "observation") -> Any:
    return buffer._leaves[key].store.device_store
