"""Experience on the wire: steps of a buffer as the bytes of one segment, and back.

    collector: new steps of its buffer -> bytes -> shard: appended
    shard:     steps that were drawn   -> bytes -> learner: put into a small buffer and read there

Encoded blocks leave and arrive as they are. What arrives is read by this library's own reader, which checks lengths, shapes
and checksums, and runs no code. Below: segments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers._text import human_bytes
from sb3_extra_buffers.compressed.contents import contents_of
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.runs import Ints, StoredRun, check_header
from sb3_extra_buffers.store.format import Segment

#: What travels. Ray hands arrays over without copying them.
Wire = NDArray[np.uint8]
#: Ray sends an argument below 100 kB with the call itself. A larger one goes through its object store, which takes the CPUs of
#: all processes together 6 ms, so a message is cut into pieces, as long as that takes less.
_PIECE_BYTES, _MOST_PIECES = 96_000, 6
#: A message is refused above so many bytes.
MOST_BYTES = 1 << 30


class Outbox:
    """Memory that messages are written to, again and again: a shard that took fresh memory for each would wait for pages."""

    def __init__(self) -> None:
        self._room: Wire = np.empty(1 << 16, np.uint8)
        self._filled = 0

    def begin(self) -> None:
        """Begin a message. The last one is no longer valid."""
        self._filled = 0

    def write(self, part: Any) -> int:
        """As that of a file."""
        given = np.frombuffer(part, np.uint8)
        end = self._filled + len(given)
        if end > len(self._room):
            room = np.empty(2 * end, np.uint8)
            room[: self._filled] = self._room[: self._filled]
            self._room = room
        self._room[self._filled : end] = given
        self._filled = end
        return len(given)

    def message(self) -> Wire:
        """What was written, until the next one begins."""
        return self._room[: self._filled]


def steps_to_wire(
    buffer: Any,
    slots: Ints,
    header: dict[str, Any],
    whole: dict[str, NDArray[Any]] | None = None,
    outbox: Outbox | None = None,
) -> Wire:
    """Steps of a buffer, whose lock the caller holds, as a segment.

    :param slots: the slots of the steps, in any order
    :param header: further entries of the header
    :param whole: arrays that are to travel along and belong to no step
    :param outbox: memory for the message; memory of its own if not given
    """
    contents = replace(contents_of(buffer, slots), whole=whole or {}, objects={})
    file: Any = outbox or Outbox()
    file.begin()
    contents.run(0, len(slots)).write(file, header, with_whole=True)
    made: Wire = file.message()
    return made


def in_pieces(data: Wire) -> list[Wire]:
    """A message as the arguments of a remote call."""
    if len(data) > _MOST_PIECES * _PIECE_BYTES:
        return [data]
    return [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)] or [data]


class _Inbox:
    """A message as a file to read from, without copying it."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def seek(self, at: int) -> int:
        """As that of a file."""
        self._at = at
        return at

    def read(self, n: int) -> memoryview:
        """As that of a file."""
        part = self._data[self._at : self._at + n]
        self._at += len(part)
        return part


def steps_from_wire(*pieces: Wire) -> StoredRun:
    """The steps in a segment. CorruptDataError if it is none, or larger than a message may be."""
    given = memoryview(np.ascontiguousarray(pieces[0] if len(pieces) == 1 else np.concatenate(pieces), np.uint8))
    if len(given) > MOST_BYTES:
        raise CorruptDataError(f"A message of {human_bytes(len(given))} is refused; at most {human_bytes(MOST_BYTES)}")
    inbox: Any = _Inbox(given)
    segment = Segment(inbox, 0, len(given))
    if segment.end != len(given):
        raise CorruptDataError(f"A message has {len(given) - segment.end} bytes behind its segment")
    check_header(segment)
    return StoredRun(segment, 0)
