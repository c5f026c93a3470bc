"""Kernels of `delta`: frames <-> patches. Used by the codec, and frame by frame by the store's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sb3_extra_buffers.codecs.base import Bytes
from sb3_extra_buffers.codecs.kernels import (
    SHORTEST_FILL,
    blend_word,
    copy_part,
    copy_word,
    count_differences,
    fill_end,
    fill_part,
    jit,
    load_byte,
    memory_of,
    next_difference,
    next_fill,
    patch_end,
    store_byte,
)

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
    return try_other_starts(before, after, base, n, out, position, end, limit)


@jit
def try_other_starts(before: Any, after: Any, base: Any, n: int, out: Any, position: int, end: int, limit: int) -> int:
    """Write a frame as patches on ``base`` or on zeros, if these are shorter than those that stand there now.

    :param end: what `write_patches` has said
    :return: the new end
    """
    # Only for a frame that has changed a lot (a new episode, a new scene), and only from where less is different.
    if 0 <= end <= position + n // 16:
        return end
    best = (end if end >= 0 else limit + 1) - position
    least = count_differences(before, after, n)
    zeros, spare = np.zeros(n, np.uint8), np.empty(n, np.uint8)
    for how in (FROM_ZEROS, FROM_BASE):
        start = memory_of(zeros, 0, n) if how == FROM_ZEROS else base
        if end >= 0 and count_differences(start, after, n) >= least:
            continue
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
