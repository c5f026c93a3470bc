"""What all stores have in common: cells in columns, written and read in a few ways. Above: array views and the buffers.

A cell is a place that can hold one observation; cell `i` belongs to stream `i % n_streams`, one stream per env. There may be
several columns of cells: `obs` and `next_obs` of a replay buffer.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int64]


class MemoryUsage(NamedTuple):
    """What observations take. `raw_bytes` is what plain arrays of the written cells would take."""

    raw_bytes: int
    stored_bytes: int
    ratio: float
    blocks: int


class Store(ABC):
    """The observations of one leaf.

    :param n_cells: cells of one column
    :param n_streams: streams; one per env
    :param n_columns: columns
    """

    def __init__(self, n_cells: int, n_streams: int, n_columns: int) -> None:
        self.n_cells, self.n_streams, self.n_columns = n_cells, n_streams, n_columns
        self._lock = threading.RLock()

    @property
    def lock(self) -> threading.RLock:
        """What whoever writes or reads holds meanwhile."""
        return self._lock

    def share_lock(self, lock: threading.RLock) -> None:
        """Let a buffer and its stores have one lock."""
        self._lock = lock

    # ---- writing

    @abstractmethod
    def write_columns(self, first: int, cells: Cells, observations: tuple[NDArray[Any], ...]) -> None:
        """Put observations into the same cells of one or more columns, in this order.

        :param first: number of the first column
        :param cells: ``(n,)``
        :param observations: ``(n, *shape)`` for each column, of the dtype that is stored
        """

    def write(self, column: int, cells: Cells, observations: NDArray[Any]) -> None:
        """Put observations ``(n, *shape)`` into cells of one column."""
        self.write_columns(column, cells, (observations,))

    def write_step(self, step: int, observations: tuple[NDArray[Any], ...]) -> None:
        """Put the observations of all streams at a step into all columns: what `add` does.

        Whoever calls it holds the lock, see `share_lock`.

        :param observations: ``(n_streams, *shape)`` for each column, of the dtype that is stored
        """
        self.write_columns(0, self._cells_of(step), observations)

    @abstractmethod
    def clear(self) -> None:
        """Forget everything that was written."""

    # ---- reading

    @abstractmethod
    def read_columns(self, columns: tuple[int, ...], cells: Cells) -> list[Any]:
        """The observations in cells ``(n,)`` of columns: new arrays ``(n, *shape)``, with zeros where nothing was written."""

    def read(self, column: int, cells: Cells) -> Any:
        """The observations in cells of one column."""
        return self.read_columns((column,), cells)[0]

    @abstractmethod
    def memory_usage(self) -> MemoryUsage:
        """What the written cells would take as plain arrays, and what they take here, with all tables."""

    def _cells_of(self, step: int) -> Cells:
        return np.arange(step * self.n_streams, (step + 1) * self.n_streams)

    def _check_cells(self, cells: Cells) -> None:
        if cells.size and (cells.min() < 0 or cells.max() >= self.n_cells):
            raise self._no_such_cells(cells)

    def _no_such_cells(self, cells: Cells) -> IndexError:
        return IndexError(f"Cells {cells.min()}..{cells.max()} are not all among the {self.n_cells} of this store")

    # ---- pickling: a lock cannot be pickled

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()
