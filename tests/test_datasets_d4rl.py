"""D4RL's files, written by h5py in their layout: flat arrays, with and without timeouts and next observations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer

from sb3_extra_buffers.compressed import CompressedNStepReplayBuffer
from sb3_extra_buffers.datasets import d4rl, from_d4rl
from sb3_extra_buffers.errors import CorruptDataError, MissingBackendError
from tests.episodes import Episode, add_all, n_steps, play_episodes
from tests.oracle import assert_same_samples
from tests.test_datasets_episodes import said

h5py: Any = pytest.importorskip("h5py")

SPACE, ACTIONS = spaces.Box(-np.inf, np.inf, (5,), np.float32), spaces.Box(-1, 1, (3,), np.float32)


def arrays_of(episodes: list[Episode]) -> dict[str, Any]:
    """What D4RL's files have of episodes."""
    arrays = {
        "observations": [one.observations[:-1] for one in episodes], "actions": [one.actions for one in episodes],
        "rewards": [one.rewards for one in episodes], "terminals": [one.terminations for one in episodes],
        "timeouts": [one.truncations for one in episodes],
    }  # fmt: skip
    return {name: np.concatenate(parts) for name, parts in arrays.items()}


def write(path: Path, arrays: dict[str, Any]) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip" if np.ndim(array) else None)
    return path


def with_next(episodes: list[Episode]) -> dict[str, Any]:
    return {**arrays_of(episodes), "next_observations": np.concatenate([one.observations[1:] for one in episodes])}


def read(path: Path, **kwargs: Any) -> Any:
    return from_d4rl(path, progress_bar=False, **{"buffer_kwargs": {"device": "cpu"}, **kwargs})


def assert_same(ours: Any, theirs: Any) -> None:
    n = theirs.size()
    assert ours.size() == n
    for seed in range(3):
        np.random.seed(seed)
        assert_same_samples(ours, theirs, seed=seed)
    for name in ("rewards", "dones", "timeouts", "actions"):
        assert np.array_equal(getattr(ours, name)[:n], getattr(theirs, name)[:n]), name


def kept(episodes: list[Episode]) -> list[Episode]:
    """What can be learned from without next observations: terminal steps lead to where they are, timeouts are not known."""
    made = []
    for one in episodes:
        n = len(one.rewards)
        if one.terminations[-1]:
            made.append(one._replace(observations=np.concatenate((one.observations[:-1], one.observations[-2:-1]))))
        elif n > 1:
            ends = np.arange(n - 1) == n - 2
            made.append(Episode(one.observations[:-1], one.actions[:-1], one.rewards[:-1], ends & False, ends))
    return made


def oracle(episodes: list[Episode], size: int, made_class: Any = ReplayBuffer) -> Any:
    return add_all(made_class(size, SPACE, ACTIONS, device="cpu"), episodes)


@pytest.mark.parametrize("read_bytes", [1, 60, 200, 8 << 20])
@pytest.mark.parametrize("made_class", [None, ReplayBuffer])
def test_a_file_without_next_observations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, read_bytes: int, made_class: Any
) -> None:
    monkeypatch.setattr(d4rl, "_READ_BYTES", read_bytes)
    episodes = play_episodes(SPACE, ACTIONS, n=12)
    path = write(tmp_path / "a.hdf5", arrays_of(episodes))
    ours, expected = read(path, into=made_class), kept(episodes)
    assert ours.buffer_size == n_steps(expected)
    assert_same(ours, oracle(expected, n_steps(expected)))
    assert "Terminal steps without a next observation (8) repeat their own" in said(caplog)
    assert "Other steps without a next observation (4) are left out" in said(caplog)


@pytest.mark.parametrize("read_bytes", [1, 60, 8 << 20])
def test_n_step_returns_do_not_reach_over_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    monkeypatch.setattr(d4rl, "_READ_BYTES", read_bytes)
    episodes = play_episodes(SPACE, ACTIONS, n=12)
    expected = kept(episodes)
    ours = read(write(tmp_path / "a.hdf5", arrays_of(episodes)), into=CompressedNStepReplayBuffer)
    assert_same(ours, oracle(expected, n_steps(expected), NStepReplayBuffer))


@pytest.mark.parametrize("read_bytes", [1, 200, 8 << 20])
def test_a_file_with_next_observations_is_kept_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, read_bytes: int
) -> None:
    monkeypatch.setattr(d4rl, "_READ_BYTES", read_bytes)
    episodes = play_episodes(SPACE, ACTIONS, n=12)
    more = {"infos/qpos": np.zeros((n_steps(episodes), 2)), "metadata/algorithm": np.bytes_(b"SAC")}
    ours = read(write(tmp_path / "a.hdf5", {**with_next(episodes), **more}))
    assert_same(ours, oracle(episodes, n_steps(episodes)))
    assert "Truncations (4) are kept as timeouts" in said(caplog)
    assert "Not used: infos/qpos, metadata/algorithm." in said(caplog)
    assert "left out" not in said(caplog)


@pytest.mark.parametrize("has_next", [False, True])
def test_a_file_that_ends_within_an_episode_is_cut_off_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_next: bool
) -> None:
    episodes = play_episodes(SPACE, ACTIONS, n=3, seed=2)
    n = len(episodes[-1].rewards)
    assert n > 2
    episodes[-1] = episodes[-1]._replace(terminations=np.zeros(n, bool))  # no end
    arrays = with_next(episodes) if has_next else arrays_of(episodes)
    ours = read(write(tmp_path / "a.hdf5", arrays))
    last = episodes[-1]._replace(truncations=np.arange(n) == n - 1)
    expected = [*episodes[:-1], last] if has_next else kept([*episodes[:-1], last])
    assert_same(ours, oracle(expected, n_steps(expected)))
    assert "Episodes that the data do not hold to their end" in said(caplog)


def test_old_files_are_cut_by_the_time_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng, limit = np.random.default_rng(0), 6
    episodes = []
    for i in range(12):
        one = play_episodes(SPACE, ACTIONS, n=1, longest=limit, seed=i)[0]
        n = len(one.rewards)
        last, terminates = np.arange(n) == n - 1, n < limit or rng.random() < 0.5
        episodes.append(one._replace(terminations=last & terminates, truncations=last & (not terminates)))
    arrays = arrays_of(episodes)
    del arrays["timeouts"]
    path = write(tmp_path / "a.hdf5", arrays)
    with pytest.raises(ValueError, match="give max_episode_steps"):
        read(path)
    with pytest.raises(ValueError, match="max_episode_steps must be a positive number, got 0"):
        read(path, max_episode_steps=0)
    ours, expected = read(path, max_episode_steps=limit), kept(episodes)
    assert_same(ours, oracle(expected, n_steps(expected)))
    assert "max_episode_steps says where they are" in said(caplog)


def test_the_spaces_of_an_env_may_be_given(tmp_path: Path) -> None:
    episodes = play_episodes(SPACE, ACTIONS)
    path = write(tmp_path / "a.hdf5", with_next(episodes))
    space, actions = spaces.Box(-9, 9, (5,), np.float64), spaces.Box(-2, 2, (3,), np.float32)
    ours = read(path, observation_space=space, action_space=actions)
    assert (ours.observation_space, ours.action_space) == (space, actions)
    first = episodes[0]
    n = len(first.rewards)
    assert np.array_equal(ours.observations[np.arange(n), np.zeros(n, int)], first.observations[:-1].astype(np.float64))
    assert np.allclose(ours.actions[:n, 0], first.actions / 2)
    with pytest.raises(ValueError, match="Give the observation_space that the data have"):
        read(path, observation_space=spaces.Box(-9, 9, (6,)))


def test_what_is_no_file_of_d4rl_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = arrays_of(play_episodes(SPACE, ACTIONS))
    with pytest.raises(FileNotFoundError, match=r"D4RL's files are at http://rail.eecs.berkeley.edu"):
        read(tmp_path / "missing.hdf5")
    (tmp_path / "text.hdf5").write_text("not HDF5")
    with pytest.raises(CorruptDataError, match="is not an HDF5 file, or it is damaged"):
        read(tmp_path / "text.hdf5")
    with pytest.raises(CorruptDataError, match=r"lacks rewards, terminals"):
        read(write(tmp_path / "other.hdf5", {"observations": [1], "actions": [1]}))
    with pytest.raises(CorruptDataError, match=r"is damaged: .* rewards, and 3 actions"):
        read(write(tmp_path / "short.hdf5", {**arrays, "actions": arrays["actions"][:3]}))
    with pytest.raises(ValueError, match="has no steps"):
        read(write(tmp_path / "empty.hdf5", {name: array[:0] for name, array in arrays.items()}))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingBackendError, match=r"from_d4rl needs the h5py package: .*\[datasets\]"):
        read(tmp_path / "a.hdf5")
