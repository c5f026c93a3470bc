"""`rle-jit`: `rle` by kernels that numba compiles, where it is installed. The same bytes as `rle`.

The kernels call nothing outside of this file, and are compiled anew in every process, without numba's cache. pip leaves the
cache behind when it upgrades a package, and numba may take it for current: older versions compare only the size and the time
of the file. Compiling takes 1.5 s for the first pair of dtypes and 0.6 s for each further one; with the cache it was 0.6 s and
0.01 s (2 cores, numba 0.68). `rle` has nothing to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from sb3_extra_buffers.codecs.rle import Items, Rle


def _find_kernel(items: Any, longest: int, values: Any, lengths: Any) -> int:
    """Find runs of equal items, split at ``longest``. Returns how many, or -1 if there are too many."""
    n = items.size
    count = 0
    i = 0
    while i < n:
        if count == values.size:
            return -1
        value = items[i]
        end = min(n, i + longest)
        j = i + 1
        while j < end and items[j] == value:
            j += 1
        values[count] = value
        lengths[count] = j - i
        count += 1
        i = j
    return count


def _write_kernel(values: Any, lengths: Any, out: Any) -> int:
    """Write runs until ``out`` is full. Returns how many items were written."""
    filled = 0
    n = out.size
    for i in range(values.size):
        length = int(lengths[i])
        end = filled + length if 0 <= length < n - filled else n  # a length of 64 bits may have become negative
        for j in range(filled, end):
            out[j] = values[i]
        filled = end
        if filled == n:
            break
    return filled


@cache
def _compiled() -> tuple[Callable[..., int], Callable[..., int]]:
    """Both kernels. Without the GIL, and serial: parallel kernels would abort in forked children."""
    import numba

    compile_kernel = numba.njit(nogil=True)
    return compile_kernel(_find_kernel), compile_kernel(_write_kernel)


@dataclass(frozen=True)
class RleJit(Rle):
    """Run-length coding compiled by numba; the same bytes as `rle`."""

    name: ClassVar[str] = "rle-jit"

    def prepare(self) -> None:
        """Compile the kernels for the dtypes of this codec."""
        frames = np.zeros((1, 64 * np.dtype(self.elem_type).itemsize), np.uint8)
        self.decode(self.encode(frames), np.empty_like(frames), verify=False)

    def _search(self, items: Items, longest: int, most: int, runs_type: np.dtype[Any]) -> tuple[Items, Items] | None:
        # For numba, read-only or unaligned arrays are other types, for which it would compile again.
        items = items.view()
        items.flags.writeable = False
        values, lengths = np.empty(most, items.dtype), np.empty(most, self.runs_type)
        count = _compiled()[0](items, longest, values, lengths)
        return None if count < 0 else (values[:count], lengths[:count].astype(runs_type, copy=False))

    def _write_runs(self, values: Items, lengths: Items, out: Items) -> int:
        return int(_compiled()[1](values.copy(), lengths.astype(self.runs_type), out))  # copies are aligned
