"""Types of arguments that several subcommands take: numbers as people write them, sizes of memory, names with values."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DIGITS = r"([+-]?[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?) ?"
#: `1000000`, `1_000_000`, `1e6`, `1M`, `1.5M`
_NUMBER = re.compile(rf"{_DIGITS}([kmgt]?)", re.IGNORECASE)
#: `8GB`, `8 GiB`, `500M`, `8e9`
_BYTES = re.compile(rf"{_DIGITS}(?:([kmgt])(i?))?b?", re.IGNORECASE)
#: Counts and sizes are kept in 64 bits.
_MOST = 2**63 - 1
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
    match = _NUMBER.fullmatch(text.strip())
    value = _value(match[1], match[2]) if match else None
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
    match = _BYTES.fullmatch(text.strip())
    value = _value(match[1], match[2] or "", 1024 if match[3] else 1000) if match else None
    if match is None or value is None or value < (1 if match[2] else _FEWEST_BYTES):
        raise argparse.ArgumentTypeError(f"must be a size of memory such as 8GB, 500MB or 8GiB, got {text!r}")
    return int(value)


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


def _value(digits: str, power: str, base: int = 1000) -> Decimal | None:
    """The number that was meant; None if it is too large to count anything."""
    value = Decimal(digits) * base ** _POWERS[power.lower()]
    return value if abs(value) <= _MOST else None
