"""Rollout buffers for sb3-contrib: MaskablePPO and RecurrentPPO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sb3_extra_buffers._lazy import lazy_attributes
from sb3_extra_buffers._optional import require

if TYPE_CHECKING:
    from sb3_extra_buffers.contrib.maskable import CompressedMaskableDictRolloutBuffer, CompressedMaskableRolloutBuffer
    from sb3_extra_buffers.contrib.recurrent import (
        CompressedRecurrentDictRolloutBuffer,
        CompressedRecurrentRolloutBuffer,
        compress_rollout_buffer,
    )

__all__ = [
    "CompressedMaskableDictRolloutBuffer",
    "CompressedMaskableRolloutBuffer",
    "CompressedRecurrentDictRolloutBuffer",
    "CompressedRecurrentRolloutBuffer",
    "compress_rollout_buffer",
]

_load, __dir__ = lazy_attributes(
    __name__,
    {
        "CompressedMaskableDictRolloutBuffer": "maskable",
        "CompressedMaskableRolloutBuffer": "maskable",
        "CompressedRecurrentDictRolloutBuffer": "recurrent",
        "CompressedRecurrentRolloutBuffer": "recurrent",
        "compress_rollout_buffer": "recurrent",
    },
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        require("sb3_contrib", extra="contrib", what=name)
    return _load(name)
