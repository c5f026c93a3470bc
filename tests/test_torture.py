"""A small part of `make torture`: processes that are really killed, disks that are really full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.long
def test_a_small_campaign(tmp_path: Path) -> None:
    """In a process of its own: it forks."""
    numbers = ["--kills", "40", "--files", "200", "--full", "25", "--out", str(tmp_path / "torture.json")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture", *numbers], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'state loaded'" in done.stdout
    assert "'refused'" in done.stdout
