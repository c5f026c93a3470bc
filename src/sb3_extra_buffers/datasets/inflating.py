"""A gzip file, read from front to back by Python's zlib. Above: gzipped, where ISA-L is not installed.

`gzip.open` does the same. Of MsPacman's frames, a third of its time each goes into inflating, into the checksum, and into
copies and page faults. Here a thread computes the checksum of what was read last, and pieces are small enough for their memory
to be reused.
"""

from __future__ import annotations

import gzip
import os
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

#: Compressed bytes to read at a time. Bytes to inflate at a time: larger ones get new pages from the system each time.
_INPUT, _PIECE = 1 << 17, 1 << 16
#: Bytes whose checksum is worth a thread.
_MANY = 1 << 20
_EXTRA, _NAME, _COMMENT, _HEADER_CHECKSUM = 4, 8, 16, 2


class InflatedFile:
    """The bytes of a gzip file. What is damaged raises EOFError, `zlib.error` or `gzip.BadGzipFile`, at the end at the latest.

    :param path: of the file
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._thread = ThreadPoolExecutor(1)
        self._inflate: Any = None  # of the member that is being read
        self._checksum = self._length = 0
        self._coming: Future[None] | None = None

    def __enter__(self) -> InflatedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()
        self._file.close()

    def read(self, n: int) -> bytes:
        """Up to n bytes; none at the end of the file."""
        room = bytearray(n)
        return bytes(room[: self.readinto(memoryview(room))])

    def readinto(self, room: memoryview) -> int:
        """Fill the room, or a part of it, and return how many bytes that are; 0 at the end of the file.

        The bytes must stay as they are until the next call returns, because their checksum is computed meanwhile. So the next
        call needs another room.
        """
        filled = 0
        while room and not filled and (self._inflate is not None or self._begin_member()):
            while filled < len(room) and not self._inflate.eof:
                data = self._inflate.unconsumed_tail or self._file.read(_INPUT)
                piece = self._inflate.decompress(data, min(len(room) - filled, _PIECE))
                if not (data or piece):
                    raise EOFError("it is truncated")
                room[filled : filled + len(piece)] = piece
                filled += len(piece)
            self._add_to_checksum(room[:filled])
            if self._inflate.eof:
                self._end_member()
        return filled

    def _add_to_checksum(self, data: memoryview) -> None:
        self._wait()
        if len(data) >= _MANY:
            self._coming = self._thread.submit(self._add, data)
        else:
            self._add(data)

    def _add(self, data: memoryview) -> None:
        self._checksum, self._length = zlib.crc32(data, self._checksum), self._length + len(data)

    def _wait(self) -> None:
        if self._coming is not None:
            self._coming.result()
            self._coming = None

    def _begin_member(self) -> bool:
        """Read the header of the next member (RFC 1952). Returns whether there is one; zeros behind a member are none."""
        first = self._file.read(1)
        while first == b"\0":
            first = self._file.read(1)
        if not first:
            return False
        header = first + self._exactly(9)
        if header[:3] != b"\x1f\x8b\x08":
            raise gzip.BadGzipFile(f"not a gzipped file: it begins with {header[:3]!r}")
        flags = header[3]
        if flags & _EXTRA:
            self._exactly(int.from_bytes(self._exactly(2), "little"))
        for _ in range(bool(flags & _NAME) + bool(flags & _COMMENT)):
            while self._exactly(1) != b"\0":
                pass
        if flags & _HEADER_CHECKSUM:
            self._exactly(2)
        self._inflate, self._checksum, self._length = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
        return True

    def _end_member(self) -> None:
        self._wait()
        self._file.seek(-len(self._inflate.unused_data), os.SEEK_CUR)
        self._inflate = None
        if self._exactly(8) != self._checksum.to_bytes(4, "little") + (self._length % 2**32).to_bytes(4, "little"):
            raise gzip.BadGzipFile("the checksum is another")

    def _exactly(self, n: int) -> bytes:
        data = self._file.read(n)
        if len(data) < n:
            raise EOFError("it is truncated")
        return data
