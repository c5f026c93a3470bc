"""Sizes and shares in words that people read. At the bottom of the import order: buffers and the command line use them."""

from __future__ import annotations


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
