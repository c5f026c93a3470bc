"""The heap: payloads of any length by cell, packed into one byte tensor on the device. Above: HeapMemory (`rle`, `zstd`).

    SharedRawHeap.data    | cell 3 | cell 0 | (dead) | cell 7 ... | free .................. |
                                                                  ^ data_end               ^ capacity

A `RawBuffer` keeps `start_idx` and `lengths` of its cells on the host. What a codec writes into a payload is relative to the
payload's start, so `compact` moves payloads and changes nothing but `start_idx`. Starts are multiples of 8 bytes, so that a
payload can be read as int64 words: a gather then moves 8 bytes per index.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_extra_buffers.store.device_memory import GROWTH, Room

#: Starts are multiples of this.
ALIGNMENT = 8
#: Words that are moved at once when the heap is packed, which bounds what packing takes beside the heap.
_CHUNK_WORDS = 1 << 20

Ints = NDArray[np.int64]


def aligned(lengths: NDArray[np.integer]) -> Ints:
    """Bytes that payloads of these lengths take up."""
    return -(-lengths.astype(np.int64) // ALIGNMENT) * ALIGNMENT


class SharedRawHeap:
    """Bytes on a device for one or more RawBuffers, allocated one behind the other.

    :param capacity: bytes to begin with
    :param device: where they live
    :param room: how many bytes may be taken; without it the heap grows as it must
    """

    def __init__(self, capacity: int, device: th.device | str = "cpu", room: Room | None = None) -> None:
        if capacity < 0:
            raise ValueError(f"capacity must be a number of bytes, got {capacity}")
        self._words = th.zeros(max(capacity // ALIGNMENT, 1), dtype=th.int64, device=device)
        self.data_end = 0
        self.room = Room(capacity) if room is None else room
        self._owners: weakref.WeakSet[RawBuffer] = weakref.WeakSet()
        self.live_bytes = 0

    @property
    def device(self) -> th.device:
        return self._words.device

    @property
    def data(self) -> th.Tensor:
        """All bytes, as a uint8 tensor."""
        return self._words.view(th.uint8)

    @property
    def words(self) -> th.Tensor:
        """All bytes, as an int64 tensor."""
        return self._words

    @property
    def capacity(self) -> int:
        return len(self._words) * ALIGNMENT

    def own(self, buffer: RawBuffer) -> None:
        """From now on move the payloads of this buffer too."""
        if not self._owners:
            self.room.join(self)
        self._owners.add(buffer)

    def parts(self) -> dict[int, int]:
        """Bytes that are held, see `Room`."""
        return {id(self): self.capacity}

    def allocate(self, nbytes: int, *, strict: bool = False) -> int:
        """The start of ``nbytes`` free bytes: packs first where enough is dead, grows where not. HeapFullError if it may not.

        :param nbytes: a multiple of 8
        :param strict: keep to a hard limit of the room
        """
        dead = self.data_end - self.live_bytes
        if self.data_end + nbytes > self.capacity and dead * GROWTH >= self.capacity:
            self.compact()
        missing = self.data_end + nbytes - self.capacity
        if missing > 0:
            try:
                n_words = self.room.grow_by(len(self._words) // GROWTH, missing // ALIGNMENT, ALIGNMENT, strict=strict)
            except MemoryError:
                if self.data_end - self.live_bytes < missing:
                    raise
                self.compact()
            else:
                words = th.zeros(len(self._words) + n_words, dtype=th.int64, device=self.device)
                words[: self.data_end // ALIGNMENT] = self._words[: self.data_end // ALIGNMENT]
                self._words = words
        start = self.data_end
        self.data_end += nbytes
        self.live_bytes += nbytes
        return start

    def compact(self) -> None:
        """Pack live payloads to the front, in the order they lie in."""
        owners = list(self._owners)
        cells = [np.flatnonzero(owner.start_idx >= 0) for owner in owners]
        if not sum(len(one) for one in cells):
            self.data_end = self.live_bytes = 0
            return
        starts = np.concatenate([owner.start_idx[one] for owner, one in zip(owners, cells, strict=True)])
        sizes = aligned(
            np.concatenate([owner.lengths[one] for owner, one in zip(owners, cells, strict=True)]).astype(np.int64)
        )
        order = np.argsort(starts, kind="stable")
        targets = np.empty_like(starts)
        targets[order] = np.cumsum(sizes[order]) - sizes[order]
        self._move(starts[order] // ALIGNMENT, targets[order] // ALIGNMENT, sizes[order] // ALIGNMENT)
        first = 0
        for owner, one in zip(owners, cells, strict=True):
            owner.start_idx[one] = targets[first : first + len(one)]
            first += len(one)
        self.data_end = self.live_bytes = int(sizes.sum())

    def _move(self, starts: Ints, targets: Ints, sizes: Ints) -> None:
        """Move payloads, given in ascending order, to places at or before their own. In words."""
        bounds = np.searchsorted(np.cumsum(sizes), np.arange(0, int(sizes.sum()), _CHUNK_WORDS), side="right")
        for low, high in zip(bounds, [*bounds[1:], len(sizes)], strict=True):
            if low == high:
                continue
            words = self._words.index_select(0, self.ragged(starts[low:high], sizes[low:high]))  # a copy: they may overlap
            self._words[int(targets[low]) : int(targets[low]) + len(words)] = words

    def ragged(self, starts: Ints, sizes: Ints) -> th.Tensor:
        """Indices ``start, start + 1, ...`` of each piece, one piece behind the other."""
        total = int(sizes.sum())
        shifts = th.from_numpy(starts - np.cumsum(sizes) + sizes).to(self.device)
        counts = th.from_numpy(np.ascontiguousarray(sizes)).to(self.device)
        places = th.arange(total, device=self.device)
        return places + th.repeat_interleave(shifts, counts, output_size=total)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_owners": list(self._owners)}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._owners = weakref.WeakSet(state["_owners"])  # type: ignore[call-overload]


class RawBuffer:
    """Cells that hold payloads of any length in a heap, which other buffers may share.

    :param n_cells: cells to begin with; there are more as soon as one of a higher number is written
    :param heap: where the payloads go
    """

    def __init__(self, n_cells: int, heap: SharedRawHeap) -> None:
        self.heap = heap
        self.start_idx: Ints = np.full(n_cells, -1, np.int64)  # -1: nothing is there
        self.lengths: NDArray[np.int32] = np.zeros(n_cells, np.int32)
        heap.own(self)

    def write(self, cells: Ints, payloads: th.Tensor, lengths: Ints, *, strict: bool = False) -> None:
        """Put payloads into cells; what was there is freed. HeapFullError leaves everything as it was.

        :param cells: ``(n,)``, each once
        :param payloads: int64 words on the heap's device: the payloads one behind the other, each filled up to 8 bytes
        :param lengths: bytes of each payload
        """
        cells, sizes = np.asarray(cells, np.int64), aligned(np.asarray(lengths))
        if len(cells) and (cells.min() < 0 or len(np.unique(cells)) < len(cells)):
            raise ValueError(f"Cells must be numbers from 0, each once, got {cells.tolist()}")
        if payloads.dtype != th.int64 or len(sizes) != len(cells) or len(payloads) * ALIGNMENT != sizes.sum():
            raise ValueError(
                f"{len(cells)} payloads of {np.asarray(lengths).tolist()} bytes are {sizes.sum() // ALIGNMENT} int64 words, "
                f"each payload filled up to {ALIGNMENT} bytes; got {len(payloads)} of {payloads.dtype}"
            )
        start = self.heap.allocate(int(sizes.sum()), strict=strict)
        if len(cells) and cells.max() >= len(self.start_idx):
            more = max(int(cells.max()) + 1 - len(self.start_idx), len(self.start_idx) // 2)
            self.start_idx = np.concatenate((self.start_idx, np.full(more, -1, np.int64)))
            self.lengths = np.concatenate((self.lengths, np.zeros(more, np.int32)))
        self.free(cells)
        self.heap.words[start // ALIGNMENT : start // ALIGNMENT + len(payloads)] = payloads
        self.start_idx[cells] = start + np.cumsum(sizes) - sizes
        self.lengths[cells] = lengths

    def read(self, cells: Ints) -> tuple[th.Tensor, Ints]:
        """Payloads one behind the other as int64 words, and where each begins, in bytes."""
        if len(cells) and cells.min() < 0:
            raise IndexError(f"Cells are numbered from 0, got {cells.min()}")
        sizes = aligned(self.lengths[cells])
        words = self.heap.words.index_select(0, self.heap.ragged(self.start_idx[cells] // ALIGNMENT, sizes // ALIGNMENT))
        return words, np.cumsum(sizes) - sizes

    def free(self, cells: Ints) -> None:
        """Let go of what these cells hold."""
        if len(cells) and cells.min() < 0:
            raise IndexError(f"Cells are numbered from 0, got {cells.min()}")
        cells = np.unique(cells[cells < len(self.start_idx)])
        held = cells[self.start_idx[cells] >= 0]
        self.heap.live_bytes -= int(aligned(self.lengths[held]).sum())
        self.start_idx[held] = -1
        self.lengths[held] = 0

    def compact(self) -> None:
        """Pack the heap, other buffers in it included."""
        self.heap.compact()
