"""`inspect`: real files of SB3's `save_replay_buffer`, of its own buffers and of ours."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.save_util import save_to_pkl

from sb3_extra_buffers.cli import main
from sb3_extra_buffers.cli.contact_sheet import newest_frame
from sb3_extra_buffers.cli.envs import make_env
from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedHerReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer
from tests.oracle import DICT_SPACE, add_to_replay
from tests.transitions import play


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same play of a real game, saved by SB3 from its own buffer and from ours."""
    folder, paths = tmp_path_factory.mktemp("saved"), {}
    for kind in (ReplayBuffer, CompressedReplayBuffer):
        env = make_env("BreakoutNoFrameskip-v4", n_envs=2, seed=1)
        model = DQN("CnnPolicy", env, buffer_size=400, learning_starts=10_000, seed=1, replay_buffer_class=kind)
        model.learn(600)
        paths[kind.__name__] = folder / f"{kind.__name__}.pkl"
        model.save_replay_buffer(paths[kind.__name__])
        env.close()
    return paths


def inspect(capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, Any]:
    assert main(["inspect", "--json", "--trust", *map(str, args)]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def test_both_kinds_of_file_hold_the_same(saved: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    theirs, ours = (inspect(capsys, saved[name]) for name in ("ReplayBuffer", "CompressedReplayBuffer"))
    assert theirs["class"] == "stable_baselines3.common.buffers.ReplayBuffer"
    assert ours["class"] == "sb3_extra_buffers.compressed.replay.CompressedReplayBuffer"
    assert ours["transitions"] == ours["capacity"] == 400
    assert ours["raw_bytes"] == theirs["stored_bytes"] == 400 * 2 * 4 * 84 * 84
    assert ours["stored_bytes"] < 0.05 * theirs["stored_bytes"]
    assert ours["file_bytes"] < 0.05 * theirs["file_bytes"]
    same = ("n_envs", "ends", "complete_episodes", "reward", "episode_return", "observation_space", "action_space")
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    assert ours["ends"] > 2
    assert list(ours["codecs"]) == [""]
    assert theirs["codecs"] == {}


def test_a_gpu_buffer_shows_its_frames_and_json_has_no_nan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheets = []
    for kind in (GpuReplayBuffer, CompressedReplayBuffer):
        buffer = kind(8, spaces.Box(0, 255, (4, 36, 36), np.uint8), spaces.Discrete(2), device="cpu")
        for i in range(8):
            obs = np.full((1, 4, 36, 36), 20 * i, np.uint8)
            buffer.add(obs, obs, np.zeros((1, 1)), np.full(1, np.nan), np.zeros(1), [{}])
        save_to_pkl(tmp_path / "buffer.pkl", buffer)
        facts = inspect(capsys, tmp_path / "buffer.pkl", "--frames", tmp_path / "sheet.png")
        assert facts["reward"]["mean"] is None
        sheets.append((tmp_path / "sheet.png").read_bytes())
    assert sheets[0] == sheets[1]


@pytest.mark.parametrize("method", ["tiles", "none", "rle", "zstd/5"])
def test_the_method_of_a_gpu_buffer_is_shown(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    buffer = GpuReplayBuffer(8, space, spaces.Discrete(2), device="cpu", compression_method=method, frame_stack=1)
    obs = np.zeros((1, 1, 36, 36), np.uint8)
    buffer.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    save_to_pkl(tmp_path / "buffer.pkl", buffer)
    assert inspect(capsys, tmp_path / "buffer.pkl")["codecs"] == {"": method}


def test_the_table_is_readable(saved: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--trust", str(saved["CompressedReplayBuffer"])]) == 0
    printed = capsys.readouterr().out
    assert "400 of 400 (2 envs)" in printed
    assert "Box(0, 255, (4, 84, 84), uint8)" in printed
    assert "11.3 MB" not in printed  # raw is 22.6 MB: observations and next observations
    assert "22.6 MB" in printed


def test_a_buffer_that_is_half_full_is_compared_with_half_of_sb3s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = spaces.Box(0, 255, (4, 36, 36), np.uint8)
    for kind in (ReplayBuffer, CompressedReplayBuffer):
        buffer = kind(100, space, spaces.Discrete(2), device="cpu")
        obs = np.ones((1, 4, 36, 36), np.uint8)
        for _ in range(50):
            buffer.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
        save_to_pkl(tmp_path / "buffer.pkl", buffer)
        facts = inspect(capsys, tmp_path / "buffer.pkl")
        assert facts["raw_bytes"] == 50 * 2 * 4 * 36 * 36
        assert facts["stored_bytes"] <= facts["raw_bytes"]
        assert main(["inspect", "--trust", str(tmp_path / "buffer.pkl")]) == 0
        package = "stable_baselines3" if kind is ReplayBuffer else "sb3_extra_buffers"
        assert f"{kind.__name__} ({package})" in capsys.readouterr().out


def test_contact_sheets_of_both_are_the_same_picture(
    saved: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sheets = []
    for name, path in saved.items():
        facts = inspect(capsys, path, "--frames", tmp_path / f"{name}.png")
        assert facts["frames"]["count"] == 24
        with Image.open(tmp_path / f"{name}.png") as sheet:
            sheets.append(np.asarray(sheet))
    assert np.array_equal(*sheets)
    assert len(np.unique(sheets[0])) > 10  # there is something to see


def test_rewards_and_returns_are_those_that_were_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space, actions = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
    buffer = CompressedReplayBuffer(8, space, actions, "cpu", n_envs=1)
    rewards, dones = [1, 2, 3, 4, 5, 6], [0, 1, 0, 0, 1, 0]
    obs = np.zeros((1, 3), np.float32)
    for reward, done in zip(rewards, dones, strict=True):
        buffer.add(obs, obs, np.zeros((1, 1)), np.array([reward]), np.array([done]), [{}])
    save_to_pkl(tmp_path / "buffer.pkl", buffer)
    facts = inspect(capsys, tmp_path / "buffer.pkl")
    assert facts["reward"] == {"mean": 3.5, "std": pytest.approx(np.std(rewards)), "min": 1.0, "max": 6.0}
    assert facts["episode_return"] == {"mean": 7.5, "std": 4.5, "min": 3.0, "max": 12.0}
    assert (facts["ends"], facts["complete_episodes"]) == (2, 2)


def test_in_a_full_buffer_an_episode_without_its_beginning_is_not_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, obs = spaces.Box(-1, 1, (3,), np.float32), np.zeros((1, 3), np.float32)
    buffer = ReplayBuffer(4, space, spaces.Discrete(2), "cpu")
    for reward, done in ((1, 0), (2, 0), (3, 1), (4, 0), (5, 1), (6, 0)):  # the first two are overwritten
        buffer.add(obs, obs, np.zeros((1, 1)), np.array([reward]), np.array([done]), [{}])
    save_to_pkl(tmp_path / "buffer.pkl", buffer)
    facts = inspect(capsys, tmp_path / "buffer.pkl")
    assert facts["complete_episodes"] == 1
    assert facts["episode_return"]["mean"] == 9.0


@pytest.mark.parametrize("kind", [DictReplayBuffer, CompressedDictReplayBuffer])
def test_dict_observations(kind: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    buffer = kind(30, DICT_SPACE, spaces.Discrete(3), "cpu", n_envs=2)
    for step in play(DICT_SPACE, spaces.Discrete(3), 2, 40):
        add_to_replay([buffer], step)
    save_to_pkl(tmp_path / "buffer.pkl", buffer)
    facts = inspect(capsys, tmp_path / "buffer.pkl", "--frames", tmp_path / "frames.png")
    assert facts["frames"]["key"] == "camera"
    assert set(facts["codecs"]) == (set(DICT_SPACE) if kind is CompressedDictReplayBuffer else set())
    frames = ["--frames", str(tmp_path / "x.png"), "--key", "speed"]
    assert main(["inspect", "--trust", str(tmp_path / "buffer.pkl"), *frames]) == 2
    assert "No picture named 'speed'. There are ['camera']" in capsys.readouterr().err


def test_a_her_buffer_opens_without_its_env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from stable_baselines3.common.envs import BitFlippingEnv
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=4)])
    model = DQN("MultiInputPolicy", env, buffer_size=100, learning_starts=1000, replay_buffer_class=CompressedHerReplayBuffer)
    model.learn(60)
    model.save_replay_buffer(tmp_path / "her.pkl")
    facts = inspect(capsys, tmp_path / "her.pkl")
    assert facts["transitions"] == 60
    assert facts["class"].endswith("CompressedHerReplayBuffer")


def test_an_empty_buffer_is_described_and_has_no_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    buffer = CompressedReplayBuffer(8, spaces.Box(0, 255, (4, 12, 12), np.uint8), spaces.Discrete(2), "cpu")
    save_to_pkl(tmp_path / "buffer.pkl", buffer)
    assert inspect(capsys, tmp_path / "buffer.pkl")["transitions"] == 0
    assert main(["inspect", "--trust", str(tmp_path / "buffer.pkl")]) == 0
    capsys.readouterr()
    assert main(["inspect", "--trust", str(tmp_path / "buffer.pkl"), "--frames", str(tmp_path / "x.png")]) == 2
    assert "empty" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"hello", pickle.dumps({"a": 1}), pickle.dumps(np.zeros(3))[:40]])
def test_a_file_that_is_no_buffer_is_refused(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file.pkl").write_bytes(content)
    assert main(["inspect", "--trust", str(tmp_path / "file.pkl")]) == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert "file.pkl" in printed.err


def test_a_truncated_file_is_refused(saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.pkl").write_bytes(saved["CompressedReplayBuffer"].read_bytes()[:-1000])
    assert main(["inspect", "--trust", str(tmp_path / "cut.pkl")]) == 2
    assert "cannot be opened as a saved replay buffer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [((4, 12, 12), np.uint8, (12, 12)), ((12, 16, 20), np.uint8, (16, 20, 3)), ((16, 20, 3), np.uint8, (16, 20, 3)),
     ((1, 9, 9), np.bool_, (9, 9)), ((9, 8), np.uint8, (9, 8))],
)  # fmt: skip
def test_the_newest_frame_of_a_stack_is_shown(shape: tuple[int, ...], dtype: Any, expected: tuple[int, ...]) -> None:
    observation = np.zeros(shape, dtype)
    observation[-1 if shape[0] in (4, 12, 1) else slice(None)] = 1
    frame = newest_frame(observation)
    assert frame.shape == expected
    assert frame.dtype == np.uint8
    assert frame.any()
