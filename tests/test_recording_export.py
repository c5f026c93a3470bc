"""Records as videos and as Minari datasets, read back by the programs that will read them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb3_extra_buffers.errors import MissingBackendError
from sb3_extra_buffers.recording import RecordBuffer


def moving_square(n: int, res: tuple[int, int] = (24, 32), channels: int = 4, **kwargs: Any) -> RecordBuffer:
    """A record whose last channel (last three where they come in threes) shows a square that moves; the others show noise."""
    record = RecordBuffer(res, channels, max(n, 1), **kwargs)
    noise = np.random.default_rng(0)
    shown = 3 if channels % 3 == 0 else 1
    for i in range(n):
        frame = noise.integers(0, 256, (*res, channels)).astype(np.uint8)
        frame[..., -shown:] = 0
        frame[4:12, i : i + 8, -shown:] = [250, 120, 30][:shown]
        record.add(frame.astype(record.dtypes.frame), float(i), i)
    return record


def read_gif(path: Path) -> list[np.ndarray]:
    image_module = pytest.importorskip("PIL.Image")
    sequence = pytest.importorskip("PIL.ImageSequence")
    with image_module.open(path) as image:
        return [np.asarray(frame.convert("RGB")) for frame in sequence.Iterator(image)]


@pytest.mark.parametrize("method", [None, "gzip"])
def test_a_gif_of_a_stack_shows_its_newest_frames_exactly(tmp_path: Path, method: str | None) -> None:
    record = moving_square(10, compression_method=method)
    record.save_video(tmp_path / "a.gif")
    pictures = read_gif(tmp_path / "a.gif")
    assert len(pictures) == 10
    for picture, step in zip(pictures, record, strict=True):
        assert np.array_equal(picture, np.repeat(step.frame[-1][..., None], 3, axis=-1))


@pytest.mark.parametrize("channels", [3, 12])
def test_a_gif_of_colour_frames_is_coloured(tmp_path: Path, channels: int) -> None:
    record = moving_square(4, channels=channels)
    record.save_video(str(tmp_path / "a.GIF"), fps=10)
    pictures = read_gif(tmp_path / "a.GIF")
    for picture, step in zip(pictures, record, strict=True):
        assert np.array_equal(picture, np.moveaxis(step.frame[-3:], 0, -1))


def test_a_part_of_a_record_and_other_channels_can_be_shown(tmp_path: Path) -> None:
    record = moving_square(9)
    record.save_video(tmp_path / "a.gif", start=-4, stop=-1, channels=[0])
    pictures = read_gif(tmp_path / "a.gif")
    assert len(pictures) == 3
    for i, picture in enumerate(pictures):
        assert np.array_equal(picture[..., 0], record[5 + i].frame[0])


def test_bool_frames_are_black_and_white(tmp_path: Path) -> None:
    record = moving_square(3, channels=1, dtypes=[np.bool_, np.float32])
    record.save_video(tmp_path / "a.gif")
    assert set(np.unique(read_gif(tmp_path / "a.gif"))) == {0, 255}


@pytest.mark.parametrize(("res", "seen"), [((24, 32), (24, 32)), ((25, 31), (26, 32))])
@pytest.mark.parametrize("channels", [4, 3])
def test_an_mp4_shows_the_frames_at_an_even_size(
    tmp_path: Path, res: tuple[int, int], seen: tuple[int, int], channels: int
) -> None:
    pytest.importorskip("imageio_ffmpeg")
    cv2: Any = pytest.importorskip("cv2")
    record = moving_square(10, res, channels)
    record.save_video(tmp_path / "a.mp4", fps=15)
    reader = cv2.VideoCapture(str(tmp_path / "a.mp4"))
    assert reader.get(cv2.CAP_PROP_FPS) == 15
    pictures = [picture[..., ::-1] for _ in range(11) for more, picture in [reader.read()] if more]
    assert len(pictures) == 10
    assert pictures[0].shape == (*seen, 3)
    for picture, step in zip(pictures, record, strict=True):
        shown = np.broadcast_to(step.frame[-3:] if channels == 3 else step.frame[-1:], (3, *res))
        assert np.abs(picture[: res[0], : res[1]] - np.moveaxis(shown, 0, -1).astype(float)).mean() < 15  # MP4 is lossy


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("a.avi", {}, "writes .gif and .mp4, got 'a.avi'"),
        ("a.gif", {"fps": 0}, "fps must be a number of at least 0.01, got 0"),
        ("a.gif", {"fps": 0.001}, "fps must be a number of at least 0.01, got 0.001"),
        ("a.mp4", {"fps": -3}, "fps must be"),
        ("a.mp4", {"fps": float("nan")}, "fps must be"),
        ("a.gif", {"fps": "fast"}, "fps must be .* got 'fast'"),
        ("a.mp4", {"fps": None}, "fps must be"),
        ("a.gif", {"fps": True}, "fps must be"),
        ("a.gif", {"channels": 0}, r"channels must be 1 or 3 of the 4 channels of a frame, such as \[0\]; got 0"),
        ("a.gif", {"channels": [0.5]}, "channels must be"),
        ("a.gif", {"channels": "0"}, "channels must be"),
        ("a.gif", {"start": 5}, "nothing to show.* 5 of this record"),
        ("a.gif", {"channels": [0, 1]}, "channels must be 1 or 3 of the 4"),
        ("a.gif", {"channels": [4]}, "channels must be 1 or 3 of the 4"),
    ],
)
def test_a_video_that_cannot_be_is_refused_and_no_file_is_left(
    tmp_path: Path, name: str, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        moving_square(5).save_video(tmp_path / name, **kwargs)
    assert list(tmp_path.iterdir()) == []


def test_float_frames_have_no_video(tmp_path: Path) -> None:
    record = moving_square(2, dtypes=[np.float32, np.float32])
    with pytest.raises(ValueError, match="uint8 or bool, this record keeps float32"):
        record.save_video(tmp_path / "a.gif")


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("PIL.Image", lambda record, path: record.save_video(path / "a.gif")),
        ("imageio_ffmpeg", lambda record, path: record.save_video(path / "a.mp4")),
        ("minari", lambda record, path: record.to_minari("a-v0")),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, call: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    extra = "minari" if module == "minari" else "video"
    with pytest.raises(MissingBackendError, match=rf"{module.partition('.')[0]} package.*\[{extra}\]"):
        call(moving_square(2), tmp_path)


# ---- Minari


@pytest.fixture
def minari(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    pytest.importorskip("h5py")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return pytest.importorskip("minari")


# Minari recommends more metadata than these tests have.
recommends = pytest.mark.filterwarnings(r"ignore:(`.*` is set to|env_spec is) None:UserWarning")


def noisy(n: int, size: int = 30, **kwargs: Any) -> tuple[RecordBuffer, list[np.ndarray]]:
    """A record that has wrapped, and its frames ``(H, W, C)`` oldest first. Noise, which a JPEG would not survive."""
    rng = np.random.default_rng(0)
    record = RecordBuffer((33, 40), 3, size, **kwargs)
    added = list(rng.integers(0, 256, (n, 33, 40, 3)).astype(np.uint8))
    for i, frame in enumerate(added):
        record.add(frame, i, i % 4, (i, i / 2) if record.features is not None else None)
    return record, added[-size:]


@recommends
@pytest.mark.parametrize("method", [None, "gzip"])
def test_a_minari_dataset_holds_the_episodes_to_the_bit(minari: Any, method: str | None) -> None:
    from gymnasium import spaces

    record, frames = noisy(37, dtypes=[np.uint8, np.float32, np.int32, np.float64], compression_method=method)
    terminations, truncations = np.zeros(30, bool), np.zeros(30, bool)
    terminations[[9, 25]], truncations[17] = True, True
    record.to_minari("here/test-v0", action_space=spaces.Discrete(4), terminations=terminations, truncations=truncations)
    dataset = minari.load_dataset("here/test-v0")
    assert dataset.observation_space == spaces.Box(0, 255, (33, 40, 3), np.uint8)
    assert dataset.action_space == spaces.Discrete(4)
    first = 7  # 37 were added, 30 are kept
    # steps whose action is in the episode, step whose frame ends it, whether it terminated
    expected = [(range(10), 9, True), (range(10, 17), 17, False), (range(18, 26), 25, True), (range(26, 29), 29, False)]
    episodes = list(dataset.iterate_episodes())
    assert len(episodes) == len(expected)
    for episode, (steps, end, terminated) in zip(episodes, expected, strict=True):
        seen = [*steps, end]
        assert np.array_equal(episode.observations, np.stack([frames[i] for i in seen]))
        assert episode.actions.tolist() == [(i + first) % 4 for i in steps]
        assert episode.rewards.tolist() == [i + first for i in steps]
        assert episode.terminations.tolist() == [False] * (len(steps) - 1) + [terminated]
        assert episode.truncations.tolist() == [False] * (len(steps) - 1) + [not terminated]
        assert episode.infos["features"]["0"].tolist() == [i + first for i in seen]
        assert episode.infos["features"]["1"].tolist() == [(i + first) / 2 for i in seen]


@recommends
def test_a_record_without_ends_is_one_truncated_episode(minari: Any) -> None:
    from gymnasium import spaces

    record, frames = noisy(5)
    dataset = record.to_minari("test-v0", action_space=spaces.Discrete(4))
    (episode,) = dataset.iterate_episodes()
    assert np.array_equal(episode.observations, np.stack(frames))
    assert episode.truncations.tolist() == [False] * 3 + [True]


def test_a_minari_dataset_that_cannot_be_is_refused(minari: Any, tmp_path: Path) -> None:
    from gymnasium import spaces

    record, _ = noisy(5)
    actions = spaces.Discrete(4)
    with pytest.raises(ValueError, match="needs the action_space"):
        record.to_minari("test-v0")
    with pytest.raises(ValueError, match=r"terminations must be 5 bools.*got bool \(4,\)"):
        record.to_minari("test-v0", action_space=actions, terminations=[False] * 4)
    with pytest.raises(ValueError, match=r"truncations must be 5 bools.*got int64"):
        record.to_minari("test-v0", action_space=actions, truncations=[0, 0, 0, 0, 1])
    with pytest.raises(ValueError, match="The 1 steps of this record make no episode"):
        noisy(1)[0].to_minari("test-v0", action_space=actions)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("dataset_id", "options", "message"),
    [
        ("noversion", {}, "needs a version"),
        (5, {}, "needs a version, .* got 5"),
        ("no name!-v0", {}, "Malformed dataset ID: no name!-v0"),
        ("here/test-v0", {"jpeg_encoding": True}, "would change the frames"),
        ("here/test-v0", {"action_space": spaces.Discrete(1)}, "actions of the record are not in it"),
        ("here/test-v0", {"observation_space": spaces.Box(0, 1, (3, 3, 3))}, "the frames are uint8"),
    ],
)
def test_a_dataset_that_would_contradict_itself_is_refused_and_nothing_is_written(
    minari: Any, tmp_path: Path, dataset_id: Any, options: dict[str, Any], message: str
) -> None:
    record, _ = noisy(8)
    with pytest.raises(ValueError, match=message):
        record.to_minari(dataset_id, **{"action_space": spaces.Discrete(4), **options})
    assert list(tmp_path.iterdir()) == []
