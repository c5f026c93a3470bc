"""The two loops of the store that run at every step: append observations to their streams, and fetch them again.

Written once for numba and for plain Python, as codecs/kernels.py explains. The arrays are those of FrameStore:

    staging[stream]      context | open block ......... | room     (rows of frame_bytes)
                         stack     block_frames           stack
    The observation written last is always the rows `fill .. fill + stack`.

    token = slot * block_frames + index: names a frame, and an observation by its last frame. An observation is `stack`
    frames in a row; what is missing at the front of its block is the end of block `previous[slot]`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import CODED, HEADER_BYTES, Bytes
from sb3_extra_buffers.codecs.kernels import COMPILED, apply_patches, bytes_at, copy_part, jit, same_part, split_pixels
from sb3_extra_buffers.store.arena import CHUNK_BITS, CHUNK_BYTES

__all__ = ["COMPILED", "append", "fetch", "split_four_channels"]

# Columns of `streams`.
FILL, HEAD, OPEN, RESERVE = 0, 1, 2, 3

_HEADER, _CODED = HEADER_BYTES, CODED
_OFFSET = CHUNK_BYTES - 1


@jit
def append(
    columns: tuple[Bytes, ...],  # one or two arrays (n, observation_bytes): what to write into each column
    first_column: int,
    cells: NDArray[np.int64],  # (n,)
    start: int,
    heads: NDArray[np.int32],  # (columns, cells): token + 1, 0 where nothing was written
    staging: Bytes,  # (streams, rows, frame_bytes)
    streams: NDArray[np.int64],  # (streams, 4)
    references: NDArray[np.int32],
    previous: NDArray[np.int32],
    stack: int,
    block_frames: int,
    freed: NDArray[np.int32],
) -> tuple[int, int, int]:
    """Write observations into their cells, all columns of a cell before the next cell, until a block or ``freed`` is full.

    :param start: how many observations were written by earlier calls
    :return: how many are written now (-1 if a cell does not exist: then nothing is), number of freed slots, the stream
        whose block is full or -1
    """
    n_streams, n_rows, frame_bytes = staging.shape
    n_columns = len(columns)
    observation_bytes = stack * frame_bytes
    rows = staging.reshape(-1)
    n_freed = 0
    if start == 0:
        for i in range(cells.size):
            if cells[i] < 0 or cells[i] >= heads.shape[1]:
                return -1, 0, -1
    for i in range(start, cells.size * n_columns):
        if n_freed + 2 > freed.size:
            return i, n_freed, -1
        row, column = i // n_columns, i % n_columns
        cell = cells[row]
        stream = cell % n_streams
        fill, head = streams[stream, FILL], streams[stream, HEAD]
        values = columns[column].reshape(-1)
        value = row * observation_bytes
        tail = (stream * n_rows + fill) * frame_bytes
        # Never trust, always compare: only what is really there already is shared.
        fresh = stack
        if head >= 0:
            if same_part(values, value, rows, tail, observation_bytes):
                fresh = 0
            elif stack > 1 and same_part(values, value, rows, tail + frame_bytes, observation_bytes - frame_bytes):
                fresh = 1
        if fresh > 0:
            copy_part(
                rows,
                tail + observation_bytes,
                values,
                value + (stack - fresh) * frame_bytes,
                fresh * frame_bytes,
            )
            fill += fresh
            if fill <= block_frames:
                head = streams[stream, OPEN] * block_frames + fill - 1
            else:
                head = streams[stream, RESERVE] * block_frames + fill - 1 - block_frames
            streams[stream, FILL], streams[stream, HEAD] = fill, head
        # Retain the new blocks before the old ones are released: they may be the same.
        slot = head // block_frames
        references[slot] += 1
        if head % block_frames < stack - 1:
            references[previous[slot]] += 1
        old = heads[first_column + column, cell] - 1
        heads[first_column + column, cell] = head + 1
        if old >= 0:
            slot = old // block_frames
            if old % block_frames < stack - 1:
                before = previous[slot]
                references[before] -= 1
                if references[before] == 0:
                    freed[n_freed] = before
                    n_freed += 1
            references[slot] -= 1
            if references[slot] == 0:
                freed[n_freed] = slot
                n_freed += 1
        if fill >= block_frames:
            return i + 1, n_freed, stream
    return cells.size * n_columns, n_freed, -1


@jit
def fetch(
    tokens: NDArray[np.int64],  # (n,): -1 where nothing was written
    order: NDArray[np.int64],  # indices into tokens, so that tokens[order] ascends; any order if no block is coded
    out: Bytes,  # (n, observation_bytes)
    staging: Bytes,
    previous: NDArray[np.int32],
    place: NDArray[np.int64],
    length: NDArray[np.int32],
    base: NDArray[np.int32],
    addresses: NDArray[np.int64],
    stack: int,
    block_frames: int,
) -> int:
    """Fetch observations from blocks that are raw or `delta`. Each block is walked once for all that want it.

    :return: -1, or the slot of a block that cannot be right
    """
    _, n_rows, frame_bytes = staging.shape
    observation_bytes = stack * frame_bytes
    rows, target = staging.reshape(-1), out.reshape(-1)
    frame, zeros = np.empty(frame_bytes, np.uint8), np.zeros(frame_bytes, np.uint8)
    n = order.size
    # First the frames in the blocks that the tokens name, then those that reach back into the block before.
    for back in range(2 if stack > 1 else 1):
        i = 0
        while i < n:
            token = tokens[order[i]]
            if token < 0:
                if back == 0:
                    out[order[i]] = 0
                i += 1
                continue
            slot = token // block_frames
            begin, end, least, last = i, i, block_frames, 0
            while end < n and tokens[order[end]] // block_frames == slot:
                index = tokens[order[end]] % block_frames
                least, last = min(least, index), max(last, index)
                end += 1
            i = end
            if back == 1:
                if least >= stack - 1:
                    continue
                slot, last = previous[slot], block_frames - 1
            where = place[slot]
            if where < 0:  # open: the frames lie in the staging rows of their stream
                source = rows
                offset = ((-1 - where) * n_rows + stack) * frame_bytes
                coded = False
            else:
                source = bytes_at(addresses[where >> CHUNK_BITS] + (where & _OFFSET), int(length[slot]))
                offset = _HEADER
                coded = source[0] == _CODED
            if not coded:
                for j in range(begin, end):
                    first = tokens[order[j]] % block_frames - stack + 1 + back * block_frames
                    low, high = max(first, 0), min(first + stack, block_frames)
                    if low >= high:
                        continue
                    if offset + high * frame_bytes > source.size:
                        return int(slot)
                    copy_part(
                        target,
                        order[j] * observation_bytes + (low - first) * frame_bytes,
                        source,
                        offset + low * frame_bytes,
                        (high - low) * frame_bytes,
                    )
                continue
            known = zeros
            if base[slot] >= 0:
                where = place[base[slot]]
                known = bytes_at(addresses[where >> CHUNK_BITS] + (where & _OFFSET) + _HEADER, frame_bytes)
            copy_part(frame, 0, known, 0, frame_bytes)
            position = offset
            for index in range(last + 1):
                position = apply_patches(source, position, frame, known)
                if position < 0:
                    return int(slot)
                for j in range(begin, end):
                    # where this frame stands in the observation, if at all
                    k = index - (tokens[order[j]] % block_frames - stack + 1) - back * block_frames
                    if 0 <= k < stack:
                        copy_part(target, order[j] * observation_bytes + k * frame_bytes, frame, 0, frame_bytes)
    return -1


@jit
def split_four_channels(source: Bytes, out: Bytes) -> None:
    """Pixels of four interleaved bytes to four planes: ``(n, pixels, 4)`` -> ``(n, 4, pixels)``.

    What SB3 hands over for a stack of four grayscale frames: VecFrameStack stacks on the last axis, VecTransposeImage only
    changes the strides. NumPy takes ten times as long for this copy.
    """
    n, n_pixels, _ = source.shape
    flat, planes = source.reshape(-1), out.reshape(-1)
    for i in range(n):
        begin = i * n_pixels * 4
        done = 0
        while done + 16 <= n_pixels:
            split_pixels(flat, begin + done * 4, planes, begin + done, n_pixels)
            done += 16
        for pixel in range(done, n_pixels):
            for channel in range(4):
                planes[begin + channel * n_pixels + pixel] = flat[begin + pixel * 4 + channel]
