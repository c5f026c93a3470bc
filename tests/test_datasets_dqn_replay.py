"""Replay logs of Dopamine: every step of a log, with the frames of its stack, and nothing else."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.compressed import CompressedNStepReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.datasets import dopamine_log, from_dqn_replay, gzipped
from sb3_extra_buffers.errors import CorruptDataError, ObservationError
from tests.dopamine import LoggedStep, Ring
from tests.test_datasets_episodes import said

PROFILE = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
ON_CPU = {"device": "cpu"}


def read(folder: Path, *args: Any, **kwargs: Any) -> Any:
    return from_dqn_replay(folder, *args, progress_bar=False, **{"buffer_kwargs": ON_CPU, **kwargs})


def assert_holds(buffer: Any, steps: list[LoggedStep]) -> None:
    """These steps, in this order."""
    n = buffer.size()
    assert n == len(steps)
    slots, envs = np.arange(n), np.zeros(n, np.int64)
    now, following = np.asarray(buffer.observations[slots, envs]), np.asarray(buffer.next_observations[slots, envs])
    for i, step in enumerate(steps):
        assert now[i].tobytes() == step.now.tobytes(), i
        assert following[i].tobytes() == step.following.tobytes(), i
    assert buffer.actions[:n, 0, 0].tolist() == [step.action for step in steps]
    assert buffer.rewards[:n, 0].tolist() == [step.reward for step in steps]
    terminated = buffer.dones[:n, 0].astype(bool) & ~buffer.timeouts[:n, 0].astype(bool)
    assert terminated.tolist() == [step.terminal for step in steps]
    places = [*(step.place for step in steps), None]
    goes_on = [(place[0], place[1] + 1) == after for place, after in pairwise(places)]  # type: ignore[index]
    assert buffer.dones[:n, 0].astype(bool).tolist() == [not one for one in goes_on]  # or n-step returns would go too far


@PROFILE
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=12), capacity=st.integers(6, 60), stack=st.integers(1, 5),
    is_padded=st.booleans(), at_once=st.integers(1, 40), seed=st.integers(0, 999),
)  # fmt: skip
def test_a_log_gives_its_steps_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], capacity: int, stack: int, is_padded: bool, at_once: int,
    seed: int,
) -> None:  # fmt: skip
    folder, rng = tmp_path_factory.mktemp("log"), np.random.default_rng(seed)
    ring = Ring(capacity, stack, is_padded=is_padded)
    for length in lengths:
        ring.play(length, rng)
    ring.save(folder, 3)
    expected = ring.steps()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dopamine_log, "_READ_BYTES", 20 * at_once)
        buffer = read(folder, stack=stack, action_space=spaces.Discrete(6))
    assert_holds(buffer, expected)


@PROFILE
@given(
    lengths=st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=12), capacity=st.integers(6, 60),
    stack=st.integers(2, 5), at_once=st.integers(1, 40), seed=st.integers(0, 999),
)  # fmt: skip
def test_episodes_that_end_without_a_terminal_are_told_by_their_padding(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[tuple[int, bool]],
    capacity: int,
    stack: int,
    at_once: int,
    seed: int,
) -> None:
    folder, rng = tmp_path_factory.mktemp("log"), np.random.default_rng(seed)
    ring = Ring(capacity, stack)
    for length, terminates in lengths:
        ring.play(length, rng, terminates=terminates)
    ring.save(folder, 0)
    (folder / "episode_end_indices_ckpt.0.gz").write_bytes(b"a pickle, which is not read")
    # Steps in the dark, without an action or a reward, cannot be told from padding.
    blank = (ring.actions == 0) & (ring.rewards == 0) & (ring.terminals == 0) & ~ring.frames.any(axis=(1, 2))
    if any(one and i >= 0 for one, (_, i) in zip(blank, ring.origin, strict=True)):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dopamine_log, "_READ_BYTES", 20 * at_once)
        buffer = read(folder, stack=stack, action_space=spaces.Discrete(6))
    assert_holds(buffer, ring.steps())


# ---- several checkpoints


def three_checkpoints(folder: Path, **kwargs: Any) -> list[LoggedStep]:
    """Of one game that goes on: the steps of all of them."""
    rng, steps = np.random.default_rng(0), []
    for number in (0, 1, 10):
        ring = Ring(50, 4, **kwargs)
        for length in rng.integers(1, 15, 9):
            ring.play(int(length), rng)
        ring.save(folder, number)
        steps += [step._replace(place=(100 * number + step.place[0], step.place[1])) for step in ring.steps()]
    return steps


@pytest.mark.parametrize("made_class", [CompressedReplayBuffer, ReplayBuffer])
def test_checkpoints_are_read_in_the_order_of_their_numbers(tmp_path: Path, made_class: Any) -> None:
    steps = three_checkpoints(tmp_path)
    assert_holds(read(tmp_path, into=made_class), steps)
    assert_holds(read(tmp_path, [0, 1, 10], into=made_class), steps)
    last = [step for step in steps if step.place[0] >= 1000]
    assert_holds(read(tmp_path, 10, into=made_class), last)
    assert_holds(read(tmp_path, np.array([10]), into=made_class), last)


def test_a_smaller_buffer_keeps_the_newest_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps = three_checkpoints(tmp_path)
    buffer = read(tmp_path, buffer_size=40)
    assert 20 < buffer.size() <= 40  # entries of zeros count as steps that do not fit
    assert_holds(buffer, steps[-buffer.size() :])
    assert "The first steps (" in caplog.text


def test_a_log_is_read_by_any_replay_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps = three_checkpoints(tmp_path)
    assert_holds(read(tmp_path, into=CompressedNStepReplayBuffer), steps)
    given = CompressedReplayBuffer(200, spaces.Box(0, 255, (4, 5, 4), np.uint8), spaces.Discrete(6), "cpu")
    caplog.clear()
    assert read(tmp_path, into=given, buffer_kwargs=None) is given
    assert "The action space is" not in said(caplog)  # the buffer has its own
    assert_holds(given, steps)
    other = CompressedReplayBuffer(200, spaces.Box(0, 255, (4, 6, 4), np.uint8), spaces.Discrete(6), "cpu")
    with pytest.raises(ObservationError, match=r"need \(\d+, 4, 6, 4\)"):
        read(tmp_path, into=other, buffer_kwargs=None)


def test_frames_of_other_kinds(tmp_path: Path) -> None:
    # Vectors and colour, too.
    for number, (shape, dtype, stack) in enumerate([((3,), np.float32, 1), ((3,), np.float32, 2), ((4, 4, 3), np.uint8, 3)]):
        ring, rng = Ring(60, stack, shape, dtype), np.random.default_rng(0)
        for length in (5, 9, 30, 2):
            ring.play(length, rng)
        ring.save(tmp_path / str(number), 0)
        buffer = read(tmp_path / str(number), stack=stack)
        assert buffer.observation_space.shape == (shape if stack == 1 else (stack, *shape))
        assert_holds(buffer, ring.steps())


def test_isal_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = three_checkpoints(tmp_path)
    monkeypatch.setattr(gzipped, "installed", lambda module: False)
    assert_holds(read(tmp_path), steps)


def test_it_is_said_what_became_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ring, rng = Ring(40, 4), np.random.default_rng(0)
    for length in (6, 7, 8, 9):
        ring.play(length, rng)
    ring.save(tmp_path, 0, priority=np.zeros(40))
    buffer = read(tmp_path)
    text = said(caplog)
    assert f"{tmp_path}: {buffer.size()} steps, " in text
    for sentence in (
        "Terminal steps without a next observation (", "The action space is Discrete(6), after the largest action in the data",
        "Entries of zeros before episodes (",
        "Steps whose stack is not complete in the data (", "Not used: priority.",
        "Episodes that the data do not hold to their end (1) end with a timeout.",
    ):  # fmt: skip
        assert sentence in text


# ---- what is refused


def test_what_is_missing_is_named_with_its_place(tmp_path: Path) -> None:
    for folder in (tmp_path / "nothing", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"has no replay log .* gs://atari-replay-datasets/dqn"):
            read(folder)
    three_checkpoints(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no checkpoint 2, 3. There are 0, 1, 10"):
        read(tmp_path, [0, 2, 3])
    for wrong in ([], "1", [True], [1.5]):
        with pytest.raises(ValueError, match=r"checkpoints must be one number or several, got .* There are 0, 1, 10"):
            read(tmp_path, wrong)
    (tmp_path / "$store$_reward_ckpt.1.gz").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"\$store\$_reward_ckpt.1.gz is missing in .* Get it from where the other files came from"
    ):
        read(tmp_path)


@pytest.mark.parametrize("stack", [0, -1, 2.5, True])
def test_a_stack_that_cannot_be_is_refused(tmp_path: Path, stack: Any) -> None:
    with pytest.raises(ValueError, match="stack must be a positive number of frames"):
        read(tmp_path, stack=stack)


@pytest.mark.parametrize("has_isal", [True, False])
@pytest.mark.parametrize("name", ["$store$_observation", "$store$_reward", "add_count"])
def test_damaged_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, has_isal: bool) -> None:
    if has_isal:
        pytest.importorskip("isal")
    else:
        monkeypatch.setattr(gzipped, "installed", lambda module: False)
    three_checkpoints(tmp_path)
    path = tmp_path / f"{name}_ckpt.1.gz"
    good = path.read_bytes()
    data = gzip.decompress(good)
    checksum = bytearray(good)
    checksum[-8] ^= 1
    wrong = [
        good[: len(good) // 2],
        good[:-8],
        bytes(checksum),
        b"no gzip",
        b"",
        gzip.compress(b"no array"),
        gzip.compress(data[:-1]),
    ]
    if name == "$store$_observation":
        wrong.append(gzip.compress(data + b"more"))
    for bad in wrong:
        path.write_bytes(bad)
        buffer = CompressedReplayBuffer(400, spaces.Box(0, 255, (4, 5, 4), np.uint8), spaces.Discrete(6), "cpu")
        with pytest.raises(CorruptDataError, match=r"ckpt.1.gz is damaged, or not a gzipped .npy file"):
            read(tmp_path, into=buffer, buffer_kwargs=None)
        size = buffer.size()
        if size:
            buffer.sample(8)  # what came before is there


def test_pickles_are_not_read(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    for name, array in (("$store$_reward", np.array([{}] * 50)), ("$store$_observation", np.array([None] * 50))):
        path = tmp_path / f"{name}_ckpt.1.gz"
        good = path.read_bytes()
        with gzip.open(path, "wb") as file:
            np.save(file, array, allow_pickle=True)
        with pytest.raises(CorruptDataError, match=r"is damaged, or not a gzipped .npy file"):
            read(tmp_path)
        path.write_bytes(good)


@pytest.mark.parametrize("count", [np.array(0), np.array(-3), np.array([1, 2]), np.array(0.5)])
def test_a_checkpoint_without_entries_is_refused(tmp_path: Path, count: np.ndarray) -> None:
    ring = Ring(50, 4)
    ring.play(9, np.random.default_rng(0))
    ring.save(tmp_path, 0, add_count=count)
    with pytest.raises(CorruptDataError, match=r"Checkpoint 0 in .* is empty: 50 frames, add_count"):
        read(tmp_path)


def test_arrays_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    Ring(30, 4).save(tmp_path / "other", 1)
    (tmp_path / "other" / "$store$_reward_ckpt.1.gz").rename(tmp_path / "$store$_reward_ckpt.1.gz")
    with pytest.raises(CorruptDataError, match=r"has the shape \(30,\), but there are 50 frames"):
        read(tmp_path)
    Ring(50, 4).save(tmp_path, 1, **{"$store$_observation": np.zeros(50, np.uint8)})
    with pytest.raises(CorruptDataError, match=r"observation_ckpt.1.gz has the shape \(50,\); it must hold frames"):
        read(tmp_path)
    other = Ring(50, 4, (6, 4))
    other.play(9, np.random.default_rng(0))
    other.save(tmp_path, 1)
    with pytest.raises(CorruptDataError, match=r"frames of checkpoints \[1\] .* are not uint8 of shape \(5, 4\)"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"actions from \d to \d, but the action space is Discrete\(3\)"):
        read(tmp_path, 0, action_space=spaces.Discrete(3))
