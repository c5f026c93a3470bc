"""From a sample to a full buffer: what memory will be, how sure that is, and what surely fits. And what there is of memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from sb3_extra_buffers import _machine as machine
from sb3_extra_buffers._text import round_down
from sb3_extra_buffers.callbacks import transition_memory
from sb3_extra_buffers.cli.growth import Growth, grow
from sb3_extra_buffers.compressed import CompressedReplayBuffer

SHAPE = (84, 84)


class Usage(NamedTuple):
    blocks: int
    stored_bytes: float


class Leaping:
    """A buffer that keeps `block` frames of 100 bytes and then seals them, as stores do: memory grows by leaps."""

    def __init__(self, block: int, n_envs: int = 1) -> None:
        self.block, self.n_envs, self.n = block, n_envs, 0

    def add(self) -> None:
        self.n += 1

    def usage(self, _: Any) -> Usage:
        sealed = self.n // self.block
        return Usage(sealed, self.n_envs * (10_000 + 100.0 * sealed * self.block + 20 * self.n))


def grown(n_steps: int, block: int = 16, n_envs: int = 1) -> Growth:
    buffer = Leaping(block, n_envs)
    return grow(buffer, [()] * n_steps, buffer.usage)


@pytest.mark.parametrize("block", [4, 9, 16, 64])
@pytest.mark.parametrize("n_envs", [1, 3])
def test_leaps_do_not_distort_the_rate(block: int, n_envs: int) -> None:
    growth = grown(1000, block, n_envs)
    assert growth.rate == pytest.approx(120)
    low, high = growth.range_at(10**6) or (0, 0)
    assert low == pytest.approx(high, rel=1e-6)
    assert growth.bytes_at(10**6) == pytest.approx(120e6, rel=0.01)


def test_a_sample_that_fills_the_buffer_is_not_extrapolated() -> None:
    growth = grown(1000)
    assert growth.bytes_at(1000) == growth.end[1]
    assert growth.range_at(1000) == (growth.end[1], growth.end[1])


def test_a_buffer_that_is_overwritten_takes_more() -> None:
    growth = grown(1000)
    more = replace(growth, overwriting=5000.0)
    assert more.bytes_at(10**6) == growth.bytes_at(10**6) + 5000
    assert more.largest(10**8) < growth.largest(10**8)
    assert more.largest(11_000) == 0


@pytest.mark.parametrize("n_steps", [1, 2, 20, 60])
def test_a_small_sample_says_that_it_cannot_tell(n_steps: int) -> None:
    growth = grown(n_steps)
    assert growth.range_at(10**6) is None
    assert growth.bytes_at(10**6) > 0
    assert growth.largest(1e9) <= 1e9 / growth.rate / 1.9  # twice as much is assumed


def marks_of(rates: list[float]) -> Growth:
    """A buffer whose parts of 100 transitions had these rates."""
    totals = np.cumsum([0.0, *(100 * rate for rate in rates)])
    marks = tuple((100 * i, float(total)) for i, total in enumerate(totals, 1))
    return Growth(marks, marks[-1])


def test_the_range_holds_the_truth_nineteen_times_of_twenty() -> None:
    """The reference is chance itself: parts with a known mean, drawn again and again."""
    rng, held, widths = np.random.default_rng(0), 0, {12: 0.0, 40: 0.0}
    for n_parts in widths:
        for _ in range(500):
            growth = marks_of([0.0] * (n_parts - n_parts // 2) + list(rng.normal(100, 20, n_parts // 2)))
            low, high = growth.range_at(10**9) or (0, 0)
            held += low <= 100e9 <= high
            widths[n_parts] += (high - low) / 500
    assert 0.93 < held / 1000 < 0.97
    assert widths[40] < 0.6 * widths[12]  # a larger sample is surer


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=30),
    st.floats(1, 1e12),
)
def test_what_is_said_to_fit_fits(rates: list[float], memory: float) -> None:
    growth = marks_of(rates)
    largest = growth.largest(memory)
    assert largest >= 0
    if growth.end[0] < largest < 2**62:
        _, high = growth.range_at(largest) or (0, growth.bytes_at(largest))
        assert high <= memory * (1 + 1e-9) + 1
    elif 0 < largest <= growth.end[0]:
        assert dict((*growth.marks, growth.end))[largest] <= memory


def test_the_figure_agrees_with_a_real_buffer_that_was_filled() -> None:
    rng = np.random.default_rng(0)
    frames = np.zeros((1501, 1, *SHAPE), np.uint8)
    for i in range(1, 1501):
        frames[i] = frames[i - 1]
        frames[i, 0, rng.integers(84)] = rng.integers(256, size=84)  # one line is new
    nothing = np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}]
    steps = [(frames[i], frames[i + 1], *nothing) for i in range(1500)]
    for method in ("none", "delta", "gzip1", "auto"):
        made = [
            CompressedReplayBuffer(
                1500, spaces.Box(0, 255, SHAPE, np.uint8), spaces.Discrete(2), "cpu", compression_method=method, frame_stack=1
            )
            for _ in range(2)
        ]
        growth, whole = grow(made[0], steps[:500], transition_memory), grow(made[1], steps, transition_memory)
        assert growth.bytes_at(1500) == pytest.approx(whole.end[1], rel=0.1)
        half = whole.end[1] / 2
        taken = [bytes_ for n, bytes_ in whole.marks if n <= growth.largest(half)]
        assert 0.5 * half < taken[-1] <= half


@pytest.mark.parametrize(
    ("n", "digits", "rounded"), [(0, 2, 0), (7, 2, 7), (99, 2, 99), (25_875_288, 3, 25_800_000), (219_999, 2, 210_000)]
)
def test_numbers_are_rounded_down(n: int, digits: int, rounded: int) -> None:
    assert round_down(n, digits) == rounded


# ---- the machine


def test_ram_of_this_machine_is_what_the_system_says() -> None:
    psutil = pytest.importorskip("psutil")
    assert machine.ram_bytes() <= psutil.virtual_memory().total
    assert 0 < machine.available_bytes() <= machine.ram_bytes()


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/job/step\n", {"job/memory.max": "4000000000", "job/step/memory.max": "max"}, 4e9),
        ("0::/\n", {"memory.max": "2000000000"}, 2e9),  # as a container sees it
        ("0::/a\n", {"a/memory.max": "3000000000", "memory.max": "1000000000"}, 1e9),
        ("5:cpu:/x\n9:memory:/slurm/job\n0::/\n", {"memory/slurm/memory.limit_in_bytes": "8000000000"}, 8e9),
        ("0::/a\n", {"a/memory.max": "max"}, float("inf")),
        ("0::/a\n", {}, float("inf")),
        ("", {}, float("inf")),
    ],
)
def test_a_container_or_a_job_of_a_cluster_has_less_ram(
    own: str, files: dict[str, str], limit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_physical_bytes", lambda: 64 * 10**9)
    assert machine.cgroup_limit() == limit
    assert machine.ram_bytes() == min(limit, 64 * 10**9)
    assert machine.available_bytes() <= limit


def test_without_control_groups_all_of_the_ram_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "OWN_CGROUPS", tmp_path / "nothing")
    monkeypatch.setattr(machine, "_physical_bytes", lambda: 5)
    assert machine.ram_bytes() == 5
