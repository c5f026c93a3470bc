"""`lz4-frame` and `lz4-block`: fast to decode; the block format has no header of its own and is a little smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sb3_extra_buffers.codecs.base import Bytes, Codec, Format, Readable, check_length, fill
from sb3_extra_buffers.errors import CorruptDataError

#: Negative levels trade size for speed; beyond this lz4 itself stops distinguishing them.
_FASTEST = -65537
#: One byte of LZ4 decodes to at most 255 bytes.
_BEST_RATIO = 255
_WORK = (1.5, 6.0)


@dataclass(frozen=True)
class Lz4Frame(Codec):
    """LZ4 frames. Negative = acceleration, 0 = default, 3..16 = high compression."""

    name: ClassVar[str] = "lz4-frame"
    format: ClassVar[Format] = Format.LZ4_FRAME
    uses_threads: ClassVar[bool] = False  # the library is so fast that passing work to a thread takes longer
    work: ClassVar[tuple[float, float]] = _WORK
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

    def decompress_piece(self, payload: memoryview, n_bytes: int, most: int) -> bytes:
        import lz4.frame

        # Bytes 6 to 13 claim the decoded size, and lz4 allocates that much before it decodes.
        if len(payload) < 15 or not n_bytes <= int.from_bytes(payload[6:14], "little") <= most:
            raise CorruptDataError(f"lz4-frame: {len(payload)} bytes do not hold the {n_bytes} that were expected")
        try:
            decoded: bytes = lz4.frame.decompress(payload)
        except (RuntimeError, EOFError) as error:
            raise CorruptDataError(f"lz4-frame: {error}") from error
        return check_length(decoded, n_bytes, self.name)


@dataclass(frozen=True)
class Lz4Block(Codec):
    """LZ4 blocks. Negative = acceleration, 0 = default, 1..16 = high compression, from 12 on the same."""

    name: ClassVar[str] = "lz4-block"
    format: ClassVar[Format] = Format.LZ4_BLOCK
    uses_threads: ClassVar[bool] = False
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

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        import lz4.block

        # The block begins with its decoded size. A size that LZ4 cannot reach would otherwise only fail as a lack of memory.
        if int.from_bytes(payload[:4], "little") > _BEST_RATIO * len(payload):
            raise CorruptDataError(f"lz4-block: {len(payload)} bytes cannot hold as many as they say")
        try:
            decoded = lz4.block.decompress(payload)
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise CorruptDataError(f"lz4-block: {error}") from error
        fill(out, decoded, self.name)

    def decompress_piece(self, payload: memoryview, n_bytes: int, most: int) -> bytes:
        import lz4.block

        if not n_bytes <= int.from_bytes(payload[:4], "little") <= most:
            raise CorruptDataError(f"lz4-block: {len(payload)} bytes do not hold the {n_bytes} that were expected")
        try:
            decoded: bytes = lz4.block.decompress(payload)
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise CorruptDataError(f"lz4-block: {error}") from error
        return check_length(decoded, n_bytes, self.name)
