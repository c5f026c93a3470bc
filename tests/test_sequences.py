"""Sequences: the same as gathered step by step from SB3's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_extra_buffers.compressed.sequences import same_episode
from tests.saved_buffers import REPLAY, replay

KINDS = ["replay", "replay-none", "replay-vector", "replay-discrete", "dict", "n-step", "prioritized", "gpu", "gpu-dict"]


def by_hand(theirs: Any, batch_size: int, length: int, burn_in: int, across: bool, seed: int) -> dict[str, Any]:
    """From SB3's arrays, a step at a time."""
    np.random.seed(seed)
    n = theirs.buffer_size if theirs.full else theirs.pos
    oldest = theirs.pos if theirs.full else 0
    starts = np.random.randint(0, n - length + 1, size=batch_size)
    envs = np.random.randint(0, theirs.n_envs, size=batch_size)
    found: dict[str, Any] = {name: [] for name in ("observations", "actions", "rewards", "dones", "mask", "next_observations")}
    for start, env in zip(starts, envs, strict=True):
        slots = [(oldest + start + i) % theirs.buffer_size for i in range(length)]
        for name in ("actions", "rewards"):
            found[name].append([getattr(theirs, name)[slot, env] for slot in slots])
        found["dones"].append([theirs.dones[slot, env] * (1 - theirs.timeouts[slot, env]) for slot in slots])
        found["observations"].append([pick(theirs.observations, slot, env) for slot in slots])
        found["next_observations"].append(pick(theirs.next_observations, slots[-1], env))
        mask = [True] * length
        if not across:
            for i in range(burn_in + 1, length):
                mask[i] = mask[i - 1] and not theirs.dones[slots[i - 1], env]
            for i in range(burn_in - 1, -1, -1):
                mask[i] = mask[i + 1] and not theirs.dones[slots[i], env]
        found["mask"].append(mask)
    return found


def pick(column: Any, slot: int, env: int) -> Any:
    return {key: one[slot, env] for key, one in column.items()} if isinstance(column, dict) else column[slot, env]


def assert_same_values(got: Any, expected: Any) -> None:
    if isinstance(got, dict):
        for key, value in got.items():
            inner = [[step[key] for step in one] if isinstance(one, list) else one[key] for one in expected]
            assert_same_values(value, inner)
        return
    values = np.asarray(expected)
    assert got.shape == values.shape
    assert (got.cpu().numpy() == values).all()


@pytest.mark.parametrize("n_steps", [20, 77])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_are_those_of_sb3s_arrays(kind: str, n_steps: int) -> None:
    ours, theirs = replay(kind, n_steps, n_envs=3)
    for seed, (length, burn_in, across) in enumerate(
        [(1, 0, False), (8, 0, False), (8, 3, False), (8, 7, True), (20, 5, False)]
    ):
        expected = by_hand(theirs, 11, length, burn_in, across, seed)
        np.random.seed(seed)
        batch = ours.sample_sequences(11, length, burn_in=burn_in, across_episodes=across)
        assert batch.mask.dtype == th.bool
        for name, values in expected.items():
            assert_same_values(getattr(batch, name), values)
    ours.sample(5)  # and single steps, as before


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_mask_reaches_from_end_to_end_of_an_episode(ends: list[bool], data: st.DataObject) -> None:
    step = data.draw(st.integers(0, len(ends) - 1))
    mask = same_episode(np.array([ends]), step)[0]
    assert mask[step]
    for i in range(len(ends)):
        between = ends[min(i, step) : max(i, step)]
        assert mask[i] == (not any(between))


def test_every_window_is_drawn() -> None:
    ours, _ = replay("replay-vector", 50, slots=20, n_envs=2)
    np.random.seed(0)
    firsts = ours.sample_sequences(2000, 18).observations[:, 0]
    assert len(np.unique(firsts.numpy().reshape(2000, -1), axis=0)) == 3 * 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((4, 31), "The buffer has 30 steps of each env: add more, or ask for sequences shorter than 31"),
        ((0, 3), "batch_size must be a positive whole number, got 0"),
        ((4, 0), "length must be a positive whole number, got 0"),
        ((4, "3"), "length must be a positive whole number, got '3'"),
        ((4, 3, 1.5), "burn_in must be from 0 to length - 1, got 1.5 of 3 steps"),
        ((4, 3, 3), "burn_in must be from 0 to length - 1, got 3 of 3 steps"),
        ((4, 3, -1), "burn_in must be from 0 to length - 1, got -1 of 3 steps"),
    ],
)
def test_wrong_lengths_are_refused(arguments: tuple[Any, ...], said: str) -> None:
    ours, _ = replay("replay", 45)
    with pytest.raises(ValueError, match=said):
        ours.sample_sequences(*arguments)


def test_sequences_are_normalized_as_batches_are() -> None:
    import gymnasium as gym
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    class Env(gym.Env[Any, Any]):
        observation_space, action_space = REPLAY["replay-vector"][2], gym.spaces.Discrete(4)

    env = VecNormalize(DummyVecEnv([Env]))
    env.obs_rms.mean[:], env.obs_rms.var[:], env.ret_rms.var = 0.25, 4.0, np.float64(9)
    ours, theirs = replay("replay-vector", 45)
    np.random.seed(3)
    batch = ours.sample_sequences(6, 5, env=env)
    expected = by_hand(theirs, 6, 5, 0, False, 3)
    raw = np.asarray(expected["observations"]).reshape(-1, 17)
    np.testing.assert_array_equal(batch.observations.numpy().reshape(-1, 17), env.normalize_obs(raw))
    np.testing.assert_array_equal(batch.rewards.numpy(), env.normalize_reward(np.asarray(expected["rewards"])))
