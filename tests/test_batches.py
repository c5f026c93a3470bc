"""Memory of batches is used again, but never while anybody still holds a part of it."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.compressed import CompressedReplayBuffer, CompressedRolloutBuffer
from sb3_extra_buffers.store.host.batches import BatchPool
from tests.oracle import add_to_replay
from tests.transitions import play

SHAPE, UINT8 = (2, 16, 32, 600), np.dtype(np.uint8)
ACTIONS = spaces.Discrete(3)


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_memory_of_a_batch_that_is_gone_is_used_again() -> None:
    pool = BatchPool()
    first = address(pool.new(SHAPE, UINT8))
    assert address(pool.new(SHAPE, UINT8)) == first
    held = pool.new(SHAPE, UINT8)
    assert address(pool.new(SHAPE, UINT8)) != address(held) == first


HOLDERS: dict[str, Any] = {
    "the array": lambda batch: batch,
    "a column": lambda batch: list(batch)[1],
    "a slice": lambda batch: batch[1, 3:5, ::7],
    "a reshaped view of a slice": lambda batch: batch[0].reshape(-1)[100:200].view(np.uint16),
    "a memoryview": lambda batch: memoryview(batch[0]),
    "a tensor": lambda batch: th.as_tensor(batch[0]),
    "a slice of a tensor": lambda batch: th.from_numpy(batch[1])[2, 3:9],
    "a detached view": lambda batch: th.from_numpy(batch)[0].view(-1).detach()[5:600],
    "the storage of a tensor": lambda batch: th.from_numpy(batch).untyped_storage(),
    "an array of a tensor": lambda batch: th.from_numpy(batch[0])[4:].numpy()[1:],
    "an array of an array of a tensor": lambda batch: np.asarray(th.as_tensor(np.asarray(th.as_tensor(batch[0])[1:])))[:3],
    "DLPack": lambda batch: th.from_dlpack(batch[0])[1:],
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_that_is_held_is_not_used_again(holder: str) -> None:
    pool = BatchPool()
    batch = pool.new(SHAPE, UINT8)
    batch[:] = 7
    held = HOLDERS[holder](batch)
    begin = address(batch)
    del batch
    gc.collect()
    for _ in range(4):
        other = pool.new(SHAPE, UINT8)
        assert address(other) != begin
        other[:] = 9
        del other
    if not isinstance(held, th.UntypedStorage):
        assert (np.asarray(held).reshape(-1).view(np.uint8) == 7).all()
    del held
    gc.collect()
    assert begin in {address(pool.new(SHAPE, UINT8)), address(pool.new(SHAPE, UINT8))} | {
        address(array) for array in [pool.new(SHAPE, UINT8) for _ in range(3)]
    }


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_any_order_of_taking_and_dropping(seed: int) -> None:
    rng, pool = np.random.default_rng(seed), BatchPool()
    held: list[tuple[int, Any]] = []
    for value in range(1, 40):
        batch = pool.new((2, int(rng.integers(5, 9)), int(rng.integers(20, 60)), 600), UINT8)
        batch[:] = value
        held.append((value, list(HOLDERS.values())[int(rng.integers(len(HOLDERS)))](batch)))
        del batch
        while len(held) > rng.integers(0, 5):
            held.pop(int(rng.integers(len(held))))
        for expected, holder in held:
            if isinstance(holder, (np.ndarray, th.Tensor)):
                assert (np.asarray(holder).reshape(-1).view(np.uint8) == expected).all()


def test_the_pool_keeps_little() -> None:
    pool = BatchPool()
    batches = [pool.new(SHAPE, UINT8) for _ in range(10)]
    del batches
    gc.collect()
    assert len(pool._free) == 2
    pool.new((64,), UINT8)  # small ones are NumPy's
    assert len(pool._free) == 2
    large = pool.new((4, *SHAPE), UINT8)
    assert large.nbytes == 4 * np.prod(SHAPE)


@pytest.mark.parametrize("method", ["auto", "zstd"])
def test_old_batches_of_a_buffer_keep_their_values(method: str) -> None:
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = CompressedReplayBuffer(100, space, ACTIONS, "cpu", 2, compression_method=method)
    for step in play(space, ACTIONS, 2, 50):
        add_to_replay([buffer], step)
    kept: list[tuple[Any, np.ndarray]] = []
    for i in range(30):
        batch = buffer.sample(32)
        part = (batch.observations, batch.next_observations[3:5], batch.observations[0].numpy())[i % 3]
        kept.append((part, np.asarray(part).copy()))
        del batch, part
        if i % 4 == 3:
            kept.pop(0)
        assert all(np.array_equal(part, then) for part, then in kept)


def test_minibatches_of_a_rollout_keep_their_values() -> None:
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = CompressedRolloutBuffer(32, space, ACTIONS, "cpu", n_envs=2)
    for step in play(space, ACTIONS, 2, 32):
        buffer.add(step.obs, step.action, step.reward, step.done, th.zeros(2), th.zeros(2))
    kept = [(batch.observations, batch.observations.clone()) for _ in range(3) for batch in buffer.get(16)]
    assert all(th.equal(now, then) for now, then in kept)


def test_threads_share_a_pool() -> None:
    pool, failures = BatchPool(), []

    def work(value: int) -> None:
        for _ in range(300):
            batch = pool.new((2, 200_000), UINT8)
            batch[:] = value
            if not (batch == value).all():
                failures.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("array", [
    np.arange(12, dtype=np.float64), np.arange(12, dtype=np.uint8)[::2], np.arange(12).reshape(3, 4).T,
    np.zeros((0, 3), np.float32),
    np.array(3.5, np.float32), np.ones((2, 1), bool), np.broadcast_to(np.float32(2), (3, 2)), np.arange(3, dtype=np.uint16),
    np.arange(4, dtype=">f4"), np.array([1 + 2j]),
], ids=lambda array: f"{array.dtype.str}-{array.shape}")  # fmt: skip
@pytest.mark.parametrize("copy", [True, False])
def test_arrays_become_the_tensors_that_sb3_makes(array: np.ndarray[Any, Any], copy: bool) -> None:
    """Whatever a subclass hands to `to_torch`: the same values, dtype and strides, or the same refusal."""
    space = spaces.Box(-1, 1, (3,), np.float32)
    ours, theirs = CompressedReplayBuffer(4, space, space, "cpu"), ReplayBuffer(4, space, space, "cpu")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of arrays that are read-only
            wanted = theirs.to_torch(array, copy)
    except Exception as error:
        with pytest.raises(type(error)):
            ours.to_torch(array, copy)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ours.to_torch(array, copy)
    assert th.equal(found, wanted)
    assert found.dtype == wanted.dtype
    assert found.stride() == wanted.stride()
    assert np.shares_memory(found.numpy(), array) == np.shares_memory(wanted.numpy(), array)


@pytest.mark.parametrize("kind", [CompressedReplayBuffer, ReplayBuffer])
def test_an_array_becomes_the_memory_of_one_tensor_only(kind: type[ReplayBuffer]) -> None:
    """A subclass may convert what it has read twice, as it may with SB3's buffer."""

    class Twice(kind):  # type: ignore[misc,valid-type]
        def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
            read = self.observations[batch_inds, np.zeros(len(batch_inds), np.int64), :]
            self.both = self.to_torch(read), self.to_torch(read)
            return super()._get_samples(batch_inds, env)

    space = spaces.Box(0, 255, (4, 30, 30), np.uint8)
    buffer = Twice(20, space, ACTIONS, "cpu")
    for step in play(space, ACTIONS, 1, 20):
        add_to_replay([buffer], step)
    batch = buffer.sample(8)
    one, other = buffer.both
    kept = other.clone()
    one.zero_()
    assert th.equal(other, kept)
    assert th.equal(batch.observations, kept)
