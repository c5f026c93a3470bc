"""What the observations of a buffer take, for programs and for people. Above: the mixin. Below: the stores, which count it."""

from __future__ import annotations

from typing import NamedTuple

from sb3_extra_buffers.spaces import PLAIN
from sb3_extra_buffers.store import MemoryUsage
from sb3_extra_buffers.store.base import in_words

#: Whose memory the observations are compared with.
SB3S = "SB3's "


class BufferMemoryUsage(NamedTuple):
    """What the observations of a buffer take, in all and by key. See `MemoryUsage`.

    `raw_bytes` is what SB3's buffer has for the same transitions. Printed, it is a line, and for Dict observations one more
    for each key.
    """

    raw_bytes: int
    stored_bytes: int
    ratio: float
    blocks: int
    keys: dict[str, MemoryUsage]

    @property
    def codec(self) -> str:
        """How new observations are encoded, and why."""
        return "; ".join(f"{key}: {usage.codec}" if self._is_dict else usage.codec for key, usage in self.keys.items())

    @property
    def _is_dict(self) -> bool:
        return list(self.keys) != [PLAIN]

    def __repr__(self) -> str:
        total = f"observations: {in_words(self, SB3S)}"
        if not self._is_dict:
            return f"{total}; {self.codec}"
        return "\n".join([total, *(f"  {key}: {usage!r}" for key, usage in self.keys.items())])
