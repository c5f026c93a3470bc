"""Losslessly compressed replay and rollout buffers for Stable-Baselines3.

```python
import numpy as np
from gymnasium import spaces
from sb3_extra_buffers.compressed import CompressedReplayBuffer

buffer = CompressedReplayBuffer(1_000_000, spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6))
```

In training: `DQN("CnnPolicy", env, replay_buffer_class=CompressedReplayBuffer)`.
"""

from __future__ import annotations

from sb3_extra_buffers._lazy import lazy_attributes
from sb3_extra_buffers.compat.finder import serve_former_paths

__version__ = "1.0.0"

_WHERE = {
    "load_buffer": "persistence",
    "merge_buffers": "merging",
    "compress_buffer": "converting",
    "decompress_buffer": "converting",
    "BufferCheckpointCallback": "callbacks",
    "resume": "resuming",
    # of 0.5
    "NumberType": "compat.types",
    "ReplayLike": "compat.types",
    "package_version": "compat.versions",
    "sb3_ver": "compat.versions",
    "sb3_version": "compat.versions",
}
__all__ = [*_WHERE, "__version__"]
__getattr__, __dir__ = lazy_attributes(__name__, _WHERE)

serve_former_paths()
