"""The loop of the store that runs at every sample: fetch observations from blocks. Its other half is kernels.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import CODED, HEADER_BYTES, Bytes
from sb3_extra_buffers.codecs.kernels import bytes_at, copy_part, jit, memory_at, memory_of, prefetch
from sb3_extra_buffers.codecs.patches import apply_patches
from sb3_extra_buffers.store.tables import ADDRESS, BASE, CHUNK, LENGTH, OFFSET, PREVIOUS

#: How many observations ahead memory is asked for while one is decoded, and how many bytes of it.
_AHEAD, _PREFETCHED_BYTES = 2, 1024

_HEADER, _CODED = HEADER_BYTES, CODED


@jit
def _prefetch_block(
    token: int, blocks: NDArray[np.int32], chunks: NDArray[np.int64], stack: int, block_frames: int, frame_bytes: int
) -> None:
    """Ask for the memory that an observation will be read from: blocks lie all over it."""
    slot = token // block_frames
    if token < 0 or blocks[slot, CHUNK] < 0:
        return
    begin, length = 0, int(blocks[slot, LENGTH])
    if length == _HEADER + block_frames * frame_bytes:  # raw: only its own frames are read
        begin = max(token % block_frames - stack + 1, 0) * frame_bytes
        length = _HEADER + (token % block_frames + 1) * frame_bytes
    address = chunks[blocks[slot, CHUNK], ADDRESS] + blocks[slot, OFFSET]
    for line in range(begin, min(length, begin + _PREFETCHED_BYTES), 64):
        prefetch(address + line)


@jit
def fetch(
    tokens: NDArray[np.int64],  # (n,): -1 where nothing was written
    order: NDArray[np.int64],  # indices into tokens, so that tokens[order] ascends; any order if no block is coded
    out: Bytes,  # (n, observation_bytes)
    staging: Bytes,
    blocks: NDArray[np.int32],
    chunks: NDArray[np.int64],
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
            if end + _AHEAD < n and back == 0:
                _prefetch_block(tokens[order[end + _AHEAD]], blocks, chunks, stack, block_frames, frame_bytes)
            if back == 1:
                if least >= stack - 1:
                    continue
                slot, last = blocks[slot, PREVIOUS], block_frames - 1
            chunk = blocks[slot, CHUNK]
            if chunk < 0:  # open: the frames lie in the staging rows of their stream
                source = rows
                offset = ((-1 - chunk) * n_rows + stack) * frame_bytes
                coded = False
            else:
                source = bytes_at(chunks[chunk, ADDRESS] + blocks[slot, OFFSET], int(blocks[slot, LENGTH]))
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
            base = blocks[slot, BASE]
            known = memory_of(zeros, 0, frame_bytes)
            if base >= 0:
                known = memory_at(chunks[blocks[base, CHUNK], ADDRESS] + blocks[base, OFFSET] + _HEADER, frame_bytes)
            copy_part(frame, 0, known, 0, frame_bytes)
            patches = memory_at(chunks[chunk, ADDRESS] + blocks[slot, OFFSET], source.size)
            position = offset
            for index in range(last + 1):
                into = memory_of(frame, 0, frame_bytes)
                position = apply_patches(patches, source.size, position, into, frame_bytes, known)
                if position < 0:
                    return int(slot)
                for j in range(begin, end):
                    # where this frame stands in the observation, if at all
                    k = index - (tokens[order[j]] % block_frames - stack + 1) - back * block_frames
                    if 0 <= k < stack:
                        copy_part(target, order[j] * observation_bytes + k * frame_bytes, frame, 0, frame_bytes)
    return -1
