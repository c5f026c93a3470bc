"""Buffers larger than memory: blocks in a file, the same samples, and a full disk that loses nothing."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.compressed import CompressedReplayBuffer, CompressedRolloutBuffer
from tests.oracle import add_to_replay, assert_same_samples
from tests.saved_buffers import ACTIONS, N_ENVS, REPLAY, assert_equal
from tests.transitions import play

KINDS = [kind for kind in REPLAY if not kind.startswith("gpu")]


def pair(kind: str, directory: Path, *, slots: int = 60, **more: Any) -> tuple[Any, Any]:
    ours_class, theirs_class, space, options = REPLAY[kind]
    plain = {name: value for name, value in options.items() if name != "compression_method"}
    args = (slots * N_ENVS, space, ACTIONS, "cpu", N_ENVS)
    return ours_class(*args, **options, directory=directory, **more), theirs_class(*args, **plain)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_those_of_sb3(kind: str, tmp_path: Path) -> None:
    ours, theirs = pair(kind, tmp_path)
    for i, step in enumerate(play(REPLAY[kind][2], ACTIONS, N_ENVS, 200)):
        add_to_replay([ours, theirs], step)
        if i % 23 == 5:
            assert_same_samples(ours, theirs, batch_size=50, seed=i)
    assert_same_samples(ours, theirs, batch_size=300)
    ours.save(tmp_path / "buffer.sb3x")
    assert_equal(load_buffer(tmp_path / "buffer.sb3x", device="cpu", truncate_last_traj=False), ours)


def test_files_go_with_the_buffer(tmp_path: Path) -> None:
    ours, _ = pair("replay", tmp_path)
    for step in play(REPLAY["replay"][2], ACTIONS, N_ENVS, 70):
        add_to_replay([ours], step)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 0
    del ours, step
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["replay", "replay-vector", "dict"])
def test_what_is_kept_is_saved_when_a_cycle_is_collected(kind: str, tmp_path: Path) -> None:
    """Collecting a cycle calls finalizers in an order of its own: stores must not be freed before their buffer is saved."""
    code = f"""
import gc
from pathlib import Path
from tests.oracle import add_to_replay
from tests.saved_buffers import ACTIONS, REPLAY
from tests.test_directory import pair, play
ours, theirs = pair({kind!r}, Path({str(tmp_path)!r}), keep=True)
for step in play(REPLAY[{kind!r}][2], ACTIONS, 2, 70):
    add_to_replay([ours, theirs], step)
model = {{"buffer": ours}}
model["model"] = model
del ours, model, step
gc.collect()
from sb3_extra_buffers import load_buffer
from tests.oracle import assert_same_samples
loaded = load_buffer({str(tmp_path)!r}, device="cpu")
assert_same_samples(loaded, theirs)
print("kept")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.returncode) == ("kept\n", 0), done.stderr


def test_nothing_can_be_added_after_a_kept_buffer_was_closed(tmp_path: Path) -> None:
    ours, _ = pair("replay", tmp_path, keep=True)
    for step in play(REPLAY["replay"][2], ACTIONS, N_ENVS, 10):
        add_to_replay([ours], step)
    ours.close()
    ours.close()
    assert ours.size() == 0
    with pytest.raises(ValueError, match=r"was closed, and is kept in its directory: load_buffer\(directory\)"):
        add_to_replay([ours], step)
    assert load_buffer(tmp_path, device="cpu").size() == 10


def test_files_go_with_the_process_and_those_of_a_killed_one_with_the_next(tmp_path: Path) -> None:
    code = f"""
import sys, os, signal
from tests.test_directory import *
ours, _ = pair("replay", Path({str(tmp_path)!r}))
for step in play(REPLAY["replay"][2], ACTIONS, N_ENVS, 70):
    add_to_replay([ours], step)
assert len(list(Path({str(tmp_path)!r}).iterdir())) == 1
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code, "end"], cwd=root).returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert subprocess.run([sys.executable, "-c", code, "kill"], cwd=root).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    one, _ = pair("replay", tmp_path)
    two, _ = pair("replay", tmp_path)
    for buffer in (one, two):
        for step in play(REPLAY["replay"][2], ACTIONS, N_ENVS, 5):
            add_to_replay([buffer], step)
    assert len(list(tmp_path.iterdir())) == 2  # both live; that of the killed process is gone


def test_keep_leaves_a_checkpoint(tmp_path: Path) -> None:
    ours, theirs = pair("replay", tmp_path / "kept", keep=True)
    for step in play(REPLAY["replay"][2], ACTIONS, N_ENVS, 70):
        add_to_replay([ours, theirs], step)
    assert len(list((tmp_path / "kept").iterdir())) == 1
    ours.close()
    assert ours.size() == 0
    assert not [path for path in (tmp_path / "kept").iterdir() if path.is_dir()]  # no blocks
    loaded = load_buffer(tmp_path / "kept", device="cpu")
    assert_same_samples(loaded, theirs)
    assert loaded._options.directory is not None  # it lives there again
    smaller = load_buffer(tmp_path / "kept", buffer_size=10, device="cpu")
    del loaded, ours, smaller  # what is kept there stays
    gc.collect()
    assert_same_samples(load_buffer(tmp_path / "kept", device="cpu"), theirs)
    code = f"""
from tests.test_directory import *
ours, _ = pair("replay", Path({str(tmp_path / "process")!r}), keep=True)
for step in play(REPLAY["replay"][2], ACTIONS, N_ENVS, 70):
    add_to_replay([ours], step)
"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True)
    assert_same_samples(load_buffer(tmp_path / "process", device="cpu"), theirs)


def test_only_what_holds_something_and_belongs_to_the_process_is_kept(tmp_path: Path) -> None:
    ours, theirs = pair("replay", tmp_path, keep=True)
    for step in play(REPLAY["replay"][2], ACTIONS, N_ENVS, 70):
        add_to_replay([ours, theirs], step)
    ours.close()
    empty, _ = pair("replay", tmp_path, keep=True)  # as `DQN.load` makes it for a model that only predicts
    empty.close()
    assert_same_samples(load_buffer(tmp_path, device="cpu"), theirs)
    other, _ = pair("replay", tmp_path, keep=True)
    add_to_replay([other], next(iter(play(REPLAY["replay"][2], ACTIONS, N_ENVS, 1))))
    other._made_by = os.getpid() + 1  # a forked child has the buffer of its parent
    other.close()
    assert_same_samples(load_buffer(tmp_path, device="cpu"), theirs)


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep=True"):
        CompressedReplayBuffer(10, REPLAY["replay"][2], ACTIONS, keep=True)
    with pytest.raises(TypeError, match="directory"):
        CompressedRolloutBuffer(10, REPLAY["replay"][2], ACTIONS, directory=tmp_path)  # type: ignore[call-arg]
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Cannot keep blocks in directory"):
        CompressedReplayBuffer(10, SMALL, ACTIONS, directory=tmp_path / "file", frame_stack=1)


SMALL = spaces.Box(0, 255, (1, 64, 64), np.uint8)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_reads_but_does_not_write(tmp_path: Path) -> None:
    code = f"""
import os
from tests.test_directory import *
ours, theirs = pair("replay", Path({str(tmp_path)!r}))
steps = list(play(REPLAY["replay"][2], ACTIONS, N_ENVS, 300))
for step in steps[:100]:
    add_to_replay([ours, theirs], step)
child = os.fork()
if child == 0:
    assert_same_samples(ours, theirs)
    try:
        for step in steps:
            add_to_replay([ours], step)
    except RuntimeError as error:
        assert "forked" in str(error), error
        os._exit(0)
    os._exit(3)
assert os.waitpid(child, 0)[1] == 0
for step in steps[100:]:
    add_to_replay([ours, theirs], step)
assert_same_samples(ours, theirs)
"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True)


@pytest.mark.long
def test_what_is_resident_is_what_is_used() -> None:
    """A part of benchmarks/saving.py: noise, which nothing makes smaller."""
    import json

    script, found = Path(__file__).parents[1] / "benchmarks" / "saving.py", {}
    for part in ("directory", "memory"):
        command = [sys.executable, str(script), "--part", part, "--noise", "16000"]
        found[part] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    stored = found["memory"]["stored MB"]
    assert stored > 110
    assert found["memory"]["peak RSS MB"] - found["directory"]["peak RSS MB"] > 0.6 * stored


# ---- a disk that is full


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 40 MB, where that can be mounted."""
    folder = tempfile.mkdtemp()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        os.rmdir(folder)
        pytest.skip("cannot mount a small disk here")
    try:
        yield Path(folder)
    finally:
        gc.collect()
        subprocess.run(["umount", "-l", folder], check=True)
        os.rmdir(folder)


def test_a_full_disk_refuses_the_add_and_loses_nothing(small_disk: Path) -> None:
    args = (9000, SMALL, ACTIONS, "cpu", 1)
    ours, theirs = CompressedReplayBuffer(*args, directory=small_disk / "blocks", frame_stack=1), ReplayBuffer(*args)
    rng = np.random.default_rng(0)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(16 << 20))
    obs, refused = rng.integers(0, 256, (1, 1, 64, 64), dtype=np.uint8), 0
    for i in range(9000):
        following = rng.integers(0, 256, (1, 1, 64, 64), dtype=np.uint8)
        given = (obs, following, np.zeros((1, 1)), np.array([float(i)]), np.zeros(1), [{}])
        try:
            ours.add(*given)
        except OSError:
            refused += 1
            assert ours.size() == theirs.size()
            assert_same_samples(ours, theirs, batch_size=64, seed=i)
            with pytest.raises(OSError, match="No room"):  # still
                ours.add(*given)
            if not filler.exists():
                break
            filler.unlink()
            ours.add(*given)  # there is room again
        theirs.add(*given)
        obs = following
    assert refused == 2
    assert_same_samples(ours, theirs, batch_size=64)


def test_a_full_disk_leaves_the_file_and_the_checkpoint_before(small_disk: Path) -> None:
    made = CompressedReplayBuffer(9000, SMALL, ACTIONS, "cpu", frame_stack=1)
    rng = np.random.default_rng(0)

    def more(n: int) -> None:
        for _ in range(n):
            one = rng.integers(0, 256, (1, 1, 64, 64), dtype=np.uint8)
            made.add(one, one, np.zeros((1, 1)), rng.random(1), np.zeros(1), [{}])

    more(1500)
    made.save(small_disk / "buffer.sb3x")
    made.checkpoint(small_disk / "checkpoint")
    copy = load_buffer(small_disk / "buffer.sb3x", device="cpu")
    more(6000)
    (small_disk / "filler").write_bytes(bytes(8 << 20))
    for write in (lambda: made.save(small_disk / "buffer.sb3x"), lambda: made.checkpoint(small_disk / "checkpoint")):
        with pytest.raises(OSError, match=r"No space left.*as it was"):
            write()
        for path in (small_disk / "buffer.sb3x", small_disk / "checkpoint"):
            assert_equal(load_buffer(path, device="cpu"), copy)
    assert not list(small_disk.rglob("*.unfinished"))
