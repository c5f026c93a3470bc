"""What must be true of a store at any time, recomputed from its live cells."""

from __future__ import annotations

import numpy as np

from sb3_extra_buffers.store import BlockStore, RowStore, Store
from sb3_extra_buffers.store.detect import WaitingStore


def check_invariants(store: Store) -> None:
    """Nothing is kept that the live cells do not need, and nothing that they need is free."""
    if isinstance(store, RowStore):
        check_rows(store)
    elif isinstance(store, BlockStore):
        store.check()
    elif not isinstance(store, WaitingStore):
        check_device(store)


def check_rows(store: RowStore) -> None:
    """Exceptions belong to one cell or are free, and no cell has one for what is the obs of the next step."""
    if store.n_columns == 1:
        assert not store._own.size
        return
    first = 2
    own = store._own.astype(np.int64)
    taken = own[own > 1].tolist()
    free = store._free.snapshot().tolist()
    assert len(set(taken + free)) == len(taken + free)
    assert set(taken + free) <= set(range(first, len(store._exceptions)))
    following = np.roll(store._rows, -store.n_streams, axis=0)
    if store.window is not None:  # what these had before is given back when the window ends
        own[store.window.first * store.n_streams : store.window.next_slot * store.n_streams] = 0
    for cell in np.flatnonzero(own > 1).tolist():
        assert store._exceptions[own[cell]].tobytes() != following[cell].tobytes(), "an exception that could be shared"


def check_device(store: Store) -> None:
    """The memory keeps frames of blocks that are in use, and of no others."""
    from sb3_extra_buffers.store.device.store import DeviceStore

    assert isinstance(store, DeviceStore)
    store.check()
    named, _ = store._index.tokens(np.arange(store.n_cells), None, (1 << store.n_columns) - 1)
    planned = np.arange(0) if store._put is None else store._put[0]
    needed = np.concatenate((named, planned)) // store.layout.stack
    unneeded = np.setdiff1d(store.memory.tokens() // store.layout.stack, needed)
    assert len(unneeded) <= 2 * store.n_streams, "more than the block that a stream goes on with, and the one before"
