"""Replay and rollout buffers whose observations live on a torch device.

There is no nvCOMP backend. It runs on NVIDIA GPUs only, none was at hand, and code for a device that it was never run on is
not shipped. `tiles` does without it: it needs nothing but torch, on every device.
"""

from __future__ import annotations

from sb3_extra_buffers._lazy import lazy_attributes
from sb3_extra_buffers.gpu_buffers.buffers import GpuDictReplayBuffer, GpuDictRolloutBuffer, GpuReplayBuffer, GpuRolloutBuffer
from sb3_extra_buffers.gpu_buffers.dtypes import find_gpu_buffer_dtypes
from sb3_extra_buffers.gpu_buffers.estimates import estimate_heap_bytes
from sb3_extra_buffers.gpu_buffers.methods import available_methods, has_zstd

#: Modules of 0.5: see compat.
_FORMER = {
    "BaseGpuBuffer": "base",
    "COMPRESSION_METHOD_MAP": "compression_methods",
    "RawBuffer": "raw_buffer",
    "SharedRawHeap": "raw_buffer",
    "SlotMetadata": "metadata",
}
__all__ = [
    "GpuDictReplayBuffer",
    "GpuDictRolloutBuffer",
    "GpuReplayBuffer",
    "GpuRolloutBuffer",
    "available_methods",
    "estimate_heap_bytes",
    "find_gpu_buffer_dtypes",
    "has_zstd",
    *_FORMER,
]
__getattr__, __dir__ = lazy_attributes(__name__, _FORMER)
