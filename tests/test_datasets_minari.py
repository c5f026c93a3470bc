"""Minari datasets, written and read by Minari itself, into buffers and out of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_extra_buffers import load_buffer, merge_buffers
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.datasets import from_minari, to_minari
from sb3_extra_buffers.errors import MissingBackendError
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer
from tests.episodes import Episode, add_all, n_steps, play_episodes
from tests.oracle import DICT_SPACE, IMAGE, SPACES, add_to_replay, assert_same_samples
from tests.test_datasets_episodes import said
from tests.transitions import play

# Minari recommends more metadata than these tests have.
pytestmark = pytest.mark.filterwarnings(r"ignore:(`.*` is set to|env_spec is) None:UserWarning")

ACTIONS = spaces.Discrete(5)
PICTURE = spaces.Box(0, 255, (40, 36, 3), np.uint8)


@pytest.fixture(autouse=True)
def minari(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    pytest.importorskip("h5py")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return pytest.importorskip("minari")


def create(
    minari: Any, episodes: list[Episode], space: spaces.Space[Any], actions: spaces.Space[Any] = ACTIONS, **kwargs: Any
) -> Any:
    """A dataset, by Minari's own function."""
    from minari.data_collector import EpisodeBuffer

    buffers = [EpisodeBuffer(**one.as_dict(), infos={"lives": np.zeros(len(one.rewards) + 1)}) for one in episodes]
    return minari.create_dataset_from_buffers(
        "made/test-v0", buffers, observation_space=space, action_space=actions, **{"jpeg_encoding": False, **kwargs}
    )


def read(dataset: Any, **kwargs: Any) -> Any:
    return from_minari(dataset, progress_bar=False, **{"buffer_kwargs": {"device": "cpu"}, **kwargs})


def oracle(episodes: list[Episode], space: spaces.Space[Any], actions: spaces.Space[Any] = ACTIONS) -> Any:
    made_class = DictReplayBuffer if isinstance(space, spaces.Dict) else ReplayBuffer
    return add_all(made_class(n_steps(episodes), space, actions, device="cpu"), episodes)


def assert_same(ours: Any, theirs: Any) -> None:
    assert ours.size() == theirs.size()
    for seed in range(3):
        assert_same_samples(ours, theirs, seed=seed)
    assert np.array_equal(ours.timeouts, theirs.timeouts)


# ---- in


@pytest.mark.parametrize("name", ["stack", "float32", "float64", "discrete", "multi-binary", "dict"])
def test_a_dataset_becomes_what_sb3_would_have_added(minari: Any, caplog: pytest.LogCaptureFixture, name: str) -> None:
    space = {**SPACES, "dict": DICT_SPACE}[name]
    episodes = play_episodes(space, ACTIONS)
    create(minari, episodes, space)
    ours = read("made/test-v0")
    assert type(ours) is (CompressedDictReplayBuffer if name == "dict" else CompressedReplayBuffer)
    assert_same(ours, oracle(episodes, space))
    assert "Truncations (3) are kept as timeouts" in said(caplog)
    assert "Not used: infos." in said(caplog)


def test_a_part_of_a_dataset_may_be_given(minari: Any) -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    dataset = create(minari, episodes, IMAGE).filter_episodes(lambda one: one.terminations[-1])
    assert_same(read(dataset), oracle([one for one in episodes if one.terminations[-1]], IMAGE))


def test_images_come_as_sb3s_algorithms_see_them(minari: Any, caplog: pytest.LogCaptureFixture) -> None:
    episodes = play_episodes(PICTURE, ACTIONS)
    ours = read(create(minari, episodes, PICTURE))
    turned = [one._replace(observations=np.moveaxis(one.observations, -1, 1)) for one in episodes]
    assert ours.observation_space == spaces.Box(0, 255, (3, 40, 36), np.uint8)
    assert_same(ours, oracle(turned, ours.observation_space))
    assert "The channels of images are moved to the front" in said(caplog)
    assert_same(read("made/test-v0", observation_space=PICTURE), oracle(episodes, PICTURE))


def test_images_of_a_dict_are_turned_too(minari: Any) -> None:
    space = spaces.Dict({"camera": PICTURE, "speed": spaces.Box(-1, 1, (2,))})
    episodes = play_episodes(space, ACTIONS)
    ours = read(create(minari, episodes, space))
    turned = [
        one._replace(observations={**one.observations, "camera": np.moveaxis(one.observations["camera"], -1, 1)})
        for one in episodes
    ]
    assert_same(ours, oracle(turned, ours.observation_space))


@pytest.mark.parametrize("made_class", [ReplayBuffer, CompressedNStepReplayBuffer, GpuReplayBuffer])
def test_any_class_can_be_filled(minari: Any, made_class: Any) -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    ours = read(create(minari, episodes, IMAGE), into=made_class, buffer_size=25)
    assert type(ours) is made_class
    assert ours.size() == 25
    assert ours.rewards[:, 0].tolist() == np.concatenate([one.rewards for one in episodes])[-25:].tolist()


def test_an_unknown_dataset_is_named_with_those_that_there_are(minari: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"There are: none. To get it: minari download made/other-v0"):
        read("made/other-v0")
    create(minari, play_episodes(IMAGE, ACTIONS), IMAGE)
    with pytest.raises(FileNotFoundError, match=r"no Minari dataset 'made/tset-v0' .* Did you mean 'made/test-v0'\?"):
        read("made/tset-v0")
    with pytest.raises(TypeError, match="takes the id of a dataset or a MinariDataset, got 5"):
        read(5)


@pytest.mark.parametrize("module", ["minari", "h5py"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for call in (lambda: read("a-v0"), lambda: to_minari(ReplayBuffer(4, IMAGE, ACTIONS), "a-v0")):
        with pytest.raises(MissingBackendError, match=rf"{module} package.*\[minari\]"):
            call()


# ---- out


@pytest.mark.parametrize("name", ["stack", "float64", "discrete", "dict"])
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_buffer_goes_out_and_comes_back_to_the_bit(minari: Any, name: str, is_ours: bool) -> None:
    space: Any = {**SPACES, "dict": DICT_SPACE}[name]
    episodes = play_episodes(space, ACTIONS)
    theirs = oracle(episodes, space)
    dataset = to_minari(read(create(minari, episodes, space)) if is_ours else theirs, "out/there-v1", progress_bar=False)
    written = list(dataset.iterate_episodes())
    assert len(written) == len(episodes)
    for got, expected in zip(written, episodes, strict=True):
        assert got.rewards.tolist() == expected.rewards.tolist()
        assert np.array_equal(got.actions, expected.actions)
        assert np.array_equal(got.terminations, expected.terminations)
        assert np.array_equal(got.truncations, expected.truncations)
        for where in (got.observations,) if name != "dict" else ():
            assert where.dtype == space.dtype
            assert where.tobytes() == expected.observations.tobytes()
    assert_same(read("out/there-v1"), theirs)


def test_images_are_written_without_loss(minari: Any) -> None:
    """Minari would make JPEGs of these."""
    episodes = play_episodes(PICTURE, ACTIONS, n=2)
    lossy = next(create(minari, episodes, PICTURE, jpeg_encoding=True).iterate_episodes())
    assert not np.array_equal(lossy.observations, episodes[0].observations)
    dataset = to_minari(oracle(episodes, PICTURE), "out/there-v1", progress_bar=False)
    assert np.array_equal(next(dataset.iterate_episodes()).observations, episodes[0].observations)


def transitions_of(buffer: Any) -> set[tuple[bytes, ...]]:
    """All transitions that can be sampled, with how they end."""
    found = set()
    for env in range(buffer.n_envs):
        slots = np.arange(buffer.size())
        envs = np.full(len(slots), env)
        arrays = [
            np.asarray(buffer.observations[slots, envs]), np.asarray(buffer.next_observations[slots, envs]),
            buffer.actions[slots, env], buffer.rewards[slots, env],
            (buffer.dones * (1 - buffer.timeouts))[slots, env],
        ]  # fmt: skip
        found |= {tuple(one[i].tobytes() for one in arrays) for i in range(len(slots))}
    return found


@pytest.mark.parametrize("n_steps", [10, 40, 55])
def test_a_ring_of_several_envs_keeps_all_its_transitions(minari: Any, caplog: pytest.LogCaptureFixture, n_steps: int) -> None:
    buffer = CompressedReplayBuffer(120, IMAGE, ACTIONS, "cpu", n_envs=3)
    for step in play(IMAGE, ACTIONS, 3, n_steps):
        add_to_replay([buffer], step)
    dataset = to_minari(buffer, "out/there-v0", progress_bar=False)
    assert dataset.total_steps == buffer.size() * 3
    assert transitions_of(read(dataset)) == transitions_of(buffer)
    assert "of them to their end: they are truncated" in caplog.records[0].getMessage()


def test_steps_that_do_not_follow_are_other_episodes(minari: Any) -> None:
    """Of a buffer without timeouts, nothing else tells where one was merged to another."""
    kwargs: dict[str, Any] = {"device": "cpu", "handle_timeout_termination": False}
    parts = []
    for seed in range(2):
        parts.append(CompressedReplayBuffer(9, IMAGE, ACTIONS, **kwargs))
        for step in play(IMAGE, ACTIONS, 1, 9, seed=seed):
            add_to_replay([parts[-1]], step._replace(done=np.zeros(1, bool)))
    merged = merge_buffers(parts)
    dataset = to_minari(merged, "out/there-v0", progress_bar=False)
    assert dataset.total_steps == 18
    assert transitions_of(read(dataset)) == transitions_of(merged)


def test_actions_are_scaled_back(minari: Any) -> None:
    actions = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
    episodes = play_episodes(IMAGE, actions, n=3)
    buffer = read(create(minari, episodes, IMAGE, actions))
    assert np.abs(buffer.actions).max() <= 1
    written = np.concatenate([one.actions for one in to_minari(buffer, "out/a-v0", progress_bar=False)])
    assert np.allclose(written, np.concatenate([one.actions for one in episodes]), atol=1e-6)
    raw = np.concatenate([one.actions for one in to_minari(buffer, "out/b-v0", unscale_actions=False, progress_bar=False)])
    assert np.array_equal(raw, buffer.actions[:, 0])


def test_a_saved_buffer_goes_out(minari: Any, tmp_path: Path) -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    read(create(minari, episodes, IMAGE)).save(tmp_path / "buffer.sb3x")
    dataset = to_minari(load_buffer(tmp_path / "buffer.sb3x", device="cpu"), "out/there-v0", progress_bar=False)
    assert_same(read(dataset), oracle(episodes, IMAGE))


@pytest.mark.parametrize(
    ("dataset_id", "options", "message"),
    [
        ("noversion", {}, "needs a version, as in"),
        ("no name!-v0", {}, "Malformed dataset ID"),
        ("out/there-v0", {"jpeg_encoding": True}, "would change the frames"),
        ("made/test-v0", {}, r"The Minari dataset 'made/test-v0' exists already, in "),
    ],
)
def test_a_dataset_that_cannot_be_is_refused_and_nothing_is_written(
    minari: Any, tmp_path: Path, dataset_id: str, options: dict[str, Any], message: str
) -> None:
    buffer = read(create(minari, play_episodes(IMAGE, ACTIONS), IMAGE))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=message):
        to_minari(buffer, dataset_id, progress_bar=False, **options)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_go_out_is_refused() -> None:
    with pytest.raises(ValueError, match="This ReplayBuffer has no steps"):
        to_minari(ReplayBuffer(4, IMAGE, ACTIONS), "out/there-v0")
    with pytest.raises(TypeError, match="takes a replay buffer, got CompressedRolloutBuffer"):
        to_minari(CompressedRolloutBuffer(4, IMAGE, ACTIONS), "out/there-v0")  # type: ignore[arg-type]
    shared = ReplayBuffer(4, IMAGE, ACTIONS, optimize_memory_usage=True, handle_timeout_termination=False)
    with pytest.raises(ValueError, match=r"compress_buffer\(buffer\) first"):
        to_minari(shared, "out/there-v0")


def test_an_export_that_fails_leaves_no_dataset(minari: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from sb3_extra_buffers.datasets.minari import _Export

    buffer = oracle(play_episodes(IMAGE, ACTIONS), IMAGE)
    monkeypatch.setattr(_Export, "_actions", lambda self, actions: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        to_minari(buffer, "out/there-v0", progress_bar=False)
    assert "out/there-v0" not in minari.list_local_datasets()
    monkeypatch.undo()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    to_minari(buffer, "out/there-v0", progress_bar=False)  # the name is free again
