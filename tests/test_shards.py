"""Shards of a replay memory, in this process: what arrives, what is drawn, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer

from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
)
from sb3_extra_buffers.compressed.contents import contents_of
from sb3_extra_buffers.distributed import wire
from sb3_extra_buffers.distributed.shard import Shard
from sb3_extra_buffers.distributed.spec import BufferSpec
from sb3_extra_buffers.errors import CorruptDataError, SegmentVersionError
from sb3_extra_buffers.prioritized import CompressedPrioritizedNStepReplayBuffer, CompressedPrioritizedReplayBuffer
from sb3_extra_buffers.segments.runs import put_run
from sb3_extra_buffers.store import extract
from sb3_extra_buffers.store.format import Section, write_segment

from .experience import ACTIONS, DICT, EPISODE, IMAGES, VECTORS, Walk, assert_batch

#: The 99.99 % quantile of the standard normal distribution: a chi-square with k degrees is below k + z sqrt(2k) + ...
Z = 3.72


def spec_of(space: Any, buffer_class: Any = None, **arguments: Any) -> BufferSpec:
    return BufferSpec(buffer_class or BufferSpec.default_class(space, prioritized=False), space, ACTIONS, arguments)


def segment_of(spec: BufferSpec, walk: Walk, n_steps: int) -> wire.Wire:
    """The next steps, as a collector sends them."""
    buffer = spec.make(max(n_steps, 64), walk.n_envs)
    for _ in range(n_steps):
        buffer.add(*walk.next())
    with buffer._at_rest() as contents:
        return wire.steps_to_wire(buffer, contents.slots, {})


def drawn(spec: BufferSpec, shard: Shard, n: int) -> tuple[Any, Any]:
    """A batch as a learner reads it, and the numbers of its transitions."""
    run = wire.steps_from_wire(shard.draw(n))
    window = spec.make(max(n * spec.window, 64))
    window.full = True
    put_run(contents_of(window, np.arange(0)), run, np.arange(run.count)[:, None])
    slots = np.arange(n) * spec.window
    return window._reading(lambda: window._get_samples(slots)), run.segment.array("whole/numbers")


def chi_square_bound(n_cells: int) -> float:
    """What a chi-square of so many cells exceeds once in ten thousand times (Wilson and Hilferty)."""
    k = n_cells - 1
    return float(k * (1 - 2 / (9 * k) + Z * np.sqrt(2 / (9 * k))) ** 3)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("space", [IMAGES, VECTORS, DICT], ids=["images", "vectors", "dict"])
def test_what_is_drawn_is_what_was_appended(space: Any, n_envs: int) -> None:
    spec, walk = spec_of(space), Walk(space, n_envs)
    shard = Shard(spec, 400, seed=0)
    for _ in range(3):
        shard.append(segment_of(spec, walk, 40))
    assert shard.state().size == shard.state().appended == 3 * 40 * n_envs
    batch, _ = drawn(spec, shard, 200)
    assert_batch(batch, walk)
    dones = (batch.rewards.reshape(-1) // n_envs) % EPISODE == EPISODE - 1
    truncated = (batch.rewards.reshape(-1) // n_envs) % 2 == 1
    assert th.equal(batch.dones.reshape(-1).bool(), dones & ~truncated)


def test_segments_are_appended_and_drawn_without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, walk = spec_of(IMAGES), Walk(IMAGES, 2)
    segments = [segment_of(spec, walk, 64) for _ in range(4)]
    monkeypatch.setattr(extract, "_copy", lambda *_: pytest.fail("observations were decoded"))
    shard = Shard(spec, 300, seed=0)
    for segment in segments:
        shard.append(segment)
    batch, _ = drawn(spec, shard, 64)
    assert_batch(batch, walk)


@pytest.mark.parametrize("space", [IMAGES, VECTORS], ids=["images", "vectors"])
def test_the_newest_transitions_are_kept(space: Any) -> None:
    spec, walk = spec_of(space), Walk(space, 2)
    shard = Shard(spec, 150, seed=0)
    for steps in (30, 50, 7, 60, 64):
        shard.append(segment_of(spec, walk, steps))
        held = shard._buffer.rewards.reshape(-1)[: shard.state().size]
        assert len(set(held.tolist())) == len(held)
        assert_batch(drawn(spec, shard, 60)[0], walk)
    assert shard.state().size == 150
    assert set(held.tolist()) >= set(range(2 * 147, 2 * 211))  # all of the last segment
    shard.append(segment_of(spec, walk, 200))  # more than fit
    assert shard.state().size == 150
    assert_batch(drawn(spec, shard, 60)[0], walk)


def test_all_transitions_are_drawn_alike() -> None:
    spec, walk = spec_of(VECTORS), Walk(VECTORS)
    shard = Shard(spec, 64, seed=3)
    for _ in range(2):
        shard.append(segment_of(spec, walk, 50))
    _, numbers = drawn(spec, shard, 6400)
    _, counts = np.unique(numbers, return_counts=True)
    assert len(counts) == 64
    assert ((counts - 100) ** 2 / 100).sum() < chi_square_bound(64)


def test_transitions_are_drawn_in_proportion_to_priorities() -> None:
    spec, walk = spec_of(VECTORS, CompressedPrioritizedReplayBuffer, alpha=1.0), Walk(VECTORS)
    shard = Shard(spec, 32, seed=4)
    shard.append(segment_of(spec, walk, 40))
    _, numbers = drawn(spec, shard, 100)
    newest = numbers.max()
    all_numbers = newest - np.arange(32)
    shard.update_priorities(all_numbers, np.arange(1, 33).astype(np.float32))
    _, numbers = drawn(spec, shard, 20_000)
    counts = np.bincount(newest - numbers, minlength=32)
    expected = 20_000 * np.arange(1, 33) / np.arange(1, 33).sum()
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_bound(32)
    assert shard.state().weight == pytest.approx(np.arange(1, 33).sum(), rel=1e-4)


def test_new_transitions_get_the_largest_priority() -> None:
    spec, walk = spec_of(VECTORS, CompressedPrioritizedReplayBuffer, alpha=1.0, eps=1e-9), Walk(VECTORS)
    shard = Shard(spec, 100, seed=4)
    shard.append(segment_of(spec, walk, 10))
    _, numbers = drawn(spec, shard, 10)
    shard.update_priorities(numbers[:1], np.array([7.0], np.float32))
    shard.append(segment_of(spec, walk, 10))
    assert shard._buffer.priorities.reshape(-1)[10:20].tolist() == [7.0] * 10


def test_priorities_of_transitions_that_are_gone_are_ignored() -> None:
    spec, walk = spec_of(VECTORS, CompressedPrioritizedReplayBuffer, alpha=1.0), Walk(VECTORS)
    shard = Shard(spec, 40, seed=4)
    shard.append(segment_of(spec, walk, 40))
    _, numbers = drawn(spec, shard, 40)
    shard.append(segment_of(spec, walk, 40))
    before = shard._buffer.priorities.copy()
    shard.update_priorities(numbers, np.full(40, 9, np.float32))
    assert np.array_equal(shard._buffer.priorities, before)
    shard.update_priorities(numbers + 40, np.full(40, 9, np.float32))
    assert shard._buffer.priorities.max() > 8
    fresh = Shard(spec, 40, seed=4)  # another life: the same slots, other numbers
    fresh.append(segment_of(spec, walk, 40))
    fresh._first_number = int(numbers.max()) + 1000
    fresh.update_priorities(numbers + 40, np.full(40, 9, np.float32))
    assert fresh._buffer.priorities.max() == 1


def test_returns_of_several_steps_end_with_a_segment() -> None:
    arguments = {"n_steps": 3, "gamma": 0.9}
    spec, walk = spec_of(VECTORS, CompressedNStepReplayBuffer, **arguments), Walk(VECTORS)
    shard = Shard(spec, 70, seed=5)
    oracle = NStepReplayBuffer(70, VECTORS, ACTIONS, "cpu", **arguments)
    for steps in (20, 37, 13, 20):
        before = walk.step
        shard.append(segment_of(spec, walk, steps))
        walk.step = before
        for i in range(steps):
            *transition, infos = walk.next()
            if i == steps - 1 and not transition[4].all():
                transition[4] = np.ones(1, bool)
                infos = [{"TimeLimit.truncated": True}]
            oracle.add(*transition, infos)
    batch, numbers = drawn(spec, shard, 300)
    slots = (numbers - shard._first_number) % 70
    expected = oracle._get_samples(slots)
    for ours, theirs in zip(batch, expected, strict=True):
        assert th.equal(ours, theirs)


@pytest.mark.parametrize("space", [IMAGES, DICT], ids=["images", "dict"])
def test_damaged_segments_change_nothing(space: Any) -> None:
    spec, walk = spec_of(space), Walk(space, 2)
    shard = Shard(spec, 128, seed=0)
    shard.append(segment_of(spec, walk, 64))
    shard.append(segment_of(spec, walk, 64))
    good = segment_of(spec, walk, 64)
    rng = np.random.default_rng(0)
    for _ in range(40):
        bad = good.copy()
        bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        state = shard.state()
        try:
            shard.append(bad)
        except CorruptDataError:
            assert shard.state() == state
        else:  # a bit of padding
            assert shard.state().appended == state.appended + 128
    assert_batch(drawn(spec, shard, 128)[0], walk)


def test_segments_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(IMAGES)
    shard, good = Shard(spec, 100), segment_of(spec, Walk(IMAGES), 10)
    with pytest.raises(CorruptDataError, match="behind its segment"):
        shard.append(np.concatenate([good, good]))
    with pytest.raises(CorruptDataError, match="the shard has a CompressedReplayBuffer"):
        shard.append(segment_of(spec_of(DICT), Walk(DICT), 10))
    with pytest.raises(CorruptDataError, match="those of the buffer are float32"):
        Shard(spec_of(VECTORS), 100).append(good)
    monkeypatch.setattr(wire, "MOST_BYTES", 1000)
    with pytest.raises(CorruptDataError, match="is refused; at most"):
        shard.append(good)
    assert shard.state().size == 0


def test_a_segment_whose_second_key_does_not_fit_changes_nothing() -> None:
    spec, walk = spec_of(DICT), Walk(DICT)
    shard = Shard(spec, 64, seed=0)
    shard.append(segment_of(spec, walk, 64))
    other = spec_of(spaces.Dict({**DICT.spaces, "vector": spaces.Box(-1, 1, (5,), np.float32)}))
    buffer = other.make(64)
    for _ in range(10):
        observation = {"image": np.full((1, *IMAGES.shape), 9, np.uint8), "vector": np.zeros((1, 5), np.float32)}
        buffer.add(observation, observation, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    with buffer._at_rest() as contents:
        bad = wire.steps_to_wire(buffer, contents.slots, {})
    with pytest.raises(CorruptDataError, match="those of the buffer are float32"):
        shard.append(bad)
    assert_batch(drawn(spec, shard, 64)[0], walk)


def forged(data: wire.Wire, name: str, at: int) -> wire.Wire:
    """A segment with a wrong bit in a section, and the right checksums."""
    segment, made = wire.steps_from_wire(data).segment, []
    for one in segment.header["sections"]:
        section = bytearray(b"".join(segment.parts(one["name"])))
        if one["name"] == name:
            section[at] ^= 32
        about = {key: value for key, value in one.items() if key not in ("name", "bytes")}
        made.append(Section(one["name"], len(section), [bytes(section)], about))
    outbox: Any = wire.Outbox()
    write_segment(outbox, {key: value for key, value in segment.header.items() if key != "sections"}, made)
    message: wire.Wire = outbox.message()
    return message


def test_a_forged_segment_whose_second_key_cannot_be_decoded_changes_nothing() -> None:
    spec, walk, n_refused = spec_of(DICT), Walk(DICT, 2), 0
    held, good = (segment_of(spec, walk, 64) for _ in range(2))
    for at in range(-90, -50, 4):
        shard = Shard(spec, 128, seed=0)
        shard.append(held)
        try:
            shard.append(forged(good, "leaf/vector/frames", at))
        except CorruptDataError:
            n_refused += 1
            assert_batch(drawn(spec, shard, 64)[0], walk)
    assert n_refused > 0


def test_an_empty_shard_answers_with_nothing() -> None:
    run = wire.steps_from_wire(Shard(spec_of(IMAGES), 10).draw(5))
    assert run.count == 0
    assert run.segment.header["shard"]["size"] == 0


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_shard_begins_with_its_checkpoint(tmp_path: Path, prioritized: bool) -> None:
    spec = BufferSpec(BufferSpec.default_class(IMAGES, prioritized=prioritized), IMAGES, ACTIONS)
    walk = Walk(IMAGES)
    shard = Shard(spec, 100, str(tmp_path), seed=0)
    for _ in range(3):
        shard.append(segment_of(spec, walk, 40))
        shard.checkpoint(background=False)
    lost = segment_of(spec, walk, 40)
    shard.append(lost)
    back = Shard(spec, 100, str(tmp_path), seed=1)
    assert back.state().size == 100
    assert back.state().appended == 120
    assert back.state().life != shard.state().life
    batch, _ = drawn(spec, back, 200)
    assert_batch(batch, walk)
    assert batch.rewards.min() == 20
    assert batch.rewards.max() == 119
    back.append(lost)
    back.checkpoint(background=False)
    batch, _ = drawn(spec, Shard(spec, 100, str(tmp_path), seed=1), 200)
    assert_batch(batch, walk)
    assert batch.rewards.max() == 159


def test_the_arguments_of_the_run_count_not_those_of_the_checkpoint(tmp_path: Path) -> None:
    walk, n = Walk(VECTORS), 32
    old = spec_of(VECTORS, CompressedPrioritizedNStepReplayBuffer, alpha=0.5, n_steps=2, gamma=0.5, eps=1e-3)
    shard = Shard(old, n, str(tmp_path), seed=0)
    shard.append(segment_of(old, walk, n))
    errors = np.arange(1, n + 1).astype(np.float32)
    shard.update_priorities(shard._first_number + np.arange(n), errors - np.float32(1e-3))
    shard.checkpoint(background=False)
    for alpha, weights in ((1.0, errors), (0.25, errors**0.25), (0.0, np.ones(n))):
        new = spec_of(VECTORS, CompressedPrioritizedNStepReplayBuffer, alpha=alpha, n_steps=5, gamma=0.9, eps=1e-6)
        back = Shard(new, n, str(tmp_path), seed=0)
        assert back.state().restored == n
        assert [getattr(back._buffer, name) for name in ("alpha", "n_steps", "gamma", "eps")] == [alpha, 5, 0.9, 1e-6]
        np.testing.assert_allclose(back._buffer.priorities.reshape(-1), weights, rtol=1e-5)
        assert back.state().weight == pytest.approx(weights.sum(), rel=1e-5)
        back.append(segment_of(new, walk, 1))
        assert back._buffer.priorities[0, 0] == pytest.approx(weights.max(), rel=1e-5)


def test_large_segments_travel_in_pieces_that_ray_sends_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for n, pieces in ((10, 1), (96_000, 1), (96_001, 2), (500_000, 6), (600_000, 1), (0, 1)):
        data = np.arange(n).astype(np.uint8)
        made = wire.in_pieces(data)
        assert len(made) == pieces
        assert np.array_equal(np.concatenate(made), data)
        assert pieces == 1 or max(map(len, made)) < 100_000
    spec, walk = spec_of(IMAGES), Walk(IMAGES)
    shard, data = Shard(spec, 100, seed=0), segment_of(spec, walk, 40)
    monkeypatch.setattr(wire, "_PIECE_BYTES", len(data) // 3)
    assert len(wire.in_pieces(data)) > 2
    shard.append(*wire.in_pieces(data))
    assert_batch(drawn(spec, shard, 60)[0], walk)
    with pytest.raises(CorruptDataError):
        shard.append(*wire.in_pieces(data)[:-1])


def test_a_segment_that_is_sent_again_is_appended_once(tmp_path: Path) -> None:
    spec, walk = spec_of(VECTORS), Walk(VECTORS)
    shard = Shard(spec, 100, str(tmp_path), seed=0)
    first, second = (segment_of(spec, walk, 10) for _ in range(2))
    with pytest.raises(CorruptDataError):
        shard.append(first[:-8], sender="a", number=1)
    for _ in range(2):
        assert shard.append(first, sender="a", number=1).appended == 10
    for _ in range(2):
        assert shard.append(second, sender="a", number=2).appended == 20
    assert shard.append(first, sender="b", number=1).appended == 30
    shard.checkpoint(background=False)
    back = Shard(spec, 100, str(tmp_path), seed=0)
    assert back.append(second, sender="a", number=2).appended == 30  # the answer was lost with the process
    assert back.append(second, sender="a", number=3).appended == 40


def test_segments_of_many_senders_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.distributed.shard._MOST_SENDERS", 3)
    spec = spec_of(VECTORS)
    shard, data = Shard(spec, 100, seed=0), segment_of(spec, Walk(VECTORS), 1)
    for number, sender in enumerate("abcabcad"):
        shard.append(data, sender=sender, number=number)
    assert shard._received == {"c": 5, "a": 6, "d": 7}


@pytest.mark.parametrize("damage", ["list", "segment", "missing"])
def test_a_shard_whose_checkpoint_is_damaged_begins_empty_and_keeps_it(tmp_path: Path, damage: str) -> None:
    spec, walk, folder = spec_of(IMAGES), Walk(IMAGES), tmp_path / "shard-0"
    shard = Shard(spec, 100, str(folder), seed=0)
    shard.append(segment_of(spec, walk, 40))
    shard.checkpoint(background=False)
    [segment] = folder.glob("*.sb3x")
    damaged = folder / "checkpoint.json" if damage == "list" else segment
    if damage == "missing":
        damaged.unlink()
    else:
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 255
        damaged.write_bytes(content)
    held = {one.name: one.read_bytes() for one in folder.iterdir()}
    back = Shard(spec, 100, str(folder), seed=0)
    assert back.state().size == 0
    [aside] = tmp_path.glob("damaged-shard-0-*")
    assert str(aside) in back.state().damage
    assert f"{folder}/" not in back.state().damage
    assert {one.name: one.read_bytes() for one in aside.iterdir()} == held
    back.append(segment_of(spec, walk, 10))
    back.checkpoint(background=False)
    again = Shard(spec, 100, str(folder), seed=0)
    assert again.state().size == 10
    assert again.state().damage == ""


def test_a_checkpoint_of_a_later_version_is_refused_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, folder = spec_of(IMAGES), tmp_path / "shard-0"
    shard = Shard(spec, 100, str(folder), seed=0)
    shard.append(segment_of(spec, Walk(IMAGES), 40))
    shard.checkpoint(background=False)

    def too_new(*_: Any, **__: Any) -> None:
        raise SegmentVersionError("of a later version")

    monkeypatch.setattr("sb3_extra_buffers.distributed.shard.load_buffer", too_new)
    with pytest.raises(SegmentVersionError):
        Shard(spec, 100, str(folder), seed=0)
    assert [one.name for one in tmp_path.iterdir()] == ["shard-0"]


def test_a_folder_of_other_transitions_is_refused(tmp_path: Path) -> None:
    spec = spec_of(IMAGES)
    shard = Shard(spec, 100, str(tmp_path))
    shard.append(segment_of(spec, Walk(IMAGES), 40))
    shard.checkpoint(background=False)
    with pytest.raises(ValueError, match="holds transitions of"):
        Shard(spec_of(VECTORS), 100, str(tmp_path))
    with pytest.raises(ValueError, match="holds a CompressedReplayBuffer"):
        Shard(spec_of(IMAGES, CompressedNStepReplayBuffer), 100, str(tmp_path))


def test_a_reset_shard_is_empty_and_counts_anew() -> None:
    spec, walk = spec_of(IMAGES), Walk(IMAGES)
    shard = Shard(spec, 100, seed=0)
    shard.append(segment_of(spec, walk, 40))
    life = shard.state().life
    assert shard.reset().size == 0
    assert shard.state().life != life
    shard.append(segment_of(spec, walk, 40))
    assert_batch(drawn(spec, shard, 20)[0], walk)


def test_what_cannot_be_spread_over_shards_is_refused() -> None:
    with pytest.raises(TypeError, match="hindsight"):
        spec_of(DICT, CompressedHerReplayBuffer)
    with pytest.raises(TypeError, match="got int"):
        spec_of(IMAGES, int)
    with pytest.raises(ValueError, match="max_memory= is not for shards"):
        spec_of(IMAGES, CompressedReplayBuffer, max_memory="1GB")
    with pytest.raises(ValueError, match="needs timeouts"):
        spec_of(IMAGES, CompressedNStepReplayBuffer, handle_timeout_termination=False)
    assert spec_of(DICT).buffer_class is CompressedDictReplayBuffer
