"""The byte limit of the memories of one buffer. Above: the memories and the heap, which ask before they grow."""

from __future__ import annotations

import weakref
from typing import Any, Literal, Protocol

from sb3_extra_buffers.errors import HeapFullError

OnFull = Literal["grow", "evict", "raise"]

#: A full memory grows by one part in so many of its size.
GROWTH = 16


class HasParts(Protocol):
    """An object whose bytes a budget counts."""

    def parts(self) -> dict[int, int]:
        """Bytes on the device, by an identity of the tensor that holds them."""


class ByteBudget:
    """A limit of bytes, and the memories that use it.

    :param limit: bytes
    :param is_hard: whether memories must stay below it; else it is only the initial size
    """

    def __init__(self, limit: int, is_hard: bool = False) -> None:
        self.limit, self.is_hard = limit, is_hard
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(limit={self.limit}, is_hard={self.is_hard})"

    def join(self, member: HasParts) -> None:
        """Count this memory or heap as long as it lives."""
        self._members.add(member)

    @property
    def taken(self) -> int:
        """Bytes of all memories. A shared heap counts once."""
        return sum({key: nbytes for member in self._members for key, nbytes in member.parts().items()}.values())

    def grow_by(self, wanted: int, needed: int, unit: int, *, strict: bool) -> int:
        """The number of units that a memory may grow by: those it wants, or what is left if that is enough.

        :param strict: keep to a hard limit; raises HeapFullError
        """
        wanted = max(wanted, needed)
        if not (self.is_hard and strict):
            return wanted
        left = (self.limit - self.taken) // unit
        if left < needed:
            total = self.taken + needed * unit
            raise HeapFullError(f"Frames need {total} bytes, {self.limit} are allowed", total)
        return min(wanted, left)

    # ---- pickling: memories join again when they are loaded

    def __getstate__(self) -> dict[str, Any]:
        return {"limit": self.limit, "is_hard": self.is_hard}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.limit, self.is_hard = state["limit"], state["is_hard"]
        self._members = weakref.WeakSet()
