"""The benchmark counts the whole process, from before this library is imported: its own weight cannot hide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sb3_extra_buffers.bench.bars import verdicts_of, weight_group
from sb3_extra_buffers.bench.jobs import run, weigh
from sb3_extra_buffers.bench.measure import Job, measure
from sb3_extra_buffers.bench.report import bar_rows, rows_of
from sb3_extra_buffers.bench.standalone import HERE


def measure_with_finder(code: str, job: Job) -> dict[str, Any]:
    """The result of a job in a process that runs some code whenever a module is looked for.

    :param code: one line; may use `name`, that of the module, and `sys`
    """
    script = (
        "import runpy, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        {code}\n"
        "sys.meta_path.insert(0, Finder())\n"
        "runpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
    )
    command = [sys.executable, "-c", script, str(HERE / "standalone.py"), json.dumps(asdict(job))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_peers_run_the_same_measure_without_this_library() -> None:
    """With a finder that hides this library, as in the environment of a peer."""
    job = Job("sb3-default", "tiny", 64, "", laps=1, samples=16)
    hide = "if name.split('.')[0] == 'sb3_extra_buffers': raise ImportError('hidden: ' + name)"
    assert measure_with_finder(hide, job)["rss_bytes"] > 0


def test_whole_process_holds_what_comes_with_the_import() -> None:
    """A library that takes 64 MB and a second when it is imported."""
    weight = "if name == 'sb3_extra_buffers.compressed': import time; sys.ballast = b'x' * (64 << 20); time.sleep(1)"
    job = Job("none", "tiny", 64, "", laps=0, samples=0)
    light, heavy = measure_with_finder("pass", job), measure_with_finder(weight, job)
    assert heavy["process_bytes"] - light["process_bytes"] > 60 << 20
    assert heavy["start_seconds"] > 1
    assert heavy["rss_bytes"] < 4 << 20  # the buffer itself is as small as before


def test_whole_process_is_unknown_where_the_library_was_imported_before() -> None:
    result = measure(Job("sb3-default", "tiny", 64, "", laps=0, samples=0))
    assert result["process_bytes"] is None
    assert result["rss_bytes"] is not None


def test_weight_is_what_ours_takes_beyond_sb3s(tmp_path: Path) -> None:
    group = weight_group(tmp_path)
    assert [job.buffer for job in group.jobs] == ["sb3-default", "auto"]
    assert group.turns > 1
    figures = [{"process_bytes": 3_000_000, "start_seconds": 0.25}, {"process_bytes": 7_500_000, "start_seconds": 0.75}]
    results = weigh([{**asdict(job), **one, "rss_bytes": 1} for job, one in zip(group.jobs, figures, strict=True)])
    assert "library_bytes" not in results[0]
    assert (results[1]["library_bytes"], results[1]["first_batch_seconds"]) == (4_500_000, 0.5)
    rows = bar_rows(list(verdicts_of(group, results)))
    assert [row[1:] for row in rows] == [
        ["4.5 MB", "<= 8.0 MB", "<= 3.0 MB", "PASS"], ["0.50 s", "<= 0.20 s", "<= 0.05 s", "MISS"],
    ]  # fmt: skip
    assert rows_of(results)[1][-1] == "beyond SB3's: 4.5 MB, 0.50 s to the first batch"
    ordinary = [{**asdict(replace(job, fresh=False)), **one} for job, one in zip(group.jobs, figures, strict=True)]
    assert not any(
        "library_bytes" in result for result in weigh(ordinary)
    )  # a large buffer saves memory, the library does not


def test_fresh_process_finds_no_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[str | None] = []

    def start(command: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        cache = env.get("NUMBA_CACHE_DIR")
        assert cache is None or list(Path(cache).iterdir()) == []
        caches.append(cache)
        return subprocess.CompletedProcess(command, 0, stdout="{}", stderr="")

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(subprocess, "run", start)
    job = Job("auto", "tiny", 64, "")
    run(job)
    run(replace(job, fresh=True))
    assert caches[0] is None
    assert caches[1] is not None
