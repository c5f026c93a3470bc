"""Replay and collection on Ray: shards that hold a replay memory, collectors that fill it, and a learner.

distributed.learn(model, env_fn, total_timesteps=1_000_000, n_collectors=4, n_shards=2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sb3_extra_buffers._lazy import lazy_attributes
from sb3_extra_buffers._optional import require

if TYPE_CHECKING:
    from sb3_extra_buffers.distributed.buffer import RayReplayBuffer
    from sb3_extra_buffers.distributed.learning import learn
    from sb3_extra_buffers.distributed.prioritized_buffer import RayPrioritizedReplayBuffer

__all__ = ["RayPrioritizedReplayBuffer", "RayReplayBuffer", "learn"]

_load, __dir__ = lazy_attributes(
    __name__, {"RayPrioritizedReplayBuffer": "prioritized_buffer", "RayReplayBuffer": "buffer", "learn": "learning"}
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        require("ray", extra="ray", what=f"sb3_extra_buffers.distributed.{name}")
    return _load(name)
