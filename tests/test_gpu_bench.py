"""The benchmark measures GPU buffers as it does the others, and judges what is promised of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sb3_extra_buffers.bench.bars import GPU_BUFFERS, check_groups, verdicts_of
from sb3_extra_buffers.bench.frames import N_ENVS
from sb3_extra_buffers.bench.groups import Group
from sb3_extra_buffers.bench.jobs import compare_batches, run
from sb3_extra_buffers.bench.measure import Job, measure
from sb3_extra_buffers.bench.recording import ensure_recording
from sb3_extra_buffers.bench.report import bar_rows

STEPS = 150


def group_of(judged: str, cache: Path) -> Group:
    (group,) = [group for group in check_groups(cache) if group.judged == judged]
    return group


@pytest.mark.long
def test_gpu_buffers_are_measured_and_give_sb3s_batches(tmp_path: Path) -> None:
    ensure_recording(tmp_path, "Breakout", STEPS, lambda done, note: None)
    names = ("sb3-default", *GPU_BUFFERS)
    jobs = [Job(name, "Breakout", STEPS * N_ENVS, str(tmp_path), laps=1, samples=16) for name in names]
    # Starting a process takes seconds, so only one has its own; the same function measures the others here.
    results = compare_batches([run(job) if job.buffer == "gpu-tiles" else measure(job) for job in jobs])
    assert [result["identical"] for result in results] == [True] * len(names)
    sizes = {result["buffer"]: result["observation_bytes"] for result in results}
    assert sizes["gpu-tiles"] < sizes["gpu-none"] < 0.25 * sizes["sb3-default"]
    assert sizes["gpu-zstd3"] < sizes["gpu-rle"] < sizes["gpu-none"]  # by what they need, and not by an estimate


def test_what_is_promised_of_gpu_buffers_is_judged(tmp_path: Path) -> None:
    group = group_of("gpu", tmp_path)
    figures: dict[str, dict[str, Any]] = {
        "sb3": {"observation_bytes": 1000, "add_us": 50, "sample_256_us": 100},
        "sb3-default": {"observation_bytes": 2000, "add_us": 50, "sample_256_us": 100},
        "gpu-tiles": {"observation_bytes": 15, "add_us": 300, "sample_256_us": 110},
        "gpu-none": {"observation_bytes": 270, "add_us": 100, "sample_256_us": 90},
        "gpu-rle": {"observation_bytes": 200, "add_us": 100, "sample_256_us": 410},
        "gpu-zstd3": {"observation_bytes": 60, "add_us": 100, "sample_256_us": 900},
    }
    results = [{**asdict(job), **figures[job.buffer]} for job in group.jobs]
    rows = {row[0]: (row[1], row[-1]) for row in bar_rows(list(verdicts_of(group, results)))}
    assert rows == {
        "gpu-tiles: stored bytes, of SB3's obs": ("1.50 %", "PASS"),
        "gpu-tiles: stored bytes, of SB3's obs and next_obs": ("0.75 %", ""),
        "gpu-tiles: sample(256)": ("1.10x", "PASS"),
        "gpu-none: stored bytes, of SB3's obs": ("27.00 %", "MISS"),
        "gpu-none: stored bytes, of SB3's obs and next_obs": ("13.50 %", ""),
        "gpu-none: sample(256)": ("0.90x", "PASS"),
        "gpu-rle: stored bytes, of SB3's obs": ("20.00 %", ""),
        "gpu-rle: stored bytes, of SB3's obs and next_obs": ("10.00 %", ""),
        "gpu-rle: sample(256)": ("4.10x", "MISS"),
        "gpu-tiles: encoding a frame": ("50 us", "PASS"),
    }


@pytest.mark.parametrize(("nbytes", "word"), [(1190, "PASS"), (1210, "MISS")])
def test_noise_is_judged_by_dense_frames(tmp_path: Path, nbytes: int, word: str) -> None:
    group = group_of("gpu-noise", tmp_path)
    results = [{**asdict(job), "observation_bytes": 8000 if job.buffer == "sb3-default" else nbytes} for job in group.jobs]
    rows = bar_rows(list(verdicts_of(group, results)))
    assert [row[0] for row in rows] == [f"noise, {name}: stored bytes, of dense frames" for name in GPU_BUFFERS]
    assert {row[-1] for row in rows} == {word}
