"""Conditions on episodes as people write them: `return > 10 and length < 50`, `ended by timeout`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIELDS = ("episode", "env", "start", "length", "return", "ended")
_ENDINGS = {"terminal": 0, "timeout": 1, "ended": 2, "running": 3}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, "==": operator.eq, ">": operator.gt, "<": operator.lt,
    "=": operator.eq,
}  # fmt: skip
_ENDED = re.compile(r"ended\s*(by|is|==?|!=)\s*(\w+)", re.IGNORECASE)
_NUMBER = re.compile(r"(\w+)\s*(>=|<=|!=|==|>|<|=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)", re.IGNORECASE)
_LONGEST = 500


@dataclass(frozen=True)
class Condition:
    """A field, an operator and a number."""

    field: str
    symbol: str
    value: float

    def holds(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """For each of these values."""
        with np.errstate(invalid="ignore"):
            result: NDArray[np.bool_] = _OPERATORS[self.symbol](values, self.value)
        return result


def parse_conditions(text: str) -> list[Condition]:
    """What a filter says; nothing for an empty one. ValueError where it says nothing that is known."""
    if len(text) > _LONGEST:
        raise ValueError(f"A filter has at most {_LONGEST} characters, got {len(text)}")
    parts = [part.strip() for part in re.split(r"\s+and\s+|,|&&?", text, flags=re.IGNORECASE)]
    return [_parsed(part) for part in parts if part]


def _parsed(part: str) -> Condition:
    if match := _ENDED.fullmatch(part):
        how, ending = match[1].lower(), match[2].lower()
        if ending not in _ENDINGS:
            raise ValueError(f"An episode ended by none of {ending!r}; known: {', '.join(_ENDINGS)}")
        return Condition("ended", "!=" if how == "!=" else "==", _ENDINGS[ending])
    match = _NUMBER.fullmatch(part)
    if match is None or match[1].lower() not in FIELDS[:-1]:
        raise ValueError(
            f"Cannot read {part!r}. Write conditions like 'return > 10', 'length < 50' or 'ended by timeout', joined by "
            f"'and'; fields: {', '.join(FIELDS)}"
        )
    return Condition(match[1].lower(), match[2], float(match[3]))
