"""The payloads of the cells of one leaf, and where their bytes are in a heap. Above: heap, coded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch as th
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sb3_extra_buffers.store.device.heap import SharedRawHeap

#: Starts are multiples of this.
ALIGNMENT = 8

Ints = NDArray[np.int64]


def aligned(lengths: NDArray[np.integer]) -> Ints:
    """Bytes of payloads of these lengths, with alignment."""
    return -(-lengths.astype(np.int64) // ALIGNMENT) * ALIGNMENT


def no_places(n: int) -> Ints:
    """Places ``(start, length)`` of cells that hold nothing."""
    return np.stack((np.full(n, -1, np.int64), np.zeros(n, np.int64)))


class RawBuffer:
    """Cells that hold payloads of any length in a heap, which other buffers may share.

    :param n_cells: initial number of cells; it grows when a cell with a higher number is written
    :param heap: where the payloads go
    """

    def __init__(self, n_cells: int, heap: SharedRawHeap) -> None:
        self.heap = heap
        self.places = no_places(n_cells)
        heap.own(self)

    @property
    def start_idx(self) -> Ints:
        """Where the payload of each cell begins in the heap; -1 for none."""
        starts: Ints = self.places[0]
        return starts

    @property
    def lengths(self) -> Ints:
        """Bytes of the payload of each cell."""
        lengths: Ints = self.places[1]
        return lengths

    def write(self, cells: Ints, payloads: th.Tensor, lengths: Ints, *, strict: bool = False) -> None:
        """Write payloads into cells and free the old ones. An exception changes nothing.

        :param cells: ``(n,)``, each once
        :param payloads: int64 words on the heap's device: the payloads one after the other, each padded to 8 bytes
        :param lengths: bytes of each payload
        """
        cells, lengths = np.asarray(cells, np.int64), np.asarray(lengths, np.int64)
        sizes = aligned(lengths)
        if len(cells) and (cells.min() < 0 or len(np.unique(cells)) < len(cells)):
            raise ValueError(f"Cells must be numbers from 0, each once, got {cells.tolist()}")
        if payloads.dtype != th.int64 or len(sizes) != len(cells) or len(payloads) * ALIGNMENT != sizes.sum():
            raise ValueError(
                f"{len(cells)} payloads of {lengths.tolist()} bytes are {sizes.sum() // ALIGNMENT} int64 words, "
                f"each payload filled up to {ALIGNMENT} bytes; got {len(payloads)} of {payloads.dtype}"
            )
        if not len(cells):
            return
        start = self.heap.find_room(int(sizes.sum()), strict=strict)
        self._know(int(cells.max()) + 1)
        self.heap.words[start // ALIGNMENT : start // ALIGNMENT + len(payloads)] = payloads
        self.heap.record(self, cells, np.stack((start + np.cumsum(sizes) - sizes, lengths)))

    def read(self, cells: Ints) -> tuple[th.Tensor, Ints]:
        """Payloads one after the other as int64 words, and where each begins, in bytes."""
        if len(cells) and cells.min() < 0:
            raise IndexError(f"Cells are numbered from 0, got {cells.min()}")
        words, sizes = self.heap.words, aligned(self.lengths[cells])
        words = words.index_select(0, self.heap.ragged(self.start_idx[cells] // ALIGNMENT, sizes // ALIGNMENT))
        return words, np.cumsum(sizes) - sizes

    def free(self, cells: Ints) -> None:
        """Free the payloads of these cells."""
        if len(cells) and cells.min() < 0:
            raise IndexError(f"Cells are numbered from 0, got {cells.min()}")
        cells = np.unique(cells[cells < len(self.start_idx)])
        held = cells[self.start_idx[cells] >= 0]
        if len(held):
            self.heap.record(self, held, no_places(len(held)))

    def compact(self) -> None:
        """Pack the heap, other buffers in it included."""
        self.heap.compact()

    def _know(self, n_cells: int) -> None:
        missing = n_cells - len(self.start_idx)
        if missing > 0:
            self.places = np.concatenate((self.places, no_places(max(missing, len(self.start_idx) // 2))), axis=1)

    # ---- pickling: a buffer saves its payloads, and writes them into the empty heap that was loaded

    def __getstate__(self) -> dict[str, Any]:
        cells = np.flatnonzero(self.start_idx >= 0)
        words, _ = self.read(cells)
        lengths = self.lengths[cells]
        return {"heap": self.heap, "n_cells": len(self.start_idx), "cells": cells, "lengths": lengths, "words": words.cpu()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        RawBuffer.__init__(self, state["n_cells"], state["heap"])
        self.write(state["cells"], state["words"].to(self.heap.device), state["lengths"])
