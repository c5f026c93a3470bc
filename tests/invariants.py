"""What must be true of a store at any time, recomputed from its live cells."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sb3_extra_buffers.store import FrameStore, RowStore, Store
from sb3_extra_buffers.store.tables import (
    BASE,
    CHUNK,
    CURRENT_BASE,
    FREE,
    LENGTH,
    LIVE,
    N_SLOTS,
    OFFSET,
    OPEN,
    PREVIOUS,
    REFERENCES,
    RESERVE,
)


def expected_references(store: FrameStore) -> np.ndarray:
    """References of each slot as cells, streams and bases imply them."""
    blocks = store._blocks
    counts = np.zeros(store._state[N_SLOTS], np.int64)
    heads = store._heads.reshape(-1).astype(np.int64) - 1
    for token in heads[heads >= 0].tolist():
        slot, index = divmod(token, store.block_frames)
        counts[slot] += 1
        if index < store.layout.stack - 1:
            counts[blocks[slot, PREVIOUS]] += 1
    for row in store._streams.tolist():
        counts[row[OPEN]] += 1
        counts[row[RESERVE]] += 1
        if blocks[row[OPEN], PREVIOUS] >= 0:
            counts[blocks[row[OPEN], PREVIOUS]] += 1
    # Blocks keep their base; a base is no block of a stream, so this needs no second round.
    for slot in np.flatnonzero(counts).tolist():
        if blocks[slot, BASE] >= 0:
            counts[blocks[slot, BASE]] += 1
    if store._state[CURRENT_BASE] >= 0:
        counts[store._state[CURRENT_BASE]] += 1
    return counts


def free_slots(store: FrameStore) -> list[int]:
    """Slots on the list of free ones."""
    slots, slot = [], int(store._state[FREE])
    while slot >= 0:
        slots.append(slot)
        slot = int(store._blocks[slot, PREVIOUS])
    return slots


def check_invariants(store: Store) -> None:
    """Nothing is kept that the live cells do not need, and nothing that they need is free."""
    if isinstance(store, RowStore):
        check_rows(store)
    else:
        assert isinstance(store, FrameStore)
        check_blocks(store)


def check_rows(store: RowStore) -> None:
    """Rows apart belong to one cell or are free, and no cell has one for what is the obs of the next step."""
    if store.n_columns == 1:
        assert not store._own.size
        return
    first = 2 + store.n_streams
    own = store._own.astype(np.int64)
    own[(own >= 2) & (own < first)] = 0  # what waits, shown
    taken = own[own > 1].tolist()
    assert sorted(taken + store._free.snapshot().tolist()) == list(range(first, len(store._apart)))
    following = np.roll(store._rows, -store.n_streams, axis=0)
    for cell in np.flatnonzero(own > 1).tolist():
        assert store._apart[own[cell]].tobytes() != following[cell].tobytes(), "a row apart that could be shared"
    assert not (own.reshape(-1, store.n_streams).any(axis=1) & ~np.frombuffer(store._may_own, bool)).any()


def check_blocks(store: FrameStore) -> None:
    """References, live bytes and free slots are exactly what the live cells imply."""
    counts = expected_references(store)
    blocks = store._blocks[: store._state[N_SLOTS]]
    assert blocks[:, REFERENCES].tolist() == counts.tolist()
    assert sorted(free_slots(store)) == np.flatnonzero(counts == 0).tolist()
    kept = np.flatnonzero((counts > 0) & (blocks[:, LENGTH] > 0))
    arena = store._arena
    assert arena.live_bytes == int(blocks[kept, LENGTH].sum()) == arena.table[:, LIVE].sum()
    assert arena.held_bytes == sum(chunk.size for chunk in arena._memory.values())
    places = sorted(blocks[kept][:, [CHUNK, OFFSET, LENGTH]].tolist())
    for (chunk, offset, length), (following, next_offset, _) in pairwise(places):
        assert chunk != following or offset + length <= next_offset, "blocks overlap"
