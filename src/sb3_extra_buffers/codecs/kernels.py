"""Loops over bytes, written once: compiled by numba where it is installed, run by Python and NumPy where not.

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
    "apply_patches",
    "bytes_at",
    "copy_part",
    "decode_delta",
    "decode_runs",
    "encode_delta",
    "encode_runs",
    "jit",
    "same_part",
    "split_pixels",
    "write_patches",
]

#: Equal bytes that a patch may run across before it is worth ending it: a new patch costs at least two bytes.
PATCH_GAP = 2


if COMPILED:
    from sb3_extra_buffers.codecs.memory_access import (
        blend_word,
        byte_at,
        bytes_at,
        copy_part,
        differences_at,
        load_byte,
        lowest_bit,
        memory_of,
        same_part,
        split_pixels,
    )

    @jit
    def next_difference(a: Any, b: Any, start: int, n: int) -> int:
        """First index from ``start`` on at which two memories of ``n`` bytes differ; ``n`` if they do not."""
        i = start
        while i + 32 <= n:
            differing = differences_at(a + i, b + i)
            if differing != 0:
                return int(i + lowest_bit(differing))
            i += 32
        while i < n and byte_at(a + i) == byte_at(b + i):
            i += 1
        return i

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

else:

    def bytes_at(address: int, length: int) -> Bytes:
        """The memory at ``address``, which the caller keeps alive."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * int(length)).from_address(int(address)))

    def copy_part(target: Bytes, at: int, source: Bytes, start: int, length: int) -> None:
        """Copy ``length`` bytes of ``source`` from ``start`` on to ``target`` from ``at`` on; they must not overlap."""
        target[at : at + length] = source[start : start + length]

    blend_word = copy_part

    def same_part(a: Bytes, at: int, b: Bytes, start: int, length: int) -> bool:
        """Whether ``length`` bytes of ``a`` from ``at`` on are those of ``b`` from ``start`` on."""
        return bool((a[at : at + length] == b[start : start + length]).all())

    def split_pixels(source: Bytes, start: int, target: Bytes, at: int, stride: int) -> None:
        """16 pixels of 4 bytes, to four places that lie ``stride`` apart: the first bytes, the second bytes, and so on."""
        for channel in range(4):
            place = at + channel * stride
            target[place : place + 16] = source[start + channel : start + 64 : 4]

    def load_byte(array: Bytes, index: int) -> int:
        """One byte as a signed integer."""
        return int(array[index])

    def memory_of(array: Bytes) -> Bytes:
        """What `next_difference` takes: here the array, in compiled kernels its address."""
        return array

    def next_difference(a: Any, b: Any, start: int, n: int) -> int:
        """First index from ``start`` on at which two memories of ``n`` bytes differ; ``n`` if they do not."""
        differing = a[start:n] != b[start:n]
        first = int(differing.argmax()) if differing.size else 0
        return start + first if differing.size and differing[first] else n

    def patch_end(a: Any, b: Any, start: int, n: int) -> int:
        """Where the patch that begins at ``start`` ends: behind the last difference before three equal bytes."""
        end = i = start
        while i < n and i - end <= PATCH_GAP:
            if a[i] != b[i]:
                end = i + 1
            i += 1
        return end


# Patches: how one frame differs from another. A list of `length, skip, bytes`, closed by a length of 0; `skip` bytes are
# left as they are, then `length` bytes are replaced. Lengths and skips are LEB128 numbers: 7 bits a byte, low bits first.
# A frame is patched onto the one before it. Two bytes in front of its patches, which no length begins with, say otherwise:
FROM_ZEROS, FROM_BASE = 128, 129  # each followed by a 0; onto all zeros (a reset's padding), onto the base (a new episode)


@jit
def _put_number(out: Bytes, position: int, number: int) -> int:
    while number >= 128:
        out[position] = (number & 127) | 128
        position += 1
        number >>= 7
    out[position] = number
    return position + 1


@jit
def write_patches(before: Bytes, after: Bytes, out: Bytes, position: int, limit: int) -> int:
    """Write the patches that turn ``before`` into ``after``; the position behind them, or -1 if that is beyond ``limit``."""
    n = after.size
    old, new = memory_of(before), memory_of(after)
    reached = 0
    start = next_difference(old, new, 0, n)
    while start < n:
        end = patch_end(old, new, start, n)
        if position + (end - start) + 11 > limit:  # two numbers of at most 5 bytes, and the closing 0
            return -1
        position = _put_number(out, position, end - start)
        position = _put_number(out, position, start - reached)
        copy_part(out, position, after, start, end - start)
        position += end - start
        reached = end
        start = next_difference(old, new, end, n)
    if position >= limit:
        return -1
    out[position] = 0
    return position + 1


@jit
def apply_patches(data: Bytes, position: int, frame: Bytes, base: Bytes) -> int:
    """Turn ``frame`` into the next one; the position behind its patches, or -1 if they cannot be right."""
    if position + 2 <= data.size and load_byte(data, position + 1) == 0:
        how = load_byte(data, position)
        if how == FROM_ZEROS:
            frame[:] = 0
            position += 2
        elif how == FROM_BASE:
            copy_part(frame, 0, base, 0, frame.size)
            position += 2
    # The loop that sampling spends its time in: nothing in it may touch reference counts (see memory_access.py), and numbers
    # are read in place, not by a function.
    n = data.size
    size = frame.size
    reached = 0
    while True:
        if position >= n:
            return -1
        length = load_byte(data, position)
        position += 1
        if length == 0:
            return position
        if length >= 128:
            length &= 127
            shift = 7
            while True:
                if position >= n or shift > 28:
                    return -1
                byte = load_byte(data, position)
                position += 1
                length |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
        if position >= n:
            return -1
        skip = load_byte(data, position)
        position += 1
        if skip >= 128:
            skip &= 127
            shift = 7
            while True:
                if position >= n or shift > 28:
                    return -1
                byte = load_byte(data, position)
                position += 1
                skip |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
        reached += skip
        if length == 0 or reached + length > size or position + length > n:
            return -1
        if length <= 8 and reached + 8 <= size and position + 8 <= n:
            blend_word(frame, reached, data, position, length)
        else:
            copy_part(frame, reached, data, position, length)
        reached += length
        position += length


@jit
def encode_delta(frames: Bytes, base: Bytes, out: Bytes) -> int:
    """Each frame as patches on the one before it, on ``base`` or on zeros; bytes written, or -1 if ``out`` is too short."""
    frame_bytes = base.size
    zeros = np.zeros(frame_bytes, np.uint8)
    spare = np.empty(frame_bytes, np.uint8)
    position = 0
    for i in range(frames.shape[0]):
        before = base if i == 0 else frames[i - 1]
        end = write_patches(before, frames[i], out, position, out.size)
        # Another start is only tried for a frame that has changed a lot: a new episode, a new scene.
        if end < 0 or end - position > frame_bytes // 16:
            best = (end if end >= 0 else out.size + 1) - position
            for how in (FROM_ZEROS, FROM_BASE):
                start = zeros if how == FROM_ZEROS else base
                length = write_patches(start, frames[i], spare, 0, min(frame_bytes, best - 3))
                if length >= 0:
                    out[position], out[position + 1] = how, 0
                    copy_part(out, position + 2, spare, 0, length)
                    best = length + 2
                    end = position + best
        if end < 0:
            return -1
        position = end
    return position


@jit
def decode_delta(data: Bytes, base: Bytes, out: Bytes) -> bool:
    """Fill ``out`` (frames, frame_bytes) from the beginning of ``data``; False if the patches cannot be right."""
    position = 0
    for i in range(out.shape[0]):
        if i == 0:
            copy_part(out[0], 0, base, 0, base.size)
        else:
            copy_part(out[i], 0, out[i - 1], 0, base.size)
        position = apply_patches(data, position, out[i], base)
        if position < 0:
            return False
    return True


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
