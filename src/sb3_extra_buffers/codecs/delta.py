"""`delta`: each frame as patches on the one before it. The fastest to read: patches go straight into the batch.

The first frame of a block is patched onto the base, a frame that the store keeps for many blocks (all zeros if there is none).
So is a frame that has little in common with the previous one, as after a reset. The native core writes and reads the patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sb3_extra_buffers import native
from sb3_extra_buffers.codecs.base import Bytes, Codec, Frames, Readable
from sb3_extra_buffers.errors import CorruptDataError


@dataclass(frozen=True)
class Delta(Codec):
    """Temporal delta."""

    name: ClassVar[str] = "delta"
    frames: ClassVar[Frames] = Frames.DELTA
    work: ClassVar[tuple[float, float]] = (1.0, 7.0)

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable | None:
        return native.delta_encode(frames, base, frames.nbytes)

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        if not native.delta_decode(payload, base, out):
            raise CorruptDataError(f"delta: a block of {len(payload)} bytes has patches that do not fit its frames")
