"""Prioritized replay: buffers that draw transitions by their error, and algorithms that learn from them.

model = PrioritizedDQN("CnnPolicy", env, buffer_size=1_000_000)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sb3_extra_buffers._lazy import lazy_attributes
from sb3_extra_buffers._optional import require

if TYPE_CHECKING:
    from sb3_extra_buffers.prioritized.algorithms import PrioritizedDQN
    from sb3_extra_buffers.prioritized.buffers import (
        CompressedPrioritizedDictReplayBuffer,
        CompressedPrioritizedNStepReplayBuffer,
        CompressedPrioritizedReplayBuffer,
    )
    from sb3_extra_buffers.prioritized.quantiles import PrioritizedQRDQN
    from sb3_extra_buffers.prioritized.sampling import PrioritizedReplayBufferSamples, PrioritizedSampling

__all__ = [
    "CompressedPrioritizedDictReplayBuffer",
    "CompressedPrioritizedNStepReplayBuffer",
    "CompressedPrioritizedReplayBuffer",
    "PrioritizedDQN",
    "PrioritizedQRDQN",
    "PrioritizedReplayBufferSamples",
    "PrioritizedSampling",
]

_load, __dir__ = lazy_attributes(
    __name__,
    {
        "CompressedPrioritizedDictReplayBuffer": "buffers",
        "CompressedPrioritizedNStepReplayBuffer": "buffers",
        "CompressedPrioritizedReplayBuffer": "buffers",
        "PrioritizedDQN": "algorithms",
        "PrioritizedQRDQN": "quantiles",
        "PrioritizedReplayBufferSamples": "sampling",
        "PrioritizedSampling": "sampling",
    },
)


def __getattr__(name: str) -> Any:
    if name == "PrioritizedQRDQN":
        require("sb3_contrib", extra="contrib", what=name)
    return _load(name)
