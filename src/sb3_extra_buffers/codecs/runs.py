"""Kernels of `rle-jit`: items <-> runs of equal ones."""

from __future__ import annotations

from typing import Any

from sb3_extra_buffers.codecs.compiling import jit


@jit
def encode_runs(items: Any, longest: int, values: Any, lengths: Any) -> int:
    """Runs of equal items, split where one is longer than ``longest``; how many, or -1 if there is no room for them."""
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


@jit
def decode_runs(values: Any, lengths: Any, out: Any) -> int:
    """Write runs until ``out`` is full; how many items were written."""
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
