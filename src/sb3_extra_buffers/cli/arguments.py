"""Types of arguments that several subcommands take: numbers as people write them, sizes of memory, names with values."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable
from typing import Any

from sb3_extra_buffers._text import bytes_in, number_in

#: A size of memory without a unit that is smaller than this was not meant in bytes.
_FEWEST_BYTES = 1_000_000


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return whole_number(text, 1)


def at_least(least: int) -> Callable[[str], int]:
    """A type for whole numbers of at least so much."""
    return lambda text: whole_number(text, least)


def whole_number(text: str, least: int) -> int:
    """A whole number of at least so much, written as ``100000``, ``100_000``, ``1e5`` or ``100k``."""
    value = number_in(text)
    if value is None or value != int(value):
        raise argparse.ArgumentTypeError(f"must be a whole number such as 100000, 100_000, 1e5 or 100k, got {text!r}")
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least:,}, got {text}")
    return int(value)


def port(text: str) -> int:
    """The port of an address; 0 asks the system for a free one."""
    if not text.strip().isdecimal() or int(text) >= 2**16:
        raise argparse.ArgumentTypeError(f"must be between 0 and 65535, got {text!r}")
    return int(text)


def byte_size(text: str) -> int:
    """Bytes, written as ``8GB``, ``500MB`` or ``8GiB``."""
    size, has_unit = bytes_in(text) or (0, True)
    if size < (1 if has_unit else _FEWEST_BYTES):
        raise argparse.ArgumentTypeError(f"must be a size of memory such as 8GB, 500MB or 8GiB, got {text!r}")
    return size


def seconds(text: str) -> float:
    """A duration, of an hour at most."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0 and up to 3600, got {text!r}")
    return value


def named_value(text: str) -> tuple[str, Any]:
    """``NAME=VALUE``; the value as Python would read it, else as text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, such as continuous=False, got {text!r}")
    words = {"true": True, "false": False, "none": None, "null": None}
    if value.lower() in words:
        return name, words[value.lower()]
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
