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
    "encode_frame",
    "encode_runs",
    "jit",
    "memory_at",
    "memory_of",
    "prefetch",
    "same_part",
    "split_pixels",
    "write_patches",
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


# Patches: how one frame differs from another. A list of `number, skip, bytes`, closed by a number of 0: `skip` bytes are left
# as they are, then `number >> 1` bytes are replaced. An even number is followed by these bytes, an odd one by a single byte
# that fills them all. Numbers are in LEB128: 7 bits a byte, low bits first.
# A frame is patched onto the one before it. Two bytes in front of its patches, which no number begins with, say otherwise:
FROM_ZEROS, FROM_BASE = 128, 129  # each followed by a 0; onto all zeros (a reset's padding), onto the base (a new episode)
#: The most that a patch takes beside its bytes: two numbers of 5 bytes, and the closing 0.
_PATCH_OVERHEAD = 11


@jit
def _put_number(out: Any, position: int, number: int) -> int:
    while number >= 128:
        store_byte(out, position, (number & 127) | 128)
        position += 1
        number >>= 7
    store_byte(out, position, number)
    return position + 1


# `Any` stands for a memory in what follows, see `memory_of`.


@jit
def write_patches(before: Any, after: Any, n: int, out: Any, position: int, limit: int) -> int:
    """Write the patches that turn ``n`` bytes into others.

    :return: the position behind them, or -1 if that may be beyond ``limit``
    """
    reached = 0
    start = next_difference(before, after, 0, n)
    while start < n:
        end = patch_end(before, after, start, n)
        while start < end:
            literal_end = next_fill(after, start, end) if end - start >= SHORTEST_FILL else end
            if literal_end > start:
                length = literal_end - start
                if position + length + _PATCH_OVERHEAD > limit:
                    return -1
                position = _put_number(out, position, length << 1)
                position = _put_number(out, position, start - reached)
                if length <= 8 and position + 8 <= limit and start + 8 <= n:
                    copy_word(out, position, after, start)
                else:
                    copy_part(out, position, after, start, length)
                position += length
                start = reached = literal_end
            if literal_end < end:
                stop = fill_end(after, start, n)  # bytes that did not change may well be filled too
                if position + 1 + _PATCH_OVERHEAD > limit:
                    return -1
                position = _put_number(out, position, (stop - start) << 1 | 1)
                position = _put_number(out, position, start - reached)
                store_byte(out, position, load_byte(after, start))
                position += 1
                start = reached = stop
        start = next_difference(before, after, start, n)
    if position >= limit:
        return -1
    store_byte(out, position, 0)
    return position + 1


@jit
def apply_patches(data: Any, n: int, position: int, frame: Any, size: int, base: Any) -> int:
    """Turn a frame of ``size`` bytes into the next one, by patches that stand in ``n`` bytes of data.

    :return: the position behind them, or -1 if they cannot be right
    """
    if position + 2 <= n and load_byte(data, position + 1) == 0:
        how = load_byte(data, position)
        if how == FROM_ZEROS:
            fill_part(frame, 0, 0, size)
            position += 2
        elif how == FROM_BASE:
            copy_part(frame, 0, base, 0, size)
            position += 2
    # The loop that sampling spends its time in: numbers are read in place, not by a function.
    reached = 0
    while True:
        if position >= n:
            return -1
        number = load_byte(data, position)
        position += 1
        if number == 0:
            return position
        if number >= 128:
            number &= 127
            shift = 7
            while True:
                if position >= n or shift > 28:
                    return -1
                byte = load_byte(data, position)
                position += 1
                number |= (byte & 127) << shift
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
        length = number >> 1
        if number & 1:
            if length == 0 or reached + length > size or position >= n:
                return -1
            fill_part(frame, reached, load_byte(data, position), length)
            reached += length
            position += 1
            continue
        if length == 0 or reached + length > size or position + length > n:
            return -1
        if length <= 8 and reached + 8 <= size and position + 8 <= n:
            blend_word(frame, reached, data, position, length)
        else:
            copy_part(frame, reached, data, position, length)
        reached += length
        position += length


@jit
def encode_frame(before: Any, after: Any, base: Any, n: int, out: Any, position: int, limit: int) -> int:
    """Write a frame of ``n`` bytes as patches on the one before it, on ``base`` or on zeros, whichever is shortest.

    :return: the position behind them, or -1 if that may be beyond ``limit``
    """
    end = write_patches(before, after, n, out, position, limit)
    # Another start is only tried for a frame that has changed a lot: a new episode, a new scene.
    if end < 0 or end - position > n // 16:
        best = (end if end >= 0 else limit + 1) - position
        zeros, spare = np.zeros(n, np.uint8), np.empty(n, np.uint8)
        for how in (FROM_ZEROS, FROM_BASE):
            start = memory_of(zeros, 0, n) if how == FROM_ZEROS else base
            length = write_patches(start, after, n, memory_of(spare, 0, n), 0, min(n, best - 3))
            if length >= 0:
                store_byte(out, position, how)
                store_byte(out, position + 1, 0)
                copy_part(out, position + 2, spare, 0, length)
                best = length + 2
                end = position + best
    return end


@jit
def encode_delta(frames: Bytes, base: Bytes, out: Bytes) -> int:
    """Frames one by one, see `encode_frame`; bytes written, or -1 if ``out`` is too short."""
    rows, n = frames.reshape(-1), base.size
    position = 0
    for i in range(frames.shape[0]):
        before = memory_of(rows, (i - 1) * n, n) if i > 0 else memory_of(base, 0, n)
        frame, target = memory_of(rows, i * n, n), memory_of(out, 0, out.size)
        position = encode_frame(before, frame, memory_of(base, 0, n), n, target, position, out.size)
        if position < 0:
            return -1
    return position


@jit
def decode_delta(data: Bytes, base: Bytes, out: Bytes) -> bool:
    """Fill ``out`` (frames, frame_bytes) from the beginning of ``data``; False if the patches cannot be right."""
    rows, n = out.reshape(-1), base.size
    position = 0
    for i in range(out.shape[0]):
        if i == 0:
            copy_part(rows, 0, base, 0, n)
        else:
            copy_part(rows, i * n, rows, (i - 1) * n, n)
        memory, frame = memory_of(data, 0, data.size), memory_of(rows, i * n, n)
        position = apply_patches(memory, data.size, position, frame, n, memory_of(base, 0, n))
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
