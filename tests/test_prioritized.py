"""Prioritized replay: drawn in proportion, SB3's batches, and SB3's weights where priorities do not count."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.utils import LinearSchedule

from sb3_extra_buffers import load_buffer, merge_buffers
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.compressed.rebinding import rebound
from sb3_extra_buffers.native.tree import SumTree
from sb3_extra_buffers.prioritized import (
    CompressedPrioritizedDictReplayBuffer,
    CompressedPrioritizedNStepReplayBuffer,
    CompressedPrioritizedReplayBuffer,
    PrioritizedDQN,
    PrioritizedQRDQN,
    PrioritizedSampling,
)
from tests.oracle import DICT_SPACE, IMAGE, add_to_replay, assert_same
from tests.transitions import play

ACTIONS = spaces.Discrete(4)


class PrioritizedReplayBuffer(PrioritizedSampling, ReplayBuffer): ...


class PrioritizedDictReplayBuffer(PrioritizedSampling, DictReplayBuffer): ...


class PrioritizedNStepReplayBuffer(PrioritizedSampling, NStepReplayBuffer): ...


#: Our class, the same over SB3's arrays, SB3's own, and the space.
CLASSES: dict[str, tuple[Any, Any, Any, Any]] = {
    "plain": (CompressedPrioritizedReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer, IMAGE),
    "dict": (CompressedPrioritizedDictReplayBuffer, PrioritizedDictReplayBuffer, DictReplayBuffer, DICT_SPACE),
    "n-step": (CompressedPrioritizedNStepReplayBuffer, PrioritizedNStepReplayBuffer, NStepReplayBuffer, IMAGE),
}


def filled(buffer_class: Any, space: Any = IMAGE, n_steps: int = 45, n_envs: int = 2, **options: Any) -> Any:
    buffer = buffer_class(30 * n_envs, space, ACTIONS, "cpu", n_envs, **options)
    for step in play(space, ACTIONS, n_envs, n_steps):
        add_to_replay([buffer], step)
    return buffer


def same_draw(buffers: list[Any], batch_size: int = 17, seed: int = 0) -> list[Any]:
    batches = []
    for buffer in buffers:
        np.random.seed(seed)
        batches.append(buffer.sample(batch_size))
    return batches


# ---- the tree


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.data())
def test_tree_draws_where_the_sum_of_weights_ends(numbers: list[int], data: st.DataObject) -> None:
    weights = np.array(numbers, np.float32)
    tree = SumTree(weights)
    for _ in range(3):
        cells = np.array(data.draw(st.lists(st.integers(0, len(weights) - 1), max_size=5)), np.int64)
        new = np.array([data.draw(st.integers(0, 50)) for _ in cells], np.float32)
        expected = weights.copy()
        for cell, weight in zip(cells, new, strict=True):
            expected[cell] = weight
        tree.set(cells, new)
        assert (weights == expected).all()
        assert tree.total == expected.sum()
        uniform = np.array([0, *data.draw(st.lists(st.floats(0, 1, exclude_max=True), max_size=5)), np.nextafter(1, 0)])
        if not expected.any():
            with pytest.raises(ValueError, match="no cell has a weight"):
                tree.draw(uniform)
            continue
        slots, envs, drawn, ratios = tree.draw(uniform, 3)
        assert (expected[drawn] > 0).all()
        assert (ratios == expected[drawn] / expected[drawn].min()).all()
        assert (slots == drawn // 3).all()
        assert (envs == drawn % 3).all()
        shares = (np.arange(len(uniform)) + uniform) / len(uniform)
        last = np.flatnonzero(expected)[-1]
        ends = np.cumsum(expected, dtype=np.float64)
        assert (drawn == np.minimum(np.searchsorted(ends, shares * tree.total, "right"), last)).all()


@pytest.mark.parametrize("wrong", [-1, np.nan, np.inf])
def test_tree_refuses_weights_that_are_none(wrong: float) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        SumTree(np.array([1, wrong], np.float32))
    tree = SumTree(np.ones(3, np.float32))
    with pytest.raises(ValueError, match="finite and not negative"):
        tree.set(np.array([0, 1]), np.array([5, wrong], np.float32))
    with pytest.raises(IndexError):
        tree.set(np.array([0, 3]), np.array([5, 5], np.float32))
    assert tree.total == 3


# ---- batches


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("kind", CLASSES)
def test_without_alpha_batches_are_those_of_sb3(kind: str, n_envs: int) -> None:
    ours_class, mixed_class, theirs_class, space = CLASSES[kind]
    theirs = filled(theirs_class, space, n_envs=n_envs)
    for made in (ours_class, mixed_class):
        batch, expected = same_draw([filled(made, space, n_envs=n_envs, alpha=0), theirs])
        assert_same(tuple(batch)[:-2], tuple(expected))
        assert (batch.weights == 1).all()


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("kind", CLASSES)
def test_indices_are_those_of_the_transitions_in_the_batch(kind: str, n_envs: int) -> None:
    ours_class, mixed_class, theirs_class, space = CLASSES[kind]
    for alpha in (0, 0.6):
        batch, mixed = same_draw(
            [filled(ours_class, space, n_envs=n_envs, alpha=alpha), filled(mixed_class, space, n_envs=n_envs, alpha=alpha)]
        )
        assert_same(batch, mixed)
        theirs = filled(theirs_class, space, n_envs=n_envs)
        slots, envs = batch.indices // n_envs, batch.indices % n_envs
        expected = theirs.observations
        for key in expected if isinstance(expected, dict) else (None,):
            values, got = (expected, batch.observations) if key is None else (expected[key], batch.observations[key])
            assert (got.numpy() == values[slots, envs]).all()
        if kind != "n-step":
            assert (batch.rewards.numpy().ravel() == theirs.rewards[slots, envs]).all()


def test_transitions_are_drawn_in_proportion_to_their_priorities() -> None:
    from scipy import stats

    buffer = filled(CompressedPrioritizedReplayBuffer, n_envs=3, alpha=0.7)
    errors = np.random.default_rng(0).exponential(size=90) + 0.01
    buffer.update_priorities(np.arange(90), errors)
    np.random.seed(1)
    # One at a time: within a batch, each is drawn from a part of its own, which is more even than chance.
    counts = np.bincount(np.concatenate([buffer.sample(1).indices for _ in range(8000)]), minlength=90)
    expected = (errors + buffer.eps) ** 0.7
    assert stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue > 0.001
    batches = np.bincount(np.concatenate([buffer.sample(64).indices for _ in range(300)]), minlength=90)
    assert stats.chisquare(batches, expected / expected.sum() * batches.sum()).pvalue > 0.001
    assert stats.chisquare(counts).pvalue < 1e-6  # uniform it is not


def test_weights_make_up_for_the_priorities() -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, alpha=0.5, beta=0.8)
    errors = np.random.default_rng(0).exponential(size=60)
    buffer.update_priorities(np.arange(60), errors)
    batch = buffer.sample(20)
    chances = buffer.priorities.reshape(-1) / buffer.priorities.sum(dtype=np.float64)
    expected = (60 * chances[batch.indices]) ** -0.8
    assert batch.weights.shape == (20, 1)
    assert batch.weights.dtype == th.float32
    np.testing.assert_allclose(batch.weights.numpy().ravel(), expected / expected.max(), rtol=1e-5)


def test_new_transitions_get_the_largest_priority() -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, n_steps=20, alpha=1)
    assert (buffer.priorities[:20] == 1).all()
    assert (buffer.priorities[20:] == 0).all()
    buffer.update_priorities([3, 4], [0.5, 7.0])
    buffer.update_priorities([4], [0.25])
    [step] = play(IMAGE, ACTIONS, 2, 1)
    add_to_replay([buffer], step)
    assert (buffer.priorities[20] == np.float32(7 + 1e-6)).all()
    assert buffer.priorities.reshape(-1)[[3, 4]] == pytest.approx([0.5, 0.25], rel=1e-4)


@pytest.mark.parametrize("made", [CompressedPrioritizedReplayBuffer, PrioritizedReplayBuffer])
def test_an_overwritten_transition_loses_its_priority(made: Any) -> None:
    buffer = filled(made, n_steps=30, alpha=1)
    buffer.update_priorities(np.arange(60), np.full(60, 0.5))
    buffer.sample(1)
    [step] = play(IMAGE, ACTIONS, 2, 1)
    add_to_replay([buffer], step)
    assert (buffer.priorities[0] == 1).all()
    assert buffer._tree.total == pytest.approx(58 * 0.5 + 2, rel=1e-4)


def test_the_transition_that_sb3_has_lost_is_not_drawn() -> None:
    buffer = PrioritizedReplayBuffer(10, IMAGE, ACTIONS, "cpu", optimize_memory_usage=True, handle_timeout_termination=False)
    for step in play(IMAGE, ACTIONS, 1, 13):
        add_to_replay([buffer], step)
    drawn = np.concatenate([buffer.sample(20).indices for _ in range(20)])
    assert set(drawn.tolist()) == set(range(10)) - {3}


def test_a_refused_add_changes_no_priority() -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, n_steps=5)
    before, wrong = buffer.priorities.copy(), np.zeros((2, 3), np.uint8)
    with pytest.raises(ValueError, match="shape"):
        buffer.add(wrong, wrong, np.zeros((2, 1)), np.zeros(2), np.zeros(2), [{}, {}])
    assert (buffer.priorities == before).all()


def test_beta_follows_its_schedule() -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, beta=LinearSchedule(0.4, 1.0, 1.0))
    assert buffer.current_beta() == pytest.approx(0.4)
    buffer.progress_remaining = 0.5
    assert buffer.current_beta() == pytest.approx(0.7)


@pytest.mark.parametrize("wrong", [1.5, -0.5, np.nan, None])
def test_a_beta_that_its_schedule_takes_out_of_range_is_refused(wrong: Any) -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, beta=lambda progress: wrong)
    with pytest.raises(ValueError, match="beta must be between 0 and 1, but its schedule says"):
        buffer.sample(4)


def test_a_schedule_may_be_asked_a_little_behind_the_end_of_training() -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, beta=lambda progress: 1 - 0.6 * progress)
    buffer.progress_remaining = -0.002
    assert buffer.current_beta() == 1


@pytest.mark.parametrize("dtype", [th.bfloat16, th.float16, th.float64])
def test_errors_may_be_tensors_of_any_float(dtype: th.dtype) -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, alpha=1)
    buffer.update_priorities(th.tensor([0, 1], dtype=th.int32), th.tensor([[0.5], [2]], dtype=dtype, requires_grad=True))
    np.testing.assert_allclose(buffer.priorities.reshape(-1)[:2], [0.5, 2], rtol=1e-5)


def test_reset_forgets_priorities() -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, alpha=1)
    buffer.update_priorities([0], [5.0])
    buffer.reset()
    assert not buffer.priorities.any()
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    [step] = play(IMAGE, ACTIONS, 2, 1)
    add_to_replay([buffer], step)
    assert (buffer.priorities[0] == 1).all()
    assert set(buffer.sample(9).indices.tolist()) == {0, 1}


# ---- refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alpha": -0.1}, "alpha must be between 0"),
        ({"alpha": 1.5}, "alpha must be between 0"),
        ({"alpha": np.nan}, "alpha must be between 0"),
        ({"alpha": None}, "alpha must be between 0"),
        ({"beta": "linear"}, "beta must be between 0 .* got 'linear'"),
        ({"eps": 1e-60}, "eps must be a positive number"),
        ({"eps": 1e31}, "eps must be a positive number up to 1e.30, got 1e.31"),
        ({"beta": 2}, "beta must be between 0"),
        ({"eps": 0}, "eps must be a positive number"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        CompressedPrioritizedReplayBuffer(10, IMAGE, ACTIONS, **options)


def test_a_misspelled_option_is_suggested() -> None:
    with pytest.raises(TypeError, match="Did you mean 'alpha'"):
        CompressedPrioritizedReplayBuffer(10, IMAGE, ACTIONS, alhpa=1)


def test_the_largest_error_that_there_is_counts() -> None:
    largest = np.finfo(np.float32).max
    buffer = filled(CompressedPrioritizedReplayBuffer, alpha=1.0)
    buffer.update_priorities(np.array([3]), np.array([largest]))
    assert buffer.priorities.reshape(-1)[3] == largest
    assert (buffer.sample(8).indices == 3).all()


@pytest.mark.parametrize(
    ("indices", "errors", "said"),
    [
        ([0, 1], [1.0], "1 errors for 2 indices"),
        ([0, 60], [1.0, 1.0], "below 60, got 0 to 60"),
        ([-1], [1.0], "got -1 to -1"),
        ([0], [-0.5], "pass their absolute values"),
        ([0], [np.nan], "got nan"),
        ([0], [np.inf], "got inf"),
        ([0.5], [1.0], "whole numbers"),
        ([0], [1e300], "got inf"),
        ([0], [1j], "errors must be numbers, got complex128"),
        ([0], ["large"], "errors must be numbers"),
    ],
)
def test_wrong_updates_are_refused_and_change_nothing(indices: Any, errors: Any, said: str) -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer)
    before = buffer.priorities.copy()
    with pytest.raises(ValueError, match=said):
        buffer.update_priorities(indices, errors)
    assert (buffer.priorities == before).all()


def test_indices_of_slots_without_a_transition_are_refused() -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, n_steps=3)
    with pytest.raises(ValueError, match="below 6"):
        buffer.update_priorities([6], [1.0])


def test_dqn_refuses_a_buffer_without_priorities() -> None:
    with pytest.raises(TypeError, match="needs a prioritized replay buffer, got CompressedReplayBuffer"):
        PrioritizedDQN("MlpPolicy", "CartPole-v1", replay_buffer_class=CompressedReplayBuffer, buffer_size=10, device="cpu")


def test_functions_that_do_not_use_a_name_cannot_be_rebound() -> None:
    with pytest.raises(TypeError, match="does not use nothing_of_it"):
        rebound(DQN.train, nothing_of_it=1)


# ---- saved and copied


def drawn_twice(buffer: Any) -> Any:
    np.random.seed(7)
    batches = [buffer.sample(10), buffer.sample(10)]
    return tuple(batches)


@pytest.mark.parametrize("how", ["file", "pickle", "deepcopy", "checkpoint"])
@pytest.mark.parametrize("n_steps", [20, 45])
def test_copies_draw_the_same(how: str, n_steps: int, tmp_path: Path) -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, n_steps=n_steps, alpha=0.9, beta=0.3, eps=0.01)
    n = buffer.size() * 2
    if how == "checkpoint":  # priorities change after their steps were written
        buffer.checkpoint(tmp_path / "folder")
    buffer.update_priorities(np.arange(n), np.random.default_rng(2).random(n) * 5)
    if how == "file":
        buffer.save(tmp_path / "file.sb3x")
        other = load_buffer(tmp_path / "file.sb3x", device="cpu")
    elif how == "checkpoint":
        steps = {path.name for path in (tmp_path / "folder").iterdir()}
        buffer.checkpoint(tmp_path / "folder")
        assert len(steps & {path.name for path in (tmp_path / "folder").iterdir()}) >= 2  # the list, and steps as they were
        other = load_buffer(tmp_path / "folder", device="cpu")
    else:
        other = pickle.loads(pickle.dumps(buffer)) if how == "pickle" else copy.deepcopy(buffer)
    assert (other.alpha, other.beta, other.eps) == (0.9, 0.3, 0.01)
    assert_same(drawn_twice(other), drawn_twice(buffer))
    [step] = play(IMAGE, ACTIONS, 2, 1, 99)
    add_to_replay([buffer, other], step)
    other.update_priorities([1], [3.0])
    buffer.update_priorities([1], [3.0])
    assert (other.priorities == buffer.priorities).all()
    assert_same(drawn_twice(other), drawn_twice(buffer))


def test_priorities_go_with_their_steps_to_other_sizes(tmp_path: Path) -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, n_steps=45, alpha=1)
    buffer.update_priorities(np.arange(60), buffer.rewards.reshape(-1) - buffer.rewards.min())
    buffer.save(tmp_path / "file.sb3x")
    for made in (
        load_buffer(tmp_path / "file.sb3x", buffer_size=20, device="cpu"),
        load_buffer(tmp_path / "file.sb3x", n_envs=3, device="cpu"),
        buffer.slice(3, 17),
        merge_buffers([buffer, buffer]),
    ):
        n = made.size()
        np.testing.assert_allclose(
            made.priorities[:n], made.rewards[:n] - np.float32(buffer.rewards.min()) + np.float32(1e-6), rtol=1e-4, atol=1e-5
        )
        assert made.sample(8).weights.max() == 1


def test_a_checkpoint_of_changed_priorities_writes_little(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    buffer = CompressedPrioritizedReplayBuffer(3000, spaces.Box(0, 255, (1, 30, 30), np.uint8), ACTIONS, "cpu")
    for _ in range(2500):
        obs = rng.integers(0, 256, (1, 1, 30, 30), np.uint8)
        buffer.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    folder = tmp_path / "folder"
    buffer.checkpoint(folder)
    before = {path.name for path in folder.iterdir()}
    buffer.update_priorities(np.arange(2500), rng.random(2500))
    buffer.checkpoint(folder)
    new = [path for path in folder.iterdir() if path.name not in before]
    assert sum(path.stat().st_size for path in new) < 2500 * 4 + 5000
    assert (load_buffer(folder, device="cpu").priorities == buffer.priorities).all()
    assert len(list(folder.iterdir())) == len(before)


def test_models_with_a_schedule_can_be_saved(tmp_path: Path) -> None:
    buffer = filled(CompressedPrioritizedReplayBuffer, beta=LinearSchedule(0.4, 1.0, 0.5))
    buffer.save(tmp_path / "file.sb3x")
    schedule = load_buffer(tmp_path / "file.sb3x", device="cpu").beta
    assert vars(schedule) == vars(LinearSchedule(0.4, 1.0, 0.5))
    buffer.beta = lambda progress: 0.5
    with pytest.raises(TypeError, match=r"beta=.* cannot be saved in a file"):
        buffer.save(tmp_path / "file.sb3x")


# ---- learning


def learned(algorithm: Any, env: Any = "CartPole-v1", **options: Any) -> Any:
    model = algorithm(
        "MultiInputPolicy" if env != "CartPole-v1" else "MlpPolicy", env, buffer_size=150, learning_starts=50, train_freq=2,
        batch_size=20, target_update_interval=50, seed=3, device="cpu", policy_kwargs={"net_arch": [16]}, **options,
    )  # fmt: skip
    return model.learn(300)


def assert_same_weights(one: Any, other: Any) -> None:
    for (name, mine), theirs in zip(one.policy.state_dict().items(), other.policy.state_dict().values(), strict=True):
        assert th.equal(mine, theirs), name


@pytest.mark.parametrize("made", [None, PrioritizedReplayBuffer])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_without_alpha_and_beta_it_is_dqn(made: Any, n_steps: int) -> None:
    if made is not None and n_steps == 3:
        made = PrioritizedNStepReplayBuffer
    kwargs: dict[str, Any] = {"alpha": 0, "beta": 0}
    if made is not None and n_steps == 3:
        kwargs |= {"n_steps": 3, "gamma": 0.99}
        ours = learned(PrioritizedDQN, replay_buffer_class=made, replay_buffer_kwargs=kwargs)
    else:
        ours = learned(PrioritizedDQN, replay_buffer_class=made, replay_buffer_kwargs=kwargs, n_steps=n_steps)
    assert_same_weights(ours, learned(DQN, n_steps=n_steps))


def test_without_alpha_and_beta_it_is_qrdqn() -> None:
    from sb3_contrib import QRDQN

    ours = learned(PrioritizedQRDQN, replay_buffer_kwargs={"alpha": 0, "beta": 0})
    assert_same_weights(ours, learned(QRDQN))


@pytest.mark.parametrize("algorithm", [PrioritizedDQN, PrioritizedQRDQN])
def test_priorities_are_the_errors_of_the_last_update(algorithm: Any) -> None:
    model = learned(algorithm, replay_buffer_kwargs={"alpha": 1, "beta": LinearSchedule(0.4, 1, 1)})
    buffer = model.replay_buffer
    assert isinstance(buffer, CompressedPrioritizedReplayBuffer)
    assert buffer.progress_remaining < 0.05
    assert 0.95 < buffer.current_beta() <= 1
    assert len(np.unique(buffer.priorities)) > 50
    model.train(1, 20)
    _, indices = buffer.latest
    assert len(np.unique(buffer.priorities.reshape(-1)[indices])) > 5


def test_the_loss_of_each_transition_is_weighted() -> None:
    """A gradient step by hand: weights times Huber loss."""
    ours, by_hand = (learned(PrioritizedDQN, replay_buffer_kwargs={"beta": 1}) for _ in range(2))
    np.random.seed(0)
    ours.train(1, 20)
    np.random.seed(0)
    batch = by_hand.replay_buffer.sample(20)
    with th.no_grad():
        best = by_hand.q_net_target(batch.next_observations).max(dim=1).values.reshape(-1, 1)
        target = batch.rewards + (1 - batch.dones) * 0.99 * best
    by_hand._update_learning_rate(by_hand.policy.optimizer)
    current = th.gather(by_hand.q_net(batch.observations), 1, batch.actions.long())
    loss = (batch.weights * th.nn.functional.smooth_l1_loss(current, target, reduction="none")).mean()
    by_hand.policy.optimizer.zero_grad()
    loss.backward()
    th.nn.utils.clip_grad_norm_(by_hand.policy.parameters(), by_hand.max_grad_norm)
    by_hand.policy.optimizer.step()
    assert_same_weights(ours, by_hand)
    assert batch.weights.min() < 1


def test_a_saved_model_goes_on(tmp_path: Path) -> None:
    model = learned(PrioritizedDQN)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    other = PrioritizedDQN.load(tmp_path / "model", env=model.get_env(), device="cpu")
    other.load_replay_buffer(tmp_path / "buffer")
    other.set_logger(model.logger)
    for one in (model, other):
        np.random.seed(0)
        one.train(3, 20)
    assert_same_weights(model, other)
