"""Codecs that need nothing installed: `none` (frame sharing only) and `gzip`."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar

from sb3_extra_buffers.codecs.base import Bytes, Codec, Format, Frames, Readable, ReadByCore
from sb3_extra_buffers.errors import CorruptDataError


@dataclass(frozen=True)
class NoCodec(Codec):
    """Frames as they are: only frame sharing saves memory. The right choice for small vectors."""

    name: ClassVar[str] = "none"
    frames: ClassVar[Frames] = Frames.RAW
    work: ClassVar[tuple[float, float]] = (1.0, 0.0)

    def compress(self, frames: Bytes, base: Bytes | None) -> None:
        return None

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        raise CorruptDataError("none: this block was written by another codec")


@dataclass(frozen=True)
class Gzip(ReadByCore):
    """Deflate from the standard library. Level 1 is fast, 9 is small, 0 only frames the bytes."""

    name: ClassVar[str] = "gzip"
    format: ClassVar[Format] = Format.ZLIB
    levels: ClassVar[tuple[int, int] | None] = (0, 9)
    work: ClassVar[tuple[float, float]] = (5.0, 80.0)
    level: int = 1

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable:
        return zlib.compress(frames, self.level)
