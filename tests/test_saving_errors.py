"""Arguments and paths that cannot be, of everything that saves and loads: what the errors say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stable_baselines3 import DQN

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from tests.saved_buffers import EVERYTHING, array, her, replay, rollout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.sb3x"


def test_only_replay_buffers_on_the_host_have_a_directory(path: Path, tmp_path: Path) -> None:
    for made in (replay("gpu", 20)[0], rollout("rollout")[0]):
        made.save(path)
        for given in ({"directory": tmp_path / "blocks"}, {"keep": True}):
            with pytest.raises(ValueError, match="only replay buffers on the host have a directory"):
                load_buffer(path, **given)  # type: ignore[arg-type]
    assert not (tmp_path / "blocks").exists()
    replay("replay", 20)[0].save(path)
    with pytest.raises(ValueError, match="it needs directory="):
        load_buffer(path, keep=True)
    array().save(path)
    with pytest.raises(ValueError, match="loaded as it was saved"):
        load_buffer(path, keep=True)


@pytest.mark.parametrize("kind", [kind for kind in EVERYTHING if not kind.startswith("her")])
def test_an_env_is_for_hindsight_alone(kind: str, path: Path) -> None:
    EVERYTHING[kind]().save(path)
    _, _, env = her(3)
    with pytest.raises(ValueError, match="env= is for hindsight replay"):
        load_buffer(path, env=env)


def test_infos_that_json_cannot_hold_are_named_with_their_dtype(path: Path) -> None:
    made, _, _ = her(20, copy_info_dict=True)
    made.infos[3, 1]["s"] = np.array(["word"])
    with pytest.raises(TypeError, match=r"infos\['s'\] is a ndarray of <U4, which JSON cannot hold"):
        made.save(path)
    assert not path.exists()


def test_paths_that_cannot_be_written_are_named_as_they_were_given(tmp_path: Path) -> None:
    made, _ = replay("replay", 5)
    with pytest.raises(IsADirectoryError, match=f"{tmp_path} is a folder.*checkpoint"):
        made.save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere. Make it first") as raised:
        made.save(tmp_path / "nowhere" / "buffer.sb3x")
    assert "unfinished" not in str(raised.value)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match=f"{tmp_path / 'file'} is a file: a checkpoint needs a folder"):
        made.checkpoint(tmp_path / "file")
    with pytest.raises(OSError) as long:
        made.save(tmp_path / ("x" * 250))  # the name beside it is too long
    assert "unfinished" not in str(long.value)


def test_sb3s_load_replay_buffer_names_load_buffer_for_files_of_ours(path: Path, tmp_path: Path) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", device="cpu", buffer_size=50, replay_buffer_class=CompressedReplayBuffer)
    model.learn(10)
    assert model.replay_buffer is not None
    model.replay_buffer.save(path)  # type: ignore[attr-defined]
    model.replay_buffer.checkpoint(tmp_path / "folder")  # type: ignore[attr-defined]
    for where in (path, str(tmp_path / "folder")):
        with pytest.raises(ValueError, match=r"not a pickle: .*load_buffer\("):
            model.load_replay_buffer(where)
    model.save_replay_buffer(tmp_path / "buffer")
    for again in (tmp_path / "buffer", str(tmp_path / "buffer.pkl")):
        model.load_replay_buffer(again)
    with open(tmp_path / "buffer.pkl", "rb") as file:
        model.load_replay_buffer(file)
