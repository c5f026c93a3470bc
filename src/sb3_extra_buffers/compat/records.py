"""What 0.5 had beside its records: an array that ignores what is done to it, and a way to touch all memory of a record."""

from __future__ import annotations

from typing import Any

import numpy as np

from sb3_extra_buffers.recording.record import BaseRecordBuffer


class DummyArray:
    """Takes the place of an array that is not kept."""

    def __setitem__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def transpose(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def fill(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


def force_alloc_mem(mem: BaseRecordBuffer, val: Any = 0) -> None:
    """Write to all plain arrays of a record, so that a machine with too little memory says so now.

    :param mem: the record, which should be empty
    :param val: what is written
    """
    for array in (mem.frames, mem.features, mem.rewards, mem.actions):
        if isinstance(array, np.ndarray):
            array.fill(val)
