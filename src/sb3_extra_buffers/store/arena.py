"""The arena: right-sized memory for encoded blocks, in chunks that go back to the system when their last block is gone (but
for one, which the next blocks will want).

A place is a chunk and an offset in it. Blocks are laid one behind the other into the current chunk; a replay buffer
overwrites its oldest blocks first, so whole chunks empty in turn. What lives on in a chunk that has become nearly empty is
for the store to move (see `sparsest_chunk`).

Kernels put and free blocks by themselves, in `table` and `cursor`; memory is asked for and given back here.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import Bytes, Readable
from sb3_extra_buffers.store.tables import CAPACITY, CURRENT, EMPTIED, END, LIVE, LIVE_BYTES

CHUNK_BYTES = 1 << 20


def _new_chunk(nbytes: int) -> Bytes:
    """Zeroed memory that the system really takes back when it is dropped, which malloc does not promise."""
    if hasattr(mmap, "MAP_ANONYMOUS"):
        # Private: a forked child (SubprocVecEnv) must not write into our blocks.
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        memory = mmap.mmap(-1, nbytes)
    return np.frombuffer(memory, np.uint8)


class Arena:
    """Encoded bytes by place."""

    def __init__(self) -> None:
        self._memory: dict[int, Bytes] = {}
        self._free_ids: list[int] = []
        self._spare: Bytes | None = None  # the chunk emptied last: its pages need not be asked for again
        self.table: NDArray[np.int64] = np.zeros((16, 2), np.int64)
        self.cursor: NDArray[np.int64] = np.array((-1, 0, 0, 0, 0), np.int64)
        self.held_bytes = 0

    @property
    def live_bytes(self) -> int:
        return int(self.cursor[LIVE_BYTES])

    def make_room(self, n: int) -> None:
        """See to it that ``n`` bytes fit behind each other into the current chunk; what is larger than one gets its own."""
        cursor = self.cursor
        if cursor[END] + n <= cursor[CAPACITY]:
            return
        full = int(cursor[CURRENT])
        memory = self._take(max(n, CHUNK_BYTES))
        chunk = self._free_ids.pop() if self._free_ids else len(self._memory)
        if chunk >= len(self.table):
            self.table = np.concatenate((self.table, np.zeros_like(self.table)))
        self._memory[chunk] = memory
        self.table[chunk] = memory.ctypes.data, 0
        cursor[CURRENT], cursor[END], cursor[CAPACITY] = chunk, 0, memory.size
        self.held_bytes += memory.size
        if full >= 0 and not self.table[full, LIVE]:
            self._close(full)

    def put(self, data: Readable) -> tuple[int, int]:
        """Keep a copy of ``data``; its place."""
        n = len(data)
        self.make_room(n)
        chunk, offset = int(self.cursor[CURRENT]), int(self.cursor[END])
        self._memory[chunk][offset : offset + n] = np.frombuffer(data, np.uint8)
        self.cursor[END] += n
        self.cursor[LIVE_BYTES] += n
        self.table[chunk, LIVE] += n
        return chunk, offset

    def get(self, chunk: int, offset: int, n: int) -> Bytes:
        """The ``n`` bytes at a place: a view that must not outlive them."""
        return self._memory[chunk][offset : offset + n]

    def free(self, chunk: int, n: int) -> None:
        """Give ``n`` bytes of a chunk back."""
        self.table[chunk, LIVE] -= n
        self.cursor[LIVE_BYTES] -= n
        if not self.table[chunk, LIVE]:
            self.close_emptied()

    def close_emptied(self) -> None:
        """Give back the chunks in which nothing is in use any more; the current one is written from its beginning again."""
        for chunk in [chunk for chunk in self._memory if not self.table[chunk, LIVE]]:
            if chunk == self.cursor[CURRENT]:
                self.cursor[END] = 0
            else:
                self._close(chunk)
        self.cursor[EMPTIED] = 0

    def clear(self) -> None:
        """Give everything back but the current chunk, which the next blocks will want."""
        self.table[:, LIVE] = 0
        self.cursor[LIVE_BYTES] = 0
        self.close_emptied()

    def sparsest_chunk(self) -> int | None:
        """A chunk worth emptying: more than half of the arena is dead, and least of this one is alive."""
        if self.held_bytes <= 2 * self.live_bytes + 4 * CHUNK_BYTES:
            return None
        chunks = [chunk for chunk in self._memory if chunk != self.cursor[CURRENT]]
        return min(chunks, key=lambda chunk: self.table[chunk, LIVE] / self._memory[chunk].size) if chunks else None

    def _take(self, nbytes: int) -> Bytes:
        if nbytes == CHUNK_BYTES and self._spare is not None:
            memory, self._spare = self._spare, None
            return memory
        return _new_chunk(nbytes)

    def _close(self, chunk: int) -> None:
        memory = self._memory.pop(chunk)
        self.held_bytes -= memory.size
        if memory.size == CHUNK_BYTES:
            self._spare = memory
        self.table[chunk] = 0
        self._free_ids.append(chunk)
