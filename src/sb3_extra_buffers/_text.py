"""Numbers, sizes and shares as people read and write them. At the bottom of the import order: all parts may use it."""

from __future__ import annotations

import re
from decimal import Decimal

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DIGITS = r"([+-]?[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?) ?"
#: `1000000`, `1_000_000`, `1e6`, `1M`, `1.5M`
_NUMBER = re.compile(rf"{_DIGITS}([kmgt]?)", re.IGNORECASE)
#: `8GB`, `8 GiB`, `500M`, `8e9`
_BYTES = re.compile(rf"{_DIGITS}(?:([kmgt])(i?))?b?", re.IGNORECASE)
#: The largest count or size: they are kept in 64 bits.
MOST = 2**63 - 1


def number_in(text: str) -> Decimal | None:
    """The number that was written as ``100000``, ``100_000``, ``1e5`` or ``100k``; None if it is none, or too large."""
    match = _NUMBER.fullmatch(text.strip())
    return _value(match[1], match[2]) if match else None


def bytes_in(text: str) -> tuple[int, bool] | None:
    """The size that was written as ``8GB``, ``500M``, ``8GiB`` or ``8e9``, and whether it has a unit; None if it is none."""
    match = _BYTES.fullmatch(text.strip())
    value = _value(match[1], match[2] or "", 1024 if match[3] else 1000) if match else None
    return None if match is None or value is None else (int(value), match[2] is not None)


def _value(digits: str, power: str, base: int = 1000) -> Decimal | None:
    value = Decimal(digits) * base ** _POWERS[power.lower()]
    return value if abs(value) <= MOST else None


def human_bytes(n: float) -> str:
    """Bytes as people read them, in powers of 1000: ``1.13 GB``."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while abs(n) >= 999.5 and len(units) > 1:
        n, units = n / 1000, units[1:]
    return f"{n:.0f} {units[0]}" if units[0] == "B" or abs(n) >= 100 else f"{n:.3g} {units[0]}"


def human_share(share: float) -> str:
    """A part of something in percent: ``0.44 %``."""
    if 0 < share < 1e-4:
        return "< 0.01 %"
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def round_down(n: int, digits: int = 3) -> int:
    """A number without the digits that nobody can be sure of, never larger: ``25_875_288`` -> ``25_800_000``."""
    unit: int = 10 ** max(len(str(n)) - digits, 0)
    return n // unit * unit


def counted(n: int, thing: str) -> str:
    """A number with its noun: ``1 env``, ``2,000 envs``."""
    return f"{n:,} {thing}{'s' * (n != 1)}"
