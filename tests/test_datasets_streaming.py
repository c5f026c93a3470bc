"""What all importers share: little memory, a progress bar, and no network."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.datasets import d4rl, dopamine_log, from_d4rl, from_dqn_replay, from_episodes, from_minari, to_minari
from tests.dopamine import Ring

pytestmark = pytest.mark.filterwarnings(r"ignore:(`.*` is set to|env_spec is) None:UserWarning")

LENGTH, N_EPISODES = 100, 40
SPACE, ACTIONS = spaces.Box(0, 255, (1, 32, 32), np.uint8), spaces.Discrete(6)
#: Of all observations.
N_BYTES = LENGTH * N_EPISODES * 32 * 32

Import = Callable[..., Any]


def episode(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "observations": rng.integers(0, 256, (LENGTH + 1, 1, 32, 32), np.uint8),
        "actions": rng.integers(0, 6, LENGTH), "rewards": np.ones(LENGTH, np.float32),
        "terminations": np.arange(LENGTH) == LENGTH - 1, "truncations": np.zeros(LENGTH, bool),
    }  # fmt: skip


def episodes(folder: Path) -> Import:
    return lambda **kwargs: from_episodes(map(episode, range(N_EPISODES)), **kwargs)


def minari(folder: Path) -> Import:
    pytest.importorskip("h5py")
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    minari.create_dataset_from_buffers(
        "made/test-v0", [EpisodeBuffer(**episode(i)) for i in range(N_EPISODES)], observation_space=SPACE,
        action_space=ACTIONS, jpeg_encoding=False,
    )  # fmt: skip
    return lambda **kwargs: from_minari("made/test-v0", **kwargs)


def hdf5(folder: Path) -> Import:
    h5py: Any = pytest.importorskip("h5py")
    made = [episode(i) for i in range(N_EPISODES)]
    names = {"observations": "observations", "actions": "actions", "rewards": "rewards", "terminations": "terminals"}
    with h5py.File(folder / "a.hdf5", "w") as file:
        for name, theirs in names.items():
            file[theirs] = np.concatenate([one[name][:LENGTH] for one in made])
        file["timeouts"] = np.zeros(LENGTH * N_EPISODES, bool)
    return lambda **kwargs: from_d4rl(folder / "a.hdf5", **kwargs)


def replay_log(folder: Path) -> Import:
    ring, rng = Ring(LENGTH * N_EPISODES, 1, (32, 32)), np.random.default_rng(0)
    for _ in range(N_EPISODES):
        ring.play(LENGTH, rng)
    ring.save(folder, 0)
    return lambda **kwargs: from_dqn_replay(folder, stack=1, **kwargs)


@pytest.fixture(autouse=True)
def small_and_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("an importer opens no connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    for module in (d4rl, dopamine_log):
        monkeypatch.setattr(module, "_READ_BYTES", 64 << 10)


def peak_of(call: Callable[[], Any]) -> int:
    """Bytes that Python and NumPy hold at most. The compressed observations are in the memory of the C library."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("source", [episodes, minari, hdf5, replay_log])
def test_an_import_never_holds_all_its_data(tmp_path: Path, source: Callable[[Path], Import]) -> None:
    read = source(tmp_path)
    buffer = CompressedReplayBuffer(LENGTH * N_EPISODES, SPACE, ACTIONS, "cpu")
    read(into=CompressedReplayBuffer(LENGTH * N_EPISODES, SPACE, ACTIONS, "cpu"), progress_bar=False)  # imports what it needs
    assert peak_of(lambda: read(into=buffer, progress_bar=False)) < N_BYTES / 3
    assert buffer.size() == LENGTH * N_EPISODES


def test_an_export_never_holds_all_its_data(tmp_path: Path) -> None:
    pytest.importorskip("minari")
    buffer = episodes(tmp_path)(into=CompressedReplayBuffer(LENGTH * N_EPISODES, SPACE, ACTIONS, "cpu"), progress_bar=False)
    assert peak_of(lambda: to_minari(buffer, "out/test-v0", progress_bar=False)) < N_BYTES / 3


class Bar:
    """What `tqdm` would show."""

    shown: list[Bar]

    def __init__(self, total: int, **kwargs: Any) -> None:
        self.total, self.n = total, 0
        self.shown.append(self)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None: ...

    def update(self, n: int) -> None:
        self.n += n


@pytest.mark.parametrize("source", [episodes, minari, hdf5, replay_log])
def test_a_progress_bar_counts_all_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Callable[[Path], Import]
) -> None:
    read, n = source(tmp_path), LENGTH * N_EPISODES
    monkeypatch.setattr(pytest.importorskip("tqdm"), "tqdm", Bar)
    monkeypatch.setattr(Bar, "shown", [], raising=False)
    buffer = read(into=ReplayBuffer(n, SPACE, ACTIONS, "cpu"))
    if source is minari:
        to_minari(buffer, "out/test-v0")
    assert [bar.n for bar in Bar.shown] == [n] * (1 + (source is minari))
    assert all(bar.total == (0 if source is episodes else n) for bar in Bar.shown)  # an iterator has no length
    Bar.shown.clear()
    read(into=buffer, progress_bar=False)
    assert Bar.shown == []
