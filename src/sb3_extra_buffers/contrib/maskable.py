"""MaskablePPO: pass one of these as `rollout_buffer_class`."""

from __future__ import annotations

from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer

from sb3_extra_buffers.compressed.rollout import RolloutObservations


class CompressedMaskableRolloutBuffer(RolloutObservations, MaskableRolloutBuffer):  # type: ignore[misc]
    """sb3-contrib's MaskableRolloutBuffer, with observations kept compressed."""


class CompressedMaskableDictRolloutBuffer(RolloutObservations, MaskableDictRolloutBuffer):  # type: ignore[misc]
    """sb3-contrib's MaskableDictRolloutBuffer, with observations kept compressed."""
