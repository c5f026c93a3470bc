"""The whole contract of a codec, and the few bytes that stand before every encoded block.

An encoded block is `tag (1 byte) | CRC-32 of tag and payload (4 bytes, little endian) | payload`. The tag says whether the
payload is the frames themselves (RAW, where the codec would not have helped) or the codec's own bytes (CODED).
Two names belong to the codec that writes a subclass: `_encode` and `_decode`; everyone else calls `encode` and `decode`.
"""

from __future__ import annotations

import dataclasses
import zlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.errors import CodecError, CorruptDataError

Bytes = NDArray[np.uint8]
Readable = bytes | bytearray | memoryview | Bytes

RAW, CODED = 0, 1
HEADER_BYTES = 5


@dataclasses.dataclass(frozen=True)
class Codec(ABC):
    """Frames of a block <-> fewer bytes. A value: no state, comparable, hashable, picklable, safe in threads."""

    name: ClassVar[str]
    #: lowest and highest level, or None for a codec without levels
    levels: ClassVar[tuple[int, int] | None] = None

    def encode(self, frames: Bytes, base: Bytes | None = None) -> bytes:
        """Bytes from which `decode` gives back exactly these frames; at most 5 bytes longer than the frames.

        :param frames: C-contiguous uint8 array ``(frames, frame_bytes)``
        :param base: a frame ``(frame_bytes,)`` that the frames may resemble, needed again to decode
        """
        payload = self._encode(frames, base)
        if payload is None or len(payload) >= frames.nbytes:
            return with_header(RAW, frames)
        return with_header(CODED, payload)

    def decode(self, data: Readable, out: Bytes, base: Bytes | None = None, *, verify: bool = True) -> None:
        """Fill ``out`` with the frames, or with the first of them when ``out`` has fewer rows.

        :param data: what `encode` returned
        :param out: C-contiguous uint8 array ``(frames, frame_bytes)``, owned by the caller
        :param base: the base that was given to `encode`
        :param verify: check the CRC; off for bytes that never left this process
        """
        tag, payload = split_header(data, verify=verify)
        if tag == RAW:
            if len(payload) < out.nbytes:
                raise CorruptDataError(f"A raw block of {len(payload)} bytes cannot fill {out.nbytes} bytes")
            out.reshape(-1)[:] = np.frombuffer(payload, np.uint8, out.nbytes)
            return
        self._decode(payload, out, base)

    @abstractmethod
    def _encode(self, frames: Bytes, base: Bytes | None) -> Readable | None:
        """The codec's own bytes, or None when it would not help."""

    @abstractmethod
    def _decode(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        """Fill ``out`` from the codec's own bytes, or raise CorruptDataError."""

    @property
    def spec(self) -> str:
        """The shorthand that makes this codec again, e.g. ``"zstd/3"``."""
        level = getattr(self, "level", None)
        return self.name if level is None else f"{self.name}/{level}"

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Names that `compression_kwargs` may hold for this codec."""
        return tuple(field.name for field in dataclasses.fields(cls))


def with_header(tag: int, payload: Readable) -> bytes:
    """A block as it is kept: tag, CRC and payload."""
    return b"".join((bytes((tag,)), zlib.crc32(payload, tag).to_bytes(4, "little"), payload))


def split_header(data: Readable, *, verify: bool) -> tuple[int, memoryview]:
    """Tag and payload of a block; raises CorruptDataError where they cannot be right."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER_BYTES or view[0] not in (RAW, CODED):
        raise CorruptDataError(f"These {len(view)} bytes are not an encoded block: they do not start with a block header")
    payload = view[HEADER_BYTES:]
    if verify and zlib.crc32(payload, view[0]) != int.from_bytes(view[1:HEADER_BYTES], "little"):
        raise CorruptDataError(f"An encoded block of {len(view)} bytes is damaged or truncated: its checksum does not match")
    return view[0], payload


def fill(out: Bytes, decoded: Readable, name: str) -> None:
    """Copy decoded bytes into ``out``, or say that they are too few."""
    if len(decoded) < out.nbytes:
        raise CorruptDataError(f"{name}: a block decoded to {len(decoded)} bytes, {out.nbytes} were expected")
    out.reshape(-1)[:] = np.frombuffer(decoded, np.uint8, out.nbytes)


def check_level(name: str, level: Any, lowest: int, highest: int) -> None:
    """Refuse a level that the codec does not have."""
    if isinstance(level, bool) or not isinstance(level, (int, np.integer)) or not lowest <= level <= highest:
        raise CodecError(f"{name} level must be in {lowest}..{highest}, got {level!r}")
