"""Codecs: the frames of a block <-> fewer bytes. Above: store. Below: errors.

A codec is a small frozen value, made by name:

```python
import numpy as np
from sb3_extra_buffers.codecs import make_codec

frames = np.zeros((16, 7056), np.uint8)
codec = make_codec("zstd3")
data = codec.encode(frames)  # (frames, frame_bytes) uint8 -> bytes
out = np.empty_like(frames)
codec.decode(data, out)  # fills out, or raises CorruptDataError
```
"""

from __future__ import annotations

from sb3_extra_buffers.codecs.base import Codec
from sb3_extra_buffers.codecs.registry import CODECS, auto_codec, available_codecs, make_codec

__all__ = ["CODECS", "Codec", "auto_codec", "available_codecs", "make_codec"]
