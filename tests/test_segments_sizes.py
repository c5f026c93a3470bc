"""Saved buffers with other sizes: the newest steps are kept, and trajectories stay together. Properties, by plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer, RolloutBuffer

from sb3_extra_buffers import compress_buffer, decompress_buffer, load_buffer, merge_buffers
from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedNStepReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.segments.dealing import deal
from tests.oracle import add_to_replay, assert_same_minibatches, assert_same_samples
from tests.saved_buffers import ACTIONS, N_ENVS, REPLAY, SLOTS, as_numpy, assert_equal, her, replay, rollout
from tests.transitions import play

ARRAYS = ("actions", "rewards", "dones", "timeouts")


def rows(buffer: Any, slots: Any) -> list[np.ndarray]:
    """Everything of some slots."""
    found = []
    for name in ("observations", "next_observations", *ARRAYS):
        column = getattr(buffer, name)
        found += [as_numpy(part[slots]) for part in (column.values() if isinstance(column, dict) else [column])]
    return found


def assert_same_rows(one: list[np.ndarray], other: list[np.ndarray]) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("n_steps", [0, 45])
@pytest.mark.parametrize("slots", [1, 29, 30, 200])
@pytest.mark.parametrize("kind", ["replay", "replay-zstd", "replay-vector", "dict", "n-step", "gpu"])
def test_another_size_keeps_the_newest(kind: str, slots: int, n_steps: int, tmp_path: Path) -> None:
    ours, _ = replay(kind, n_steps)
    ours.save(tmp_path / "buffer")
    loaded = load_buffer(tmp_path / "buffer", buffer_size=slots * N_ENVS + 1, device="cpu", truncate_last_traj=False)
    kept = min(ours.size(), slots)
    assert (loaded.buffer_size, loaded.size(), loaded.n_envs) == (slots, kept, N_ENVS)
    assert loaded._kept_slots().tolist() == ours._kept_slots().tolist() if slots == SLOTS else True
    assert_same_rows(rows(loaded, loaded._kept_slots()), rows(ours, ours._kept_slots()[ours.size() - kept :]))
    for step in play(REPLAY[kind][2], ACTIONS, N_ENVS, 7, seed=3):
        add_to_replay([loaded, ours], step)
    assert_same_rows(rows(loaded, loaded._kept_slots()[-1:]), rows(ours, ours._kept_slots()[-1:]))


# ---- other numbers of envs


def trajectories(rewards: np.ndarray, dones: np.ndarray) -> list[tuple[float, ...]]:
    """Runs of rewards up to an end, of each env; rewards tell steps apart."""
    found = []
    for env in range(rewards.shape[1]):
        run: list[float] = []
        for reward, done in zip(rewards[:, env], dones[:, env], strict=True):
            run.append(float(reward))
            if done:
                found.append(tuple(run))
                run = []
        if run:
            found.append(tuple(run))
    return found


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_dealing_keeps_trajectories_together(data: st.DataObject) -> None:
    n_steps, old, new = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 7))
    most = data.draw(st.integers(1, 60))
    likelihood = data.draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    is_end = np.random.default_rng(data.draw(st.integers(0, 99))).random((n_steps, old)) < likelihood
    dealt = deal(is_end, new, most)
    kept = dealt.to[dealt.to >= 0]
    assert len(np.unique(kept)) == len(kept) == dealt.n_slots * new  # every new cell is filled once
    assert dealt.n_slots == min(n_steps * old // new, most)
    assert n_steps * old - len(kept) < new or dealt.n_slots == most
    cut = set(dealt.cut.tolist())
    for env in range(old):
        for step in range(n_steps - 1):
            cell, following = dealt.to[step, env], dealt.to[step + 1, env]
            if cell >= 0 and not is_end[step, env] and cell not in cut:
                assert following == cell + new  # what followed still does
    last = set(range((dealt.n_slots - 1) * new, dealt.n_slots * new))
    where = {int(cell): (step, env) for (step, env), cell in np.ndenumerate(dealt.to) if cell >= 0}
    for cell, (step, env) in where.items():  # and nothing follows that did not, unless an episode ends between them
        if cell in last or cell in cut or is_end[step, env]:
            continue
        assert where[cell + new] == (step + 1, env)
    unfinished = sum(not is_end[-1, env] for env in range(old)) if n_steps else 0
    assert len(cut - last) <= unfinished + 2 * new


@pytest.mark.parametrize("n_envs", [1, 3, 4, 7])
@pytest.mark.parametrize("kind", ["replay", "dict", "n-step", "gpu", "replay-vector"])
def test_another_number_of_envs_keeps_trajectories(kind: str, n_envs: int, tmp_path: Path) -> None:
    ours, _ = replay(kind, 75, slots=60)
    ours.save(tmp_path / "buffer")
    loaded = load_buffer(tmp_path / "buffer", n_envs=n_envs, device="cpu")
    assert loaded.n_envs == n_envs
    n = loaded.size()
    assert n * n_envs == ours.size() * N_ENVS // n_envs * n_envs
    # Each transition is one of the old ones, whole, and none is there twice.
    order = ours._kept_slots()
    old = {float(reward): (slot, env) for slot in order for env, reward in enumerate(ours.rewards[slot])}
    seen = set()
    for slot in range(n):
        for env in range(n_envs):
            at = old[float(loaded.rewards[slot, env])]
            seen.add(at)
            for name in ("observations", "next_observations"):
                mine, other = getattr(loaded, name), getattr(ours, name)
                for a, b in zip(mine.values(), other.values(), strict=True) if isinstance(mine, dict) else [(mine, other)]:
                    assert as_numpy(a[slot])[env].tobytes() == as_numpy(b[at[0]])[at[1]].tobytes()
            assert loaded.actions[slot, env] == ours.actions[at]
    assert len(seen) == n * n_envs
    before, after = trajectories(ours.rewards[order], ours.dones[order]), trajectories(loaded.rewards[:n], loaded.dones[:n])
    whole = set(before) & set(after)
    assert len(before) - len(whole) <= 2 * n_envs
    for run in after:  # what was cut is still a part of one
        assert any(str(run)[1:-1].rstrip(",") in str(one) for one in before)
    timeouts = loaded.timeouts[:n][loaded.dones[:n].astype(bool)].sum()
    assert timeouts >= ours.timeouts[order].sum() - 2
    for step in play(REPLAY[kind][2], ACTIONS, n_envs, 9, seed=3):
        add_to_replay([loaded], step)
    loaded.sample(16)


def test_n_steps_do_not_cross_what_was_cut(tmp_path: Path) -> None:
    """SB3's own n-step buffer, filled in the order of the new envs, gives the same returns."""
    ours, _ = replay("n-step", 60, slots=60)
    ours.save(tmp_path / "buffer")
    loaded = load_buffer(tmp_path / "buffer", n_envs=3, device="cpu")
    theirs = NStepReplayBuffer(loaded.buffer_size * 3, loaded.observation_space, ACTIONS, "cpu", 3, n_steps=3, gamma=0.9)
    for slot in range(loaded.size()):
        infos = [{"TimeLimit.truncated": bool(timeout)} for timeout in loaded.timeouts[slot]]
        theirs.add(
            loaded.observations[slot], loaded.next_observations[slot], loaded.actions[slot], loaded.rewards[slot],
            loaded.dones[slot], infos,
        )  # fmt: skip
    assert_same_samples(loaded, theirs, batch_size=200)


def test_hindsight_buffers_with_other_sizes_sample_only_what_is_there(tmp_path: Path) -> None:
    for n_steps, changes in ((45, {"n_envs": 1}), (45, {"n_envs": 3}), (140, {"buffer_size": 24}), (140, {"n_envs": 4})):
        ours, _, env = her(n_steps, slots=60)
        ours.save(tmp_path / "buffer")
        loaded = load_buffer(tmp_path / "buffer", env=env, device="cpu", **changes)
        n = loaded.size()
        for env_number in range(loaded.n_envs):
            ends = np.flatnonzero(loaded.dones[:n, env_number])
            first = 0
            for end in ends:
                assert (loaded.ep_start[first : end + 1, env_number] == first).all()
                assert (loaded.ep_length[first : end + 1, env_number] == end + 1 - first).all()
                first = end + 1
            assert (loaded.ep_length[first:, env_number] == 0).all()
        loaded.sample(50)


def test_what_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    args = (60 * N_ENVS, REPLAY["n-step"][2], ACTIONS, "cpu", N_ENVS)
    ours = CompressedNStepReplayBuffer(*args, handle_timeout_termination=False)
    for step in play(args[1], ACTIONS, N_ENVS, 40):
        add_to_replay([ours], step)
    ours.save(tmp_path / "buffer")
    with pytest.raises(ValueError, match="needs timeouts"):
        load_buffer(tmp_path / "buffer", n_envs=3)
    made, _ = rollout("rollout")
    made.save(tmp_path / "rollout")
    with pytest.raises(ValueError, match="advantages of a rollout belong to its envs"):
        load_buffer(tmp_path / "rollout", n_envs=3)
    with pytest.raises(ValueError, match="n_envs=200 is more than the 80 transitions"):
        load_buffer(tmp_path / "buffer", n_envs=200)
    for name in ("buffer_size", "n_envs"):
        with pytest.raises(ValueError, match=f"{name} must be a positive number"):
            load_buffer(tmp_path / "buffer", **{name: 0})  # type: ignore[arg-type]


# ---- slices and merging


@pytest.mark.parametrize("kind", ["replay", "replay-zstd", "dict", "gpu", "replay-vector"])
def test_a_slice_has_the_steps_of_a_plain_one(kind: str) -> None:
    ours, _ = replay(kind, 45)
    order = ours._kept_slots()
    for first, last in ((0, 30), (0, 1), (3, 9), (-5, 30), (29, 30), (10, 10), (7, 5), (0, 999), (-999, 4)):
        made = ours.slice(first, last)
        wanted = order[slice(first, last)]
        assert made.size() == len(wanted)
        assert_same_rows(rows(made, np.arange(len(wanted))), rows(ours, wanted))
        assert type(made) is type(ours)


@pytest.mark.parametrize("kind", ["replay", "dict", "replay-vector", "gpu"])
def test_merged_buffers_have_the_steps_of_all(kind: str) -> None:
    made = [replay(kind, n, seed=n)[0] for n in (45, 0, 8)]
    merged = merge_buffers(made)
    expected = [rows(one, one._kept_slots()) for one in made]
    assert merged.size() == 38
    for i, values in enumerate(rows(merged, np.arange(38))[:-2]):  # but for dones and timeouts where something was cut
        assert values.tobytes() == b"".join(one[i].tobytes() for one in expected)
    ends = merged.dones[29].astype(bool)
    assert ends.all()
    assert (merged.timeouts[29] == (made[0].dones[made[0].pos - 1] == 0)).all() or kind == "gpu"
    smaller = merge_buffers(made, buffer_size=20 * N_ENVS)
    assert smaller.size() == 20
    assert smaller.rewards.tobytes() == merged.rewards[18:].tobytes()
    smaller.sample(10)


def test_merging_deals_to_the_envs_of_the_first() -> None:
    made = [replay("replay", 40, n_envs=3)[0], replay("replay", 30, n_envs=2, seed=2)[0]]
    merged = merge_buffers(made)
    assert (merged.n_envs, merged.size()) == (3, 30 + 20)
    known = {float(reward) for one in made for reward in one.rewards.reshape(-1)}
    assert {float(reward) for reward in merged.rewards[:50].reshape(-1)} <= known
    with pytest.raises(ValueError, match="different spaces"):
        merge_buffers([made[0], replay("replay-vector", 3)[0]])
    with pytest.raises(TypeError, match="replay buffers of this library"):
        merge_buffers([made[0], object()])
    with pytest.raises(TypeError, match="replay buffers of this library"):
        merge_buffers([])


def test_only_what_is_followed_by_another_buffer_is_cut() -> None:
    made = [replay("replay", n, seed=n)[0] for n in (21, 11, 0)]
    assert not any(one.dones[one.pos - 1].any() for one in made[:2])  # all envs are in the midst of an episode
    merged = merge_buffers(one for one in made)
    assert merged.dones[20].all()
    assert merged.timeouts[20].all()
    assert not merged.dones[31].any()
    larger = merge_buffers(made, buffer_size=100 * N_ENVS)
    expected = list(play(REPLAY["replay"][2], ACTIONS, N_ENVS, 14, 11))[11:]
    for step in expected:  # the last one goes on
        add_to_replay([larger], step)
    alone = replay("replay", 14, seed=11)[0]
    assert_same_rows(rows(larger, np.arange(21, 35)), rows(alone, np.arange(14)))
    dealt = merge_buffers([made[0], replay("replay", 11, n_envs=3)[0]])
    assert dealt.dones[dealt.pos - 1].all()  # what comes next cannot follow: envs are others
    assert dealt.dones.size == dealt.buffer_size * 2


def test_what_cannot_be_merged_says_why() -> None:
    hindsight, _, _ = her(45)
    space = hindsight.observation_space
    plain = CompressedDictReplayBuffer(60, space, hindsight.action_space, "cpu", N_ENVS)
    with pytest.raises(ValueError, match=r"cannot be put behind a CompressedHerReplayBuffer.*ep_start"):
        merge_buffers([hindsight, plain])
    assert merge_buffers([plain, hindsight]).size() == hindsight.size()
    one, other = replay("replay", 3)[0], replay("replay-vector", 3)[0]
    with pytest.raises(ValueError) as raised:
        merge_buffers([one, other])
    assert str(one.observation_space) in str(raised.value)
    assert str(other.observation_space) in str(raised.value)
    with pytest.raises(TypeError, match="list of replay buffers of this library, got CompressedReplayBuffer"):
        merge_buffers(one)
    args = (60 * N_ENVS, REPLAY["n-step"][2], ACTIONS, "cpu", N_ENVS)
    unfinished = CompressedNStepReplayBuffer(*args, handle_timeout_termination=False)
    for step in play(args[1], ACTIONS, N_ENVS, 11, 11):
        add_to_replay([unfinished], step)
    with pytest.raises(ValueError, match="merge only buffers whose last episodes are over"):
        merge_buffers([unfinished, unfinished])


# ---- SB3's own buffers


@pytest.mark.parametrize("n_steps", [0, 7, 45])
@pytest.mark.parametrize("kind", [kind for kind in REPLAY if not kind.startswith(("gpu", "prioritized", "replay-zstd"))])
def test_sb3s_buffers_can_be_compressed_and_decompressed(kind: str, n_steps: int) -> None:
    _, theirs = replay(kind, n_steps)
    compressed = compress_buffer(theirs)
    plain = decompress_buffer(compressed)
    assert type(plain) is type(theirs)
    for one in (compressed, plain):
        if n_steps:
            assert_same_samples(one, theirs)
        for step in play(REPLAY[kind][2], ACTIONS, N_ENVS, 3, seed=8):
            add_to_replay([one], step)
    assert compress_buffer(compressed) is compressed
    with pytest.raises(ValueError, match=r"compressed already.*compression_method cannot be given"):
        compress_buffer(compressed, compression_method="zstd")


def test_sb3s_memory_trick_can_be_compressed() -> None:
    args = (40, REPLAY["replay"][2], ACTIONS, "cpu", 2)
    theirs = ReplayBuffer(*args, optimize_memory_usage=True, handle_timeout_termination=False)
    for step in play(args[1], ACTIONS, 2, 33):
        add_to_replay([theirs], step)
    ours = compress_buffer(theirs, compression_method="zstd3")
    assert ours.memory_usage().codec == "zstd/3"
    order = (theirs.pos + 1 + np.arange(19)) % 20  # what SB3 samples: not where it writes next
    assert (ours.size(), ours.full) == (19, False)
    assert np.array_equal(ours.observations[:19], theirs.observations[order])
    assert np.array_equal(ours.next_observations[:19], theirs.observations[(order + 1) % 20])
    assert np.array_equal(ours.rewards[:19], theirs.rewards[order])
    for step in play(args[1], ACTIONS, 2, 5, seed=3):
        add_to_replay([ours], step)
    ours.sample(100)


@pytest.mark.parametrize("kind", ["rollout", "dict-rollout", "maskable", "recurrent", "gpu-rollout"])
def test_rollouts_can_be_compressed_and_decompressed(kind: str) -> None:
    ours, theirs = rollout(kind)
    assert_same_minibatches(decompress_buffer(ours), rollout(kind)[1], 7)
    compressed = compress_buffer(theirs)
    assert_same_minibatches(compressed, rollout(kind)[1], 7)
    with pytest.raises(ValueError, match="were read"):
        decompress_buffer(compressed)


def test_other_classes_are_refused() -> None:
    class Mine(RolloutBuffer):
        pass

    with pytest.raises(TypeError, match="SB3's and sb3-contrib's buffers, got a Mine"):
        compress_buffer(Mine(4, REPLAY["replay"][2], ACTIONS))
    with pytest.raises(TypeError, match="buffer of this library"):
        decompress_buffer(DictReplayBuffer(4, REPLAY["dict"][2], ACTIONS))


def test_hindsight_buffers_can_be_compressed() -> None:
    ours, theirs, _ = her(45)
    compressed = compress_buffer(theirs)
    assert_same_samples(compressed, theirs)
    assert_same_samples(decompress_buffer(ours), theirs)
    assert_equal(compressed, ours)


def test_the_new_buffers_hold_their_own_memory() -> None:
    ours, _ = replay("replay", 45)
    made = ours.slice(0, 10)
    before = rows(made, np.arange(10))
    ours.reset()
    for step in play(REPLAY["replay"][2], ACTIONS, N_ENVS, 90, seed=4):
        add_to_replay([ours], step)
    assert_same_rows(rows(made, np.arange(10)), before)
    assert isinstance(made, CompressedReplayBuffer)
