"""The heap: payloads of any length by cell, packed into one byte tensor on the device. Above: HeapMemory (`rle`, `zstd`).

    SharedRawHeap.data    | cell 3 | cell 0 | (dead) | cell 7 ... | free .................. |
                                                                  ^ data_end               ^ capacity

A `RawBuffer` keeps `start_idx` and `lengths` of its cells on the host. Offsets inside a payload are relative to its start, so
`compact` moves payloads and changes only `start_idx`. Starts are multiples of 8 bytes, so that a
payload can be read as int64 words: a gather then moves 8 bytes per index.

The places of the cells are authoritative: a payload is written to free bytes, then its place is recorded in one assignment.
`data_end` and `live_bytes` follow from the places, and are computed again after an interrupt. `compact` notes each move before
it begins, so that an interrupted move is repeated.
"""

from __future__ import annotations

import weakref
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch as th

from sb3_extra_buffers.store.device.budget import GROWTH, ByteBudget
from sb3_extra_buffers.store.device.payloads import ALIGNMENT, Ints, RawBuffer, aligned, no_places

#: Words that are moved at a time when the heap is packed. This limits the additional memory of packing.
_CHUNK_WORDS = 1 << 20


class _Move(NamedTuple):
    """Payloads that are being moved: their words, their target, and the new starts of their cells, by owner."""

    words: th.Tensor
    target: int
    starts: list[tuple[RawBuffer, Ints, Ints]]


class SharedRawHeap:
    """Bytes on a device for one or more RawBuffers, allocated one after the other.

    :param capacity: initial bytes
    :param device: where they live
    :param budget: limit of bytes; without it, the heap grows as needed
    """

    def __init__(self, capacity: int, device: th.device | str = "cpu", budget: ByteBudget | None = None) -> None:
        if capacity < 0:
            raise ValueError(f"capacity must be a number of bytes, got {capacity}")
        self._words = th.zeros(max(capacity // ALIGNMENT, 1), dtype=th.int64, device=device)
        self.budget = ByteBudget(capacity) if budget is None else budget
        self._owners: weakref.WeakSet[RawBuffer] = weakref.WeakSet()
        self._data_end = self._live_bytes = 0
        self._is_changing = False
        self._move: _Move | None = None

    @property
    def device(self) -> th.device:
        return self._words.device

    @property
    def data(self) -> th.Tensor:
        """All bytes, as a uint8 tensor."""
        return self.words.view(th.uint8)

    @property
    def words(self) -> th.Tensor:
        """All bytes, as an int64 tensor."""
        self._finish_move()
        return self._words

    @property
    def capacity(self) -> int:
        return len(self._words) * ALIGNMENT

    @property
    def data_end(self) -> int:
        """Bytes from here on are free."""
        self._settle()
        return self._data_end

    @property
    def live_bytes(self) -> int:
        """Bytes of payloads that are needed."""
        self._settle()
        return self._live_bytes

    def own(self, buffer: RawBuffer) -> None:
        """Register a buffer, whose payloads `compact` then moves too."""
        self.budget.join(self)
        self._owners.add(buffer)
        weakref.finalize(buffer, _count_again, weakref.ref(self)).atexit = False

    def parts(self) -> dict[int, int]:
        """Bytes that are held, see `ByteBudget`."""
        return {id(self): self.capacity}

    # ---- allocating

    def find_room(self, nbytes: int, *, strict: bool = False) -> int:
        """The start of ``nbytes`` free bytes. Packs the heap if enough bytes are dead, else grows it; HeapFullError if it may
        not grow.

        The bytes stay free until `record` takes them.

        :param nbytes: a multiple of 8
        :param strict: keep to a hard limit of the budget
        """
        dead = self.data_end - self.live_bytes
        if self.data_end + nbytes > self.capacity and dead * GROWTH >= self.capacity:
            self.compact()
        missing = self.data_end + nbytes - self.capacity
        if missing > 0:
            try:
                n_words = self.budget.grow_by(len(self._words) // GROWTH, missing // ALIGNMENT, ALIGNMENT, strict=strict)
            except MemoryError:
                if self.data_end - self.live_bytes < missing:
                    raise
                self.compact()
            else:
                words = th.zeros(len(self._words) + n_words, dtype=th.int64, device=self.device)
                words[: self.data_end // ALIGNMENT] = self._words[: self.data_end // ALIGNMENT]
                self._words = words
        return self.data_end

    def record(self, buffer: RawBuffer, cells: Ints, places: Ints) -> None:
        """Record the places ``(start, length)`` of the payloads of cells, or (-1, 0) for none.

        :param places: ``(2, n)``
        """
        self._settle()
        old = int(aligned(buffer.lengths[cells]).sum())
        sizes = aligned(places[1])
        self._is_changing = True
        buffer.places[:, cells] = places
        self._live_bytes += int(sizes.sum()) - old
        self._data_end = max(self._data_end, int((places[0] + sizes).max(initial=0)))
        self._is_changing = False

    def _settle(self) -> None:
        """After an interrupt, finish the move and count again."""
        self._finish_move()
        if not self._is_changing:
            return
        starts, lengths = np.concatenate((no_places(0), *(owner.places for owner in self._owners)), axis=1)
        sizes = aligned(lengths)
        self._live_bytes = int(sizes.sum())
        self._data_end = int((starts + sizes).max(initial=0))
        self._is_changing = False

    # ---- packing

    def compact(self) -> None:
        """Pack live payloads to the front, in their order."""
        self._finish_move()
        owners = list(self._owners)
        live = [np.flatnonzero(owner.start_idx >= 0) for owner in owners]
        owner_of = np.repeat(np.arange(len(owners)), [len(cells) for cells in live])
        held = [owner.places[:, cells] for owner, cells in zip(owners, live, strict=True)]
        places = np.concatenate((no_places(0), *held), axis=1)
        order = np.argsort(places[0], kind="stable")
        cells, owner_of = np.concatenate((np.zeros(0, np.int64), *live))[order], owner_of[order]
        starts, sizes = places[0][order], aligned(places[1][order])
        targets = np.cumsum(sizes) - sizes
        self._is_changing = True
        for low, high in _chunks(sizes // ALIGNMENT):
            if targets[low] == starts[low] and targets[high - 1] == starts[high - 1]:
                continue  # nothing in it or before it is dead
            words = self._words.index_select(0, self.ragged(starts[low:high] // ALIGNMENT, sizes[low:high] // ALIGNMENT))
            changes = [
                (owner, cells[low:high][is_its], targets[low:high][is_its])
                for i, owner in enumerate(owners)
                if (is_its := owner_of[low:high] == i).any()
            ]
            self._move = _Move(words, int(targets[low]) // ALIGNMENT, changes)  # words are a copy: they may overlap
            self._finish_move()
        self._settle()

    def _finish_move(self) -> None:
        """Do the noted move. It may be repeated."""
        move = self._move
        if move is None:
            return
        self._words[move.target : move.target + len(move.words)] = move.words
        for owner, cells, starts in move.starts:
            owner.places[0, cells] = starts
        self._move = None

    def ragged(self, starts: Ints, sizes: Ints) -> th.Tensor:
        """Indices ``start, start + 1, ...`` of each piece, one piece after the other."""
        total = int(sizes.sum())
        shifts = th.from_numpy(starts - np.cumsum(sizes) + sizes).to(self.device)
        counts = th.from_numpy(np.ascontiguousarray(sizes)).to(self.device)
        places = th.arange(total, device=self.device)
        return places + th.repeat_interleave(shifts, counts, output_size=total)

    def check(self) -> None:
        """Raise ValueError if payloads overlap or counts are wrong. For tests."""
        self._settle()
        starts, lengths = np.concatenate((no_places(0), *(owner.places for owner in self._owners)), axis=1)
        live = np.flatnonzero(starts >= 0)
        live = live[np.argsort(starts[live])]
        begins, sizes = starts[live], aligned(lengths[live])
        ends = begins + sizes
        is_within = ends.max(initial=0) <= self._data_end <= self.capacity
        if not is_within or (begins[1:] < ends[:-1]).any() or lengths[starts < 0].any():
            raise ValueError("Payloads overlap, or lie where the heap is free")
        if self._live_bytes != sizes.sum():
            raise ValueError(f"{sizes.sum()} bytes are live, {self._live_bytes} are counted")

    # ---- pickling: payloads belong to their buffers, which write them again; a heap comes back empty

    def __getstate__(self) -> dict[str, Any]:
        return {"capacity": self.capacity, "device": self.device, "budget": self.budget}

    def __setstate__(self, state: dict[str, Any]) -> None:
        SharedRawHeap.__init__(self, state["capacity"], state["device"], state["budget"])


def _count_again(reference: weakref.ref[SharedRawHeap]) -> None:
    """When a buffer is gone, its payloads are dead."""
    heap = reference()
    if heap is not None:
        heap._is_changing = True


def _chunks(sizes: Ints) -> list[tuple[int, int]]:
    """Ranges of pieces with about as many words as are moved at a time."""
    if not len(sizes):
        return []
    bounds = np.searchsorted(np.cumsum(sizes), np.arange(_CHUNK_WORDS, int(sizes.sum()), _CHUNK_WORDS), side="right")
    ends = np.unique(np.concatenate(([0], bounds, [len(sizes)]))).tolist()
    return list(pairwise(ends))
