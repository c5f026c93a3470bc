"""What is typed: numbers as people write them, sizes of memory, help that fits the terminal, names of files."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

import pytest

from sb3_extra_buffers.cli import COMMANDS, build_parser, main
from sb3_extra_buffers.cli.arguments import at_least, byte_size, named_value, positive, seconds


def subparsers() -> dict[str, argparse.ArgumentParser]:
    parser = build_parser()
    [commands] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return commands.choices  # type: ignore[return-value]


COUNTS = {
    f"{command} {action.option_strings[0]}": (command, action)
    for command, parser in subparsers().items()
    for action in parser._actions
    if action.metavar == "N"
}


# ---- numbers


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1000000", 10**6), ("1_000_000", 10**6), ("1e6", 10**6), ("1E6", 10**6), ("1M", 10**6), ("1m", 10**6),
        ("1.5M", 1_500_000), ("2.5e3", 2500), ("10k", 10_000), ("2G", 2 * 10**9), ("1 M", 10**6), (" 7 ", 7), ("+3", 3),
        (str(2**63 - 1), 2**63 - 1),
    ],
)  # fmt: skip
def test_numbers_are_read_as_people_write_them(text: str, number: int) -> None:
    assert positive(text) == number


@pytest.mark.parametrize(
    "text", ["", "abc", "1.5", "1e-3", "1e99", "1e999999999", "inf", "nan", "1__0", "_1", "1_", "1 000", "10%", "0x10", "1MB"]
)
def test_what_is_no_whole_number_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number such as 100000, 100_000, 1e5 or 100k, got"):
        positive(text)


@pytest.mark.parametrize("text", ["0", "-1", "-1e6", "9"])
def test_numbers_that_are_too_small_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"must be at least 10, got {text}"):
        at_least(10)(text)


@pytest.mark.parametrize(("command", "action"), COUNTS.values(), ids=COUNTS)
def test_every_number_of_the_command_line_may_be_written_so(command: str, action: argparse.Action) -> None:
    needed = {"recommend": ["--env", "x"], "estimate": ["--shape", "4"], "convert": ["in", "out"]}.get(command, [])
    for text in ("1000000", "1_000_000", "1e6", "1M"):
        args = build_parser().parse_args([command, *needed, action.option_strings[0], text])
        assert getattr(args, action.dest) == 1_000_000


def test_no_option_takes_a_number_in_another_way() -> None:
    assert len(COUNTS) >= 12
    for command, parser in subparsers().items():
        for action in parser._actions:
            assert action.type not in (int, float), f"{command} {action.option_strings}"


def test_a_shape_may_hold_such_numbers() -> None:
    assert build_parser().parse_args(["estimate", "--shape", "(4, 1e2, 1_00)"]).shape == (4, 100, 100)


# ---- memory, seconds, names with values


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GB", 8 * 10**9), ("8 GB", 8 * 10**9), ("8gb", 8 * 10**9), ("8G", 8 * 10**9), ("8e9", 8 * 10**9),
        ("8GiB", 8 * 2**30), ("500MB", 5 * 10**8), ("1.5GB", 15 * 10**8), ("1_000kB", 10**6), ("2TiB", 2 * 2**40),
        ("8000000000B", 8 * 10**9),
    ],
)  # fmt: skip
def test_sizes_of_memory_are_read_as_people_write_them(text: str, size: int) -> None:
    assert byte_size(text) == size


@pytest.mark.parametrize("text", ["", "8", "GB", "8GBB", "8i", "8iB", "0GB", "-1GB", "1e30GB", "8 apples", "50%"])
def test_what_is_no_size_of_memory_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a size of memory such as 8GB, 500MB or 8GiB, got"):
        byte_size(text)


@pytest.mark.parametrize("text", ["", "abc", "0", "-1", "inf", "nan", "1e9"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert seconds("2.5") == 2.5
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number of seconds above 0 and up to 3600, got"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1), ("a=0.5", 0.5), ("a=False", False), ("a=false", False), ("a=null", None), ("a=None", None), ("a='1'", "1"),
        ("a=(84, 84)", (84, 84)), ("a={'b': [1]}", {"b": [1]}), ("a=human", "human"), ("a=", ""), ("a=b=c", "b=c"),
    ],
)  # fmt: skip
def test_values_are_read_as_python_reads_them(text: str, value: Any) -> None:
    assert named_value(text) == ("a", value)


@pytest.mark.parametrize("text", ["a", "=1", "1=2", "a.b=3", "a b=1"])
def test_a_value_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be NAME=VALUE, such as continuous=False, got"):
        named_value(text)


# ---- help


def test_without_arguments_the_command_prints_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sb3-extra-buffers"])
    assert main() == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("usage: sb3-extra-buffers [-h] [--version] COMMAND ...")
    for command in COMMANDS:
        assert f"\n    {command} " in printed.out  # with what it does on the same line


@pytest.mark.parametrize("columns", [70, 80, 200])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_wrapped_at_words(
    command: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit, match="0"):
        main([*([command] if command else []), "--help"])
    printed = capsys.readouterr().out
    text, _, examples = printed.partition("\nexamples:\n")
    assert max(map(len, text.splitlines())) <= min(columns, 100)
    assert max(map(len, examples.splitlines()), default=0) < 80
    if command:
        words = (import_module(f"sb3_extra_buffers.cli.{COMMANDS[command]}").__doc__ or "").split()
        assert f" {' '.join(words)} " in " ".join(text.split())  # each word whole, in order


def test_help_keeps_paragraphs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", "--help"])
    assert "\n\nOpening a pickle can run any code that is in it" in capsys.readouterr().out


# ---- pictures


@pytest.mark.parametrize("name", ["frames.gif", "frames.jpg", "frames", "folder/"])
def test_frames_are_refused_unless_they_name_a_png(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["inspect", "buffer.sb3x", "--frames", name])
    assert f"argument --frames: must name a PNG, such as {name.strip('/').split('.')[0]}.png, got '{name}'" in (
        capsys.readouterr().err
    )
