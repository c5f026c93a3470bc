"""`lz4-frame` and `lz4-block`: fast to decode; the block format has no header of its own and is a little smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sb3_extra_buffers.codecs.base import Bytes, Codec, Readable, fill
from sb3_extra_buffers.errors import CorruptDataError

#: Negative levels trade size for speed; beyond this lz4 itself stops distinguishing them.
_FASTEST = -65537
#: A byte of LZ4 stands for at most 255.
_BEST_RATIO = 255


@dataclass(frozen=True)
class Lz4Frame(Codec):
    """LZ4 frames. Negative = acceleration, 0 = default, 3..16 = high compression."""

    name: ClassVar[str] = "lz4-frame"
    levels: ClassVar[tuple[int, int] | None] = (_FASTEST, 16)
    level: int = 0

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable:
        import lz4.frame

        encoded: bytes = lz4.frame.compress(frames, compression_level=self.level)
        return encoded

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        import lz4.frame

        try:
            decoded = lz4.frame.LZ4FrameDecompressor().decompress(payload, out.nbytes)
        except (RuntimeError, EOFError) as error:
            raise CorruptDataError(f"lz4-frame: {error}") from error
        fill(out, decoded, self.name)


@dataclass(frozen=True)
class Lz4Block(Codec):
    """LZ4 blocks. Negative = acceleration, 0 = default, 1..12 = high compression."""

    name: ClassVar[str] = "lz4-block"
    levels: ClassVar[tuple[int, int] | None] = (_FASTEST, 12)
    level: int = 0

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable:
        import lz4.block

        encoded: bytes
        if self.level > 0:
            encoded = lz4.block.compress(frames, mode="high_compression", compression=self.level)
        else:
            encoded = lz4.block.compress(frames, mode="fast", acceleration=max(1, -self.level))
        return encoded

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        import lz4.block

        # The block begins with its size. More than LZ4 can reach would only be noticed for want of memory.
        if int.from_bytes(payload[:4], "little") > _BEST_RATIO * len(payload):
            raise CorruptDataError(f"lz4-block: {len(payload)} bytes cannot hold as many as they say")
        try:
            decoded = lz4.block.decompress(payload)
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise CorruptDataError(f"lz4-block: {error}") from error
        fill(out, decoded, self.name)
