"""`lz4-frame` and `lz4-block`: fast to decode; the block format has no header of its own and is a little smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sb3_extra_buffers.codecs.base import Bytes, Format, Readable, ReadByCore

#: Negative levels trade size for speed; beyond this lz4 itself stops distinguishing them.
_FASTEST = -65537
_WORK = (1.5, 6.0)


@dataclass(frozen=True)
class Lz4Frame(ReadByCore):
    """LZ4 frames. Negative = acceleration, 0 = default, 3..16 = high compression."""

    name: ClassVar[str] = "lz4-frame"
    format: ClassVar[Format] = Format.LZ4_FRAME
    work: ClassVar[tuple[float, float]] = _WORK
    levels: ClassVar[tuple[int, int] | None] = (_FASTEST, 16)
    level: int = 0

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable:
        import lz4.frame

        encoded: bytes = lz4.frame.compress(frames, compression_level=self.level)
        return encoded


@dataclass(frozen=True)
class Lz4Block(ReadByCore):
    """LZ4 blocks. Negative = acceleration, 0 = default, 1..16 = high compression, from 12 on the same."""

    name: ClassVar[str] = "lz4-block"
    format: ClassVar[Format] = Format.LZ4_BLOCK
    work: ClassVar[tuple[float, float]] = _WORK
    levels: ClassVar[tuple[int, int] | None] = (_FASTEST, 16)
    level: int = 0

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable:
        import lz4.block

        encoded: bytes
        if self.level > 0:
            encoded = lz4.block.compress(frames, mode="high_compression", compression=self.level)
        else:
            encoded = lz4.block.compress(frames, mode="fast", acceleration=max(1, -self.level))
        return encoded
