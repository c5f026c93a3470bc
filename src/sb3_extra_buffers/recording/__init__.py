"""Records of what an agent saw and did: a ring of frames, rewards, actions and features. Needs NumPy only.

```python
import numpy as np
from sb3_extra_buffers.recording import RecordBuffer

record = RecordBuffer(res=(84, 84), ch_num=1, compression_method="auto")
record.add(np.zeros((84, 84, 1), np.uint8), reward=1.0, action=2)
record.save_video("episode.gif")
```
"""

from __future__ import annotations

from sb3_extra_buffers.recording.record import BaseRecordBuffer, DummyRecordBuffer, FramelessRecordBuffer, RecordBuffer

__all__ = ["BaseRecordBuffer", "DummyRecordBuffer", "FramelessRecordBuffer", "RecordBuffer"]
