"""Codecs: the frames of a block <-> fewer bytes. Above: store. Below: native, errors.

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

`register_codec` adds codecs of other packages.
"""

from __future__ import annotations

from sb3_extra_buffers.codecs import builtin  # noqa: F401  registers the codecs of this library
from sb3_extra_buffers.codecs.base import Codec, Format, Frames
from sb3_extra_buffers.codecs.registry import AUTO, CODECS, available_codecs, make_codec, register_codec, restore_codec

__all__ = ["AUTO", "CODECS", "Codec", "Format", "Frames", "available_codecs", "make_codec", "register_codec", "restore_codec"]
