"""Large batches are read by a few threads, with the same result, also in a forked child."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.native import set_threads
from sb3_extra_buffers.native.threads import thread_count
from sb3_extra_buffers.store import BlockStore, FrameLayout
from tests.store_segments import damage_last_block

SHAPE = (4, 84, 84)
N = 200


def filled_store() -> tuple[BlockStore, np.ndarray]:
    rng = np.random.default_rng(0)
    frames = np.cumsum(rng.random((N + 3, 84, 84)) < 0.002, axis=0).astype(np.uint8)
    observations = np.stack([frames[i : i + 4] for i in range(N)])
    store = BlockStore(FrameLayout(SHAPE, np.dtype(np.uint8), 4), N, make_codec("delta"))
    store.write(0, np.arange(N), observations)
    return store, observations


@pytest.fixture(autouse=True)
def _usual_threads() -> Iterator[None]:
    yield
    set_threads(thread_count())


def tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_any_number_of_threads_reads_the_same(count: int) -> None:
    set_threads(count)
    store, observations = filled_store()
    cells = np.random.default_rng(1).integers(0, N, 300)
    for _ in range(20):
        assert np.array_equal(store.read(0, cells), observations[cells])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no list of threads on this system")
def test_small_batches_start_no_threads_and_large_ones_do() -> None:
    set_threads(16)  # more than any other test has started
    store, observations = filled_store()
    before = tasks()
    assert np.array_equal(store.read(0, np.arange(8)), observations[:8])
    assert tasks() == before
    assert np.array_equal(store.read(0, np.arange(N)), observations)
    assert tasks() > before


@pytest.mark.parametrize("count", [1, 4])
def test_a_damaged_block_is_reported_by_whichever_thread_finds_it(count: int) -> None:
    set_threads(count)
    store, _ = filled_store()
    damage_last_block(store, bytes([255]) * 400)
    with pytest.raises(CorruptDataError, match="damaged"):
        store.read(0, np.arange(N))


def _read_in_child(store: BlockStore, queue: Any) -> None:
    queue.put(store.read(0, np.arange(N)).tobytes())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns, and it is what is tested here
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
def test_a_forked_child_has_threads_of_its_own() -> None:
    set_threads(2)
    store, observations = filled_store()
    assert np.array_equal(store.read(0, np.arange(N)), observations)  # the parent's threads run now
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_read_in_child, args=(store, queue))
    child.start()
    assert queue.get(timeout=60) == observations.tobytes()
    child.join(60)
    assert child.exitcode == 0
