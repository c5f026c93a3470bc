"""The interface of all stores: cells in columns, and the few ways to write and read them. Above: array views and the buffers.

A cell is a place that can hold one observation; cell `i` belongs to stream `i % n_streams`, one stream per env. There may be
several columns of cells: `obs` and `next_obs` of a replay buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers._text import human_bytes, human_share
from sb3_extra_buffers.native import cells_of
from sb3_extra_buffers.store.layout import FrameLayout

Cells = NDArray[np.int64]


class MemoryUsage(NamedTuple):
    """What observations take. `raw_bytes` is what plain arrays of the written cells would take; of a buffer, those of SB3.

    `codec` says how new observations are encoded, and why. Printed, it is a sentence.
    """

    raw_bytes: int
    stored_bytes: int
    ratio: float
    blocks: int
    codec: str = ""

    @classmethod
    def of(cls, raw_bytes: int, stored_bytes: int, blocks: int = 0, codec: str = "none") -> MemoryUsage:
        """The usage with its ratio, which is 0 for an empty store."""
        return cls(raw_bytes, stored_bytes, stored_bytes / raw_bytes if raw_bytes else 0.0, blocks, codec)

    def __repr__(self) -> str:
        return f"{in_words(self)}; {self.codec}"


def in_words(usage: Any, whose: str = "") -> str:
    """What is stored beside what it stands for: ``10.1 MB instead of 2.26 GB (0.45 %)``.

    :param usage: whatever has `raw_bytes` and `stored_bytes`
    :param whose: put before the raw bytes
    """
    if not usage.raw_bytes:
        return "nothing stored yet"
    share = human_share(usage.stored_bytes / usage.raw_bytes)
    return f"{human_bytes(usage.stored_bytes)} instead of {whose}{human_bytes(usage.raw_bytes)} ({share})"


class Store(ABC):
    """The observations of one leaf. Callers must hold the lock of the leaf.

    A step is written in two calls: `prepare_step` does everything that can fail and changes no cell; `commit_step` cannot
    fail. Other writes may fail half-way. Then each of their cells has its old or its new observation, and no other cell has
    changed.

    :param layout: how an observation is cut into frames
    :param n_cells: cells of one column
    :param n_streams: streams; one per env
    :param n_columns: columns, 1 or 2
    """

    #: How observations are encoded, as a codec's shorthand.
    method: str = "none"

    def __init__(self, layout: FrameLayout, n_cells: int, n_streams: int, n_columns: int) -> None:
        self.layout, self.n_cells, self.n_streams, self.n_columns = layout, n_cells, n_streams, n_columns

    @abstractmethod
    def prepare_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """Prepare to write the observations of all streams into all columns of a slot. Replaces what was prepared before.

        :param observations: ``(n_streams, *shape)`` for each column, in the stored dtype; the caller must not change them
            until the commit
        """

    def prepare_given(self, slot: int, observations: tuple[Any, ...]) -> bool:
        """`prepare_step` with what a user has given, unchecked. False if the store does not take it like that: then nothing is
        prepared, and it must be checked and converted first."""
        return False

    @abstractmethod
    def commit_step(self) -> None:
        """Write what is prepared. Does nothing if nothing is, so that an interrupted call can be repeated."""

    def erase(self, cells: Cells) -> None:  # noqa: B027  not all stores can
        """Let go of cells of all columns, which nobody reads any more. Does nothing where that frees no memory."""

    def held_bytes(self) -> int:
        """Bytes of memory that the store has, for all cells that were ever written."""
        return self.memory_usage().stored_bytes

    def write_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """Prepare and commit. A buffer's `add` calls SB3's `add` between the two."""
        self.prepare_step(slot, observations)
        self.commit_step()

    def write_steps(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """Write consecutive steps, the first of them at this slot, as `write_step` would one after the other.

        :param observations: ``(steps, n_streams, *shape)`` for each column; may overlap
        """
        for i in range(len(observations[0])):
            self.write_step(slot + i, tuple(np.ascontiguousarray(one[i]) for one in observations))

    @abstractmethod
    def write(self, column: int, cells: Cells, observations: NDArray[Any]) -> None:
        """Write observations ``(n, *shape)`` into cells ``(n,)`` of one column, in this order."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything that was written."""

    def expect_read(self) -> None:  # noqa: B027  most stores have nothing to do
        """A batch will be read soon."""

    @abstractmethod
    def read_columns(self, columns: tuple[int, ...], slots: Cells, envs: Cells | None = None) -> list[Any]:
        """New arrays ``(n, *shape)`` for each column, with zeros where nothing was written.

        :param slots: ``(n,)``; cell numbers if no envs are given
        :param envs: ``(n,)``
        """

    def is_written(self, cells: Cells) -> NDArray[np.bool_]:
        """Which of these cells may have been written; all if the store does not know."""
        return np.ones(len(cells), bool)

    def read(self, column: int, cells: Cells) -> Any:
        """The observations in cells of one column."""
        return self.read_columns((column,), cells)[0]

    @abstractmethod
    def memory_usage(self) -> MemoryUsage:
        """Bytes of the written cells in plain arrays, and bytes that are stored here, with all tables."""

    def _cells_of(self, slot: int) -> Cells:
        return np.arange(slot * self.n_streams, (slot + 1) * self.n_streams)

    def _cells(self, slots: Cells, envs: Cells | None) -> Cells:
        """Cell numbers; IndexError if one does not exist."""
        if envs is not None:
            return cells_of(slots, envs, self.n_cells // self.n_streams, self.n_streams)
        if slots.size and (slots.min() < 0 or slots.max() >= self.n_cells):
            raise IndexError(f"Cells {slots.min()}..{slots.max()} are not all among the {self.n_cells} of this store")
        return slots
