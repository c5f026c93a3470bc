"""One thread adds while another samples: every sampled transition is one that was written."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.store import LeafStore, StorePlan

SPACE = spaces.Box(0, 255, (4, 16, 16), np.uint8)
SECONDS = 0.7


def observation(t: int, env: int) -> np.ndarray:
    """A stack whose frames tell their time and env."""
    frames = np.zeros((4, 16, 16), np.uint8)
    for k in range(4):
        frames[k] = (7 * (t - 3 + k) + 50 * env) % 251
    return frames


@pytest.mark.parametrize("method", ["auto", "none", "gzip", "zstd"])
@pytest.mark.parametrize("kind", ["plain", "dict"])
def test_sampled_transitions_were_written(kind: str, method: str) -> None:
    space: Any = spaces.Dict({"camera": SPACE, "time": spaces.Box(0, 1e9, (1,), np.float64)}) if kind == "dict" else SPACE
    buffer_class = CompressedDictReplayBuffer if kind == "dict" else CompressedReplayBuffer
    buffer = buffer_class(50, space, spaces.Discrete(2), n_envs=2, compression_method=method)
    stop, failures, batches = threading.Event(), [], 0

    def observations(t: int) -> Any:
        camera = np.stack([observation(t, env) for env in range(2)])
        return {"camera": camera, "time": np.full((2, 1), float(t))} if kind == "dict" else camera

    def add(t: int) -> None:
        buffer.add(observations(t), observations(t + 1), np.zeros(2), np.full(2, t), np.zeros(2), [{}, {}])

    def writer() -> None:
        t = 1
        try:
            while not stop.is_set():
                add(t)
                t += 1
        except Exception as error:
            failures.append(error)

    add(0)
    thread = threading.Thread(target=writer)
    thread.start()
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end and not failures:
            batch = buffer.sample(16)
            batches += 1
            for i, t in enumerate(batch.rewards[:, 0].int().tolist()):
                obs, next_obs = (
                    (batch.observations, batch.next_observations)
                    if kind == "plain"
                    else (batch.observations["camera"], batch.next_observations["camera"])
                )
                candidates = [env for env in range(2) if (obs[i].numpy() == observation(t, env)).all()]
                assert len(candidates) == 1, t
                assert (next_obs[i].numpy() == observation(t + 1, candidates[0])).all(), t
                if kind == "dict":
                    assert (batch.observations["time"][i], batch.next_observations["time"][i]) == (t, t + 1)
    finally:
        stop.set()
        thread.join()
    assert not failures, failures
    assert batches > 5


def test_a_write_that_waited_for_the_decision_is_not_lost() -> None:
    """The layout is decided by one thread while another one is about to write and to read."""
    store = LeafStore(StorePlan((4, 64), np.dtype(np.uint8), 4, 1, 1))
    value = np.full((1, 4, 64), 9, np.uint8)
    results: list[np.ndarray] = []

    def work() -> None:
        store.write(0, np.array([2]), value)
        results.append(store.read(0, np.array([2])))

    frames = np.random.default_rng(0).integers(0, 256, (5, 64), dtype=np.uint8)
    with store.lock:
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.05)  # the thread stands before the lock now
        for t in range(2):
            store.write(0, np.array([t]), frames[None, t : t + 4])
        assert store.layout is not None
    thread.join()
    assert (results[0] == 9).all()
    assert (store.read(0, np.array([2])) == 9).all()
