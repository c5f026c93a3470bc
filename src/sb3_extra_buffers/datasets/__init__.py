"""Offline data in and out of replay buffers, and mixed with fresh data.

```python
import numpy as np
from gymnasium import spaces
from sb3_extra_buffers.datasets import from_episodes

episode = dict(
    observations=np.zeros((11, 4), np.float32),  # one more than steps: the last one is where the episode ended
    actions=np.zeros(10, np.int64),
    rewards=np.ones(10),
    terminations=True,
)
buffer = from_episodes([episode], observation_space=spaces.Box(-1, 1, (4,)), action_space=spaces.Discrete(2))
```
"""

from __future__ import annotations

from sb3_extra_buffers.datasets.d4rl import from_d4rl
from sb3_extra_buffers.datasets.dqn_replay import from_dqn_replay
from sb3_extra_buffers.datasets.episodes import from_episodes
from sb3_extra_buffers.datasets.minari import from_minari, to_minari
from sb3_extra_buffers.datasets.offline_mix import OfflineMix, OfflineMixCallback

__all__ = [
    "OfflineMix",
    "OfflineMixCallback",
    "from_d4rl",
    "from_dqn_replay",
    "from_episodes",
    "from_minari",
    "to_minari",
]
