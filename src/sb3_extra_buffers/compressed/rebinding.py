"""SB3's functions with other names for what they call: SB3's own code runs, with another source of numbers or another loss.

SB3 draws envs inside `_get_samples`, copies arrays inside `add` and calls its loss inside `train`, without a hook for any of
these. A function that is made of the same code with other globals needs no copy of SB3's code, and nobody else notices it, as
with a patched module.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any


class Instead:
    """A module with some of its names replaced.

    :param module: what all other names are taken from
    """

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self._module = module
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def rebound(function: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """The same function with some of its globals replaced. TypeError if it has none of that name.

    :param names: global name -> what it is to stand for
    """
    if not isinstance(function, FunctionType) or set(names) - set(function.__code__.co_names):
        raise TypeError(
            f"{getattr(function, '__qualname__', function)} does not use {', '.join(sorted(names))}: "
            f"this version of its package is not known. Please report it"
        )
    copied = FunctionType(
        function.__code__.replace(),  # a copy: Python adapts code to the globals that it is run with
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied
