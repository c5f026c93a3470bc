"""Batches from several shards: each transition is as likely as it has to be, also while shards change, die and come back."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

from ray.exceptions import RayActorError

from sb3_extra_buffers.distributed import remote
from sb3_extra_buffers.distributed.pool import Pool, Pools, _Source
from sb3_extra_buffers.distributed.shard import Shard
from sb3_extra_buffers.distributed.spec import BufferSpec
from sb3_extra_buffers.errors import EmptyShardsError, ShardLostWarning
from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer

from .experience import VECTORS, Walk, assert_batch
from .test_shards import chi_square_bound, segment_of, spec_of


class Nearby:
    """A shard of this process in place of one in another: calls are done when they are begun."""

    def __init__(self, spec: BufferSpec, size: int, number: int) -> None:
        self.spec, self.size, self.number, self.timeout = spec, size, number, 5.0
        self.shard = Shard(spec, size, seed=number)
        self.is_dead = False
        self.n_drawn: list[int] = []
        self.after_draw: Any = lambda: None

    def start(self, method: str, *args: Any) -> Any:
        if self.is_dead:
            return RayActorError()
        result = getattr(self.shard, method)(*args)
        self.n_drawn += args
        result = result.copy() if method == "draw" else result
        self.after_draw()
        return result

    def result(self, ref: Any, timeout: float | None = None) -> Any:
        if isinstance(ref, Exception):
            raise ref
        return ref

    def too_late(self) -> TimeoutError:
        return TimeoutError("too late")


def pool_of(spec: BufferSpec, shards: list[Any], batch_size: int = 32, prefetch: int = 4) -> Pool:
    return Pool(
        spec, shards, batch_size=batch_size, prefetch=prefetch, device="cpu", rng=np.random.default_rng(7)
    )  # fmt: skip


def filled(spec: BufferSpec, sizes: list[int]) -> tuple[list[Nearby], Walk]:
    """Shards with so many transitions; rewards count through all of them."""
    walk = Walk(VECTORS)
    shards = [Nearby(spec, size, i) for i, size in enumerate(sizes)]
    for shard in shards:
        shard.shard.append(segment_of(spec, walk, shard.size))
    return shards, walk


def rewards_of(pool: Pool, n_batches: int) -> Any:
    found = [pool.window.rewards.reshape(-1)[pool.take()[0]].copy() for _ in range(n_batches)]
    return np.concatenate(found).astype(np.int64)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("sizes", [[50], [20, 60, 7], [1, 30]], ids=str)
def test_all_transitions_of_all_shards_are_drawn_alike(sizes: list[int], prefetch: int) -> None:
    shards, _ = filled(spec_of(VECTORS), sizes)
    n = sum(sizes)
    counts = np.bincount(rewards_of(pool_of(spec_of(VECTORS), shards, prefetch=prefetch), 2 * n), minlength=n)
    expected = 64.0
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_bound(max(n, 2))


def test_a_small_shard_gets_its_whole_share_with_short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are used up in the midst of a batch all the time: which shard comes next must not depend on that."""

    def place(self: _Source, _: Any, n: int, __: int) -> None:
        self.rows = self.numbers = np.arange(n)
        self.state, self.weight = self.shard.shard.state(), float(self.shard.size)

    monkeypatch.setattr(_Source, "place", place)
    monkeypatch.setattr(Nearby, "start", lambda _, __, n: n)  # what is drawn does not matter here, so many batches are quick
    shards, _ = filled(spec_of(VECTORS), [60, 8])
    pool = pool_of(spec_of(VECTORS), shards, batch_size=16, prefetch=1)
    counts = np.bincount(np.concatenate([pool.take()[1] for _ in range(3000)]), minlength=2)
    expected = 3000 * 16 * np.array([60, 8]) / 68
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_bound(2)


def test_priorities_count_over_all_shards() -> None:
    spec = spec_of(VECTORS, CompressedPrioritizedReplayBuffer, alpha=1.0, eps=1e-9)
    shards, _ = filled(spec, [30, 10])
    weights = np.random.default_rng(1).uniform(0.2, 3, 40).astype(np.float32)
    for shard, part in zip(shards, np.split(weights, [30]), strict=True):
        first = shard.shard._first_number
        shard.shard.update_priorities(first + np.arange(len(part)), part)
    pool = pool_of(spec, shards)
    counts = np.bincount(rewards_of(pool, 1000), minlength=40)
    expected = 32_000 * weights / weights.sum()
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_bound(40)
    slots, _, _ = pool.take()
    assert np.array_equal(pool.priorities(slots), weights[pool.window.rewards.reshape(-1)[slots].astype(int)])


def test_shards_that_grow_meanwhile_bias_nothing() -> None:
    """The old transitions of a shard that grows all the time are as likely as those of one that does not."""
    spec = spec_of(VECTORS)
    shards, walk = filled(spec, [40, 40])
    grown = Nearby(spec, 4000, 2)
    grown.shard.append(segment_of(spec, walk, 40))
    shards.append(grown)
    appended: list[int] = []

    def grow() -> None:
        grown.shard.append(segment_of(spec, walk, 4))
        appended.append(4)

    grown.after_draw = grow
    pool = pool_of(spec, shards, prefetch=1)
    rewards = rewards_of(pool, 400)
    assert sum(appended) > 300
    counts = [np.count_nonzero((rewards >= 40 * i) & (rewards < 40 * (i + 1))) for i in range(3)]
    expected = np.mean(counts)
    assert ((np.array(counts) - expected) ** 2 / expected).sum() < chi_square_bound(3)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_no_more_is_asked_for_than_the_bound(prefetch: int) -> None:
    shards, walk = filled(spec_of(VECTORS), [50, 150])
    pool = pool_of(spec_of(VECTORS), shards, batch_size=16, prefetch=prefetch)
    taken = 0
    for _ in range(50):
        slots, _, _ = pool.take()
        taken += len(slots)
        assert sum(len(source.rows) for source in pool._sources) <= 2 * 16 * max(prefetch, 1) * len(shards)
    assert max(max(shard.n_drawn) for shard in shards) <= 16 * max(prefetch, 1)
    if prefetch:
        assert sum(sum(shard.n_drawn) for shard in shards) <= taken + 2 * 16 * prefetch * len(shards)
    batch = pool.window._get_samples(slots)
    assert_batch(batch, walk)


def test_batches_of_several_sizes_are_each_drawn_ahead() -> None:
    spec = spec_of(VECTORS)
    shards, walk = filled(spec, [50, 150])
    pools = Pools(spec, shards, prefetch=2, device="cpu", rng=np.random.default_rng(7))  # type: ignore[arg-type]
    made: set[int] = set()
    for _ in range(20):
        for size in (8, 32):
            pool = pools.of(size)
            made.add(id(pool))
            slots, _, _ = pool.take()
            assert len(slots) == size
            assert_batch(pool.window._get_samples(slots), walk)
    assert len(made) == 2
    assert sum(sum(shard.n_drawn) for shard in shards) <= 20 * 40 + 2 * 2 * 40 * len(shards)
    assert pools.n_known == 200
    kept = pools.of(8)
    assert sum(len(source.rows) for source in kept._sources) > 0
    for _ in range(6):
        pools.of(32).take()
    assert pools.of(8) is kept
    assert sum(len(source.rows) for source in kept._sources) == 0  # drawn too long ago
    for size in range(1, 6):
        pools.of(size)
    assert list(pools._pools) == [2, 3, 4, 5]


def test_a_loss_is_said_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.distributed.pool.PAUSE", 0.0)
    spec = spec_of(VECTORS)
    shards, walk = filled(spec, [50])
    pools = Pools(spec, shards, prefetch=1, device="cpu", rng=np.random.default_rng(7))  # type: ignore[arg-type]
    for size in (8, 16):
        pools.of(size).take()
    shards[0].shard = Shard(spec, 50)
    shards[0].shard.append(segment_of(spec, walk, 20))
    with pytest.warns(ShardLostWarning) as warned:
        [pools.of(size).take() for size in (8, 16, 8, 16, 8, 16, 4)]
    assert len(warned) == 1


def test_indices_name_the_transitions() -> None:
    shards, _ = filled(spec_of(VECTORS), [40, 60])
    pool = pool_of(spec_of(VECTORS), shards)
    slots, of, numbers = pool.take()
    rewards = pool.window.rewards.reshape(-1)[slots].astype(int)
    for reward, shard, number in zip(rewards, of, numbers, strict=True):
        slot = (number - shards[shard].shard._first_number) % shards[shard].size
        assert shards[shard].shard._buffer.rewards[slot, 0] == reward


def test_the_others_go_on_while_a_shard_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.distributed.pool.PAUSE", 0.0)
    spec = spec_of(VECTORS)
    shards, walk = filled(spec, [50, 50])
    pool = pool_of(spec, shards, prefetch=1)
    rewards_of(pool, 4)
    shards[1].is_dead = True
    rewards_of(pool, 4)  # what was drawn before
    assert rewards_of(pool, 20).max() < 50
    shards[1].is_dead, shards[1].shard = False, Shard(spec, 50, seed=9)
    with pytest.warns(
        ShardLostWarning, match=r"Shard 1 died with 50 transitions, and was started anew without them.*checkpoint="
    ):
        rewards_of(pool, 4)
    shards[1].shard.append(segment_of(spec, walk, 20))
    assert rewards_of(pool, 50).max() >= 100  # refilled


def test_a_damaged_checkpoint_is_warned_of_once(tmp_path: Path) -> None:
    spec = spec_of(VECTORS)
    shards, walk = filled(spec, [50, 50])
    shards[1].shard._folder = tmp_path / "shard-1"
    shards[1].shard.checkpoint(background=False)
    (tmp_path / "shard-1" / "checkpoint.json").write_text("?")
    shards[1].shard = Shard(spec, 50, str(tmp_path / "shard-1"))
    shards[1].shard.append(segment_of(spec, walk, 20))
    pool = pool_of(spec, shards, prefetch=1)
    with pytest.warns(ShardLostWarning, match=r"Shard 1 begins empty, because its checkpoint is damaged: .*damaged-shard-1-"):
        rewards_of(pool, 1)
    rewards_of(pool, 50)  # warnings are errors


def test_a_push_whose_answer_is_lost_is_appended_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray has run the call and could not bring its answer: the same segment is sent again."""
    spec, walk = spec_of(VECTORS), Walk(VECTORS)
    shard, n_calls = Shard(spec, 100), [0]

    def append(*args: Any, **kwargs: Any) -> Any:
        n_calls[0] += 1
        state = shard.append(*args, **kwargs)
        return RayActorError() if n_calls[0] == 1 else state

    def get(answer: Any, timeout: float) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(remote, "ray", SimpleNamespace(get=get))
    monkeypatch.setattr(remote, "PAUSE", 0)
    handle = SimpleNamespace(append=SimpleNamespace(remote=append))
    sender = remote.RemoteShard(handle, 0, timeout=60)
    data = segment_of(spec, walk, 10)
    assert sender.append(data).appended == 10
    assert n_calls == [2]
    assert sender.append(segment_of(spec, walk, 10)).appended == 20
    copied = copy.copy(sender)  # as in another process
    assert copied.append(segment_of(spec, walk, 10)).appended == 30


def test_empty_shards_are_said_to_be_empty() -> None:
    spec = spec_of(VECTORS)
    pool = pool_of(spec, [Nearby(spec, 10, 0), Nearby(spec, 10, 1)])
    with pytest.raises(EmptyShardsError, match="The shards are empty"):
        pool.take()
