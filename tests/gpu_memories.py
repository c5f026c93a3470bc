"""What the tests of GPU buffers' memories share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from torch.utils._python_dispatch import TorchDispatchMode

from sb3_extra_buffers.gpu_buffers import available_methods
from sb3_extra_buffers.gpu_buffers.methods import memory_maker
from sb3_extra_buffers.store.device.budget import ByteBudget
from sb3_extra_buffers.store.device.heap import SharedRawHeap
from sb3_extra_buffers.store.device.memory import Expected, FrameMemory

METHODS = available_methods()
ACTIONS = spaces.Discrete(4)
SPACE = spaces.Box(0, 255, (4, 28, 28), np.uint8)
CPU = th.device("cpu")


def make_memory(
    method: str, frame_bytes: int, n_frames: int = 100, limit: int | None = None, *, waits: bool = False
) -> FrameMemory:
    """The memory of a method.

    :param waits: whether frames wait before they are encoded, as they do in a buffer
    """
    budget = ByteBudget(10_000 if limit is None else limit, is_hard=limit is not None)
    make = memory_maker(method, {}, SharedRawHeap(budget.limit, CPU, budget))
    if not waits:
        make = getattr(make, "keywords", {}).get("make_memory", make)
    memory = make(Expected(frame_bytes, n_frames, 2), CPU, budget)
    budget.join(memory)
    return memory


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
    return buffer._leaves[key].store


def encoder_of(buffer: Any, key: str = "observation") -> Any:
    """The memory behind the frames that wait."""
    memory = store_of(buffer, key).memory
    return getattr(memory, "inner", memory)


class TorchFault(TorchDispatchMode):
    """Within it, the torch call with this number, counted from 0, raises as if there were no memory left."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    @property
    def has_fired(self) -> bool:
        return self._left < 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._left -= 1
        if self._left == -1:
            raise th.OutOfMemoryError("No memory left, says a test")
        return func(*args, **(kwargs or {}))
