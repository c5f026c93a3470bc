"""What kernels are built from: compiled by numba where it is installed, run by Python and NumPy where not.

Imported when the first codec or store needs a kernel, never at `import sb3_extra_buffers`. Only the few functions that
touch many bytes have a NumPy form beside the compiled one; all that is built from them is the same source for both, so
both read and write the same bytes.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from sb3_extra_buffers.codecs.base import Bytes
from sb3_extra_buffers.codecs.compiling import COMPILED, jit

__all__ = [
    "COMPILED",
    "blend_word",
    "bytes_at",
    "copy_part",
    "copy_word",
    "count_differences",
    "fill_end",
    "fill_part",
    "jit",
    "load_byte",
    "memory_at",
    "memory_of",
    "next_difference",
    "next_fill",
    "patch_end",
    "prefetch",
    "same_part",
    "split_pixels",
    "store_byte",
]

#: Bytes that did not change, which a patch may run across before it is worth ending it: a new patch costs two bytes or more.
PATCH_GAP = 2
#: Equal bytes in a row that are worth a fill of their own within a patch.
SHORTEST_FILL = 8


if COMPILED:
    from sb3_extra_buffers.codecs.memory_access import (
        blend_word,
        byte_at,
        bytes_at,
        copy_part,
        copy_word,
        differences_at,
        fill_part,
        load_byte,
        lowest_bit,
        memory_of,
        prefetch,
        same_part,
        split_pixels,
        store_byte,
    )

    @jit
    def memory_at(address: int, length: int) -> int:
        """The memory at an address, which the caller keeps alive."""
        return address

    @jit
    def next_difference(a: Any, b: Any, start: int, n: int) -> int:
        """First index from ``start`` on at which two memories of ``n`` bytes differ; ``n`` if they do not."""
        i = start
        while i + 64 <= n and differences_at(a + i, b + i) | differences_at(a + i + 32, b + i + 32) == 0:
            i += 64
        while i + 32 <= n:
            differing = differences_at(a + i, b + i)
            if differing != 0:
                return int(i + lowest_bit(differing))
            i += 32
        while i < n and byte_at(a + i) == byte_at(b + i):
            i += 1
        return i

    @jit
    def count_differences(a: Any, b: Any, n: int) -> int:
        """In how many pieces of 32 bytes two memories of ``n`` bytes differ; a shorter rest does not count."""
        count = 0
        for i in range(0, n - 31, 32):
            if differences_at(a + i, b + i) != 0:
                count += 1
        return count

    @jit
    def patch_end(a: Any, b: Any, start: int, n: int) -> int:
        """Where the patch that begins at ``start`` ends: behind the last difference before three equal bytes."""
        i = start
        while i + 32 <= n:
            equal = ~differences_at(a + i, b + i) & 0xFFFFFFFF
            gaps = equal & (equal >> 1) & (equal >> 2)
            if gaps != 0:
                return int(i + lowest_bit(gaps))
            i += 30  # the last two may be the beginning of a gap
        end = i
        while end > start and byte_at(a + end - 1) == byte_at(b + end - 1):
            end -= 1
        while i < n and i - end <= PATCH_GAP:
            if byte_at(a + i) != byte_at(b + i):
                end = i + 1
            i += 1
        return end

    @jit
    def next_fill(memory: Any, start: int, end: int) -> int:
        """Where the first `SHORTEST_FILL` equal bytes between ``start`` and ``end`` begin; ``end`` if there are none."""
        i = start
        while i + 33 <= end:
            equal = ~differences_at(memory + i, memory + i + 1) & 0xFFFFFFFF
            pairs = equal & (equal >> 1)
            fours = pairs & (pairs >> 2)
            sevens = fours & (fours >> 3)
            if sevens != 0:
                return int(i + lowest_bit(sevens))
            i += 26  # the last six may be the beginning of a fill
        begin = i
        while i < end:
            if byte_at(memory + i) != byte_at(memory + begin):
                begin = i
            i += 1
            if i - begin == SHORTEST_FILL:
                return begin
        return end

    @jit
    def fill_end(memory: Any, start: int, n: int) -> int:
        """First index behind ``start`` at which another byte stands; ``n`` if there is none."""
        return next_difference(memory, memory + 1, start, n - 1) + 1

else:

    def bytes_at(address: int, length: int) -> Bytes:
        """The memory at ``address``, which the caller keeps alive."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * int(length)).from_address(int(address)))

    def copy_part(target: Bytes, at: int, source: Bytes, start: int, length: int) -> None:
        """Copy ``length`` bytes of ``source`` from ``start`` on to ``target`` from ``at`` on; they must not overlap."""
        target[at : at + length] = source[start : start + length]

    blend_word = copy_part

    def copy_word(target: Bytes, at: int, source: Bytes, start: int) -> None:
        """Copy 8 bytes."""
        target[at : at + 8] = source[start : start + 8]

    memory_at = bytes_at  # type: ignore[assignment]

    def store_byte(target: Bytes, at: int, value: int) -> None:
        """Write one byte."""
        target[at] = value

    def fill_part(target: Bytes, at: int, value: int, length: int) -> None:
        """Set ``length`` bytes of ``target`` from ``at`` on to one value."""
        target[at : at + length] = value

    def same_part(a: Bytes, at: int, b: Bytes, start: int, length: int) -> bool:
        """Whether ``length`` bytes of ``a`` from ``at`` on are those of ``b`` from ``start`` on."""
        return bool((a[at : at + length] == b[start : start + length]).all())

    def split_pixels(source: Bytes, start: int, target: Bytes, at: int, stride: int) -> None:
        """16 pixels of 4 bytes, to four places that lie ``stride`` apart: the first bytes, the second bytes, and so on."""
        for channel in range(4):
            place = at + channel * stride
            target[place : place + 16] = source[start + channel : start + 64 : 4]

    def prefetch(address: int) -> None:
        """Nothing: only compiled kernels are ahead of the memory."""

    def load_byte(array: Bytes, index: int) -> int:
        """One byte as a signed integer."""
        return int(array[index])

    def memory_of(array: Bytes, start: int, length: int) -> Bytes:
        """What `next_difference` takes: here a part of the array, in compiled kernels its address."""
        return array[start : start + length]

    def next_difference(a: Any, b: Any, start: int, n: int) -> int:
        """First index from ``start`` on at which two memories of ``n`` bytes differ; ``n`` if they do not."""
        differing = a[start:n] != b[start:n]
        first = int(differing.argmax()) if differing.size else 0
        return start + first if differing.size and differing[first] else n

    def count_differences(a: Any, b: Any, n: int) -> int:
        """In how many pieces of 32 bytes two memories of ``n`` bytes differ; a shorter rest does not count."""
        whole = n // 32 * 32
        return int((a[:whole] != b[:whole]).reshape(-1, 32).any(axis=1).sum())

    def patch_end(a: Any, b: Any, start: int, n: int) -> int:
        """Where the patch that begins at ``start`` ends: behind the last difference before three equal bytes."""
        end = i = start
        while i < n and i - end <= PATCH_GAP:
            if a[i] != b[i]:
                end = i + 1
            i += 1
        return end

    def next_fill(memory: Any, start: int, end: int) -> int:
        """Where the first `SHORTEST_FILL` equal bytes between ``start`` and ``end`` begin; ``end`` if there are none."""
        begin = i = start
        while i < end:
            if memory[i] != memory[begin]:
                begin = i
            i += 1
            if i - begin == SHORTEST_FILL:
                return begin
        return end

    def fill_end(memory: Any, start: int, n: int) -> int:
        """First index behind ``start`` at which another byte stands; ``n`` if there is none."""
        other = np.flatnonzero(memory[start:n] != memory[start])
        return start + int(other[0]) if other.size else n
