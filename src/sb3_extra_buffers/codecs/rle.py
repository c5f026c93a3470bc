"""`rle` (NumPy) and `rle-jit` (numba): runs of equal values, for segmentation masks and palette frames.

Both write the same bytes: `count of runs (4 bytes) | values | lengths`. A run that is longer than `runs_type` can say is
split, never overflowed. Values are compared as unsigned integers of their size, so NaN and -0.0 stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import Bytes, Codec, Readable
from sb3_extra_buffers.errors import CodecError, CorruptDataError

Runs = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Rle(Codec):
    """Run-length coding with NumPy.

    :param elem_type: dtype of one value; only its size matters
    :param runs_type: unsigned integer dtype of a run's length
    """

    name: ClassVar[str] = "rle"
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

    def _encode(self, frames: Bytes, base: Bytes | None) -> Readable | None:
        items = frames.reshape(-1).view(self._value_type(frames.shape[1]))
        longest = min(int(np.iinfo(self.runs_type).max), items.size)  # uint64's own maximum would not fit an int64
        # More runs than this would not be smaller than the frames.
        most = frames.nbytes // (items.itemsize + np.dtype(self.runs_type).itemsize)
        runs = self._find_runs(items, longest, most)
        if runs is None:
            return None
        values, lengths = runs
        return b"".join((len(values).to_bytes(4, "little"), values.tobytes(), lengths.tobytes()))

    def _decode(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        runs_type = np.dtype(self.runs_type)
        count = int.from_bytes(payload[:4], "little")
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

    def _find_runs(self, items: NDArray[Any], longest: int, most: int) -> Runs | None:
        starts = np.flatnonzero(np.concatenate(([True], items[1:] != items[:-1])))
        if starts.size > most:
            return None
        lengths = np.diff(np.append(starts, items.size))
        pieces = -(-lengths // longest)  # ceil: how many runs a long one is split into
        values, split = np.repeat(items[starts], pieces), np.full(int(pieces.sum()), longest, np.int64)
        split[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * longest
        return values, split.astype(self.runs_type)

    def _write_runs(self, values: NDArray[Any], lengths: NDArray[Any], out: NDArray[Any]) -> int:
        # Before the sum, which must not overflow.
        lengths = np.minimum(lengths.astype(np.uint64), np.uint64(out.size)).astype(np.int64)
        ends = np.cumsum(lengths)
        needed = min(int(np.searchsorted(ends, out.size)) + 1, len(ends))
        if needed == 0 or ends[needed - 1] < out.size:
            return int(ends[-1]) if len(ends) else 0
        counts = lengths[:needed]
        counts[-1] -= ends[needed - 1] - out.size
        out[:] = np.repeat(values[:needed], counts)
        return int(out.size)


@dataclass(frozen=True)
class RleJit(Rle):
    """Run-length coding compiled by numba; the same bytes as `rle`."""

    name: ClassVar[str] = "rle-jit"

    def _find_runs(self, items: NDArray[Any], longest: int, most: int) -> Runs | None:
        from sb3_extra_buffers.codecs import runs

        values, lengths = np.empty(most, items.dtype), np.empty(most, self.runs_type)
        count = runs.encode_runs(items, longest, values, lengths)
        return None if count < 0 else (values[:count], lengths[:count])

    def _write_runs(self, values: NDArray[Any], lengths: NDArray[Any], out: NDArray[Any]) -> int:
        from sb3_extra_buffers.codecs import runs

        return int(runs.decode_runs(values, lengths, out))
