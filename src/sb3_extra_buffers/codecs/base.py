"""The contract of a codec, and the header of an encoded block.

An encoded block is `tag (1 byte) | CRC-32 of tag and payload (4 bytes, little endian) | payload`. The tag says whether the
payload is the uncompressed frames (RAW, if the codec would not make them smaller) or the codec's own bytes (CODED).

A codec defines `compress` and `decompress`, which do not see the header. Users of a codec call `encode` and `decode`.
"""

from __future__ import annotations

import dataclasses
import zlib
from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers import native
from sb3_extra_buffers.errors import CodecError, CorruptDataError

Bytes = NDArray[np.uint8]
Readable = bytes | bytearray | memoryview | Bytes

_UINT8 = np.dtype(np.uint8)

RAW, CODED = 0, 1
HEADER_BYTES = 5


class Frames(IntEnum):
    """How the native core keeps the blocks of a codec. Numbered as ``SB3X_FRAMES_RAW`` and so on in native/sb3x.h."""

    RAW = 0  #: as they are
    DELTA = 1  #: as patches, which the core itself writes and reads, frame by frame
    CODEC = 2  #: whole blocks, encoded and decoded by the codec


class Format(IntEnum):
    """Who reads what a codec writes. Numbered as ``SB3X_READ_BY_CALLER`` and so on in native/sb3x.h."""

    OWN = 0  #: the codec
    LZ4_BLOCK = 1  #: this and the following: the native core, with its threads
    LZ4_FRAME = 2
    ZLIB = 3
    ZSTD = 4


@dataclasses.dataclass(frozen=True)
class Codec(ABC):
    """Frames of a block <-> fewer bytes. A value: no state, comparable, hashable, picklable, safe in threads.

    A subclass is a frozen dataclass whose fields are the options of the codec, all with defaults. It sets `name`, defines
    `compress` and `decompress`, and is registered by `register_codec`.
    """

    #: The name under which it is registered
    name: ClassVar[str]
    #: Lowest and highest level, or None for a codec without levels. A codec with levels has a field ``level: int``
    levels: ClassVar[tuple[int, int] | None] = None
    #: Levels between these two that do not exist
    no_levels: ClassVar[tuple[int, ...]] = ()
    #: How the native core keeps blocks of this codec. Only with CODEC are `compress` and `decompress` used by buffers
    frames: ClassVar[Frames] = Frames.CODEC
    #: A format that the native core can read. Then buffers do not use `decompress`, unless a subclass defines another one
    #: without naming its format
    format: ClassVar[Format] = Format.OWN
    #: The most bytes of frames that a buffer encodes together, unless its user sets `block_frames`. More bytes compress
    #: better, but to read one frame, all frames that were encoded with it are decoded
    piece_bytes: ClassVar[int] = 1 << 16
    #: Whether decoding releases the GIL and takes long enough to pay for threads
    uses_threads: ClassVar[bool] = True
    #: The work of decoding, in copies of the decoded bytes: a fixed part, and a part per encoded byte. Used by `auto`
    work: ClassVar[tuple[float, float]] = (2.0, 20.0)

    def __post_init__(self) -> None:
        if self.levels is not None:
            check_level(self.name, getattr(self, "level", None), type(self))

    # ---- for users of a codec

    def encode(self, frames: Bytes, base: Bytes | None = None) -> bytes:
        """Bytes from which `decode` gives back exactly these frames; at most 5 bytes longer than the frames.

        :param frames: C-contiguous uint8 array ``(frames, frame_bytes)``
        :param base: a frame ``(frame_bytes,)`` that the frames may resemble; `decode` needs the same one
        """
        check_frames("frames", frames, base)
        payload = self.compress(frames, base)
        if payload is None or len(payload) >= frames.nbytes:
            return with_header(RAW, frames)
        return with_header(CODED, payload)

    def decode(self, data: Readable, out: Bytes, base: Bytes | None = None, *, verify: bool = True) -> None:
        """Fill ``out`` with the frames, or with the first frames if ``out`` has fewer rows.

        :param data: what `encode` returned
        :param out: C-contiguous uint8 array ``(frames, frame_bytes)``, owned by the caller
        :param base: the base that was given to `encode`
        :param verify: check the CRC; off for bytes that never left this process
        """
        check_frames("out", out, base)
        if not out.flags.writeable:
            raise ValueError("out must be writable, got a read-only array")
        tag, payload = split_header(data, verify=verify)
        if tag == RAW:
            if len(payload) < out.nbytes:
                raise CorruptDataError(f"A raw block of {len(payload)} bytes cannot fill {out.nbytes} bytes")
            out.reshape(-1)[:] = np.frombuffer(payload, np.uint8, out.nbytes)
            return
        self.decompress(payload, out, base)

    def prepare(self) -> None:  # noqa: B027  most codecs have nothing to prepare
        """Do slow work of the first `encode` ahead of time, e.g. compile. Most codecs do nothing."""

    @property
    def spec(self) -> str:
        """The shorthand for this codec, e.g. ``"zstd/3"``."""
        level = getattr(self, "level", None)
        return self.name if level is None else f"{self.name}/{level}"

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Names that `compression_kwargs` may hold for this codec."""
        return tuple(field.name for field in dataclasses.fields(cls) if field.init)

    # ---- for subclasses to define

    @abstractmethod
    def compress(self, frames: Bytes, base: Bytes | None) -> Readable | None:
        """The codec's own bytes for a block, or None if they would not be smaller; see `encode`.

        Must not change the frames.
        """

    @abstractmethod
    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        """Fill ``out`` from what `compress` returned, or raise CorruptDataError; see `decode`.

        ``out`` may have fewer rows than were compressed: then only the first frames are needed. The payload may be
        damaged; even then nothing may be written outside of ``out``.
        """

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the name and options, so that the class may move, and a stand-in may read it."""
        from sb3_extra_buffers.codecs.registry import is_registered, restore_codec

        if is_registered(type(self)):
            return restore_codec, (self.name, {option: getattr(self, option) for option in self.options()})
        return super().__reduce_ex__(protocol)


class ReadByCore(Codec):
    """A codec that only writes: the native core reads what its library has written. A subclass sets `format`."""

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        """See `Codec.decompress`."""
        if not native.decode(self.format, payload, out):
            raise CorruptDataError(
                f"{self.name}: {len(payload)} bytes are damaged, or do not hold the {out.nbytes} that were expected"
            )


def check_frames(name: str, frames: Bytes, base: Bytes | None) -> None:
    """Refuse arrays with another memory layout: the core and the libraries get only an address."""
    if not _is_bytes(frames, 2):
        raise ValueError(f"{name} must be a C-contiguous uint8 array (frames, frame_bytes), got {_described(frames)}")
    if base is not None and not (_is_bytes(base, 1) and base.size == frames.shape[1]):
        raise ValueError(f"base must be a C-contiguous uint8 array ({frames.shape[1]},), got {_described(base)}")


def _is_bytes(array: Any, ndim: int) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == _UINT8 and array.ndim == ndim and array.flags.c_contiguous


def _described(array: Any) -> str:
    if not isinstance(array, np.ndarray):
        return repr(type(array))
    return f"{array.dtype} {array.shape}" + ("" if array.flags.c_contiguous else ", not contiguous")


def with_header(tag: int, payload: Readable) -> bytes:
    """A block as it is stored: tag, CRC and payload."""
    return b"".join((bytes((tag,)), zlib.crc32(payload, tag).to_bytes(4, "little"), payload))


def split_header(data: Readable, *, verify: bool) -> tuple[int, memoryview]:
    """Tag and payload of a block, or CorruptDataError."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER_BYTES or view[0] not in (RAW, CODED):
        raise CorruptDataError(f"These {len(view)} bytes are not an encoded block: they do not start with a block header")
    payload = view[HEADER_BYTES:]
    if verify and zlib.crc32(payload, view[0]) != int.from_bytes(view[1:HEADER_BYTES], "little"):
        raise CorruptDataError(f"An encoded block of {len(view)} bytes is damaged or truncated: its checksum does not match")
    return view[0], payload


def fill(out: Bytes, decoded: Readable, name: str) -> None:
    """Copy decoded bytes into ``out``; CorruptDataError if they are too few. For codecs whose library returns bytes."""
    if len(decoded) < out.nbytes:
        raise CorruptDataError(f"{name}: a block decoded to {len(decoded)} bytes, {out.nbytes} were expected")
    out.reshape(-1)[:] = np.frombuffer(decoded, np.uint8, out.nbytes)


def check_level(name: str, level: Any, codec: type[Codec]) -> None:
    """Refuse a level that the codec does not have.

    :param name: what the user calls the codec; another is meant where one stands in
    """
    lowest, highest = codec.levels or (0, 0)
    is_number = isinstance(level, (int, np.integer)) and not isinstance(level, bool)
    if not is_number or not lowest <= level <= highest or level in codec.no_levels:
        raise CodecError(f"{name} level must be in {level_ranges(codec)}, got {level!r}")


def level_ranges(codec: type[Codec]) -> str:
    """The levels that a codec has, in words: ``0..9``, or ``1..22 or -100..-1``."""
    lowest, highest = codec.levels or (0, 0)
    if not codec.no_levels:
        return f"{lowest}..{highest}"
    return f"{max(codec.no_levels) + 1}..{highest} or {lowest}..{min(codec.no_levels) - 1}"
