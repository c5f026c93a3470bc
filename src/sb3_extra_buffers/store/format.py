"""The bytes of a segment: a prefix, a header in JSON, raw sections, checksums. docs/segment_format.md describes it byte by
byte.

    prefix   64 bytes: magic, version, number of sections, length of the header, length of all
    header   JSON: what the segment holds; `sections` lists name, dtype, shape, filter and length of each
    sections one after the other, each padded to 64 bytes
    checks   CRC-32 of each section, of prefix and header, and of these checksums

Nothing in it can run code: no pickle, no names to import. A reader checks everything before it uses it, and allocates no more
than the length of the file allows. Above: extract, leaf and the package segments, which decide what a segment contains.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.errors import CorruptDataError, SegmentVersionError

MAGIC = b"SB3XSEG\n"
#: The first version was never released, and is not read.
VERSION = OLDEST_VERSION = 2
#: Magic, version, sections, bytes of the header, bytes of all; the rest is zeros, for later versions.
_PREFIX = struct.Struct("<8sIIQQ32x")
ALIGNMENT = 64
#: zlib decodes one byte to at most so many.
_MOST_INFLATED = 1032
#: NumPy's own limit in all versions that are supported.
_MOST_AXES = 32
#: Bytes that are read or written at a time.
PART_BYTES = 1 << 20
#: Is told how many bytes of sections were read or written, part by part: for progress bars.
watcher: ContextVar[Callable[[int], None] | None] = ContextVar("watcher", default=None)
#: dtypes that a section may have: numbers only.
_DTYPE = re.compile(r"[<>|=]?[biufc]\d{1,2}|\?|[<>|=]\?|bool|u?int\d{1,2}|float\d{1,3}")


@dataclass
class Section:
    """A section to be written.

    :param n_bytes: bytes that the parts have together
    :param about: dtype, shape and filter, for the header
    """

    name: str
    n_bytes: int
    parts: Iterable[Any]
    about: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, array: NDArray[Any]) -> Section:
        """An array as a section, compressed if a sample of it suggests that this pays."""
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        about = {"dtype": little.dtype.str, "shape": list(map(int, array.shape))}
        data = memoryview(little.reshape(-1).view(np.uint8)) if little.size else memoryview(b"")
        packed = _packed(data)
        if packed is None:
            return cls(name, len(data), [data], about)
        return cls(name, len(packed), [packed], {**about, "filter": "zlib"})


def _packed(data: memoryview) -> bytes | None:
    middle = len(data) // 2
    look = data[middle : middle + (1 << 16)]
    if len(data) < ALIGNMENT or len(zlib.compress(look, 1)) > 0.7 * len(look):
        return None
    packed = zlib.compress(data, 1)
    return packed if len(packed) < len(data) else None


def _tell(n_bytes: int) -> None:
    if (told := watcher.get()) is not None:
        told(n_bytes)


def _padding(n: int) -> bytes:
    return bytes(-n % ALIGNMENT)


def write_segment(file: BinaryIO, header: dict[str, Any], sections: list[Section]) -> int:
    """Write a segment at the current position. Returns its checksum."""
    listed = [{"name": one.name, "bytes": one.n_bytes, **one.about} for one in sections]
    said = json.dumps({**header, "sections": listed}, separators=(",", ":"), allow_nan=False).encode()
    bodies = sum(one.n_bytes + len(_padding(one.n_bytes)) for one in sections)
    total = _PREFIX.size + len(said) + len(_padding(len(said))) + bodies + 4 * (len(sections) + 2)
    front = _PREFIX.pack(MAGIC, VERSION, len(sections), len(said), total) + said
    front += _padding(len(said))
    file.write(front)
    checks = []
    for one in sections:
        n = crc = 0
        for part in one.parts:
            crc = zlib.crc32(part, crc)
            n += len(part)
            file.write(part)
            _tell(len(part))
        if n != one.n_bytes:
            raise RuntimeError(f"Section {one.name!r} has {n} bytes; {one.n_bytes} were announced")
        file.write(_padding(n))
        checks.append(crc)
    checks.append(zlib.crc32(front))
    packed = struct.pack(f"<{len(checks)}I", *checks)
    whole = zlib.crc32(packed)
    file.write(packed + struct.pack("<I", whole))
    return whole


class Segment:
    """A segment in a file. Its header is read at once; sections are read and verified when they are needed.

    :param file: a file that can seek
    :param begin: where the segment begins
    :param end: where the file ends
    """

    def __init__(self, file: BinaryIO, begin: int, end: int) -> None:
        self._file, self.begin = file, begin
        self.end, n_header, n_sections = read_prefix(file, begin, end)
        checks_at = self.end - 4 * (n_sections + 2)
        header_end = begin + _PREFIX.size + n_header + len(_padding(n_header))
        if checks_at < header_end:
            raise CorruptDataError("A segment is damaged: its lengths contradict each other")
        checks = struct.unpack(f"<{n_sections + 2}I", self._bytes(checks_at, 4 * (n_sections + 2)))
        if zlib.crc32(struct.pack(f"<{n_sections + 1}I", *checks[:-1])) != checks[-1]:
            raise CorruptDataError("A segment is damaged: its list of checksums does not match")
        front = self._bytes(begin, header_end - begin)
        if zlib.crc32(front) != checks[-2]:
            raise CorruptDataError("A segment is damaged: the checksum of its header does not match")
        self.checksum: int = checks[-1]
        self.header: dict[str, Any] = _parsed(front[_PREFIX.size : _PREFIX.size + n_header])
        listed = self.header.get("sections")
        if not isinstance(listed, list) or len(listed) != n_sections:
            raise CorruptDataError("A segment is damaged: its header does not list its sections")
        self._sections: dict[str, tuple[dict[str, Any], int, int]] = {}
        at = header_end
        for one, crc in zip(listed, checks, strict=False):
            if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not _is_count(one.get("bytes")):
                raise CorruptDataError(f"A segment is damaged: its header has {one!r} in the list of sections")
            self._sections[one["name"]] = one, at, crc
            at += one["bytes"] + len(_padding(one["bytes"]))
        if at != checks_at or len(self._sections) != n_sections:
            raise CorruptDataError("A segment is damaged: its sections are not as long as its header says")

    @property
    def names(self) -> list[str]:
        """Names of the sections."""
        return list(self._sections)

    def parts(self, name: str) -> Iterator[bytes]:
        """The bytes of a section as they are in the file. CorruptDataError after the last part if the checksum is wrong."""
        about, at, expected = self._section(name)
        left, crc = about["bytes"], 0
        self._file.seek(at)
        while left:
            part = self._file.read(min(left, PART_BYTES))
            if not part:
                raise CorruptDataError(f"The file ends in the middle of {name!r}")
            crc, left, at = zlib.crc32(part, crc), left - len(part), at + len(part)
            _tell(len(part))
            yield part
            self._file.seek(at)  # others may have moved the position
        if crc != expected:
            raise CorruptDataError(f"A segment is damaged: the checksum of {name!r} does not match")

    def array(self, name: str, dtype: Any = None, shape: tuple[int | None, ...] | None = None) -> NDArray[Any]:
        """A section as an array.

        :param dtype: the required dtype
        :param shape: the required shape, with None for any number
        """
        about, _, _ = self._section(name)
        found, sizes = number_dtype(about.get("dtype")), about.get("shape")
        if not isinstance(sizes, list) or len(sizes) > _MOST_AXES or not all(map(_is_count, sizes)):
            raise CorruptDataError(f"A segment is damaged: {name!r} is no array of numbers")
        fits = shape is None or (len(sizes) == len(shape) and all(b in (None, a) for a, b in zip(sizes, shape, strict=True)))
        if not fits or (dtype is not None and found.newbyteorder("=") != np.dtype(dtype).newbyteorder("=")):
            wanted = f"{'any dtype' if dtype is None else np.dtype(dtype)} {'any shape' if shape is None else shape}"
            raise CorruptDataError(f"{name!r} is {found.name} {tuple(sizes)}; it must be {wanted}")
        if math.prod(max(one, 1) for one in sizes) * found.itemsize >= 2**62:  # also without a byte, with a 0 among them
            raise CorruptDataError(f"A segment is damaged: {name!r} has the shape {tuple(sizes)}")
        n_bytes, is_packed = math.prod(sizes) * found.itemsize, about.get("filter") == "zlib"
        if about.get("filter") not in (None, "zlib"):
            raise SegmentVersionError(f"{name!r} is stored by {about['filter']!r}, which this version does not know")
        if n_bytes > _MOST_INFLATED * about["bytes"] if is_packed else n_bytes != about["bytes"]:
            raise CorruptDataError(f"A segment is damaged: {name!r} cannot have {n_bytes} bytes")
        out = np.empty(sizes, found)
        room, filled = memoryview(out.reshape(-1).view(np.uint8)) if n_bytes else memoryview(bytearray()), 0
        for part in _inflated(self.parts(name), name, n_bytes) if is_packed else self.parts(name):
            if filled + len(part) > n_bytes:
                raise CorruptDataError(f"A segment is damaged: {name!r} has more than {n_bytes} bytes")
            room[filled : filled + len(part)] = part
            filled += len(part)
        if filled != n_bytes:
            raise CorruptDataError(f"A segment is damaged: {name!r} has {filled} of {n_bytes} bytes")
        return out.astype(found.newbyteorder("="), copy=False)

    def verify(self) -> list[str]:
        """Names of the sections whose checksums do not match."""
        damaged = []
        for name in self._sections:
            try:
                for _ in self.parts(name):
                    pass
            except CorruptDataError:
                damaged.append(name)
        return damaged

    def _section(self, name: str) -> tuple[dict[str, Any], int, int]:
        if name not in self._sections:
            raise CorruptDataError(f"A segment lacks {name!r}; it has {', '.join(self._sections) or 'nothing'}")
        return self._sections[name]

    def _bytes(self, at: int, n: int) -> bytes:
        self._file.seek(at)
        data = self._file.read(n)
        if len(data) != n:
            raise CorruptDataError("The file ends in the middle of a segment")
        return bytes(data)


def read_prefix(file: BinaryIO, begin: int, end: int) -> tuple[int, int, int]:
    """Read a prefix: the end of the segment, the length of its header, and the number of its sections."""
    file.seek(begin)
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        raise CorruptDataError(f"The file ends after {len(prefix)} of the {_PREFIX.size} bytes that a segment begins with")
    magic, version, n_sections, n_header, total = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise CorruptDataError(f"No segment begins with {magic!r}: this is no file of sb3-extra-buffers, or it is damaged")
    if version > VERSION:
        raise SegmentVersionError(
            f"The segment has format version {version}; this version of sb3-extra-buffers reads up to {VERSION}. Upgrade it"
        )
    if 0 < version < OLDEST_VERSION:
        raise SegmentVersionError(
            f"The segment has format version {version}, of a development version before 1.0; this one reads {OLDEST_VERSION}. "
            "Load it with the version that wrote it"
        )
    if begin + total > end:
        raise CorruptDataError(f"The file is cut off: a segment has {total} bytes, and {end - begin} of them are there")
    if version < 1 or n_header > total or n_sections > total or total < _PREFIX.size:
        raise CorruptDataError("A segment is damaged: it begins with numbers that cannot be")
    return begin + total, n_header, n_sections


def segments_in(file: BinaryIO) -> Iterator[Segment]:
    """All segments of a file, in order."""
    end = file.seek(0, 2)
    begin = 0
    if end == 0:
        raise CorruptDataError("The file is empty")
    while begin < end:
        segment = Segment(file, begin, end)
        yield segment
        begin = segment.end


def _inflated(parts: Iterator[bytes], name: str, n_bytes: int) -> Iterator[bytes]:
    """The parts decoded by zlib, at most a little more than n_bytes in total."""
    inflater, left = zlib.decompressobj(), n_bytes + 1
    try:
        for part in parts:
            while part and left > 0:
                inflated = inflater.decompress(part, min(left, PART_BYTES))
                left -= len(inflated)
                part = inflater.unconsumed_tail
                yield inflated
        yield inflater.flush(1 << 10) if left > 0 else b""
    except zlib.error as error:
        raise CorruptDataError(f"A segment is damaged: {name!r}: {error}") from error


def _parsed(said: bytes) -> dict[str, Any]:
    try:
        header = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"A segment is damaged: its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise CorruptDataError("A segment is damaged: its header is no JSON object")
    return header


def number_dtype(said: Any) -> np.dtype[Any]:
    """The numeric dtype that a file names; CorruptDataError for anything else. NumPy would evaluate parts of other strings."""
    if not isinstance(said, str) or not _DTYPE.fullmatch(said):
        raise CorruptDataError(f"A file names the dtype {said!r}; it must be one of numbers, e.g. '<f4'")
    try:
        return np.dtype(said)
    except TypeError as error:
        raise CorruptDataError(f"A file names the dtype {said!r}: {error}") from error


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62
