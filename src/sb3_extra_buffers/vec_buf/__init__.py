"""Several rollout buffers behind one, to compare them in one training run."""

from __future__ import annotations

from sb3_extra_buffers.vec_buf.rollout import DummyVecRolloutBuffer

__all__ = ["DummyVecRolloutBuffer"]
