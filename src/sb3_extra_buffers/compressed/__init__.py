"""Compressed buffers for Stable-Baselines3, and helpers for their dtypes."""

from __future__ import annotations

from sb3_extra_buffers.compressed.array import CompressedArray
from sb3_extra_buffers.compressed.dtypes import find_buffer_dtypes, find_smallest_dtype, has_igzip, has_numba, init_jit
from sb3_extra_buffers.compressed.replay import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
)
from sb3_extra_buffers.compressed.rollout import CompressedDictRolloutBuffer, CompressedRolloutBuffer

__all__ = [
    "CompressedArray",
    "CompressedDictReplayBuffer",
    "CompressedDictRolloutBuffer",
    "CompressedHerReplayBuffer",
    "CompressedNStepReplayBuffer",
    "CompressedReplayBuffer",
    "CompressedRolloutBuffer",
    "find_buffer_dtypes",
    "find_smallest_dtype",
    "has_igzip",
    "has_numba",
    "init_jit",
]
