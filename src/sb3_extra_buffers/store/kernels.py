"""The loop of the store that runs at every step: append observations to their streams. fetching.py reads them again.

Written once for numba and for plain Python, as codecs/kernels.py explains. The arrays are those of FrameStore:

    staging[stream]      context | open block ......... | room     (rows of frame_bytes)
                         stack     block_frames           stack
    The observation written last is always the rows `fill .. fill + stack`.

    scratch[stream]      the open block as `delta` has encoded it so far; for a library one row, the block just encoded

    token = slot * block_frames + index: names a frame, and an observation by its last frame. An observation is `stack`
    frames in a row; what is missing at the front of its block is the end of block `blocks[slot, PREVIOUS]`.

`append` does all of it in one pass: compare, append, encode, seal, release. It comes back before the end only for what it
cannot do itself: a chunk of memory, rows of the block table, a codec that is a library.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import CODED, HEADER_BYTES, RAW, Bytes
from sb3_extra_buffers.codecs.kernels import bytes_at, copy_part, jit, memory_at, memory_of
from sb3_extra_buffers.codecs.patches import encode_frame, try_other_starts, write_patches
from sb3_extra_buffers.store.comparing import count_new_frames
from sb3_extra_buffers.store.tables import (
    ADDRESS,
    BASE,
    BASE_AGE,
    CAPACITY,
    CHUNK,
    CURRENT,
    CURRENT_BASE,
    DELTA,
    EMPTIED,
    ENCODE,
    ENCODED,
    END,
    FILL,
    FIRST,
    FREE,
    HEAD,
    LENGTH,
    LIBRARY,
    LIVE,
    LIVE_BYTES,
    N_SLOTS,
    NOBODY,
    OFFSET,
    OPEN,
    PREVIOUS,
    REFERENCES,
    RESERVE,
    UNHELPFUL,
)

__all__ = ["append", "encode_open_block", "new_slot", "open_block"]

#: Every so many blocks it is looked at whether the base is still like the frames; if not, it is replaced.
_BASE_BLOCKS = 32
#: Blocks in a row that the codec did not shrink before it is only tried now and then, and how often then.
_GIVE_UP_AFTER, _TRY_AGAIN_EVERY = 8, 16
_HEADER, _RAW, _CODED = HEADER_BYTES, RAW, CODED


@jit
def new_slot(blocks: NDArray[np.int32], state: NDArray[np.int64], previous: int) -> int:
    """A slot with one reference, that of whoever asked for it; there must be a row left."""
    slot = state[FREE]
    if slot >= 0:
        state[FREE] = blocks[slot, PREVIOUS]
    else:
        slot = state[N_SLOTS]
        state[N_SLOTS] += 1
    blocks[slot, REFERENCES], blocks[slot, PREVIOUS] = 1, previous
    blocks[slot, BASE], blocks[slot, LENGTH] = -1, 0
    return int(slot)


@jit
def _release(
    slot: int, blocks: NDArray[np.int32], chunks: NDArray[np.int64], cursor: NDArray[np.int64], state: NDArray[np.int64]
) -> None:
    """Take a reference from a block; without any, its bytes and its slot are free again, and its base is released too."""
    while slot >= 0:
        blocks[slot, REFERENCES] -= 1
        if blocks[slot, REFERENCES] > 0:
            return
        chunk, length = blocks[slot, CHUNK], blocks[slot, LENGTH]
        chunks[chunk, LIVE] -= length
        cursor[LIVE_BYTES] -= length
        if chunks[chunk, LIVE] == 0:
            if chunk == cursor[CURRENT]:
                cursor[END] = 0
            else:
                cursor[EMPTIED] += 1
        blocks[slot, PREVIOUS] = state[FREE]
        state[FREE] = slot
        slot = blocks[slot, BASE]


@jit
def _put(
    slot: int,
    tag: int,
    data: Bytes,
    at: int,
    length: int,
    blocks: NDArray[np.int32],
    chunks: NDArray[np.int64],
    cursor: NDArray[np.int64],
) -> None:
    """Keep bytes as those of a slot, behind a header; the current chunk must have room for them.

    The header has no CRC here: nothing checks bytes that have not left the process, and a saved store has its own.
    """
    chunk, offset = cursor[CURRENT], cursor[END]
    target = bytes_at(chunks[chunk, ADDRESS] + offset, _HEADER + length)
    target[:_HEADER] = 0
    target[0] = tag
    copy_part(target, _HEADER, data, at, length)
    blocks[slot, CHUNK], blocks[slot, OFFSET], blocks[slot, LENGTH] = chunk, offset, _HEADER + length
    cursor[END] += _HEADER + length
    cursor[LIVE_BYTES] += _HEADER + length
    chunks[chunk, LIVE] += _HEADER + length


@jit
def open_block(
    stream: int, slot: int, how: int, streams: NDArray[np.int64], blocks: NDArray[np.int32], state: NDArray[np.int64]
) -> None:
    """Make a slot the open block of a stream, with the current base; the slot reserved behind it is new."""
    blocks[slot, CHUNK] = -1 - stream
    streams[stream, OPEN], streams[stream, RESERVE] = slot, new_slot(blocks, state, slot)
    unhelpful = state[UNHELPFUL] - _GIVE_UP_AFTER
    gives_up = how == NOBODY or (unhelpful >= 0 and unhelpful % _TRY_AGAIN_EVERY > 0)
    streams[stream, ENCODED] = -1 if gives_up else 0
    if how == DELTA and not gives_up and state[CURRENT_BASE] >= 0:
        blocks[slot, BASE] = state[CURRENT_BASE]
        blocks[state[CURRENT_BASE], REFERENCES] += 1
        state[BASE_AGE] += 1


@jit
def encode_open_block(
    stream: int,
    first: int,
    last: int,
    end: int,
    staging: Bytes,
    scratch: Bytes,
    streams: NDArray[np.int64],
    blocks: NDArray[np.int32],
    chunks: NDArray[np.int64],
    stack: int,
    block_frames: int,
) -> None:
    """Encode frames ``first .. last - 1`` of an open block; those before are encoded already.

    :param end: where patches of frame ``first`` on the one before it end, if they were written already; or -1
    """
    encoded = streams[stream, ENCODED]
    last = min(last, block_frames)
    if encoded < 0 or first >= last:
        return
    _, n_rows, frame_bytes = staging.shape
    rows, coded = staging.reshape(-1), scratch.reshape(-1)
    begin = stream * scratch.shape[1]
    position, limit = begin + encoded, begin + scratch.shape[1]
    zeros = np.zeros(frame_bytes, np.uint8)
    base = blocks[streams[stream, OPEN], BASE]
    for index in range(first, last):
        known = memory_of(zeros, 0, frame_bytes)
        if base >= 0:
            known = memory_at(chunks[blocks[base, CHUNK], ADDRESS] + blocks[base, OFFSET] + _HEADER, frame_bytes)
        at = (stream * n_rows + stack + index) * frame_bytes
        before = known if index == 0 else memory_of(rows, at - frame_bytes, frame_bytes)
        frame, out = memory_of(rows, at, frame_bytes), memory_of(coded, 0, coded.size)
        if index == first and end >= 0:
            position = try_other_starts(before, frame, known, frame_bytes, out, position, end, limit)
        else:
            position = encode_frame(before, frame, known, frame_bytes, out, position, limit)
        if index == 0:
            streams[stream, FIRST] = position - begin if position >= 0 else frame_bytes
        # The first frame may be large, without a base above all. If the next is, too, they have nothing in common.
        hopeless = index >= 1 and position - begin > (index + 1) * frame_bytes * 3 // 4
        if position < 0 or hopeless:
            streams[stream, ENCODED] = -1
            return
    streams[stream, ENCODED] = position - begin


@jit
def _seal(
    stream: int,
    how: int,
    staging: Bytes,
    scratch: Bytes,
    streams: NDArray[np.int64],
    blocks: NDArray[np.int32],
    chunks: NDArray[np.int64],
    cursor: NDArray[np.int64],
    state: NDArray[np.int64],
    stack: int,
    block_frames: int,
) -> int:
    """Close a full block and open the reserved one behind it.

    :return: 0, or what is needed first: `ENCODE`, or so many bytes in a chunk and two rows in the block table
    """
    _, n_rows, frame_bytes = staging.shape
    fill, slot, encoded = streams[stream, FILL], streams[stream, OPEN], streams[stream, ENCODED]
    rows, first_row = staging.reshape(-1), stream * n_rows
    if how == LIBRARY and encoded == 0:
        return ENCODE
    base = state[CURRENT_BASE]
    wears_out = state[BASE_AGE] >= _BASE_BLOCKS
    new_base = how == DELTA and encoded >= 0 and (base < 0 or (wears_out and streams[stream, FIRST] > frame_bytes // 8))
    length = encoded if encoded >= 0 else block_frames * frame_bytes
    needed = _HEADER + length + (_HEADER + frame_bytes if new_base else 0)
    if cursor[END] + needed > cursor[CAPACITY] or state[N_SLOTS] + 2 > blocks.shape[0]:
        return int(needed)
    if encoded >= 0:
        begin = stream * scratch.shape[1] if how == DELTA else 0
        _put(slot, _CODED, scratch.reshape(-1), begin, length, blocks, chunks, cursor)
        state[UNHELPFUL] = 0
    else:
        _put(slot, _RAW, rows, (first_row + stack) * frame_bytes, length, blocks, chunks, cursor)
        state[UNHELPFUL] += 1
        if blocks[slot, BASE] >= 0:
            _release(blocks[slot, BASE], blocks, chunks, cursor, state)
            blocks[slot, BASE] = -1
    if new_base:  # the frame just before the next block, which it will resemble
        state[CURRENT_BASE] = new_slot(blocks, state, -1)
        at = (first_row + stack + block_frames - 1) * frame_bytes
        _put(state[CURRENT_BASE], _RAW, rows, at, frame_bytes, blocks, chunks, cursor)
        state[BASE_AGE] = 0
        _release(base, blocks, chunks, cursor, state)
    elif wears_out:
        state[BASE_AGE] = 0
    # The last frames of this block are the context of the next, whatever stands behind them is its beginning.
    for row in range(stack + fill - block_frames):
        at = (first_row + row) * frame_bytes
        copy_part(rows, at, rows, at + block_frames * frame_bytes, frame_bytes)
    fill -= block_frames
    streams[stream, FILL] = fill
    open_block(stream, streams[stream, RESERVE], how, streams, blocks, state)
    _release(blocks[slot, PREVIOUS], blocks, chunks, cursor, state)
    if how == DELTA:
        encode_open_block(stream, 0, fill, -1, staging, scratch, streams, blocks, chunks, stack, block_frames)
    return 0


@jit
def append(
    columns: tuple[Bytes, ...],  # one or two arrays of n observations: what to write into each column
    first_column: int,
    cells: NDArray[np.int64],  # (n,)
    shift: int,
    start: int,
    full: int,
    heads: NDArray[np.int32],  # (cells, columns): token + 1, 0 where nothing was written
    staging: Bytes,  # (streams, rows, frame_bytes)
    scratch: Bytes,  # (streams, bytes of a block), or (1, n)
    streams: NDArray[np.int64],
    blocks: NDArray[np.int32],
    chunks: NDArray[np.int64],
    cursor: NDArray[np.int64],
    state: NDArray[np.int64],
    stack: int,
    block_frames: int,
    how: int,  # NOBODY, DELTA or LIBRARY encodes
) -> tuple[int, int, int]:
    """Write observations into their cells, all columns of a cell before the next cell.

    :param shift: what is added to each cell
    :param start: how many observations were written by earlier calls; 0 makes it check the cells
    :param full: a stream that has to be sealed first, or -1
    :return: how many are written now (-1 if a cell does not exist: then nothing is), and the stream whose block cannot be
        sealed without help, with what it needs (see `_seal`); or -1 and how many chunks wait to be given back
    """
    n_streams, n_rows, frame_bytes = staging.shape
    n_columns = len(columns)
    observation_bytes = stack * frame_bytes
    rows, coded = staging.reshape(-1), scratch.reshape(-1)
    begin = 0
    if full >= 0:
        needed = _seal(full, how, staging, scratch, streams, blocks, chunks, cursor, state, stack, block_frames)
        if needed != 0:
            return start, full, needed
    elif start == 0:
        for i in range(cells.size):
            if cells[i] + shift < 0 or cells[i] + shift >= heads.shape[0]:
                return -1, -1, 0
    for i in range(start, cells.size * n_columns):
        row, column = i // n_columns, i % n_columns
        cell = cells[row] + shift
        stream = cell % n_streams
        fill, head = streams[stream, FILL], streams[stream, HEAD]
        values = columns[column]
        value = row * observation_bytes
        tail = (stream * n_rows + fill) * frame_bytes
        fresh = stack
        if head >= 0:
            given, last = memory_of(values, value, observation_bytes), memory_of(rows, tail, observation_bytes)
            fresh = count_new_frames(given, last, stack, frame_bytes)
        if fresh > 0:
            at = value + (stack - fresh) * frame_bytes
            encoded = streams[stream, ENCODED]
            end = -1
            if how == DELTA and fresh == 1 and 0 < fill < block_frames and encoded >= 0:
                # Nearly always: one frame, little changed. Its patches are what `encode_open_block` would write.
                begin = stream * scratch.shape[1]
                before = memory_of(rows, tail + observation_bytes - frame_bytes, frame_bytes)
                frame, out = memory_of(values, at, frame_bytes), memory_of(coded, 0, coded.size)
                end = write_patches(before, frame, frame_bytes, out, begin + encoded, begin + scratch.shape[1])
            copy_part(rows, tail + observation_bytes, values, at, fresh * frame_bytes)
            fill += fresh
            if fill <= block_frames:
                head = streams[stream, OPEN] * block_frames + fill - 1
            else:
                head = streams[stream, RESERVE] * block_frames + fill - 1 - block_frames
            streams[stream, FILL], streams[stream, HEAD] = fill, head
            if how == DELTA:
                if end >= 0 and end - begin - encoded <= frame_bytes // 16:
                    streams[stream, ENCODED] = end - begin
                else:
                    encode_open_block(
                        stream, fill - fresh, fill, end, staging, scratch, streams, blocks, chunks, stack, block_frames
                    )
        # Retain the new blocks before the old ones are released: they may be the same.
        slot = head // block_frames
        blocks[slot, REFERENCES] += 1
        if head % block_frames < stack - 1:
            blocks[blocks[slot, PREVIOUS], REFERENCES] += 1
        old = heads[cell, first_column + column] - 1
        heads[cell, first_column + column] = head + 1
        if old >= 0:
            slot = old // block_frames
            if old % block_frames < stack - 1:
                _release(blocks[slot, PREVIOUS], blocks, chunks, cursor, state)
            _release(slot, blocks, chunks, cursor, state)
        if fill >= block_frames:
            needed = _seal(stream, how, staging, scratch, streams, blocks, chunks, cursor, state, stack, block_frames)
            if needed != 0:
                return i + 1, stream, needed
    return cells.size * n_columns, -1, cursor[EMPTIED]
