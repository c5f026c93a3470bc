"""The benchmark: what it adds is what the envs gave, what it says follows from what was measured. No test asserts a time."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import combinations, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb3_extra_buffers.bench import recording as recording_module
from sb3_extra_buffers.bench.bars import check_groups, recordings_of, verdicts_of
from sb3_extra_buffers.bench.buffers import PEERS
from sb3_extra_buffers.bench.colour import CAMERA, FLAT
from sb3_extra_buffers.bench.frames import N_ENVS, STACK, Frames, find_recording, load_workload, noise
from sb3_extra_buffers.bench.groups import Group, Verdict
from sb3_extra_buffers.bench.jobs import compare_batches, median_of, run, turns_of
from sb3_extra_buffers.bench.measure import Job
from sb3_extra_buffers.bench.measure import main as measure_json
from sb3_extra_buffers.bench.peers import peer_of, same_versions
from sb3_extra_buffers.bench.plots import draw_all
from sb3_extra_buffers.bench.recording import ensure_recording, record
from sb3_extra_buffers.bench.report import COLUMNS, bar_rows, reference_of, render, rows_of
from sb3_extra_buffers.cli import main
from sb3_extra_buffers.cli.bench import FULL_TABLE

STEPS = 150
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"


def ignore(done: int, note: str) -> None:
    """A progress bar that nobody sees."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a short recording of Breakout, where lives are lost soon."""
    path = tmp_path_factory.mktemp("cache")
    ensure_recording(path, "Breakout", STEPS, ignore)
    return path


# ---- workloads


def test_recording_gives_back_what_the_env_gave(cache: Path) -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv

    from sb3_extra_buffers.training_utils.atari import make_env

    recorded = Frames.load(find_recording(cache, "Breakout", STEPS))
    env = make_env("BreakoutNoFrameskip-v4", N_ENVS, DummyVecEnv, STACK, seed=0)
    rng = np.random.default_rng(0)
    seen = env.reset()
    actions = rng.integers(env.action_space.n, size=N_ENVS)  # type: ignore[attr-defined]
    for obs, after, ends in recorded.stacks():
        assert np.array_equal(obs, seen)
        changed = rng.random(N_ENVS) < 1 / recording_module.HOLD
        actions[changed] = rng.integers(env.action_space.n, size=changed.sum())  # type: ignore[attr-defined]
        seen, _, dones, infos = env.step(actions)
        seen = seen.copy()
        expected = seen.copy()
        for i in np.flatnonzero(dones):
            expected[i] = infos[i]["terminal_observation"]
        assert np.array_equal(after, expected)
        assert np.array_equal(ends, dones)
    env.close()
    assert recorded.dones.any(), "no episode has ended: terminal frames were not tested"


def test_recording_that_cannot_be_rebuilt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    checksums: Iterator[int] = iter(range(10_000))
    monkeypatch.setattr(recording_module, "_checksum", lambda array: next(checksums))
    with pytest.raises(ValueError, match="cannot be rebuilt"):
        record("Breakout", 3, ignore)


def test_longer_recording_serves_for_a_shorter_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "record", pytest.fail)
    ensure_recording(cache, "Breakout", STEPS // 2, ignore)
    workload = load_workload("Breakout", STEPS // 2, cache)
    assert isinstance(workload, Frames)
    assert len(workload.new) == STEPS // 2
    assert len(workload.terminals) == workload.dones.sum()


@pytest.mark.parametrize(("name", "channels"), [("basic-labels", 1), ("basic-rgb", 3)])
def test_scenario_is_recorded_as_the_env_gave_it(name: str, channels: int, tmp_path: Path) -> None:
    pytest.importorskip("vizdoom")
    from stable_baselines3.common.vec_env import DummyVecEnv

    from sb3_extra_buffers.training_utils.vizdoom import make_env

    ensure_recording(tmp_path, name, 40, ignore)
    recorded = load_workload(name, 40, tmp_path)
    assert isinstance(recorded, Frames)
    assert recorded.observation_space.shape == (STACK * channels, 120, 160)
    assert recorded.frame_bytes == channels * 120 * 160
    env = make_env("basic", N_ENVS, name.partition("-")[2], DummyVecEnv, STACK, seed=0)  # type: ignore[arg-type]
    first = env.reset()
    env.close()
    obs, after, _ = next(recorded.stacks())
    assert np.array_equal(obs, first)
    assert np.array_equal(obs[:, channels:], after[:, :-channels])
    assert len(np.unique(recorded.new)) > 3  # something is seen


def test_width_of_vectors_is_in_their_name(tmp_path: Path) -> None:
    widths = {name: load_workload(name, 10, tmp_path).observation_space.shape for name in ("vectors", "vectors-4")}
    assert widths == {"vectors": (17,), "vectors-4": (4,)}


@pytest.mark.parametrize("name", ["Breakout", "noise", "tiny", "vectors", "vectors-64"])
def test_steps_follow_on_each_other_and_are_nobody_elses(cache: Path, name: str) -> None:
    workload = load_workload(name, 50, cache)
    steps = list(islice(workload.steps(), 120))  # more than there are: it begins anew
    for now, then in pairwise(steps):
        going_on = ~now[4]
        assert np.array_equal(now[1][going_on], then[0][going_on])
    for step in steps:
        assert workload.observation_space.contains(step[0][0])
        assert workload.observation_space.contains(step[1][0])
    arrays = [step[i] for step in steps for i in (0, 1)]
    assert len({array.ctypes.data for array in arrays}) == len(arrays)
    assert np.array_equal(steps[0][0], steps[50][0])
    assert all(steps[49][4])


def test_noise_moves_on_by_one_frame() -> None:
    obs, after, ends = next(noise(3).stacks())
    assert np.array_equal(obs[:, 1:], after[:, :-1])
    assert not ends.all()


# ---- measuring


@pytest.fixture(scope="module")
def measured(cache: Path) -> dict[str, dict[str, Any]]:
    """Real results of small jobs."""
    jobs = [Job(name, "Breakout", STEPS * N_ENVS, str(cache), laps=1, samples=16) for name in ("sb3-default", "zstd3@32")]
    return {result["buffer"]: result for result in compare_batches([run(job) for job in jobs])}


def test_measured_buffer_gives_sb3s_batches(measured: dict[str, dict[str, Any]]) -> None:
    assert measured["zstd3@32"]["identical"] is True
    assert measured["zstd3@32"]["digest"] != measured["zstd3@32"]["digest_later"]  # it was really overwritten


def test_other_batches_are_noticed(measured: dict[str, dict[str, Any]]) -> None:
    wrong = {**measured["zstd3@32"], "digest_later": "another"}
    results = compare_batches([dict(measured["sb3-default"]), wrong])
    assert [result["identical"] for result in results] == [True, False]
    assert rows_of(results)[1][-1] == "other batches than SB3's"


def test_rss_is_what_plain_arrays_take(measured: dict[str, dict[str, Any]]) -> None:
    raw = 2 * STEPS * N_ENVS * STACK * 84 * 84
    assert measured["sb3-default"]["observation_bytes"] == raw
    assert raw <= measured["sb3-default"]["rss_bytes"] < 1.5 * raw
    assert measured["zstd3@32"]["rss_bytes"] < raw / 4


def test_whole_process_is_measured_for_every_buffer(measured: dict[str, dict[str, Any]]) -> None:
    for result in measured.values():
        assert result["process_bytes"] > result["rss_bytes"] - (1 << 20)
        assert result["start_seconds"] > 0
    column = COLUMNS.index("whole process")
    assert all(row[column].endswith(" MB") for row in rows_of(list(measured.values())))


def test_job_that_fails_says_why(cache: Path) -> None:
    with pytest.raises(RuntimeError, match="No codec named 'zsdt'"):
        run(Job("zsdt", "Breakout", STEPS * N_ENVS, str(cache)))


def test_peer_that_fails_is_a_row_that_says_why(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such wheel >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("sb3_extra_buffers.bench.jobs.python_of", lambda peer, cache: broken)
    result = run(Job("cpprb", "Breakout", STEPS * N_ENVS, str(cache)))
    assert "no such wheel" in rows_of([result])[0][-1]
    assert len(rows_of([result])[0]) == len(COLUMNS)


def test_names_of_peers_are_told_from_codecs() -> None:
    assert [peer_of(name) for name in ("0.5.0:zstd-3", "cpprb", "torchrl-compressed", "sb3", "zstd9@64")] == [
        "0.5.0", "cpprb", "torchrl", None, None,
    ]  # fmt: skip


def test_peers_get_the_same_torch_and_not_this_library() -> None:
    pins = same_versions("cpprb")
    assert any(pin.startswith("torch==") and "+" not in pin for pin in pins)
    assert not any(pin.lower().replace("_", "-").startswith("sb3-extra-buffers") for pin in pins)
    others = same_versions("torchrl")
    assert [pin for pin in pins if pin not in others] == [pin for pin in pins if pin.startswith("torch==")]


def test_jobs_take_turns_and_slow_ones_run_once() -> None:
    jobs = [Job("sb3", "noise", 1000, ""), Job("zstd22", "noise", 1000, "", slow=True), Job("auto", "noise", 1000, "")]
    assert list(turns_of(jobs, 3)) == [0, 1, 2, 0, 2, 0, 2]


def test_result_is_the_median_of_its_repeats(measured: dict[str, dict[str, Any]]) -> None:
    repeats = [{**measured["sb3-default"], "add_us": float(us), "rss_bytes": us, "process_bytes": 2 * us} for us in (9, 1, 2)]
    result = median_of(repeats)
    assert (result["add_us"], result["rss_bytes"], result["process_bytes"], result["repeats"]) == (2, 2, 4, 3)


# ---- bars


def test_bars_are_compared_in_their_direction() -> None:
    low, high = Verdict("memory", 1.1, 1.2, 0.9, "%"), Verdict("speed", 0.97, 0.98, 1.0, at_least=True)
    assert (low.kept, low.stretched, high.kept) == (True, False, False)
    assert (replace(high, value=1.0).kept, replace(high, value=1.0).stretched) == (True, True)
    assert Verdict("only told", 3.0).kept is None
    assert [row[-1] for row in bar_rows([low, high, Verdict("only told", 3.0)])] == ["PASS", "MISS", ""]
    assert [row[-1] for row in bar_rows([low, high], judged=False)] == ["", ""]


def _colour_bars(memory: float, add: float, sample_32: float, sample_256: float) -> dict[str, Any]:
    times = {"add, later laps": add, "sample(32)": sample_32, "sample(256)": sample_256}
    return {
        "memory (RSS)": (memory, None), **{what: (bar, bar / 2) for what, bar in times.items()},
        "slowest add / median add": (10, None),
    }  # fmt: skip


COLOUR_BARS = {
    (FLAT, 1): _colour_bars(12, 3.0, 2.0, 1.0),
    (FLAT, 3): _colour_bars(5, 2.0, 1.0, 1.0),
    (CAMERA, 1): _colour_bars(68, 5.0, 3.0, 1.5),
    (CAMERA, 3): _colour_bars(23, 3.0, 1.5, 1.0),
}


def test_named_codecs_are_compared_with_those_of_0_5(tmp_path: Path) -> None:
    groups = [group for group in check_groups(tmp_path, peers=True) if group.judged == "named"]
    assert [group.jobs[1].buffer for group in groups] == [
        "zstd3", "zstd-3", "lz4-frame/1", "lz4-block/1", "igzip1", "gzip1", "rle",
    ]  # fmt: skip
    figures = {"rss_bytes": 4.0, "add_us": 4.0, "sample_32_us": 4.0, "sample_256_us": 4.0}
    halves = {key: value / 2 for key, value in figures.items()}
    for group in groups:
        theirs, ours = ({**asdict(job), **one} for job, one in zip(group.jobs, (figures, halves), strict=True))
        assert theirs["buffer"] == f"0.5.0:{ours['buffer']}"
        assert [(v.value, v.bar) for v in verdicts_of(group, [theirs, ours])] == [
            (0.5, 0.25),
            (0.5, 0.4),
            (0.5, 0.6),
            (0.5, 0.5),
        ]
        assert not list(verdicts_of(group, [{**asdict(group.jobs[0]), "error": "cannot be installed"}, ours]))


def test_every_bar_is_checked(tmp_path: Path) -> None:
    groups = check_groups(tmp_path)
    figures = dict.fromkeys(
        ("rss_bytes", "process_bytes", "observation_bytes", "add_first_us", "add_us", "add_median_us", "add_max_us",
         "sample_32_us", "sample_256_us", "steps_per_second", "library_bytes", "first_batch_seconds"), 1.0
    )  # fmt: skip
    verdicts = [v for g in groups for v in verdicts_of(g, [{**asdict(job), **figures} for job in g.jobs])]
    bars = {v.label: (v.bar, v.stretch) for v in verdicts if v.bar is not None and "gpu" not in v.label}
    games = ("Pong", "Seaquest", "Breakout", "Qbert", "SpaceInvaders", "BeamRider")
    assert bars == {
        "library: memory that it adds to a process": (8, 3),
        "library: from its import to the first batch, beyond SB3's": (0.2, 0.05),
        "MsPacman: memory (RSS)": (pytest.approx(0.92), 0.8), "MsPacman: memory (RSS), zstd9@64": (0.8, 0.5),
        "MsPacman: add, first lap": (0.09, 0.07), "MsPacman: add, later laps": (0.8, 0.6),
        "MsPacman: sample(32)": (0.6, 0.5), "MsPacman: sample(256)": (0.35, 0.25),
        "MsPacman: slowest add / median add": (10, None),
        **{f"{game}: memory (RSS)": (1.6, None) for game in games},
        **{f"{game}: add, first lap": (0.25, 0.1) for game in games},
        **{f"{game}: add, later laps": (0.8, 0.6) for game in games},
        **{f"{game}: sample(32)": (1.0, 0.8) for game in games},
        **{f"{game}: sample(256)": (0.35, 0.25) for game in games},
        **{
            f"{name}, stack {stack}: {what}": limits
            for (names, stack), bars in COLOUR_BARS.items() for name in names for what, limits in bars.items()
        },
        "CarRacing, stack 1: memory (RSS), auto-small": (pytest.approx(7), None),
        "ViZDoom, stack 1: memory (RSS), auto-small": (50, None),
        "DQN on CarRacing: steps per second": (0.95, 1.0), "DQN on ViZDoom: steps per second": (0.95, 1.0),
        "noise: memory (RSS)": (0.27, None),
        **{f"noise: {what}": (2.0, None) for what in ("add, first lap", "add, later laps", "sample(32)", "sample(256)")},
        "1,000,000 transitions: memory (RSS)": (230, 200),
        "1,000,000 transitions: add, later laps, against 40,000": (1.3, 1.1),
        "1,000,000 transitions: sample(256), against 40,000": (1.3, 1.1),
        "vectors: memory of observations": (0.6, 0.5), "vectors: add, later laps": (1.2, 1.0),
        "vectors: sample(256)": (0.9, 0.8),
        "DQN: steps per second": (1.0, 1.05), "PPO: steps per second": (1.0, 1.05),
    }  # fmt: skip
    told = {v.label for v in verdicts if v.bar is None}
    assert {"MsPacman: memory of the whole process", "1,000,000 transitions: memory of the whole process"} <= told
    assert recordings_of(groups).keys() == {"MsPacman", *games, *FLAT, *CAMERA}
    assert recordings_of(groups)["ViZDoom"] == 5000  # one env
    assert recordings_of(groups)["MsPacman"] == 250_000


def test_check_fails_where_a_bar_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job("sb3-default", "vectors", 1000, str(tmp_path))
    group = Group("vectors", "vectors", (job, replace(job, buffer="auto")))
    figures = {"rss_bytes": 100, "observation_bytes": 100, "add_us": 1.0, "sample_256_us": 1.0, "identical": None}
    results = [{**asdict(one), **figures} for one in group.jobs]
    monkeypatch.setattr("sb3_extra_buffers.bench.bars.check_groups", lambda *args, **kwargs: [group])
    monkeypatch.setattr("sb3_extra_buffers.cli.bench.measure", lambda groups, args: [results])
    monkeypatch.setattr("sys.argv", ["sb3-extra-buffers", "bench", "--check", "--out", str(tmp_path)])
    assert main(["bench", "--check", "--out", str(tmp_path)]) == 1
    assert "Missed: vectors: memory of observations" in capsys.readouterr().err
    results[1].update(observation_bytes=50, sample_256_us=0.9)
    assert main(["bench", "--check", "--out", str(tmp_path)]) == 0
    results[1]["identical"] = False
    assert main(["bench", "--check", "--out", str(tmp_path)]) == 1
    assert json.loads((tmp_path / "check.json").read_text())["command"] == "python -m sb3_extra_buffers bench --check"


# ---- the command


@pytest.fixture
def mostly_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in this process, by the JSON that another one would get: that saves seconds of imports for each.

    Only those go to processes of their own whose whole process is told of: the weight of the library, and SB3's buffer beside
    the default codec.
    """
    start = subprocess.run

    def start_or_measure(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        job = json.loads(command[-1])
        if job.get("fresh") or (job.get("workload") == "MsPacman" and job["buffer"] in ("sb3", "auto")):
            return start(command, **options)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            measure_json(command[-1])
        return subprocess.CompletedProcess(command, 0, stdout=printed.getvalue(), stderr="")

    monkeypatch.setattr(subprocess, "run", start_or_measure)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # one job at a time: they share NumPy's and torch's generators, and stdout


@pytest.mark.usefixtures("mostly_this_process")
def test_quick_run_gives_sb3s_batches_and_weights_and_judges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run for all that is to be said about it: it takes a while."""
    groups = ["weight", "main", "noise", "vectors", "training"]  # GPU buffers: see test_gpu_bench
    arguments = ["bench", "--quick", "--only", *groups, f"--out={tmp_path}", f"--cache={tmp_path / 'cache'}"]
    monkeypatch.setattr("sys.argv", ["sb3-extra-buffers", *arguments])
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    for words in (
        "MsPacman: add, first lap", "noise: memory (RSS)", "vectors: sample(256)", "DQN: steps per second",
        "library: memory that it adds to a process", "MsPacman: memory of the whole process",
    ):  # fmt: skip
        assert words in printed
    assert "PASS" not in printed
    assert "MISS" not in printed

    saved = json.loads((tmp_path / "quick.json").read_text())
    results = [result for results in saved["workloads"].values() for result in results] + saved["trainings"]
    assert {"auto", "zstd9@64"} <= {result["buffer"] for result in results if result["identical"]}
    assert all(result["identical"] for result in saved["trainings"])
    assert all(result["identical"] is not False for result in results)
    assert str(tmp_path) not in json.dumps(saved)  # nothing about this machine's folders

    assert main(["bench", "--render", str(tmp_path / "quick.json")]) == 0
    text = capsys.readouterr().out
    for table in (part for part in text.split("\n\n") if part.startswith("|")):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "| SB3, optimize_memory_usage |" in text
    assert "`python -m sb3_extra_buffers bench --quick --only weight main noise vectors training`" in text
    assert "What the library itself adds to a process" in text

    for results in saved["workloads"].values():  # as a version wrote it that did not measure the whole process
        for result in results:
            for name in ("process_bytes", "start_seconds", "library_bytes", "first_batch_seconds", "fresh"):
                result.pop(name, None)
    row = next(line for line in render(saved).splitlines() if line.startswith("| SB3, optimize_memory_usage |"))
    assert row.split(" | ")[COLUMNS.index("whole process")] == "-"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_committed_results_can_be_rendered(path: Path) -> None:
    assert "| buffer | memory | of SB3's | whole process |" in render(json.loads(path.read_text()))


def test_labels_of_the_plot_cover_neither_dots_nor_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation, Text

    rng = np.random.default_rng(0)
    results = [
        {"buffer": name, "workload": "MsPacman", "transitions": 1000, "rss_bytes": 1e6 * 10 ** rng.uniform(0, 3),
         "sample_256_us": 10 ** rng.uniform(3, 5), "add_us": 10 ** rng.uniform(1, 3)}
        for name in (*FULL_TABLE, *PEERS, "sb3", "sb3-default")
    ]  # fmt: skip
    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, path: (figures.append(self), save(self, path)))
    paths = draw_all("MsPacman", results, tmp_path)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    for figure in figures:
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        axes = figure.axes[0]
        labels = [child for child in axes.get_children() if isinstance(child, Annotation)]
        boxes = [Text.get_window_extent(label, renderer) for label in labels]
        assert len(boxes) == len(results)
        dots = [axes.transData.transform(label.xy) for label in labels]
        overlaps = sum(a.overlaps(b) for a, b in combinations(boxes, 2))
        assert overlaps == 0
        assert not any(box.contains(*dot) for box in boxes for dot in dots)


def test_unit_is_sb3s_buffer_of_the_same_size(measured: dict[str, dict[str, Any]]) -> None:
    other_size = {**measured["sb3-default"], "transitions": 1}
    assert reference_of(measured["zstd3@32"], [other_size, measured["sb3-default"]]) is measured["sb3-default"]
    assert reference_of(measured["zstd3@32"], [other_size]) is None


@pytest.mark.parametrize(("option", "value"), [("--transitions", "10"), ("--repeats", "0")])
def test_sizes_that_cannot_be_are_refused(option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", option, value, "--out", str(tmp_path)])
    assert f"{option}: must be at least" in capsys.readouterr().err
