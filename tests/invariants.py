"""What must be true of a FrameStore at any time, recomputed from its live cells."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sb3_extra_buffers.store import FrameStore
from sb3_extra_buffers.store.kernels import OPEN, RESERVE


def expected_references(store: FrameStore) -> np.ndarray:
    """References of each slot as cells, streams and bases imply them."""
    counts = np.zeros(store._n_slots, np.int64)
    heads = store._heads.reshape(-1).astype(np.int64) - 1
    for token in heads[heads >= 0].tolist():
        slot, index = divmod(token, store.block_frames)
        counts[slot] += 1
        if index < store.layout.stack - 1:
            counts[store._previous[slot]] += 1
    for row in store._streams.tolist():
        counts[row[OPEN]] += 1
        counts[row[RESERVE]] += 1
        if store._previous[row[OPEN]] >= 0:
            counts[store._previous[row[OPEN]]] += 1
    # Sealed blocks keep their base; a base is no block of a stream, so this needs no second round.
    for slot in np.flatnonzero(counts).tolist():
        if store._length[slot] and store._base[slot] >= 0:
            counts[store._base[slot]] += 1
    if store._current_base >= 0:
        counts[store._current_base] += 1
    return counts


def check_invariants(store: FrameStore) -> None:
    """References, live bytes and free slots are exactly what the live cells imply."""
    counts = expected_references(store)
    assert store._references[: store._n_slots].tolist() == counts.tolist()
    assert sorted(store._free_slots) == np.flatnonzero(counts == 0).tolist()
    kept = np.flatnonzero((counts > 0) & (store._length[: store._n_slots] > 0))
    arena = store._arena
    assert arena.live_bytes == int(store._length[kept].sum()) == sum(arena._live.values())
    assert arena.held_bytes == sum(chunk.size for chunk in arena._chunks.values())
    ends = sorted((int(store._place[slot]), int(store._length[slot])) for slot in kept)
    for (place, length), (following, _) in pairwise(ends):
        assert place + length <= following or place >> 20 != following >> 20, "blocks overlap"
