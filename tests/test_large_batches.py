"""Large batches are read by a few threads, with the same result, also in a forked child."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store import FrameLayout, FrameStore, threads

SHAPE = (4, 84, 84)
N = 200


def filled_store() -> tuple[FrameStore, np.ndarray]:
    rng = np.random.default_rng(0)
    frames = np.cumsum(rng.random((N + 3, 84, 84)) < 0.002, axis=0).astype(np.uint8)
    observations = np.stack([frames[i : i + 4] for i in range(N)])
    store = FrameStore(FrameLayout(SHAPE, np.dtype(np.uint8), 4), N, make_codec("delta"))
    store.write(0, np.arange(N), observations)
    return store, observations


@pytest.mark.parametrize("count", ["1", "2", "3", "5"])
def test_any_number_of_threads_reads_the_same(monkeypatch: pytest.MonkeyPatch, count: str) -> None:
    monkeypatch.setenv("SB3_EXTRA_BUFFERS_THREADS", count)
    monkeypatch.setattr(threads, "_pool", None)
    store, observations = filled_store()
    cells = np.random.default_rng(1).integers(0, N, 300)
    assert cells.size * observations[0].nbytes > threads.LARGE_BATCH_BYTES
    assert np.array_equal(store.read(0, cells), observations[cells])


def test_small_batches_start_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_pool", None)
    store, observations = filled_store()
    assert np.array_equal(store.read(0, np.arange(8)), observations[:8])
    assert threads._pool is None


def test_a_damaged_block_is_reported_by_whichever_thread_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SB3_EXTRA_BUFFERS_THREADS", "2")
    store, _ = filled_store()
    store._bytes_in(int(store._sealed_slots()[3]))[5:] = 255
    with pytest.raises(CorruptDataError, match="damaged"):
        store.read(0, np.arange(N))


def _read_in_child(store: FrameStore, queue: Any) -> None:
    queue.put(store.read(0, np.arange(N)).tobytes())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns, and it is what is tested here
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
def test_a_forked_child_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SB3_EXTRA_BUFFERS_THREADS", "2")
    store, observations = filled_store()
    assert np.array_equal(store.read(0, np.arange(N)), observations)  # the parent's threads run now
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_read_in_child, args=(store, queue))
    child.start()
    assert queue.get(timeout=60) == observations.tobytes()
    child.join(60)
    assert child.exitcode == 0
