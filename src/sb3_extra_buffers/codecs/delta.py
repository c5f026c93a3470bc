"""`delta`: each frame as patches on the one before it. The fastest to read: patches go straight into the batch.

The first frame of a block is patched onto the base, a frame that the store keeps for many blocks (all zeros without one);
so is a frame that has little in common with the one before it, as after a reset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sb3_extra_buffers.codecs.base import Bytes, Codec, Readable
from sb3_extra_buffers.errors import CorruptDataError


@dataclass(frozen=True)
class Delta(Codec):
    """Temporal delta, compiled by numba; without numba the same bytes, slowly."""

    name: ClassVar[str] = "delta"

    def _encode(self, frames: Bytes, base: Bytes | None) -> Readable | None:
        from sb3_extra_buffers.codecs import patches

        out = np.empty(frames.nbytes, np.uint8)
        length = patches.encode_delta(frames, _or_zeros(base, frames), out)
        return None if length < 0 else out[:length]

    def _decode(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        from sb3_extra_buffers.codecs import patches

        if not patches.decode_delta(np.frombuffer(payload, np.uint8), _or_zeros(base, out), out):
            raise CorruptDataError(f"delta: a block of {len(payload)} bytes has patches that do not fit its frames")


def _or_zeros(base: Bytes | None, frames: Bytes) -> Bytes:
    return np.zeros(frames.shape[1], np.uint8) if base is None else base
