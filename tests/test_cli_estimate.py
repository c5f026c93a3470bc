"""`estimate`: memory from committed figures. Figures change with codecs, so no test knows one of them by heart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb3_extra_buffers.bench import sizes as sizes_module
from sb3_extra_buffers.bench.kinds import KINDS, Kind
from sb3_extra_buffers.bench.report import render
from sb3_extra_buffers.bench.sizes import (
    BUFFERS,
    INDEX_BYTES,
    SIZES,
    Size,
    document,
    jobs_for,
    load,
    sizes_of,
    source_of,
    with_earlier,
)
from sb3_extra_buffers.cli import main
from sb3_extra_buffers.cli.bench import command_of

ATARI = ["--shape", "4,84,84", "--dtype", "uint8"]


def run_json(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["estimate", "--json", *args]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


# ---- the committed figures


def test_every_kind_codec_and_recording_has_a_committed_figure() -> None:
    sizes, source = load()
    found = {(size.kind, size.workload, size.buffer) for size in sizes}
    assert found == {(kind, workload, codec) for kind in KINDS for workload in KINDS[kind].workloads for codec in BUFFERS}
    assert "bench --sizes" in source["command"]
    assert source["version"]
    assert "/" not in source["command"]  # no folder of the machine that made it


def test_committed_figures_are_what_codecs_can_do() -> None:
    sizes, _ = load()
    shares = {(size.workload, size.buffer): size.bytes_per_frame / size.frame_bytes for size in sizes}
    assert all(share > 0 for share in shares.values())
    for workload in (*KINDS["atari"].workloads, *KINDS["masks"].workloads, *KINDS["rgb"].workloads):
        assert 0.5 < shares[workload, "none"] < 1.5  # one frame; more where episodes begin and end, none where nothing moves
        assert all(shares[workload, codec] < shares[workload, "none"] for codec in BUFFERS if codec != "none")
    assert all(shares[workload, "auto"] < 0.3 for workload in (*KINDS["atari"].workloads, *KINDS["masks"].workloads))


def test_figures_are_the_growth_from_the_smaller_to_the_larger_buffer(tmp_path: Path) -> None:
    jobs = jobs_for("masks", tmp_path)
    assert len(jobs) == 2 * len(BUFFERS) * len(KINDS["masks"].workloads)
    per_frame, once, other, frame_bytes = 300, 1_000_000, 16, 19_200
    results = [
        {
            **vars(job),
            "rss_bytes": once + job.transitions * (per_frame + other),
            "frame_bytes": frame_bytes,
            "other_bytes": other,
        }
        for job in jobs
    ]
    sizes = sizes_of("masks", results)
    assert {size.bytes_per_frame for size in sizes} == {per_frame}
    assert sizes[0].open_frames == pytest.approx(once / 4 / frame_bytes, abs=0.1)
    assert (sizes[0].workload, sizes[-1].buffer) == (KINDS["masks"].workloads[0], BUFFERS[-1])


def test_a_figure_agrees_with_the_buffer_that_made_it_and_scales_with_the_frame() -> None:
    size = Size("atari", "Pong", "auto", frame_bytes=7056, bytes_per_frame=108.0, open_frames=40.0)
    assert size.observation_bytes(1000, 0, 7056) == pytest.approx(1000 * 108)
    assert size.observation_bytes(1000, 0, 4 * 7056) == pytest.approx(1000 * (4 * 100 + INDEX_BYTES))
    assert size.observation_bytes(0, 3, 7056) == pytest.approx(3 * 40 * 7056)


@pytest.mark.long
def test_sizes_are_measured_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command in small: real processes."""
    monkeypatch.setitem(KINDS, "vector", replace(KINDS["vector"], workloads=("vectors-64",)))
    for kind in set(KINDS) - {"vector"}:
        monkeypatch.delitem(KINDS, kind)
    monkeypatch.setattr(sizes_module, "BUFFERS", ("none",))
    monkeypatch.setattr(sizes_module, "GPU_GAMES", ("noise",))
    monkeypatch.setattr(sizes_module, "GPU_BUFFERS", {"gpu-none": 1000})
    monkeypatch.setattr(sizes_module, "VECTOR_STEPS", 10_000)
    monkeypatch.setattr("sys.argv", ["sb3-extra-buffers", "bench", "--sizes", "--out", str(tmp_path)])
    assert main(["bench", "--sizes", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "vectors-64" in printed.out
    sizes, source = load(tmp_path / "sizes.json")
    assert source["command"] == "python -m sb3_extra_buffers bench --sizes"
    assert len(sizes) == 1
    [gpu] = json.loads((tmp_path / "sizes.json").read_text())["gpu"]
    assert (gpu["buffer"], gpu["workload"], gpu["transitions"]) == ("gpu-none", "noise", 1000)
    assert 0.25 < gpu["ratio"] < 0.3  # each frame once, and tables
    assert sizes[0].frame_bytes == 256
    assert 256 <= sizes[0].bytes_per_frame < 300  # the vector, the index, a little for blocks; no action, reward and done
    assert main(["bench", "--render", str(tmp_path / "sizes.json")]) == 0
    assert "| vector: vectors-64 | 256 B |" in capsys.readouterr().out


def test_kinds_that_were_not_measured_again_keep_their_figures_and_their_source(tmp_path: Path) -> None:
    new = Size("rgb", "basic-rgb", "auto", frame_bytes=57600, bytes_per_frame=1.0, open_frames=2.0)
    path, (sizes, source) = tmp_path / "sizes.json", load()
    saved = with_earlier(document([new], [], "bench --sizes --only rgb", {}))
    path.write_text(json.dumps(saved))
    found, both = load(path)
    assert [size for size in found if size.kind == "rgb"] == [new]
    assert [size for size in found if size.kind != "rgb"] == [size for size in sizes if size.kind != "rgb"]
    assert source_of("rgb", both)["command"] == "bench --sizes --only rgb"
    assert source_of("atari", both) == source_of("atari", source)
    assert saved["gpu"] == json.loads(SIZES.read_text())["gpu"]
    again = with_earlier(document([replace(new, kind="masks")], [], "later", {}), path)
    assert [source_of(kind, again)["command"] for kind in ("rgb", "masks")] == ["bench --sizes --only rgb", "later"]


def test_figures_become_a_table_of_the_documents() -> None:
    text = render(json.loads(SIZES.read_text()))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert len(table) == 2 + sum(len(kind.workloads) for kind in KINDS.values())
    assert command_of(["bench", "--sizes", "--out", "somewhere"]) == ["bench", "--sizes"]


def test_a_package_that_is_no_checkout_has_no_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "package" / "bench").mkdir(parents=True)
    monkeypatch.setattr(sizes_module, "SIZES", tmp_path / "package" / "bench" / "sizes.json")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert sizes_module.revision() is None
    monkeypatch.setenv("PATH", str(tmp_path))  # without git
    assert sizes_module.revision() is None


# ---- the estimate


def test_atari_by_shape(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, *ATARI, "--buffer-size", "1000000")
    assert (result["env_kind"], result["guessed"], result["frame_stack"], result["frame_bytes"]) == ("atari", True, 4, 7056)
    assert result["sb3_bytes"] == 1_000_000 * (2 * 28_224 + 20)
    assert result["sb3_optimize_memory_usage_bytes"] == 1_000_000 * (28_224 + 20)
    assert result["measured"]["recordings"] == list(KINDS["atari"].workloads)
    codecs = {one["codec"]: one for one in result["codecs"]}
    assert list(codecs) == list(BUFFERS)
    for one in codecs.values():
        assert 0 < one["least_bytes"] <= one["typical_bytes"] <= one["most_bytes"]
        assert one["of_sb3"] == pytest.approx(one["typical_bytes"] / result["sb3_bytes"])
    assert codecs["auto"]["most_bytes"] < 0.1 * result["sb3_bytes"]
    assert 0.1 < codecs["none"]["of_sb3"] < 0.15  # frame sharing alone: an eighth


def test_estimate_agrees_with_a_recorded_game(capsys: pytest.CaptureFixture[str]) -> None:
    sizes, _ = load()
    pong = next(size for size in sizes if (size.workload, size.buffer) == ("Pong", "auto"))
    result = run_json(capsys, *ATARI, "--buffer-size", "1000000")
    auto = result["codecs"][0]
    assert auto["least_bytes"] <= 1e6 * (pong.bytes_per_frame + 20) + pong.open_frames * 7056 <= auto["most_bytes"]


@pytest.mark.parametrize(
    ("args", "kind", "stack"),
    [
        (["--shape", "84,84"], "atari", 1),
        (["--shape", "84,84,4"], "atari", 4),
        (["--shape", "(1, 84, 84)"], "atari", 1),
        (["--shape", "3,64,64"], "rgb", 1),
        (["--shape", "96,96,12"], "rgb", 4),
        (["--shape", "12,64,64", "--frame-stack", "2"], "rgb", 2),
        (["--shape", "4,120,160", "--env-kind", "masks"], "masks", 4),
        (["--shape", "17", "--dtype", "float32"], "vector", 1),
        (["--shape", "(17,)", "--dtype", "float64"], "vector", 1),
        (["--shape", "128"], "vector", 1),
        (["--shape", "17", "--dtype", "<f4"], "vector", 1),
    ],
)
def test_kind_and_stack_are_guessed_unless_given(
    args: list[str], kind: str, stack: int, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_json(capsys, *args)
    assert (result["env_kind"], result["frame_stack"]) == (kind, stack)
    assert result["guessed"] is ("--env-kind" not in args)


def test_more_transitions_and_larger_frames_take_more(capsys: pytest.CaptureFixture[str]) -> None:
    typical = [
        [one["typical_bytes"] for one in run_json(capsys, "--shape", shape, "--buffer-size", size)["codecs"]]
        for shape, size in (("4,84,84", "100000"), ("4,84,84", "1000000"), ("4,210,160", "1000000"))
    ]
    assert np.all(np.diff(typical, axis=0) > 0)


def test_many_envs_take_more_and_round_the_size_as_sb3_does(capsys: pytest.CaptureFixture[str]) -> None:
    one = run_json(capsys, *ATARI, "--buffer-size", "1001")
    many = run_json(capsys, *ATARI, "--buffer-size", "1001", "--n-envs", "8")
    assert (one["transitions"], many["transitions"]) == (1001, 1000)
    assert many["codecs"][0]["typical_bytes"] > one["codecs"][0]["typical_bytes"]


def test_the_text_tells_the_range_and_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *ATARI, "--n-envs", "4"]) == 0
    table = capsys.readouterr().out
    printed = " ".join(table.split())  # sentences are wrapped
    assert "least  typical" in table
    for words in (
        "Observations (4, 84, 84) uint8: 4 frames of 7,056 bytes; kind: atari (guessed; --env-kind sets it)",
        "1,000,000 transitions of 4 envs; this machine has",
        "SB3, optimize_memory_usage",
        "zstd9, blocks of 64",
        "bench --sizes` with version",
        *KINDS["atari"].workloads,
    ):
        assert words in printed
    assert main(["estimate", *ATARI, "--env-kind", "masks"]) == 0
    printed = capsys.readouterr().out
    assert "guess" not in printed
    assert "deadly_corridor-labels" in printed


def test_what_does_not_fit_into_ram_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers._machine.ram_bytes", lambda: 10**9)
    assert main(["estimate", *ATARI]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "too large" in next(line for line in lines if line.startswith("SB3's own"))


# ---- how many transitions fit


def test_memory_is_answered_with_the_transitions_that_fit(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, *ATARI, "--memory", "8GB", "--n-envs", "8")
    assert result["memory_bytes"] == 8 * 10**9
    assert result["sb3_transitions"] == 8 * 10**9 // (2 * 28_224 + 20) // 8 * 8
    assert result["sb3_optimize_memory_usage_transitions"] == 8 * 10**9 // (28_224 + 20) // 8 * 8
    assert [one["codec"] for one in result["codecs"]] == list(BUFFERS)
    for i, one in enumerate(result["codecs"]):
        counts = [one[f"{name}_transitions"] for name in ("fewest", "typical", "most")]
        assert 0 < counts[0] <= counts[1] <= counts[2]
        assert all(count % 8 == 0 for count in counts)
        # And back: the recording that takes most fits, and a hundredth more does not.
        back = [
            run_json(capsys, *ATARI, "--n-envs", "8", "--buffer-size", str(int(factor * counts[0])))["codecs"][i]["most_bytes"]
            for factor in (1, 1.01)
        ]
        assert back[0] <= 8 * 10**9 < back[1]


def test_the_text_says_which_buffer_size_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *ATARI, "--memory", "8GB"]) == 0
    printed = capsys.readouterr().out
    assert "Transitions of a replay buffer of 1 env that fit into 8 GB" in printed
    fewest = next(line for line in printed.splitlines() if line.startswith("auto")).split()[1]
    assert f"buffer_size={int(fewest.replace(',', '')):_}" in printed
    assert "Fewest, median and most of 7 recordings" in printed


def test_memory_that_holds_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, *ATARI, "--memory", "1MB", "--n-envs", "64")
    assert {one["most_transitions"] for one in result["codecs"]} == {0}
    assert main(["estimate", *ATARI, "--memory", "1MB", "--n-envs", "64"]) == 0
    printed = capsys.readouterr().out
    assert "That is too little" in printed
    assert "buffer_size" not in printed


# ---- kinds


def test_a_new_kind_is_an_entry_and_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Depth, for one: another dtype, single frames of one env, a recording with its stack in the name."""
    kind = Kind(("RobotDepth16", "RobotDepth16/4"), "depth of a robot", "depth", (3,), ("uint16", "float32"))
    monkeypatch.setitem(KINDS, "depth", kind)
    with pytest.raises(SystemExit, match="0"):
        main(["estimate", "--help"])
    assert "depth: depth" in " ".join(capsys.readouterr().out.split())
    shape = ["--shape", "1,64,64", "--dtype", "uint16"]
    assert main(["estimate", *shape]) == 2
    assert "There are no figures for --env-kind depth yet" in capsys.readouterr().err
    jobs = jobs_for("depth", tmp_path)
    assert {job.transitions for job in jobs} == {500, 1500}  # of one env
    results = [
        {**vars(job), "rss_bytes": 614_400 * 10 + job.transitions * 1016, "frame_bytes": 614_400, "other_bytes": 16}
        for job in jobs
    ]
    figures = sizes_of("depth", results)
    assert {(size.bytes_per_frame, size.open_frames) for size in figures} == {(1000.0, 10.0)}
    source = load()[1]
    monkeypatch.setattr(sizes_module, "load", lambda: (figures, source))
    result = run_json(capsys, *shape, "--buffer-size", "1000")
    assert (result["env_kind"], result["guessed"], result["frame_stack"]) == ("depth", True, 1)
    expected = 1000 * ((1000 - INDEX_BYTES) / 614_400 * 8192 + INDEX_BYTES + 20) + 10 * 8192
    assert result["codecs"][0]["typical_bytes"] == pytest.approx(expected)


def test_kinds_that_cannot_be_played_here_are_left_out_of_the_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ensure(cache: Path, game: str, steps: int, update: Any) -> None:
        if game == "RobotDepth16":
            raise RuntimeError("no library that draws")

    def run(jobs: Any, *_: Any) -> list[dict[str, Any]]:
        found = {"rss_bytes": 1000, "frame_bytes": 100, "other_bytes": 16, "observation_bytes": 1}
        return [{**vars(job), **found} for job in jobs]

    monkeypatch.setattr("sb3_extra_buffers.bench.recording.ensure_recording", ensure)
    monkeypatch.setattr("sb3_extra_buffers.bench.jobs.run_in_turns", run)
    for kind in set(KINDS) - {"vector"}:
        monkeypatch.delitem(KINDS, kind)
    monkeypatch.setitem(KINDS, "vector", replace(KINDS["vector"], workloads=("vectors-64",)))
    monkeypatch.setitem(KINDS, "depth", Kind(("RobotDepth16",), "", "", (3,), ("uint16",)))
    assert main(["bench", "--sizes", "--out", str(tmp_path)]) == 0
    assert "RobotDepth16 is left out" in capsys.readouterr().err
    assert {size.kind for size in load(tmp_path / "sizes.json")[0]} == {"vector"}
