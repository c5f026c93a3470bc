"""`rle`: runs of equal values, for segmentation masks and palette frames. They are found and written by the native core.

A payload is `count of runs (4 bytes) | values | lengths`. A run that is too long for `runs_type` is split; it never
overflows. If the highest bit of the count is set, lengths have one byte: most runs are short, and splitting the long ones
takes less than a second byte for all. Values are compared as unsigned integers of their size, so NaN and -0.0 keep their bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers import native
from sb3_extra_buffers.codecs.base import Bytes, Codec, Readable
from sb3_extra_buffers.errors import CodecError, CorruptDataError

Items = NDArray[Any]

#: The largest count that a payload can hold.
_MOST_RUNS = 2**31 - 1
#: The bit of the count that says that lengths are of this dtype, whatever `runs_type` is.
_ARE_SHORT = 2**31
_SHORT = np.dtype(np.uint8)


@dataclass(frozen=True)
class Rle(Codec):
    """Run-length coding.

    :param elem_type: dtype of one value; only its size matters
    :param runs_type: unsigned integer dtype of a run's length; single bytes are used where that is smaller
    """

    name: ClassVar[str] = "rle"
    uses_threads: ClassVar[bool] = False
    work: ClassVar[tuple[float, float]] = (1.5, 6.0)
    elem_type: str = "uint8"
    runs_type: str = "uint16"

    def __post_init__(self) -> None:
        for field in ("elem_type", "runs_type"):
            try:
                dtype = np.dtype(getattr(self, field))
            except TypeError as error:
                raise CodecError(f"{self.name} {field} must be a NumPy dtype, got {getattr(self, field)!r}") from error
            object.__setattr__(self, field, dtype.name)
        if np.dtype(self.runs_type).kind != "u":
            raise CodecError(f"{self.name} runs_type must be an unsigned integer dtype, got {self.runs_type!r}")
        if np.dtype(self.elem_type).itemsize not in (1, 2, 4, 8):
            raise CodecError(f"{self.name} elem_type must have 1, 2, 4 or 8 bytes, got {self.elem_type!r}")

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable | None:
        items = frames.reshape(-1).view(self._value_type(frames.shape[1]))
        runs = self._find_runs(items, _SHORT, frames.nbytes)
        wide = np.dtype(self.runs_type)
        if wide != _SHORT and (runs is None or not _is_surely_smaller(*runs, wide)):
            # More runs than this would not be smaller: than those with short lengths, or than the frames.
            runs = self._find_runs(items, wide, frames.nbytes if runs is None else _bytes_of(*runs) - 1) or runs
        if runs is None:
            return None
        values, lengths = runs
        count = len(values) | (_ARE_SHORT if lengths.dtype != wide else 0)
        return b"".join((count.to_bytes(4, "little"), values.tobytes(), lengths.tobytes()))

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        count = int.from_bytes(payload[:4], "little")
        runs_type = _SHORT if count & _ARE_SHORT else np.dtype(self.runs_type)
        count &= ~_ARE_SHORT
        rest = len(payload) - 4
        # The value type follows from the sizes, so that a block of an odd length can be kept as bytes.
        value_bytes, remainder = divmod(rest - count * runs_type.itemsize, count) if count else (0, rest)
        if rest < 0 or remainder or value_bytes not in (1, 2, 4, 8) or out.nbytes % value_bytes:
            raise CorruptDataError(f"{self.name}: a block of {len(payload)} bytes cannot hold {count} runs")
        values = np.frombuffer(payload, f"<u{value_bytes}", count, 4)
        lengths = np.frombuffer(payload, runs_type, count, 4 + values.nbytes)
        items = out.reshape(-1).view(values.dtype)
        filled = self._write_runs(values, lengths, items)
        if filled != items.size:
            raise CorruptDataError(f"{self.name}: a block has runs for {filled} values, {items.size} were expected")

    def _value_type(self, frame_bytes: int) -> str:
        # A frame must be whole values, so that a block can be decoded up to any frame.
        size = np.dtype(self.elem_type).itemsize
        return f"<u{size if frame_bytes % size == 0 else 1}"

    def _find_runs(self, items: Items, runs_type: np.dtype[Any], most_bytes: int) -> tuple[Items, Items] | None:
        """Values and lengths of the runs; None if they take more bytes than these."""
        longest = min(int(np.iinfo(runs_type).max), items.size)  # uint64's own maximum would not fit an int64
        most = min(most_bytes // (items.itemsize + runs_type.itemsize), _MOST_RUNS)
        return self._search(items, longest, most, runs_type)

    def _search(self, items: Items, longest: int, most: int, runs_type: np.dtype[Any]) -> tuple[Items, Items] | None:
        """Values and lengths of the runs, none longer than ``longest``; None if there are more than ``most``."""
        return native.find_runs(items, longest, most, runs_type)

    def _write_runs(self, values: Items, lengths: Items, out: Items) -> int:
        """Write runs until ``out`` is full. Returns how many items were written."""
        return native.write_runs(values, lengths, out)


def _bytes_of(values: Items, lengths: Items) -> int:
    return values.nbytes + lengths.nbytes


def _is_surely_smaller(values: Items, short: Items, wide: np.dtype[Any]) -> bool:
    """Whether these runs take fewer bytes than the same with wide lengths could.

    Wide lengths may join the runs that were split, which are among the longest; all others stay as they are.
    """
    n_whole = len(values) - np.count_nonzero(short == np.iinfo(_SHORT).max)
    return _bytes_of(values, short) < int(n_whole) * (values.itemsize + wide.itemsize)
