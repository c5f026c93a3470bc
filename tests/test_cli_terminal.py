"""The command as a person meets it: typed into a shell, in a real terminal (tmux), with Ctrl-C from the keyboard."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.save_util import save_to_pkl

from sb3_extra_buffers.compressed import CompressedReplayBuffer

pytestmark = [
    pytest.mark.skipif(not (shutil.which("tmux") and shutil.which("bash")), reason="needs tmux and bash"),
]
COMMAND = f"{sys.executable} -m sb3_extra_buffers"
SECONDS = 120


class Terminal:
    """A shell in a tmux server of its own.

    :param folder: where the server's socket is; short, because paths of sockets must be
    :param home: where the shell starts
    """

    def __init__(self, folder: str, home: Path) -> None:
        self._tmux = ["tmux", "-S", f"{folder}/socket", "-f", "/dev/null"]
        self.run("new-session", "-d", "-x", "80", "-y", "60", "-c", str(home), "bash --norc --noprofile -i")

    def run(self, *args: str) -> str:
        return subprocess.run([*self._tmux, *args], capture_output=True, text=True, check=True).stdout

    def type(self, line: str) -> None:
        """Type a line into an empty screen: nothing on it is older than the line."""
        self.run("send-keys", "-R")
        self.run("clear-history")
        self.run("send-keys", "-l", line)
        self.run("send-keys", "Enter")

    def screen(self) -> str:
        return self.run("capture-pane", "-p", "-S", "-500")

    def wait_for(self, pattern: str) -> str:
        """What is on the screen as soon as it has the pattern at the beginning of a line."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            screen = self.screen()
            if re.search(pattern, screen, re.MULTILINE):
                return screen
            time.sleep(0.1)
        pytest.fail(f"{pattern!r} did not appear:\n{screen}")

    def answer(self, arguments: str) -> tuple[str, int]:
        """What the command shows in the terminal, and its exit code."""
        self.type(f"{COMMAND} {arguments}; echo exit=$?")
        screen = self.wait_for(r"^exit=\d+")
        return screen, int(re.findall(r"^exit=(\d+)", screen, re.MULTILINE)[-1])


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tempfile.mkdtemp(prefix="tmux")
    terminal = Terminal(folder, tmp_path_factory.mktemp("home"))
    yield terminal
    terminal.run("kill-server")
    shutil.rmtree(folder)


def test_estimate_draws_a_table(terminal: Terminal) -> None:
    screen, status = terminal.answer("estimate --shape 4,84,84")
    assert status == 0
    assert "─" in screen
    assert "zstd9, blocks of 64" in screen  # no cell is broken at 80 columns
    assert "SB3, optimize_memory_usage" in screen
    assert "bench --sizes" in screen


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("estimate --shape 4,84,x", "argument --shape: must be whole numbers above 0"),
        ("estimate --shape 4,84,84 --dtype uint9", "--dtype must be a NumPy dtype of numbers"),
        ("inspect nothing.pkl", "No file nothing.pkl"),
        ("bench --render nothing.json", "No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: str, message: str, terminal: Terminal) -> None:
    screen, status = terminal.answer(arguments)
    assert status == 2
    lines = screen[screen.index("sb3-extra-buffers ") :].partition("exit=2")[0]
    assert message in " ".join(lines.split())  # wrapped, but never within a word
    assert "Traceback" not in screen


def test_recommend_shows_progress_bars_and_a_table(terminal: Terminal) -> None:
    screen, status = terminal.answer("recommend --env CartPole-v1 --seconds 1")
    assert status == 0
    assert re.search(r"Playing CartPole-v1 .*━.* 100%", screen)
    assert "─" in screen
    assert screen.count("<-") == 1
    assert "keep it" in screen


def test_inspect_draws_a_table_and_saves_frames(terminal: Terminal, tmp_path: Path) -> None:
    buffer = CompressedReplayBuffer(10, spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(2), device="cpu")
    obs = np.ones((1, 4, 84, 84), np.uint8)
    buffer.add(obs, obs, np.zeros((1, 1)), np.ones(1), np.zeros(1), [{}])
    save_to_pkl(tmp_path / "buffer.pkl", buffer)
    screen, status = terminal.answer(f"inspect --trust {tmp_path}/buffer.pkl --frames {tmp_path}/frames.png")
    assert status == 0
    assert "─" in screen
    assert (tmp_path / "frames.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "begun"),
    [
        ("recommend --env CartPole-v1 --seconds 60", "Playing CartPole-v1 "),
        ("demo --out {tmp}", r"\S.* \d+%"),
        ("bench --methods auto --out {tmp} --cache {tmp}", "Recording MsPacman "),
    ],
)
def test_ctrl_c_is_one_line_and_exit_code_130(arguments: str, begun: str, terminal: Terminal, tmp_path: Path) -> None:
    terminal.type(f"{COMMAND} {arguments.format(tmp=tmp_path)}; echo exit=$?")
    terminal.wait_for(f"^{begun}")
    terminal.run("send-keys", "C-c")
    screen = terminal.wait_for(r"^exit=\d+")
    assert re.search(r"^Interrupted\.\s*\n+exit=130", screen, re.MULTILINE)
    assert "Traceback" not in screen
