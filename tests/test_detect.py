"""Frame detection: the layout is found from the data, and a wrong guess never costs correctness."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_extra_buffers.store import LeafStore, StorePlan
from sb3_extra_buffers.store.detect import MOST_MISSES, MOST_WAITING

N_CELLS = 64


def store_for(shape: tuple[int, ...], n_streams: int = 1) -> LeafStore:
    return LeafStore(StorePlan(shape, np.dtype(np.uint8), N_CELLS, n_streams, 1))


def write(store: LeafStore, cell: int, observation: np.ndarray) -> None:
    store.write(0, np.array([cell]), observation[None])


@pytest.mark.parametrize(("shape", "axis"), [((4, 9, 9), 0), ((9, 9, 4), -1), ((4, 4, 4, 4), 0)])
def test_a_shifted_observation_tells_the_stack(shape: tuple[int, ...], axis: int) -> None:
    store, rng = store_for(shape), np.random.default_rng(0)
    frames = rng.integers(0, 256, (6, *np.moveaxis(np.empty(shape), axis, 0).shape[1:]), np.uint8)
    for i in range(2):
        write(store, i, np.stack(frames[i : i + 4], axis))
    assert store.layout is not None
    assert (store.layout.stack, store.layout.axis) == (4, axis)


def test_colours_stay_together() -> None:
    store, rng = store_for((12, 8, 8)), np.random.default_rng(0)
    frames = rng.integers(0, 256, (5, 3, 8, 8), np.uint8)
    for i in range(2):
        write(store, i, np.concatenate(frames[i : i + 4]))
    assert store.layout is not None
    assert store.layout.stack == 4


def test_observations_that_never_shift_are_not_stacked() -> None:
    store, rng = store_for((4, 8, 8)), np.random.default_rng(0)
    for i in range(MOST_MISSES + 1):
        assert store.layout is None
        write(store, i, rng.integers(0, 256, (4, 8, 8), np.uint8))
    assert store.layout is not None
    assert store.layout.stack == 1


def test_a_picture_that_stands_still_does_not_wait_for_ever() -> None:
    store, rng = store_for((4, 8, 8)), np.random.default_rng(0)
    still = rng.integers(0, 256, (4, 8, 8), np.uint8)
    for i in range(MOST_WAITING - 1):
        write(store, i % N_CELLS, still)
    assert store.layout is None
    assert store.store.memory_usage().stored_bytes == still.nbytes  # it waits once
    write(store, 0, still)
    assert store.layout is not None
    assert store.layout.stack == 4
    moved = rng.integers(0, 256, (4, 8, 8), np.uint8)
    write(store, 5, moved)
    assert np.array_equal(store.read(0, np.array([5, 6])), [moved, still])


def test_unwritten_cells_read_as_zeros_before_and_after_the_layout_is_known() -> None:
    store, rng = store_for((4, 8, 8)), np.random.default_rng(0)
    frames = rng.integers(1, 256, (5, 8, 8), np.uint8)
    for i in range(2):
        write(store, i, frames[i : i + 4])
        assert not store.read(0, np.array([9])).any()
        assert np.array_equal(store.read(0, np.array([i]))[0], frames[i : i + 4])
