"""Losslessly compressed replay and rollout buffers for Stable-Baselines3.

from sb3_extra_buffers.compressed import CompressedReplayBuffer
model = DQN("CnnPolicy", env, replay_buffer_class=CompressedReplayBuffer)
"""

from __future__ import annotations

__version__ = "1.0.0"
