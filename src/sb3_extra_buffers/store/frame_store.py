"""The frame store: the streams of one observation leaf. Append observations, gather them, release what is overwritten.

    add:     observation -> frames -> (already at the end of the stream? reuse) -> open block -> encoded -> arena
    gather:  cells -> tokens -> blocks -> codec -> observations

Columns share the streams, so what stands in both `obs` and `next_obs` is kept once.

Each block counts who needs it: cells whose observation reaches into it, and its stream while the block is open, reserved, or
the one before the open block. A block that nobody needs any more gives its bytes back at once.
"""

from __future__ import annotations

import sys
import threading
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import HEADER_BYTES, RAW, Bytes, Codec
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store import saved_state
from sb3_extra_buffers.store.arena import Arena
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.layout import FrameLayout
from sb3_extra_buffers.store.observation_bytes import ObservationBytes
from sb3_extra_buffers.store.tables import (
    BLOCK_COLUMNS,
    CHUNK,
    CURRENT_BASE,
    DELTA,
    ENCODE,
    ENCODED,
    FILL,
    FREE,
    HEAD,
    LENGTH,
    LIBRARY,
    N_SLOTS,
    NOBODY,
    OFFSET,
    PREVIOUS,
    REFERENCES,
    STATE_ENTRIES,
    STREAM_COLUMNS,
)
from sb3_extra_buffers.store.threads import LARGE_BATCH_BYTES, run_in_threads, thread_count

#: Tokens are kept in 32 bits.
_MOST_FRAMES = 2**31 - 2**20


class FrameStore(Store):
    """The streams of one observation leaf.

    :param layout: how an observation is cut into frames
    :param n_cells: cells of one column
    :param codec: what encodes a block
    :param n_streams: streams; one per env
    :param n_columns: columns that share the streams
    :param block_frames: frames in a block, at least ``layout.stack``
    """

    #: See `tables`.
    _blocks: NDArray[np.int32]
    _state: NDArray[np.int64]

    def __init__(
        self,
        layout: FrameLayout,
        n_cells: int,
        codec: Codec,
        *,
        n_streams: int = 1,
        n_columns: int = 1,
        block_frames: int = 16,
    ) -> None:
        if block_frames < layout.stack:
            raise ValueError(f"block_frames must be at least the {layout.stack} frames of an observation, got {block_frames}")
        super().__init__(n_cells, n_streams, n_columns)
        self.layout, self.codec, self.block_frames = layout, codec, block_frames
        self._load_kernels()
        self._allocate()

    # ---- writing

    def write_step(self, step: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_step`."""
        self._append(0, self._first_cells, step * self.n_streams, observations)

    def write_columns(self, first: int, cells: Cells, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_columns`. All in one pass."""
        with self._lock:
            self._append(first, cells, 0, observations)

    def _append(self, first: int, cells: Cells, shift: int, observations: tuple[NDArray[Any], ...]) -> None:
        values = tuple(map(self._bytes_of, observations))
        append, written, full = self._kernels.append, 0, -1
        while True:
            written, full, needed = append(
                values, first, cells, shift, written, full, self._heads, self._staging, self._scratch, self._streams,
                self._blocks, self._arena.table, self._arena.cursor, self._state, *self._fixed,
            )  # fmt: skip
            if full < 0:
                break
            if needed == ENCODE:
                self._encode(full)
            else:
                self._make_room(needed)
        if needed:
            self._arena.close_emptied()
        if written < 0:
            raise self._no_such_cells(cells + shift)

    def clear(self) -> None:
        """See `Store.clear`."""
        with self._lock:
            self._heads[:] = 0
            self._arena.clear()
            self._reset_tables()

    # ---- reading

    def read_columns(self, columns: tuple[int, ...], cells: Cells) -> list[NDArray[Any]]:
        """See `Store.read_columns`. Blocks that the columns share are decoded once."""
        n = len(cells)
        out = memory_for_batch(len(columns) * n, self.layout.observation_bytes)
        with self._lock:
            heads = self._heads.take(cells, axis=0).T
            if len(columns) < self.n_columns:
                heads = heads[list(columns)]
            tokens = heads.reshape(-1).astype(np.int64)
            tokens -= 1
            self._gather(tokens, out)
        return [self.layout.from_bytes(out[i * n : (i + 1) * n]) for i in range(len(columns))]

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`. Open blocks count as well."""
        with self._lock:
            written = int(np.count_nonzero(self._heads))
            raw = written * self.layout.observation_bytes
            open_blocks = self._staging.nbytes + int(self._streams[:, ENCODED].clip(0).sum())
            # Of the heads only what was written to is in memory: the rest are pages that were never touched.
            index = written * self._heads.itemsize + self._blocks.nbytes
            stored = self._arena.live_bytes + open_blocks + index
            blocks = int(np.count_nonzero(self._blocks[: self._state[N_SLOTS], REFERENCES]))
        return MemoryUsage(raw, stored, stored / raw if raw else 0.0, blocks)

    def _gather(self, tokens: NDArray[np.int64], out: Bytes) -> None:
        if self.codec.name == "none":  # nothing to decode, so nothing to share
            self._fetch(tokens, np.arange(len(tokens)), out)
        elif self.codec.name == "delta":
            self._fetch(tokens, np.argsort(tokens), out)
        else:
            self._decode_blocks(tokens, np.argsort(tokens), out)

    def _fetch(self, tokens: NDArray[np.int64], order: NDArray[np.int64], out: Bytes) -> None:
        def fetch(part: NDArray[np.int64]) -> int:
            bad: int = self._fetching.fetch(
                tokens, part, out, self._staging, self._blocks, self._arena.table, self.layout.stack, self.block_frames,
            )  # fmt: skip
            return bad

        if out.nbytes >= LARGE_BATCH_BYTES and (threads := thread_count()) > 1:
            bad = max(run_in_threads(fetch, np.array_split(order, threads)))
        else:
            bad = fetch(order)
        if bad >= 0:
            raise CorruptDataError(f"{self.codec.name}: block {bad} is damaged")

    def _decode_blocks(self, tokens: NDArray[np.int64], order: NDArray[np.int64], out: Bytes) -> None:
        """Fetch through the codec: each block once, only as far as it is needed."""
        stack, block_frames = self.layout.stack, self.block_frames
        frames = out.reshape(len(out), stack, self.layout.frame_bytes)
        order = order[np.searchsorted(tokens[order], 0) :]
        out[tokens < 0] = 0
        slots, first = tokens // block_frames, tokens % block_frames - stack + 1
        # An observation is one piece, or two where it begins in the block before.
        reaching_back = order[first[order] < 0]
        rows = np.concatenate((order, reaching_back))
        pieces = np.concatenate((slots[order], self._blocks[slots[reaching_back], PREVIOUS]))
        starts = np.concatenate((first[order], first[reaching_back] + block_frames))
        by_slot = np.argsort(pieces, kind="stable")
        bounds = np.flatnonzero(np.diff(pieces[by_slot], prepend=-1, append=-1))
        for low, high in pairwise(bounds.tolist()):
            group = by_slot[low:high]
            begins = starts[group]
            block = self._block(int(pieces[group[0]]), int(min(begins.max() + stack, block_frames)))
            for row, begin in zip(rows[group].tolist(), begins.tolist(), strict=True):
                start, stop = max(begin, 0), min(begin + stack, block_frames)
                frames[row, start - begin : stop - begin] = block[start:stop]

    def _block(self, slot: int, n_frames: int) -> Bytes:
        """The first frames of a block."""
        chunk = int(self._blocks[slot, CHUNK])
        if chunk < 0:
            return self._staging[-1 - chunk, self.layout.stack :]
        frames = np.empty((n_frames, self.layout.frame_bytes), np.uint8)
        self.codec.decode(self._bytes_in(slot), frames, verify=False)
        return frames

    def _bytes_in(self, slot: int) -> Bytes:
        """What the arena holds for a sealed block; a view."""
        return self._arena.get(*self._blocks[slot, [CHUNK, OFFSET, LENGTH]].tolist())

    # ---- what the kernels cannot do

    def _encode(self, stream: int) -> None:
        """Let the codec's library encode a full block; `append` then seals it."""
        stack = self.layout.stack
        data = self.codec.encode(self._staging[stream, stack : stack + self.block_frames])
        # A copy, because kernels are compiled for arrays that can be written to.
        self._scratch = np.frombuffer(data, np.uint8, offset=HEADER_BYTES).copy().reshape(1, -1)
        self._streams[stream, ENCODED] = -1 if data[0] == RAW else self._scratch.size

    def _make_room(self, n: int) -> None:
        """Room for ``n`` bytes in the arena, and for more blocks in their table."""
        used = int(self._state[N_SLOTS])
        if used * self.block_frames > _MOST_FRAMES:
            raise OverflowError(f"A frame store numbers at most {_MOST_FRAMES} frames")
        if used + 2 > len(self._blocks):
            more = np.zeros((len(self._blocks) // 2 + 16, BLOCK_COLUMNS), np.int32)
            self._blocks = np.concatenate((self._blocks, more))
        self._arena.make_room(n)
        chunk = self._arena.sparsest_chunk()
        if chunk is not None:
            self._empty_chunk(chunk)
            self._arena.make_room(n)

    def _empty_chunk(self, chunk: int) -> None:
        """Move what is alive in a chunk to the end of the arena, so that the chunk goes back to the system."""
        for slot in self._sealed_slots(self._blocks[:, CHUNK] == chunk).tolist():
            data = self._bytes_in(slot)
            self._blocks[slot, [CHUNK, OFFSET]] = self._arena.put(data)
            self._arena.free(chunk, len(data))

    def _sealed_slots(self, among: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        sealed = (self._blocks[:, REFERENCES] > 0) & (self._blocks[:, LENGTH] > 0)
        return np.flatnonzero(sealed if among is None else sealed & among)

    # ---- state

    def _allocate(self) -> None:
        stack = self.layout.stack
        self._heads = np.zeros((self.n_cells, self.n_columns), np.int32)
        rows = stack + self.block_frames + stack  # an observation that fills the block may be longer than its rest
        self._staging = np.zeros((self.n_streams, rows, self.layout.frame_bytes), np.uint8)
        how = {"none": NOBODY, "delta": DELTA}.get(self.codec.name, LIBRARY)
        self._fixed = (stack, self.block_frames, how)
        block_bytes = self.block_frames * self.layout.frame_bytes if how == DELTA else 0
        self._scratch = np.empty((self.n_streams, block_bytes), np.uint8)
        self._arena = Arena()
        self._reset_tables()

    def _reset_tables(self) -> None:
        k = self._kernels
        stack, block_frames, how = self._fixed
        self._blocks = np.zeros((max(64, 2 * self.n_streams), BLOCK_COLUMNS), np.int32)
        self._state = np.zeros(STATE_ENTRIES, np.int64)
        self._state[[FREE, CURRENT_BASE]] = -1
        self._streams = np.zeros((self.n_streams, STREAM_COLUMNS), np.int64)
        for stream in range(self.n_streams):
            k.open_block(stream, k.new_slot(self._blocks, self._state, -1), how, self._streams, self._blocks, self._state)
            # Streams begin at different places of their first block, so that they are not all sealed at one step.
            phase = stream * block_frames // self.n_streams
            self._staging[stream, : stack + phase] = 0
            self._streams[stream, [FILL, HEAD]] = phase, -1
        self._encode_open_blocks()

    def _encode_open_blocks(self) -> None:
        """Encode what stands in open blocks, as `append` would have done."""
        k = self._kernels
        stack, block_frames, how = self._fixed
        if how == DELTA:
            for stream, fill in enumerate(self._streams[:, FILL].tolist()):
                k.encode_open_block(
                    stream, 0, fill, -1, self._staging, self._scratch, self._streams, self._blocks, self._arena.table,
                    stack, block_frames,
                )  # fmt: skip

    def _load_kernels(self) -> None:
        # Here and not at the top: numba takes a while to import, and this library is imported for other things too.
        from sb3_extra_buffers.store import fetching, kernels

        self._kernels: Any = kernels
        self._fetching: Any = fetching
        self._bytes_of = ObservationBytes(self.layout)
        self._first_cells = np.arange(self.n_streams)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return saved_state.save(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._lock = threading.RLock()
        saved_state.restore(self, state)


def memory_for_batch(n: int, nbytes: int) -> Bytes:
    """Bytes ``(n, nbytes)`` that were not written yet: torch's, if torch is there, because a batch becomes a tensor.

    NumPy asks for huge pages where an array is large, in the midst of the heap that torch uses for training: PPO then
    had a tenth more page faults, and took 4 % longer.
    """
    torch = sys.modules.get("torch")  # not imported: records are read without it
    if torch is None:
        return np.empty((n, nbytes), np.uint8)
    array: Bytes = torch.empty((n, nbytes), dtype=torch.uint8, device="cpu").numpy()
    return array
