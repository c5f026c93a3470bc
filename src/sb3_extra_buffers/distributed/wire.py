"""Experience on the wire: steps of a buffer as the bytes of one segment, and back.

    collector: new steps of its buffer -> bytes -> shard: appended
    shard:     steps that were drawn   -> bytes -> learner: put into a small buffer and read there

Encoded blocks leave and arrive as they are. What arrives is read by this library's own reader, which checks lengths, shapes
and checksums, and runs no code. Below: segments.
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
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
#: A message is refused above so many bytes.
MOST_BYTES = 1 << 30


def steps_to_wire(buffer: Any, slots: Ints, header: dict[str, Any], whole: dict[str, NDArray[Any]] | None = None) -> Wire:
    """Steps of a buffer, whose lock the caller holds, as a segment.

    :param slots: the slots of the steps, in any order
    :param header: further entries of the header
    :param whole: arrays that are to travel along and belong to no step
    """
    contents = replace(contents_of(buffer, slots), whole=whole or {}, objects={})
    file = BytesIO()
    contents.run(0, len(slots)).write(file, header, with_whole=True)
    return np.frombuffer(file.getbuffer(), np.uint8)


def steps_from_wire(data: Wire) -> StoredRun:
    """The steps in a segment. CorruptDataError if it is none, or larger than a message may be."""
    given = memoryview(np.ascontiguousarray(data, np.uint8))
    if len(given) > MOST_BYTES:
        raise CorruptDataError(f"A message of {human_bytes(len(given))} is refused; at most {human_bytes(MOST_BYTES)}")
    segment = Segment(BytesIO(given), 0, len(given))
    if segment.end != len(given):
        raise CorruptDataError(f"A message has {len(given) - segment.end} bytes behind its segment")
    check_header(segment)
    return StoredRun(segment, 0)
