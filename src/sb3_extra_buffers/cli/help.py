"""How the command shows its help and its mistakes: at the width of the terminal, broken between words."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from typing import NoReturn, TextIO

#: Wider lines are hard to read.
WIDEST = 100


def text_width() -> int:
    """How wide lines of text may be."""
    return max(min(shutil.get_terminal_size().columns - 2, WIDEST), 20)


def filled(text: str, indent: str = "") -> str:
    """Text at the width of the terminal. Empty lines part paragraphs; lines that begin with a space stay as they are."""
    lines: list[str] = []
    paragraph: list[str] = []
    for line in [*text.strip("\n").splitlines(), ""]:
        if line.strip() and not line.startswith(" "):
            paragraph.append(line)
            continue
        lines += _wrapped(" ".join(paragraph), text_width(), indent)
        lines.append(indent + line)
        paragraph = []
    return "\n".join(lines[:-1])


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def for_terminal(text: str, stream: TextIO) -> str:
    """Text for a person: wrapped at words where it goes to a terminal, and as it is where it goes to a file or a program."""
    return filled(text) if stream.isatty() else text


class Formatter(argparse.HelpFormatter):
    """argparse's help, with descriptions by paragraphs, and names of commands beside what they do."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=text_width())
        self._action_max_length = 14  # argparse forgets that commands are indented

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return filled(text, indent)


class Parser(argparse.ArgumentParser):
    """Mistakes in one line, without the usage text before it."""

    def __init__(self, **options: object) -> None:
        super().__init__(formatter_class=Formatter, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        self.exit(2, f"{for_terminal(f'{self.prog}: {message}. See {self.prog} --help', sys.stderr)}\n")
