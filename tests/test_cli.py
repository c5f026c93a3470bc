"""The command line: rendering with and without a terminal, errors in one line, exit codes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from sb3_extra_buffers import __version__
from sb3_extra_buffers._text import human_bytes, human_share
from sb3_extra_buffers.cli import COMMANDS, main, output
from sb3_extra_buffers.codecs import CODECS

# SIGINT may be ignored in whoever runs the tests, and that is inherited.
RUN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from sb3_extra_buffers.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sb3_extra_buffers", *args], capture_output=True, text=True, timeout=120)


# ---- rendering


def test_a_plain_table_is_aligned_text() -> None:
    table = output.Table(["codec", "memory"], [["zstd3", "1 MB"], ["none", "120 MB"]], "lr")
    assert str(table) == "codec  memory\n-----  ------\nzstd3    1 MB\nnone   120 MB"


def test_without_a_terminal_a_table_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    table = output.Table(["a"], [["[bold]x[/bold]"]], "l", marked=0)
    output.show(table)
    assert capsys.readouterr().out == f"{table}\n"


def test_in_a_terminal_a_table_is_drawn_and_keeps_brackets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.show(output.Table(["to install"], [['pip install "x[zstd]"']], "l"))
    printed = capsys.readouterr().out
    assert "─" in printed
    assert 'pip install "x[zstd]"' in printed


def test_a_terminal_without_rich_gets_plain_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(output, "installed", lambda name: False)
    output.show(output.Table(["a"], [["b"]], "l"))
    assert capsys.readouterr().out == "a\n-\nb\n"


def test_progress_without_a_terminal_is_a_line_for_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("Training", 1000) as update:
        for done in range(0, 1001, 5):
            update(done, f"step {done}")
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert len(lines) == 11
    assert lines[0] == "Training: 0 % step 0"
    assert lines[-1] == "Training: 100 % step 1000"


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (999_700, "1 MB"),
        (123_456_789, "123 MB"),
        (56.5e9, "56.5 GB"),
        (2e15, "2000 TB"),
    ],
)
def test_bytes_are_readable(n: float, text: str) -> None:
    assert human_bytes(n) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (1e-8, "< 0.01 %"), (0.0044, "0.44 %"), (0.099, "9.9 %"), (0.5, "50 %"), (2, "200 %")]
)
def test_shares_are_readable(share: float, text: str) -> None:
    assert human_share(share) == text


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.5 s"), (0.00038, "0.38 ms"), (0.0000123, "12.3 us")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert output.human_seconds(seconds) == text


# ---- info


def test_info_names_every_codec_and_version() -> None:
    process = run("info", "--json")
    assert process.returncode == 0
    assert process.stderr == ""
    facts = json.loads(process.stdout)
    assert facts["versions"]["sb3-extra-buffers"] == __version__
    assert [codec["name"] for codec in facts["codecs"]] == list(CODECS)
    assert facts["machine"]["device"]


def test_info_says_where_the_library_is_and_what_helps_if_it_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["machine"]["native library"]).is_file()
    monkeypatch.setenv("SB3_EXTRA_BUFFERS_LIBRARY", "/nowhere/libsb3x.so")
    assert main(["info"]) == 0
    assert "correct or unset the environment variable" in " ".join(capsys.readouterr().out.split())


def test_info_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for backend in ("zstandard", "isal", "numba"):
        monkeypatch.setitem(sys.modules, backend, None)
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert 'pip install "sb3-extra-buffers[zstd]"' in printed
    assert "missing, gzip stands in" in printed
    assert "missing, rle stands in" in printed
    assert 'pip install "sb3-extra-buffers[numba]"' in printed
    lines = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line}
    assert lines["delta"] == ["installed"]
    assert lines["lz4-block"][1:] == ["installed"]


def test_in_a_real_terminal_info_is_drawn() -> None:
    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "sb3_extra_buffers", "info"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, env=env) as process:
        os.close(writer)
        printed = b""
        try:
            while chunk := os.read(reader, 4096):
                printed += chunk
        except OSError:  # the other side is closed: Linux says it so
            pass
        assert process.wait(timeout=60) == 0
    os.close(reader)
    assert "─" in printed.decode()
    assert "zstd" in printed.decode()


# ---- help and mistakes


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert f"examples:\n  sb3-extra-buffers {command}" in capsys.readouterr().out


def test_help_of_inspect_warns_of_untrusted_files(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", "--help"])
    assert "Opening a pickle can run any code that is in it" in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from sb3_extra_buffers.cli import build_parser; build_parser(); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'gymnasium', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


MISTAKES: dict[str, tuple[list[str], str]] = {
    "no command": (["--"], "required: COMMAND"),
    "unknown command": (["trane"], "invalid choice: 'trane'"),
    "unknown env": (["recommend", "--env", "CartPol-v1"], "Did you mean: `CartPole`?"),
    "unknown game": (["recommend", "--env", "ALE/NoSuchGame-v5"], "No env 'ALE/NoSuchGame-v5'"),
    "space without a buffer": (["recommend", "--env", "Blackjack-v1"], "observation space is not supported"),
    "bad number": (["recommend", "--env", "CartPole-v1", "--n-envs", "0"], "must be at least 1, got 0"),
    "shape that is none": (["estimate", "--shape", "4,84,x"], "must be whole numbers above 0 with commas between them"),
    "shape of nothing": (["estimate", "--shape", "4,0,84"], "got '4,0,84'"),
    "no shape": (["estimate"], "required: --shape"),
    "unknown dtype": (["estimate", "--shape", "4,84,84", "--dtype", "uint9"], "such as uint8 or float32, got 'uint9'"),
    "dtype of text": (["estimate", "--shape", "4", "--dtype", "str"], "got 'str'"),
    "unknown kind": (["estimate", "--shape", "4,84,84", "--env-kind", "doom"], "invalid choice: 'doom'"),
    "float images": (["estimate", "--shape", "3,84,84", "--dtype", "float32"], "no figures for (3, 84, 84) float32"),
    "vectors as images": (
        ["estimate", "--shape", "17", "--env-kind", "atari"],
        "atari has figures for uint8 with two or three axes, got (17,) uint8",
    ),
    "images as vectors": (
        ["estimate", "--shape", "4,84,84", "--env-kind", "vector"],
        "vector has figures for one or two axes",
    ),
    "gray as rgb": (["estimate", "--shape", "4,84,84", "--env-kind", "rgb"], "two or three axes and channels in threes"),
    "stack that does not fit": (["estimate", "--shape", "4,84,84", "--frame-stack", "5"], "frame_stack=5 does not fit"),
    "no results": (["bench", "--render", "no-such-file.json"], "no-such-file.json"),
    "no result": (["bench", "--render", __file__], "is no result of bench"),
    "codec without the level": (["bench", "--methods", "zstd99"], "zstd"),
    "blocks of letters": (["bench", "--methods", "zstd3@x"], "behind the @ stands block_frames"),
    "number with a point": (["estimate", "--shape", "4,84,84", "--buffer-size", "1.5"], "must be a whole number such as"),
    "steps that are none": (
        ["demo", "--steps", "abc"],
        "such as 100000, 100_000, 1e5 or 100k, got 'abc'",
    ),
    "level without its slash": (["bench", "--methods", "lz4-frame5"], "Did you mean 'lz4-frame/5'?"),
    "level beyond the last": (["bench", "--methods", "zstd23"], "zstd level must be in 1..22 or -100..-1, got 23"),
    "picture that is no PNG": (["inspect", "x.sb3x", "--frames", "x.gif"], "must name a PNG, such as x.png, got 'x.gif'"),
    "small and sizes": (["bench", "--quick", "--sizes"], "not allowed with argument --quick"),
    "no file": (["inspect", "no-such-file.pkl"], "No file no-such-file.pkl"),
    "not a buffer": (["inspect", __file__], "no file of sb3-extra-buffers"),
}


@pytest.mark.parametrize(("args", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: Any = main(args)
    except SystemExit as ended:  # as argparse does
        code = ended.code
    printed = capsys.readouterr()
    assert code == 2
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_the_process_ends_as_the_command_does() -> None:
    for args in (["trane"], ["inspect", "no-such-file.pkl"]):
        process = run(*args)
        assert (process.returncode, len(process.stderr.splitlines()), process.stdout) == (2, 1, "")


@pytest.mark.parametrize(
    ("env", "module", "extra"),
    [("PongNoFrameskip-v4", "ale_py", "atari"), ("VizdoomBasic-v1", "vizdoom.gymnasium_wrapper", "vizdoom")],
)
def test_a_missing_extra_is_named(
    env: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["recommend", "--env", env]) == 2
    assert f'pip install "sb3-extra-buffers[{extra}]"' in capsys.readouterr().err


def test_an_unexpected_error_is_one_line_unless_debugging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("sb3_extra_buffers.cli.info.collect", fail)
    assert main(["info"]) == 2
    assert capsys.readouterr().err == "sb3-extra-buffers info: ZeroDivisionError: by zero\n"
    with pytest.raises(ZeroDivisionError):
        main(["info", "--debug"])


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    command = [sys.executable, "-m", "sb3_extra_buffers", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None  # noqa: PT018
        process.stdout.close()
        assert process.stderr.read() == ""


# ---- Ctrl-C


def test_ctrl_c_is_exit_code_130_in_commands_that_are_soon_done_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    places = {
        "cli.info.collect": ["info"],
        "cli.estimate.layout_of": ["estimate", "--shape", "4,84,84"],
        "cli.inspect_file.open_buffer": ["inspect", "file.pkl"],
    }
    for place, args in places.items():
        monkeypatch.setattr(f"sb3_extra_buffers.{place}", interrupt)
        assert main(args) == 130
        assert capsys.readouterr().err == "Interrupted.\n"


@pytest.mark.parametrize(
    "args",
    [
        ["recommend", "--env", "CartPole-v1", "--seconds", "60"],
        ["demo", "--out", "{tmp}"],
        ["bench", "--out", "{tmp}", "--cache", "{tmp}"],
    ],
    ids=["play", "train", "record"],
)
def test_ctrl_c_is_one_line_and_exit_code_130_and_leaves_nothing_running(args: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, *(arg.format(tmp=tmp_path) for arg in args)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()  # it has begun
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Interrupted."
    assert "Traceback" not in errors
    assert not any(child.is_running() for child in children)
