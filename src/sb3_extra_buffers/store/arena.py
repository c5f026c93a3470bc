"""The arena: right-sized memory for encoded blocks, in chunks that go back to the system when their last block is gone (but
for one, which the next blocks will want).

A place is one integer, `chunk << 20 | offset`. Blocks are laid one behind the other into the current chunk; a replay
buffer overwrites its oldest blocks first, so whole chunks empty in turn. What lives on in a chunk that has become nearly
empty is for the store to move (see `sparsest_chunk`).
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import Bytes, Readable

CHUNK_BITS = 20
CHUNK_BYTES = 1 << CHUNK_BITS
_OFFSET = CHUNK_BYTES - 1


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
        self._chunks: dict[int, Bytes] = {}
        self._live: dict[int, int] = {}  # bytes in use, by chunk
        self._free_ids: list[int] = []
        self._spare: Bytes | None = None  # the chunk emptied last: its pages need not be asked for again
        self._current, self._end = -1, CHUNK_BYTES
        #: address of each chunk, for kernels
        self.addresses: NDArray[np.int64] = np.zeros(16, np.int64)
        self.live_bytes = 0
        self.held_bytes = 0

    def put(self, data: Readable) -> int:
        """Keep a copy of ``data``; its place."""
        n = len(data)
        if n > CHUNK_BYTES:  # a chunk of its own
            chunk, offset = self._open(n), 0
        else:
            if self._end + n > CHUNK_BYTES:
                full, self._current, self._end = self._current, self._open(CHUNK_BYTES), 0
                if full >= 0 and not self._live[full]:
                    self._close(full)
            chunk, offset = self._current, self._end
            self._end += n
        self._chunks[chunk][offset : offset + n] = np.frombuffer(data, np.uint8)
        self._live[chunk] += n
        self.live_bytes += n
        return chunk << CHUNK_BITS | offset

    def get(self, place: int, n: int) -> Bytes:
        """The ``n`` bytes at a place: a view that must not outlive them."""
        offset = place & _OFFSET
        return self._chunks[place >> CHUNK_BITS][offset : offset + n]

    def free(self, place: int, n: int) -> None:
        """Give the ``n`` bytes at a place back."""
        chunk = place >> CHUNK_BITS
        self._live[chunk] -= n
        self.live_bytes -= n
        if self._live[chunk] == 0:
            if chunk == self._current:
                self._end = 0
            else:
                self._close(chunk)

    def clear(self) -> None:
        """Give everything back but the current chunk, which the next blocks will want."""
        for chunk in [chunk for chunk in self._chunks if chunk != self._current]:
            self._close(chunk)
        if self._current >= 0:
            self._live[self._current], self._end = 0, 0
        self.live_bytes = 0

    def sparsest_chunk(self) -> int | None:
        """A chunk worth emptying: more than half of the arena is dead, and least of this one is alive."""
        if self.held_bytes <= 2 * self.live_bytes + 4 * CHUNK_BYTES:
            return None
        chunks = [chunk for chunk in self._chunks if chunk != self._current]
        return min(chunks, key=lambda chunk: self._live[chunk] / self._chunks[chunk].size) if chunks else None

    def _open(self, nbytes: int) -> int:
        chunk = self._free_ids.pop() if self._free_ids else len(self._chunks)
        if nbytes == CHUNK_BYTES and self._spare is not None:
            memory, self._spare = self._spare, None
        else:
            memory = _new_chunk(nbytes)
        self._chunks[chunk], self._live[chunk] = memory, 0
        if chunk >= len(self.addresses):
            self.addresses = np.concatenate((self.addresses, np.zeros_like(self.addresses)))
        self.addresses[chunk] = memory.ctypes.data
        self.held_bytes += nbytes
        return chunk

    def _close(self, chunk: int) -> None:
        memory = self._chunks.pop(chunk)
        self.held_bytes -= memory.size
        if memory.size == CHUNK_BYTES:
            self._spare = memory
        del self._live[chunk]
        self.addresses[chunk] = 0
        self._free_ids.append(chunk)
