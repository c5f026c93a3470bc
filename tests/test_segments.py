"""Saved buffers: what is loaded is what was saved, for every class, at every fill, and goes on as SB3's would."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import sb3_extra_buffers
from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.recording import FramelessRecordBuffer
from sb3_extra_buffers.store.format import segments_in
from tests.oracle import add_to_replay, assert_same_minibatches, assert_same_samples
from tests.saved_buffers import (
    ACTIONS,
    EVERYTHING,
    N_ENVS,
    REPLAY,
    ROLLOUTS,
    SLOTS,
    array,
    assert_equal,
    her,
    record,
    replay,
    rollout,
)
from tests.transitions import play


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.sb3x"


def saved_and_loaded(buffer: Any, path: Path, **changes: Any) -> Any:
    buffer.save(path)
    return load_buffer(path, device="cpu", truncate_last_traj=False, **changes)


@pytest.mark.parametrize("n_steps", [0, 1, SLOTS, 4 * SLOTS + 3])
@pytest.mark.parametrize("kind", REPLAY)
def test_a_loaded_replay_buffer_is_the_saved_one(kind: str, n_steps: int, path: Path) -> None:
    ours, theirs = replay(kind, n_steps)
    loaded = saved_and_loaded(ours, path)
    assert type(loaded) is type(ours)
    assert_equal(loaded, ours)
    if n_steps:
        assert_same_samples(loaded, theirs)
    for step in play(REPLAY[kind][2], ACTIONS, N_ENVS, 40, seed=9):  # and it goes on as SB3's does
        add_to_replay([loaded, theirs], step)
    assert_same_samples(loaded, theirs, batch_size=64)


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("kind", ROLLOUTS)
def test_a_loaded_rollout_buffer_is_the_saved_one(kind: str, is_read: bool, path: Path) -> None:
    ours, theirs = rollout(kind, is_read=is_read)
    loaded = saved_and_loaded(ours, path)
    assert_equal(loaded, ours)
    assert loaded.generator_ready is is_read
    assert_same_minibatches(loaded, theirs, 7)


@pytest.mark.parametrize("kind", ROLLOUTS)
def test_a_rollout_that_is_not_full_goes_on(kind: str, path: Path) -> None:
    ours, _ = rollout(kind, 11)
    loaded = saved_and_loaded(ours, path)
    assert_equal(loaded, ours)
    assert loaded.pos == 11


@pytest.mark.parametrize("copy_info_dict", [False, True])
@pytest.mark.parametrize("n_steps", [5, 45, 140])
def test_a_loaded_hindsight_buffer_is_the_saved_one(n_steps: int, copy_info_dict: bool, path: Path) -> None:
    ours, theirs, env = her(n_steps, copy_info_dict=copy_info_dict)
    loaded = saved_and_loaded(ours, path, env=env)
    assert_equal(loaded, ours)
    if copy_info_dict:
        assert repr(loaded.infos.tolist()) == repr(ours.infos.tolist())
    if n_steps > 5:
        assert_same_samples(loaded, theirs)


def test_infos_that_json_cannot_hold_are_refused(path: Path) -> None:
    ours, _, _ = her(20, copy_info_dict=True)
    ours.infos[3, 1] = {"fine": np.float32(1.5), "not": {"env": object()}}
    with pytest.raises(TypeError, match=r"infos.*'not'.*'env'.*object.*JSON cannot hold"):
        ours.save(path)
    assert not path.exists()
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "value", [{}, {"a": [1, 2.5, None, True, "ü"]}, {"b": np.arange(4, dtype=np.int16), "c": np.float32(0.1), 3: (1, 2)},
              {"nan": float("nan")}, {"$array": 1}]
)  # fmt: skip
def test_infos_come_back_as_they_were(value: dict[Any, Any]) -> None:
    import json

    from sb3_extra_buffers.segments.values import value_from_json, value_to_json

    back = value_from_json(json.loads(json.dumps(value_to_json(value, "infos"))))
    assert repr(back) == repr(value)


def test_arrays_and_records_are_loaded_as_they_were(path: Path) -> None:
    for made in (array(), record(), record(compression_method="auto"), record(FramelessRecordBuffer)):
        loaded = saved_and_loaded(made, path)
        assert type(loaded) is type(made)
        assert_equal(loaded, made)
        assert repr(loaded) == repr(made)
        with pytest.raises(ValueError, match="loaded as it was saved"):
            load_buffer(path, buffer_size=5)


@pytest.mark.parametrize("kind", ["replay", "replay-zstd", "replay-vector", "dict", "gpu"])
def test_a_file_is_as_large_as_what_is_stored(kind: str, path: Path) -> None:
    for n_steps in (0, 3, 40, 200):
        ours, _ = replay(kind, n_steps, slots=100_000)
        ours.save(path)
        usage = ours.memory_usage()
        rest = sum(value.nbytes for value in vars(ours).values() if isinstance(value, np.ndarray)) * n_steps // 100_000
        assert path.stat().st_size <= 1.05 * (usage.stored_bytes + rest) + (64 << 10)


def noise(n_steps: int, n_envs: int, shape: tuple[int, ...], method: str) -> Any:
    made = CompressedReplayBuffer(
        n_steps * n_envs, spaces.Box(0, 255, shape, np.uint8), ACTIONS, "cpu", n_envs, compression_method=method
    )
    rng = np.random.default_rng(0)
    for i in range(n_steps):
        obs = rng.integers(0, 256, (n_envs, *shape), np.uint8)
        made.add(obs, obs, np.zeros((n_envs, 1)), np.zeros(n_envs), np.full(n_envs, i % 50 == 49), [{}] * n_envs)
    return made


@pytest.mark.parametrize("method", ["none", "auto"])
def test_noise_is_cut_into_segments_of_about_16_mb(method: str, path: Path) -> None:
    made = noise(1200, 1, (3, 84, 84), method)
    made.save(path)
    with path.open("rb") as file:
        sizes = [segment.end - segment.begin for segment in segments_in(file)]
    assert len(sizes) == 2
    assert max(sizes) < 17e6
    assert sum(sizes) <= 1.05 * made.memory_usage().stored_bytes + (64 << 10)


@pytest.mark.parametrize("n_envs", [1, 7])
@pytest.mark.parametrize("method", ["none", "delta", "zstd3"])
def test_edges_cost_little_however_small_segments_may_be(
    method: str, n_envs: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = noise(4000 // n_envs, n_envs, (3, 20, 20), method)
    made.save(path)
    whole = path.stat().st_size
    monkeypatch.setattr("sb3_extra_buffers.segments.runs._SEGMENT_BYTES", 0)
    made.save(path)
    with path.open("rb") as file:
        n = len(list(segments_in(file)))
    assert n > 4 or n_envs > 1
    assert path.stat().st_size <= 1.05 * whole + 4096 * n  # each has a header, which is nothing beside 16 MB
    assert_equal(load_buffer(path, device="cpu"), made)


def test_sealed_blocks_are_not_encoded_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _ = replay("replay-zstd", 250, slots=200)
    from sb3_extra_buffers.codecs.zstd import Zstd

    def refuse(*args: Any) -> Any:
        raise AssertionError("encoded again")

    monkeypatch.setattr(Zstd, "compress", refuse)
    assert_equal(saved_and_loaded(ours, path), ours)
    smaller = load_buffer(path, buffer_size=140, device="cpu")
    assert np.array_equal(smaller.observations[:], ours.observations[ours._kept_slots()[-70:]])
    with pytest.raises(AssertionError, match="encoded again"):
        load_buffer(path, compression_method="zstd4")


def test_another_codec_encodes_anew(path: Path) -> None:
    ours, theirs = replay("replay", 70)
    loaded = saved_and_loaded(ours, path, compression_method="gzip1")
    assert_equal(loaded, ours)
    assert loaded.memory_usage().codec == "gzip/1"
    assert_same_samples(loaded, theirs)


def test_a_class_derived_from_ours_is_saved_as_ours(path: Path) -> None:
    from sb3_extra_buffers.compressed import CompressedReplayBuffer

    class Mine(CompressedReplayBuffer):
        pass

    ours = Mine(20, REPLAY["replay"][2], ACTIONS, "cpu")
    assert type(saved_and_loaded(ours, path)) is CompressedReplayBuffer
    ours.priorities = np.zeros((20, 1))
    with pytest.raises(TypeError, match=r"Mine keeps priorities, which a CompressedReplayBuffer does not.*pickle"):
        ours.save(path)
    assert type(load_buffer(path)) is CompressedReplayBuffer  # the old file


def test_loading_runs_no_code_of_the_file(path: Path) -> None:
    """An audit hook sees every import, exec, compile and unpickling while each kind of file is loaded."""
    import subprocess

    code = """
import sys
from pathlib import Path
from tests.saved_buffers import EVERYTHING
from sb3_extra_buffers import load_buffer
folder = Path(sys.argv[1])
for name, make in EVERYTHING.items():
    make().save(folder / name)
for name in EVERYTHING:
    load_buffer(folder / name, device="cpu")  # imports all that loading needs
seen = []
def hook(event, args):
    if event in ("exec", "compile", "pickle.find_class", "marshal.loads", "os.system", "subprocess.Popen", "code.__new__"):
        seen.append((event, args))
sys.addaudithook(hook)
for name in EVERYTHING:
    load_buffer(folder / name, device="cpu")
assert not seen, seen
print("clean")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path.parent)], capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    assert done.stdout.strip().endswith("clean"), done.stderr


def test_the_names_of_the_package() -> None:
    for name in ("load_buffer", "merge_buffers", "compress_buffer", "decompress_buffer", "BufferCheckpointCallback", "resume"):
        assert callable(getattr(sb3_extra_buffers, name))
        assert name in dir(sb3_extra_buffers)


def test_links_and_modes_stay(path: Path) -> None:
    ours, _ = replay("replay", 20)
    ours.save(path)
    path.chmod(0o640)
    link = path.with_name("link")
    link.symlink_to(path)
    ours.save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert_equal(load_buffer(link, device="cpu"), ours)


def test_files_that_are_none_of_ours(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_buffer(path)
    with pytest.raises(FileNotFoundError, match="folder without a checkpoint"):
        load_buffer(path.parent)
    path.write_bytes(b"")
    with pytest.raises(CorruptDataError, match="empty"):
        load_buffer(path)
    path.write_bytes(b"\x80\x04pickle")
    with pytest.raises(CorruptDataError, match=r"looks like a pickle.*load_replay_buffer"):
        load_buffer(path)
    path.write_bytes(b"PK" * 500)
    with pytest.raises(CorruptDataError, match="no file of sb3-extra-buffers"):
        load_buffer(path)


def test_everything_has_a_save_method() -> None:
    from sb3_extra_buffers.compressed.contents import CLASSES

    saved = {type(make()).__name__ for make in EVERYTHING.values()}
    untested = set(CLASSES) - saved
    assert untested == {
        "CompressedPrioritizedNStepReplayBuffer",
        "CompressedMaskableDictRolloutBuffer",
        "CompressedRecurrentDictRolloutBuffer",
        "GpuDictRolloutBuffer",
        "DummyRecordBuffer",
    }  # fmt: skip  their plain or Dict siblings are here
