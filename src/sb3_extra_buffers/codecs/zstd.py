"""`zstd`: the smallest blocks.

The binding is `zstandard`: it keeps its contexts between calls, which makes it twice as fast as the others on blocks of
a few kilobytes. Its contexts must not be shared by threads, so each thread has its own.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

from sb3_extra_buffers.codecs.base import Bytes, Codec, Readable, check_length, fill
from sb3_extra_buffers.errors import CorruptDataError


class _Contexts(threading.local):
    """One thread's compressors by level, and its decompressor."""

    def __init__(self) -> None:
        self.compressors: dict[int, Any] = {}
        self.decompressor: Any = None


_contexts = _Contexts()


@dataclass(frozen=True)
class Zstd(Codec):
    """Zstandard. Negative levels are faster, 3 is a good middle, 22 the smallest."""

    name: ClassVar[str] = "zstd"
    piece_bytes: ClassVar[int] = 1 << 15
    levels: ClassVar[tuple[int, int] | None] = (-100, 22)
    #: zstd itself reads 0 as "the default", which would make "zstd0" a silent "zstd3".
    no_levels: ClassVar[tuple[int, ...]] = (0,)
    level: int = 3

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable:
        compressor = _contexts.compressors.get(self.level)
        if compressor is None:
            import zstandard

            compressor = _contexts.compressors[self.level] = zstandard.ZstdCompressor(level=self.level)
        try:
            encoded: bytes = compressor.compress(memoryview(frames))
        except Exception as error:
            refused = _without_memory(error)
            if refused is None:
                raise
            raise refused from error
        return encoded

    def decompress_piece(self, payload: memoryview, n_bytes: int, most: int) -> bytes:
        zstandard = _zstandard()
        if _contexts.decompressor is None:
            _contexts.decompressor = zstandard.ZstdDecompressor()
        try:
            if (
                not n_bytes <= zstandard.frame_content_size(payload) <= most
            ):  # zstd allocates the claimed size before it decodes
                raise CorruptDataError(f"zstd: {len(payload)} bytes do not hold the {n_bytes} that were expected")
            return check_length(_contexts.decompressor.decompress(payload), n_bytes, self.name)
        except zstandard.ZstdError as error:
            raise _without_memory(error) or CorruptDataError(f"zstd: {error}") from error

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        import zstandard

        if _contexts.decompressor is None:
            _contexts.decompressor = zstandard.ZstdDecompressor()
        try:
            content_size = zstandard.frame_content_size(payload)
            if content_size == out.nbytes:
                fill(out, _contexts.decompressor.decompress(payload), self.name)
                return
            if content_size < out.nbytes:
                raise CorruptDataError(f"zstd: a block of {content_size} bytes cannot fill {out.nbytes} bytes")
            # Only the first frames are needed: do not decode more.
            wanted, filled = memoryview(out.reshape(-1)), 0
            with _contexts.decompressor.stream_reader(payload) as reader:
                while filled < len(wanted):
                    count = reader.readinto(wanted[filled:])
                    if not count:
                        raise CorruptDataError(f"zstd: a block ends after {filled} of {out.nbytes} bytes")
                    filled += count
        except zstandard.ZstdError as error:
            raise _without_memory(error) or CorruptDataError(f"zstd: {error}") from error


@functools.cache
def _zstandard() -> Any:
    import zstandard

    return zstandard


def _without_memory(error: Exception) -> MemoryError | None:
    """The MemoryError for an error of zstandard that means so; else None."""
    return MemoryError(f"zstd: {error}") if "not enough memory" in str(error) else None
