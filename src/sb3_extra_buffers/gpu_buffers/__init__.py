"""Replay and rollout buffers whose observations live on a torch device.

There is no nvCOMP backend. It runs on NVIDIA GPUs only, none was at hand, and code for a device that it was never run on is
not shipped. `tiles` does without it: it needs nothing but torch, on every device.
"""

from __future__ import annotations

from sb3_extra_buffers.gpu_buffers.buffers import GpuDictReplayBuffer, GpuDictRolloutBuffer, GpuReplayBuffer, GpuRolloutBuffer
from sb3_extra_buffers.gpu_buffers.methods import COMPRESSION_METHOD_MAP, has_zstd
from sb3_extra_buffers.gpu_buffers.utils import find_gpu_buffer_dtypes

__all__ = [
    "COMPRESSION_METHOD_MAP",
    "GpuDictReplayBuffer",
    "GpuDictRolloutBuffer",
    "GpuReplayBuffer",
    "GpuRolloutBuffer",
    "find_gpu_buffer_dtypes",
    "has_zstd",
]
