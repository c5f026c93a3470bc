"""Replay buffers give the batches that SB3's give, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer

from sb3_extra_buffers.codecs import available_codecs
from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedNStepReplayBuffer, CompressedReplayBuffer
from tests.oracle import DICT_SPACE, IMAGE, SPACES, add_to_replay, assert_same_samples, each_once
from tests.transitions import play

ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-binary": spaces.MultiBinary(3),
}
METHODS = ["auto", *available_codecs()]
LAPS = 3.4


def check(ours: Any, theirs: Any, space: Any, action_space: Any, n_envs: int, seed: int = 0) -> None:
    n_steps = int(ours.buffer_size * LAPS)
    for t, step in enumerate(play(space, action_space, n_envs, n_steps, seed)):
        add_to_replay([ours, theirs], step)
        if t in (0, 1, 3, ours.buffer_size - 1) or t % 19 == 18:
            assert_same_samples(ours, theirs, seed=t)
    assert (ours.pos, ours.full, ours.size()) == (theirs.pos, theirs.full, theirs.size())
    assert_same_samples(ours, theirs, batch_size=200)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_replay_equals_sb3(space: spaces.Space[Any], n_envs: int, method: str) -> None:
    args = (60, space, ACTIONS["discrete"], "cpu", n_envs)
    check(CompressedReplayBuffer(*args, compression_method=method), ReplayBuffer(*args), space, args[2], n_envs)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_envs", [1, 3])
def test_dict_replay_equals_sb3(n_envs: int, method: str) -> None:
    args = (60, DICT_SPACE, ACTIONS["box"], "cpu", n_envs)
    check(CompressedDictReplayBuffer(*args, compression_method=method), DictReplayBuffer(*args), DICT_SPACE, args[2], n_envs)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize(("name", "method"), each_once(list(SPACES), METHODS))
def test_n_step_replay_equals_sb3(name: str, n_envs: int, method: str) -> None:
    space = SPACES[name]
    args = (60, space, ACTIONS["discrete"], "cpu", n_envs)
    ours = CompressedNStepReplayBuffer(*args, n_steps=3, gamma=0.9, compression_method=method)
    check(ours, NStepReplayBuffer(*args, n_steps=3, gamma=0.9), space, args[2], n_envs)


@pytest.mark.parametrize("actions", ACTIONS)
def test_every_action_space(actions: str) -> None:
    args = (40, IMAGE, ACTIONS[actions], "cpu", 2)
    check(CompressedReplayBuffer(*args), ReplayBuffer(*args), IMAGE, args[2], 2)


@pytest.mark.parametrize("handle_timeouts", [True, False])
@pytest.mark.parametrize("kind", ["plain", "dict", "n-step"])
def test_optimize_memory_usage_keeps_the_terminal_observation(kind: str, handle_timeouts: bool) -> None:
    """SB3 refuses most of these, and where it does not it loses the terminal observation: the oracle is SB3 without it."""
    ours_class, theirs_class, space = {
        "plain": (CompressedReplayBuffer, ReplayBuffer, IMAGE),
        "dict": (CompressedDictReplayBuffer, DictReplayBuffer, DICT_SPACE),
        "n-step": (CompressedNStepReplayBuffer, NStepReplayBuffer, IMAGE),
    }[kind]
    args = (60, space, ACTIONS["discrete"], "cpu", 2)
    theirs = theirs_class(*args, handle_timeout_termination=handle_timeouts)
    for ours in (
        ours_class(*args, optimize_memory_usage=True, handle_timeout_termination=handle_timeouts),
        ours_class(*args, True, handle_timeouts),
    ):
        check(ours, theirs_class(*args, handle_timeout_termination=handle_timeouts), space, args[2], 2)
        assert ours.handle_timeout_termination == theirs.handle_timeout_termination


@pytest.mark.parametrize("block_frames", [1, 2, 5, 64])
@pytest.mark.parametrize("method", ["delta", "gzip", "none"])
def test_any_block_size(method: str, block_frames: int) -> None:
    space = SPACES["odd-image"]
    args = (30, space, ACTIONS["discrete"], "cpu", 2)
    check(
        CompressedReplayBuffer(*args, compression_method=method, block_frames=block_frames),
        ReplayBuffer(*args),
        space,
        args[2],
        2,
    )


@pytest.mark.parametrize("frame_stack", ["auto", 1, 2, 4])
@pytest.mark.parametrize("name", ["stack", "stack-last"])
def test_any_frame_stack(name: str, frame_stack: Any) -> None:
    args = (60, SPACES[name], ACTIONS["discrete"], "cpu", 3)
    check(CompressedReplayBuffer(*args, frame_stack=frame_stack), ReplayBuffer(*args), SPACES[name], args[2], 3)


def test_a_buffer_of_one_step() -> None:
    args = (2, IMAGE, ACTIONS["discrete"], "cpu", 2)
    ours, theirs = CompressedReplayBuffer(*args), ReplayBuffer(*args)
    for step in play(IMAGE, args[2], 2, 70):
        add_to_replay([ours, theirs], step)
        assert_same_samples(ours, theirs)


def test_extend_and_reset_work_as_in_sb3() -> None:
    args = (40, IMAGE, ACTIONS["discrete"], "cpu", 2)
    ours, theirs = CompressedReplayBuffer(*args), ReplayBuffer(*args)
    steps = list(play(IMAGE, args[2], 2, 30))
    for buffer in (ours, theirs):
        buffer.extend(*zip(*steps, strict=True))
    assert_same_samples(ours, theirs)
    for buffer in (ours, theirs):
        buffer.reset()
    assert ours.size() == 0
    for step in steps[:5]:
        add_to_replay([ours, theirs], step)
    assert_same_samples(ours, theirs)
    assert np.array_equal(np.asarray(ours.observations), theirs.observations)
    assert np.array_equal(np.asarray(ours.next_observations), theirs.next_observations)


@pytest.mark.parametrize("shape", [(4, 12, 12), (4, 5, 3), (4, 40, 41), (12, 10, 10)], ids=str)
@pytest.mark.parametrize("method", ["auto", "delta", "gzip"])
def test_views_with_interleaved_pixels_as_vec_transpose_image_gives_them(shape: tuple[int, ...], method: str) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    args = (60, space, ACTIONS["discrete"], "cpu", 3)
    ours, theirs = CompressedReplayBuffer(*args, compression_method=method), ReplayBuffer(*args)
    for t, step in enumerate(play(space, args[2], 3, 70)):
        views = [np.ascontiguousarray(obs.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for obs in (step.obs, step.next_obs)]
        assert not views[0].flags.c_contiguous
        for buffer in (ours, theirs):
            buffer.add(*views, step.action, step.reward, step.done, step.infos)
        if t % 9 == 8:
            assert_same_samples(ours, theirs, seed=t)
