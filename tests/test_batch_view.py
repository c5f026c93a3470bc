"""SB3's `_get_samples` reads through a BatchView. Nothing that a user changes or overrides may be missed by it."""

from __future__ import annotations

import gc
import pickle
import weakref
from copy import copy
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.compressed.batch_view import BatchView
from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer
from tests.oracle import add_to_replay
from tests.transitions import play

IMAGE = spaces.Box(0, 255, (4, 12, 12), np.uint8)
BOTH = spaces.Dict({"image": IMAGE, "vector": spaces.Box(-1, 1, (3,), np.float32)})
ACTIONS = spaces.Discrete(3)
N_ENVS = 3


def filled(ours: Any, theirs: Any, space: spaces.Space[Any] = IMAGE, n: int = 70) -> tuple[Any, Any]:
    buffers = [made(50 * N_ENVS, space, ACTIONS, "cpu", N_ENVS) for made in (ours, theirs)]
    for step in play(space, ACTIONS, N_ENVS, n):
        add_to_replay(buffers, step)
    return buffers[0], buffers[1]


def assert_equal(ours: Any, theirs: Any) -> None:
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, dict):
            assert_equal([one[key] for key in other], list(other.values()))
        elif other is not None:
            assert one.dtype == other.dtype
            assert th.equal(one, other)


def same_batches(ours: Any, theirs: Any, batch_size: int = 40) -> None:
    for seed in range(3):
        np.random.seed(seed)
        batch = ours.sample(batch_size)
        np.random.seed(seed)
        assert_equal(batch, theirs.sample(batch_size))


@pytest.mark.parametrize(
    ("ours", "theirs", "space"),
    [(CompressedReplayBuffer, ReplayBuffer, IMAGE), (CompressedDictReplayBuffer, DictReplayBuffer, BOTH)],
)
def test_sb3s_code_reads_through_a_view(ours: Any, theirs: Any, space: spaces.Space[Any], monkeypatch: Any) -> None:
    compressed, plain = filled(ours, theirs, space)
    runs = []
    monkeypatch.setattr(BatchView, "run", lambda *args, run=BatchView.run: [runs.append(1), run(*args)][1])
    same_batches(compressed, plain)
    assert len(runs) == 3


def test_prioritized_sampling_reads_through_a_view(monkeypatch: Any) -> None:
    compressed, _ = filled(CompressedPrioritizedReplayBuffer, ReplayBuffer)
    runs = []
    monkeypatch.setattr(BatchView, "run", lambda *args, run=BatchView.run: [runs.append(1), run(*args)][1])
    compressed.sample(8)
    assert runs


def test_arrays_that_were_replaced_or_changed_are_read() -> None:
    ours, theirs = filled(CompressedReplayBuffer, ReplayBuffer)
    same_batches(ours, theirs)
    for buffer in (ours, theirs):
        buffer.rewards = buffer.rewards + 1
        buffer.dones[:] = 1
        buffer.actions = np.asfortranarray(buffer.actions)
    same_batches(ours, theirs)


def test_tensors_of_a_batch_are_its_own() -> None:
    ours, theirs = filled(CompressedReplayBuffer, ReplayBuffer)
    for tensor in ours.sample(30):
        if tensor is not None:
            tensor += 1
    same_batches(ours, theirs)


def test_slots_may_be_negative_or_unsigned() -> None:
    ours, theirs = filled(CompressedReplayBuffer, ReplayBuffer)
    for slots in (np.array([-1, 0, -50, 49]), np.arange(50, dtype=np.uint8)):
        np.random.seed(1)
        batch = ours._get_samples(slots)
        np.random.seed(1)
        assert_equal(batch, theirs._get_samples(slots))
    for wrong in (50, -51):
        with pytest.raises(IndexError):
            ours._get_samples(np.array([0, wrong]))
        same_batches(ours, theirs)


@pytest.mark.parametrize("method", ["to_torch", "_normalize_reward", "_normalize_obs"])
def test_overridden_methods_are_called(method: str) -> None:
    calls: list[str] = []

    def called(*args: Any, **kwargs: Any) -> Any:
        calls.append(method)
        if method == "to_torch":
            return CompressedReplayBuffer.to_torch(*args, **kwargs)
        return getattr(ReplayBuffer, method)(*args, **kwargs)

    function: Any = called if method == "to_torch" else staticmethod(called)
    ours, theirs = filled(type("Own", (CompressedReplayBuffer,), {method: function}), ReplayBuffer)
    same_batches(ours, theirs)
    assert calls


def test_an_overridden_get_samples_gets_the_buffer() -> None:
    class Own(ReplayBuffer):
        def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
            assert isinstance(self, CompressedReplayBuffer)
            return super()._get_samples(batch_inds, env)

    class OwnCompressed(CompressedReplayBuffer, Own): ...

    same_batches(*filled(OwnCompressed, ReplayBuffer))


def test_a_buffer_is_freed_without_the_garbage_collector() -> None:
    ours, _ = filled(CompressedReplayBuffer, ReplayBuffer)
    ours.sample(4)
    gc.disable()
    try:
        store = weakref.ref(ours._stored.store)
        del ours
        assert store() is None
    finally:
        gc.enable()


def test_copies_have_views_of_their_own() -> None:
    ours, theirs = filled(CompressedReplayBuffer, ReplayBuffer)
    same_batches(ours, theirs)
    for copied in (copy(ours), pickle.loads(pickle.dumps(ours))):
        copied.rewards = np.zeros_like(copied.rewards)
        assert not copied.sample(10).rewards.any()
        same_batches(ours, theirs)
