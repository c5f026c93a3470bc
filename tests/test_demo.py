"""The demo: two real trainings, each in a process of its own, end in the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sb3_extra_buffers.cli import demo, main
from sb3_extra_buffers.cli.demo_plot import draw


@pytest.mark.long
def test_both_buffers_end_in_the_same_weights_and_only_sb3_grows(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "folder"
    command = [sys.executable, "-m", "sb3_extra_buffers", "demo", "--steps", "600", "--out", str(out), "--json"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)

    assert result["identical_weights"] is True
    theirs, ours = result["trainings"]
    assert (theirs["buffer"], ours["buffer"]) == ("ReplayBuffer", "CompressedReplayBuffer")
    assert theirs["weights_sha256"] == ours["weights_sha256"]
    assert len(ours["weights_sha256"]) == 64
    assert theirs["gradient_steps"] == ours["gradient_steps"] >= 30  # there was something to learn

    raw = (theirs["curve"][-1][0] - theirs["curve"][0][0]) * 2 * 4 * 84 * 84
    assert 0.8 * raw < theirs["growth_bytes"] < 1.6 * raw
    assert ours["growth_bytes"] < 0.25 * theirs["growth_bytes"]  # so few steps: mostly the chunk that bytes are put into
    assert ours["stored_bytes"] < 0.05 * theirs["stored_bytes"]  # and here the blocks that are still open
    assert all(result["sample_seconds"] > 0 and result["steps_per_second"] > 0 for result in (theirs, ours))

    assert "SB3 ReplayBuffer: 100 %" in process.stderr
    assert "CompressedReplayBuffer: 100 %" in process.stderr
    assert result["plot"] == str(out / "memory.png")
    assert (out / "memory.png").read_bytes().startswith(b"\x89PNG")


def made_up(name: str, digest: str = "ab" * 32, growth: int = 10**9) -> dict[str, Any]:
    return {
        "buffer": name, "steps": 20_000, "gradient_steps": 1_246, "growth_bytes": growth, "stored_bytes": growth,
        "steps_per_second": 190.0, "sample_seconds": 0.0002, "weights_sha256": digest, "curve": [(0, 0), (20_000, growth)],
    }  # fmt: skip


def test_identical_weights_are_said_with_the_whole_fingerprint(capsys: pytest.CaptureFixture[str]) -> None:
    demo.present([made_up("ReplayBuffer"), made_up("CompressedReplayBuffer", growth=10**7)], identical=True)
    printed = capsys.readouterr().out
    assert "100 times less" in printed
    assert "identical, bit for bit" in printed
    assert "ab" * 32 in printed
    assert max(map(len, printed.splitlines())) <= 90


def test_different_weights_are_said_plainly_and_are_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "train_in_own_process", lambda name, steps, seed: made_up(name, digest=name))
    assert main(["demo", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "DIFFER" in printed
    assert "identical" not in printed


def test_a_training_that_fails_is_one_line_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "LABELS", {"NoSuchBuffer": "No such buffer"})
    assert main(["demo", "--out", str(tmp_path)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("sb3-extra-buffers demo: RuntimeError: The training with No such buffer failed: KeyError")


def test_too_few_steps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--steps", "10"])
    assert "at least 200, got 10" in capsys.readouterr().err


def test_without_matplotlib_the_demo_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(demo, "train_in_own_process", lambda name, steps, seed: made_up(name))
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert 'No plot: The plot needs the matplotlib package: pip install "sb3-extra-buffers[extra]"' in capsys.readouterr().err


def test_the_plot_is_wide_enough_to_read(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    curve = [(0, 0), (10_000, 550_000_000), (20_000, 1_120_000_000)]
    draw({"SB3 ReplayBuffer": curve, "CompressedReplayBuffer": [(0, 0), (20_000, 3_600_000)]}, tmp_path / "plot.png")
    with image.open(tmp_path / "plot.png") as plot:
        assert plot.width >= 1200
