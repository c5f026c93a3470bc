"""The loops of the device store: which frames of an observation are new and which slots fall free, at every step; and which
slots a batch needs.

Written once for numba and for plain Python, as codecs/kernels.py explains. They run on the host, where observations arrive
and where the observation written last is kept for comparison: so nothing waits for the device.

    heads[column, cell]   the slot of the last frame of an observation, 0 where nothing was written
    previous[slot]        the frame before it in the stream; an observation is `stack` frames in a row. Slot 0, the frame of
                          zeros, comes before itself: unwritten cells read as zeros, and the padding of a reset costs nothing
    references[slot]      cells whose observation holds the frame, and streams whose last observation does
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import Bytes
from sb3_extra_buffers.codecs.kernels import copy_part, jit, memory_of
from sb3_extra_buffers.store.comparing import count_new_frames

Ints = NDArray[np.int32]


@jit
def retain(slot: int, previous: Ints, references: Ints, stack: int) -> None:
    """One more that needs the observation that ends with this slot."""
    for _ in range(stack):
        references[slot] += 1
        slot = previous[slot]


@jit
def release(slot: int, previous: Ints, references: Ints, stack: int, freed: Ints, n_freed: int) -> int:
    """One less; slots that nobody needs go to ``freed``, whose new length is returned."""
    for _ in range(stack):
        before = previous[slot]
        references[slot] -= 1
        if references[slot] == 0 and slot != 0:
            freed[n_freed] = slot
            n_freed += 1
        slot = before
    return n_freed


@jit
def append(
    values: Bytes,  # (n, observation_bytes)
    cells: NDArray[np.int64],  # (n,)
    heads: Ints,  # (cells of the column,)
    last: Bytes,  # (streams, observation_bytes): the observation written last
    streams: Ints,  # (streams,): its slot, -1 where nothing was written
    previous: Ints,
    references: Ints,
    free: Ints,  # a stack of free slots, of which `n_free` are left
    n_free: int,
    stack: int,
    new_frames: NDArray[np.int64],  # out: rows of values.reshape(n * stack, frame_bytes) that must be stored
    new_slots: NDArray[np.int64],  # out: and the slots they get
    freed: Ints,  # out
) -> tuple[int, int]:
    """Write observations into cells; the number of new frames and of freed slots. `n_free` must be n * stack or more."""
    nbytes = values.shape[1]
    frame_bytes = nbytes // stack
    n_new = 0
    n_freed = 0
    for i in range(cells.size):
        cell = cells[i]
        stream = cell % streams.size
        value, tail = values[i], last[stream]
        old = streams[stream]
        fresh = stack
        if old >= 0:
            fresh = count_new_frames(memory_of(value, 0, nbytes), memory_of(tail, 0, nbytes), stack, frame_bytes)
        if fresh > 0:
            slot = old if fresh < stack else 0
            padding = fresh == stack
            for k in range(stack - fresh, stack):
                if padding and not value[k * frame_bytes : (k + 1) * frame_bytes].any():
                    continue
                padding = False
                n_free -= 1
                previous[free[n_free]] = slot
                slot = free[n_free]
                new_frames[n_new], new_slots[n_new] = i * stack + k, slot
                n_new += 1
            copy_part(tail, 0, value, 0, nbytes)
            streams[stream] = slot
            retain(slot, previous, references, stack)
            if old >= 0:
                n_freed = release(old, previous, references, stack, freed, n_freed)
        # Retain the new before the old is released: they may share frames.
        retain(streams[stream], previous, references, stack)
        n_freed = release(heads[cell], previous, references, stack, freed, n_freed)
        heads[cell] = streams[stream]
    return n_new, n_freed


@jit
def erase(cells: NDArray[np.int64], heads: Ints, previous: Ints, references: Ints, stack: int, freed: Ints) -> int:
    """Empty cells; the number of freed slots."""
    n_freed = 0
    for i in range(cells.size):
        n_freed = release(heads[cells[i]], previous, references, stack, freed, n_freed)
        heads[cells[i]] = 0
    return n_freed


@jit
def list_once(slots: NDArray[np.int64], distinct: NDArray[np.int64], order: NDArray[np.int64]) -> int:
    """Each slot once into ``distinct``, as they first appear; ``distinct[order]`` are the slots. How many there are."""
    n_places = 16
    while n_places < 2 * slots.size:
        n_places *= 2
    table = np.full(n_places, -1, np.int32)  # by slot: where in `distinct` it is, or else at one of the next places
    n = 0
    for i in range(slots.size):
        slot = slots[i]
        place = slot & (n_places - 1)
        while table[place] >= 0 and distinct[table[place]] != slot:
            place = (place + 1) & (n_places - 1)
        if table[place] < 0:
            table[place] = n
            distinct[n] = slot
            n += 1
        order[i] = table[place]
    return n
