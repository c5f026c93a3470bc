"""What the command prints: tables and progress bars by rich where there is a terminal, plain text where there is none.

Results go to stdout, progress and complaints to stderr, so that `--json` and pipes get the result and nothing else.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from sb3_extra_buffers._optional import installed
from sb3_extra_buffers._text import human_share
from sb3_extra_buffers.cli.help import for_terminal

#: `update(done, note)` of a progress bar
Update = Callable[[int, str], None]


@dataclass(frozen=True)
class Table:
    """A table of text.

    :param align: one letter per column, ``l`` or ``r``
    :param marked: row that stands out in a terminal
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str
    marked: int | None = None

    def __str__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        rule = ["-" * width for width in widths]
        return "\n".join(self._line(line, widths) for line in (self.columns, rule, *self.rows))

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        padded = [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(cells, widths, self.align, strict=True)
        ]
        return "  ".join(padded).rstrip()


def say(text: str = "") -> None:
    """A line of the result."""
    sys.stdout.write(f"{text}\n")


def complain(text: str) -> None:
    """A line for the person who looks, not for the program that reads."""
    sys.stderr.write(f"{for_terminal(text, sys.stderr)}\n")
    sys.stderr.flush()


def show(table: Table) -> None:
    """Print a table."""
    if not _is_rich(sys.stdout):
        say(str(table))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for name, side in zip(table.columns, table.align, strict=True):
        drawn.add_column(Text(name), justify="right" if side == "r" else "left", overflow="fold")
    for i, row in enumerate(table.rows):
        drawn.add_row(*map(Text, row), style="bold green" if i == table.marked else None)
    Console(file=sys.stdout).print(drawn)


def show_json(value: Any) -> None:
    """Print a result for programs. JSON has no NaN and no infinity: they become null."""
    say(json.dumps(_without_nan(value), indent=2))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def progress(label: str, total: int) -> Iterator[Update]:
    """A progress bar, or a line now and then where there is no terminal.

    :param label: what is being done
    :param total: when it is done
    :return: function to call with what is done and a short note
    """
    if not _is_rich(sys.stderr):
        yield _line_by_line(label, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False, style="dim"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


def _line_by_line(label: str, total: int) -> Update:
    shown = -1

    def update(done: int, note: str) -> None:
        nonlocal shown
        tenth = 10 * done // max(total, 1)
        if tenth > shown:
            shown = tenth
            complain(f"{label}: {100 * done // max(total, 1)} % {note}".rstrip())

    return update


def _is_rich(stream: TextIO) -> bool:
    return stream.isatty() and installed("rich")


def share_of_ram(n: float, ram: int) -> str:
    """What part of the RAM so many bytes are, or that they are more."""
    return human_share(n / ram) if n < ram else "too large"


def human_seconds(seconds: float) -> str:
    """A duration as people read it: ``0.38 ms``."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 0.1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
