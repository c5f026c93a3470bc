"""`inspect`, `convert`, `verify` and `repair` on files, folders and pickles."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.save_util import load_from_pkl

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.cli import main
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.recording import FramelessRecordBuffer
from sb3_extra_buffers.segments.runs import write_buffer
from sb3_extra_buffers.store.format import MAGIC
from tests.oracle import add_to_replay, assert_same_samples
from tests.saved_buffers import EVERYTHING, N_ENVS, array, as_numpy, assert_equal, record, replay, rollout
from tests.transitions import play

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.sb3x"


def facts(capsys: Capture, *args: object, code: int = 0) -> Any:
    assert main([*map(str, args), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def saved_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch, n_steps: int = 300) -> Any:
    """A file of several segments."""
    monkeypatch.setattr("sb3_extra_buffers.segments.runs._SEGMENT_BYTES", 30_000)
    monkeypatch.setattr("sb3_extra_buffers.segments.runs._LEAST_BLOCKS", 0)
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._FEW_STEPS", 0)
    ours, theirs = replay("replay", n_steps, slots=300)
    ours.save(path)
    return ours, theirs


def starts(data: bytes) -> list[int]:
    return [i for i in range(len(data)) if data.startswith(MAGIC, i)]


@pytest.mark.parametrize("kind", EVERYTHING)
def test_inspect_reads_every_kind(kind: str, path: Path, capsys: Capture) -> None:
    made = EVERYTHING[kind]()
    made.save(path)
    found = facts(capsys, "inspect", path)
    assert found["file_bytes"] == path.stat().st_size
    assert type(made).__name__ in found["class"]
    assert main(["inspect", str(path)]) == 0
    assert str(path) in capsys.readouterr().out


def test_inspect_reads_folders_and_asks_before_pickles(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = replay("replay", 45)
    ours.checkpoint(tmp_path / "folder")
    assert facts(capsys, "inspect", tmp_path / "folder")["transitions"] == 30 * N_ENVS
    file = tmp_path / "buffer.pkl"
    file.write_bytes(pickle.dumps(ours))
    assert main(["inspect", str(file)]) == 2
    assert "can run any code" in capsys.readouterr().err
    assert facts(capsys, "inspect", file, "--trust")["transitions"] == 30 * N_ENVS

    class Terminal:
        def __init__(self, answer: str) -> None:
            self.answer = answer

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return self.answer

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert main(["inspect", str(file)]) == 2
    assert "Do you trust it?" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert main(["inspect", str(file)]) == 0


def test_convert_changes_size_envs_and_codec(path: Path, tmp_path: Path, capsys: Capture) -> None:
    ours, theirs = replay("replay", 45)
    ours.save(path)
    out = tmp_path / "out.sb3x"
    facts(capsys, "convert", path, out)
    assert_equal(load_buffer(out, device="cpu"), ours)
    facts(capsys, "convert", path, tmp_path / "folder")
    assert_equal(load_buffer(tmp_path / "folder", device="cpu"), ours)
    facts(capsys, "convert", tmp_path / "folder", out, "--buffer-size", 20, "--n-envs", 1, "--codec", "zstd5")
    loaded = load_buffer(out, device="cpu")
    assert (loaded.size(), loaded.n_envs, loaded.memory_usage().codec) == (20, 1, "zstd/5")
    for made, name in ((ours, "ours.pkl"), (theirs, "theirs.pkl")):
        (tmp_path / name).write_bytes(pickle.dumps(made))
        assert main(["convert", str(tmp_path / name), str(out)]) == 2
        capsys.readouterr()
        facts(capsys, "convert", tmp_path / name, out, "--trust")
        assert_same_samples(load_buffer(out, device="cpu"), theirs)
        facts(capsys, "convert", tmp_path / name, out, "--trust", "--buffer-size", 20)
        assert load_buffer(out).size() == 10
    assert main(["convert", str(tmp_path / "nothing"), str(out)]) == 2
    assert "No file" in capsys.readouterr().err


def test_verify_says_what_is_damaged(path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_in_parts(path, monkeypatch)
    found = facts(capsys, "verify", path)
    assert found["damaged"] == 0
    assert found["steps"] == 300
    assert found["segments"] > 3
    data = bytearray(path.read_bytes())
    second = starts(bytes(data))[1]
    data[second + 3000] ^= 1  # in a section
    path.write_bytes(bytes(data))
    found = facts(capsys, "verify", path, code=1)
    assert [bool(one["problems"]) for one in found["findings"]][:3] == [False, True, False]
    assert 0 < found["steps"] < 300
    data[second] ^= 1  # its very beginning, too
    path.write_bytes(bytes(data))
    again = facts(capsys, "verify", path, code=1)
    assert again["steps"] == found["steps"]
    assert main(["verify", str(path)]) == 1
    assert "can be saved" in capsys.readouterr().out
    path.write_bytes(bytes(data)[: len(data) // 2])
    assert facts(capsys, "verify", path, code=1)["steps"] > 0
    path.write_bytes(b"nothing of ours")
    assert facts(capsys, "verify", path, code=1)["steps"] == 0
    assert main(["verify", str(path) + "x"]) == 2
    assert main(["verify", str(path.parent)]) == 2
    assert "folder without a checkpoint" in capsys.readouterr().err


def test_a_file_of_whole_segments_that_lacks_some_is_found_out(
    path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_in_parts(path, monkeypatch)
    data = path.read_bytes()
    path.write_bytes(data[: starts(data)[-1]])
    found = facts(capsys, "verify", path, code=1)
    assert found["damaged"] == 0
    assert "cut off" in found["problem"]


@pytest.mark.parametrize("where", ["file", "folder"])
def test_repair_keeps_all_that_is_undamaged(
    where: str, path: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = saved_in_parts(path, monkeypatch)
    if where == "folder":
        path = tmp_path / "folder"
        ours.checkpoint(path)
        damaged = sorted(path.glob("*.sb3x"))[1]
        at = 3000
    else:
        damaged = path
        at = starts(path.read_bytes())[1] + 3000
    data = bytearray(damaged.read_bytes())
    data[at] ^= 255
    damaged.write_bytes(bytes(data))
    usable = facts(capsys, "verify", path, code=1)["findings"]
    out = tmp_path / "repaired.sb3x"
    found = facts(capsys, "repair", path, out)
    assert found["damaged"] == 1
    assert found["gaps"] == 1
    repaired = load_buffer(out, device="cpu")
    first = usable[0]["steps"]
    lost = 300 - sum(one["steps"] for one in usable)
    order = np.r_[0:first, first + lost : 300]
    assert repaired.size() == len(order)
    for name in ("observations", "next_observations", "rewards", "actions"):
        assert np.array_equal(as_numpy(getattr(repaired, name)[: len(order)]), getattr(ours, name)[order])
    assert repaired.dones[first - 1].all()
    cut = ours.dones[first - 1] == 0
    assert (repaired.timeouts[first - 1][cut] == 1).all()
    repaired.sample(20)
    assert main(["repair", str(path), str(path)]) == 2
    assert "OUT is IN" in capsys.readouterr().err


def test_what_cannot_be_repaired(path: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"x" * 1000)
    assert main(["repair", str(path), str(tmp_path / "out.sb3x")]) == 2
    assert "No segment is undamaged" in capsys.readouterr().err
    assert main(["verify", str(path)]) == 1
    assert "nothing can be saved" in capsys.readouterr().out
    monkeypatch.setattr("sb3_extra_buffers.segments.runs._SEGMENT_BYTES", 3000)
    monkeypatch.setattr("sb3_extra_buffers.segments.runs._LEAST_BLOCKS", 0)
    for made in (rollout("rollout")[0], record()):
        made.save(path)
        begins = starts(path.read_bytes())
        data = bytearray(path.read_bytes())
        data[begins[1] + 8] ^= 255
        for damaged in (data, data[: begins[1]], path.read_bytes()[begins[1] :]):
            path.write_bytes(bytes(damaged))
            assert main(["verify", str(path)]) == 1
            printed = capsys.readouterr().out
            assert "is of no use with steps missing" in printed
            assert "can be saved" not in printed
            assert main(["repair", str(path), str(tmp_path / "out.sb3x")]) == 2
            assert "only replay buffers can be repaired" in capsys.readouterr().err
            assert not (tmp_path / "out.sb3x").exists()


def test_a_damaged_list_of_a_folder_can_be_repaired(tmp_path: Path, capsys: Capture) -> None:
    ours, _ = replay("replay", 20)
    ours.checkpoint(tmp_path / "folder")
    (tmp_path / "folder" / "checkpoint.json").write_text("{")
    assert facts(capsys, "verify", tmp_path / "folder", code=1)["steps"] == 20
    facts(capsys, "repair", tmp_path / "folder", tmp_path / "repaired")
    repaired = load_buffer(tmp_path / "repaired", device="cpu")
    assert np.array_equal(repaired.observations[:20], ours.observations[:20])


@pytest.mark.parametrize("kind", EVERYTHING)
def test_what_is_undamaged_is_repaired_as_it_is(kind: str, path: Path, tmp_path: Path, capsys: Capture) -> None:
    made = EVERYTHING[kind]()
    made.save(path)
    found = facts(capsys, "repair", path, tmp_path / "out.sb3x")
    assert (found["damaged"], found["gaps"]) == (0, 0)
    repaired = load_buffer(tmp_path / "out.sb3x", device="cpu")
    if isinstance(made, ReplayBuffer):
        assert repaired.size() == made.size() == found["steps"]
        assert np.array_equal(repaired.rewards[: made.size()], made.rewards[made._kept_slots()])
    else:
        assert_equal(repaired, made)


def test_a_folder_without_its_list_can_be_repaired(tmp_path: Path, capsys: Capture) -> None:
    ours, _ = replay("replay", 20)
    folder = tmp_path / "folder"
    ours.checkpoint(folder)
    (folder / "checkpoint.json").unlink()
    (folder / "mine.sb3x").write_bytes(b"not of a checkpoint")
    found = facts(capsys, "verify", folder, code=1)
    assert (found["steps"], found["can_be_saved"]) == (20, True)
    assert found["findings"][0]["where"] == "checkpoint.json"
    with pytest.raises(FileNotFoundError, match="sb3-extra-buffers repair"):
        load_buffer(folder)
    facts(capsys, "repair", folder, tmp_path / "repaired")
    repaired = load_buffer(tmp_path / "repaired", device="cpu")
    assert np.array_equal(repaired.observations[:20], ours.observations[:20])


def test_links_to_nowhere_and_names_with_odd_digits_do_not_matter(tmp_path: Path, capsys: Capture) -> None:
    ours, _ = replay("replay", 20)
    folder = tmp_path / "folder"
    ours.checkpoint(folder)
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    for command in ("verify", "inspect"):
        facts(capsys, command, folder)
    (folder / "checkpoint.json").write_text("x")
    (folder / "a-\N{SUPERSCRIPT TWO}-1-t.sb3x").write_bytes(b"x")
    assert facts(capsys, "verify", folder, code=1)["steps"] == 20
    facts(capsys, "repair", folder, tmp_path / "repaired.sb3x")
    assert load_buffer(tmp_path / "repaired.sb3x").size() == 20


def test_pickles_are_named_as_such_by_verify_and_repair(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "ours.pkl"
    file.write_bytes(pickle.dumps(replay("replay", 20)[0]))
    for args in (["verify", str(file)], ["repair", str(file), str(tmp_path / "out.sb3x")]):
        assert main(args) == 2
        printed = capsys.readouterr()
        assert "is a pickle" in printed.err
        assert f"convert {file}" in printed.err
        assert "damaged;" not in printed.out


def test_inspect_and_load_buffer_name_verify_and_repair(path: Path, tmp_path: Path, capsys: Capture) -> None:
    ours, _ = replay("replay", 20)
    ours.save(path)
    ours.checkpoint(tmp_path / "folder")
    [segment] = (tmp_path / "folder").glob("*.sb3x")
    for file, where in ((path, path), (segment, tmp_path / "folder")):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data))
        with pytest.raises(CorruptDataError) as raised:
            load_buffer(where)
        assert str(raised.value).count(str(where)) == 3
        assert file.name in str(raised.value)
        assert f"sb3-extra-buffers verify {where}" in str(raised.value)
        assert f"sb3-extra-buffers repair {where} OUT" in str(raised.value)
        assert main(["inspect", str(where)]) == 2
        assert "sb3-extra-buffers repair" in capsys.readouterr().err
    (tmp_path / "folder" / "checkpoint.json").write_text("x")
    with pytest.raises(CorruptDataError, match=f"^{tmp_path / 'folder'}: checkpoint.json is damaged"):
        load_buffer(tmp_path / "folder")
    path.write_bytes(b"text\n" * 50)
    with pytest.raises(CorruptDataError) as raised:
        load_buffer(path)
    assert "repair" not in str(raised.value)  # it is no file of ours


def test_convert_writes_pickles_that_sb3_loads(path: Path, tmp_path: Path, capsys: Capture) -> None:
    ours, theirs = replay("replay", 45)
    ours.save(path)
    facts(capsys, "convert", path, tmp_path / "out.pkl")
    assert_same_samples(load_from_pkl(tmp_path / "out.pkl"), theirs)
    rollout("rollout")[0].save(path)
    assert main(["convert", str(path), str(tmp_path / "rollout.pkl")]) == 2
    assert "no replay buffer" in capsys.readouterr().err
    assert not (tmp_path / "rollout.pkl").exists()


def test_records_and_arrays_are_converted_to_files_alone(path: Path, tmp_path: Path, capsys: Capture) -> None:
    for made in (record(), array()):
        made.save(path)
        facts(capsys, "convert", path, tmp_path / "out.sb3x")
        assert_equal(load_buffer(tmp_path / "out.sb3x"), made)
        assert main(["convert", str(path), str(tmp_path / "folder")]) == 2
        assert "is saved to a file, not to a checkpoint folder" in capsys.readouterr().err


def test_progress_goes_on_step_by_step_and_ends_at_the_end(
    path: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = saved_in_parts(path, monkeypatch)
    folder = tmp_path / "folder"
    ours.checkpoint(folder)
    (folder / "model-1-00ff00ff.zip").write_bytes(bytes(10 * path.stat().st_size))
    for args in (
        ["verify", path],
        ["verify", folder],
        ["convert", path, tmp_path / "a.sb3x"],
        ["convert", folder, tmp_path / "b"],
    ):
        assert main([*map(str, args)]) == 0
        shown = [int(line.partition(" %")[0].rpartition(" ")[2]) for line in capsys.readouterr().err.splitlines()]
        assert shown == sorted(shown)
        assert len(shown) > 5
        assert shown[-1] == 100


def test_inspect_describes_rollouts_records_and_arrays(path: Path, tmp_path: Path, capsys: Capture) -> None:
    sheet = tmp_path / "frames.png"
    for is_read in (False, True):
        for kind in ("rollout", "recurrent", "gpu-rollout"):
            made, theirs = rollout(kind, is_read=is_read)
            made.save(path)
            found = facts(capsys, "inspect", path, "--frames", sheet)
            assert (found["transitions"], found["capacity"], found["n_envs"]) == (60, 60, N_ENVS)
            assert found["reward"]["mean"] == pytest.approx(float(theirs.rewards.mean()))
            starts_of = rollout(kind)[1].episode_starts.astype(bool)
            assert found["ends"] == int(starts_of[1:].sum())
            complete = [np.diff(np.flatnonzero(starts_of[:, env])) for env in range(N_ENVS)]
            assert found["complete_episodes"] == sum(map(len, complete))
            assert found["raw_bytes"] == 60 * int(np.prod(made.observation_space.shape))
            assert found["observation_space"] == str(made.observation_space)
            assert sheet.stat().st_size > 500
            sheet.unlink()
    for kept in (record(), record(compression_method="zstd3")):
        kept.save(path)
        found = facts(capsys, "inspect", path, "--frames", sheet)
        assert (found["transitions"], found["capacity"], found["frames"]["count"]) == (20, 20, 20)
        assert found["reward"] == {"mean": 22.5, "std": pytest.approx(np.std(np.arange(20))), "min": 13.0, "max": 32.0}
        sheet.unlink()
    record(FramelessRecordBuffer).save(path)
    assert main(["inspect", str(path), "--frames", str(sheet)]) == 2
    assert "No observation here is a picture" in capsys.readouterr().err
    array().save(path)
    found = facts(capsys, "inspect", path, "--frames", sheet)
    assert (found["shape"], found["dtype"], found["frames"]["count"]) == ([7, 3, 20, 20], "uint8", 21)
    assert found["raw_bytes"] == 4 * 400  # of the cells that were written
    assert main(["inspect", str(path)]) == 0
    assert "(7, 3, 20, 20) uint8" in capsys.readouterr().out


def test_segments_that_lack_an_array_are_not_repaired(path: Path, tmp_path: Path, capsys: Capture) -> None:
    ours, _ = replay("replay", 20)
    with path.open("wb") as file, ours._at_rest() as contents:
        arrays = {name: one for name, one in contents.arrays.items() if name != "rewards"}
        write_buffer(file, replace(ours._described(contents), arrays=arrays))
    assert main(["repair", str(path), str(tmp_path / "out.sb3x")]) == 2
    assert "'rewards'" in capsys.readouterr().err
    assert not (tmp_path / "out.sb3x").exists()


@pytest.mark.parametrize("lost", ["a file", "the list", "nothing"])
def test_what_is_repaired_has_its_newest_priorities(
    lost: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer

    monkeypatch.setattr("sb3_extra_buffers.segments.folders._FEW_STEPS", 0)
    folder, rng = tmp_path / "run", np.random.default_rng(0)
    space, actions = spaces.Box(0, 255, (1, 12, 12), np.uint8), spaces.Discrete(4)
    buffer = CompressedPrioritizedReplayBuffer(160, space, actions, "cpu", n_envs=2)
    for part in range(3):  # the third overwrites the first steps
        for step in play(space, actions, 2, 40, seed=part):
            add_to_replay([buffer], step)
        buffer.update_priorities(np.arange(2 * min(40 * (part + 1), 80)), rng.random(2 * min(40 * (part + 1), 80)))
        buffer.checkpoint(folder)
    files = sorted(folder.glob("*.sb3x"))
    n_kept = 80
    if lost == "the list":
        (folder / "checkpoint.json").unlink()
    elif lost == "a file":
        files[0].unlink()
        n_kept = 40
    assert main(["repair", str(folder), str(tmp_path / "repaired")]) == 0
    capsys.readouterr()
    loaded = load_buffer(tmp_path / "repaired", device="cpu")
    slots = buffer._kept_slots()[-n_kept:]
    assert loaded.size() == n_kept
    assert np.array_equal(loaded.priorities[loaded._kept_slots()], buffer.priorities[slots])
