"""Compressed buffers for Stable-Baselines3, and helpers for their dtypes."""

from __future__ import annotations

from sb3_extra_buffers._lazy import lazy_attributes
from sb3_extra_buffers.compressed.array import CompressedArray
from sb3_extra_buffers.compressed.augmentation import random_shift
from sb3_extra_buffers.compressed.dtypes import find_buffer_dtypes, find_smallest_dtype, has_igzip, has_numba, init_jit
from sb3_extra_buffers.compressed.replay import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
)
from sb3_extra_buffers.compressed.rollout import CompressedDictRolloutBuffer, CompressedRolloutBuffer

_FORMER = {"DummyCls": "base"}  # module of 0.5: see compat
__all__ = [
    "CompressedArray",
    "CompressedDictReplayBuffer",
    "CompressedDictRolloutBuffer",
    "CompressedHerReplayBuffer",
    "CompressedNStepReplayBuffer",
    "CompressedReplayBuffer",
    "CompressedRolloutBuffer",
    "DummyCls",
    "find_buffer_dtypes",
    "find_smallest_dtype",
    "has_igzip",
    "has_numba",
    "init_jit",
    "random_shift",
]
__getattr__, __dir__ = lazy_attributes(__name__, _FORMER)
