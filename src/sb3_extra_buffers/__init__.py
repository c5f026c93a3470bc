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

__version__ = "1.0.0"
