"""The frame store: the streams of one observation leaf. Append observations, gather them, release what is overwritten.

    add:     observation -> frames -> (already at the end of the stream? reuse) -> open block -> codec -> arena
    gather:  cells -> tokens -> blocks -> codec -> observations

A cell is a place that can hold one observation; cell `i` belongs to stream `i % n_streams`. There may be several columns of
cells (`obs` and `next_obs` of a replay buffer): they share the streams, so what stands in both is kept once.

Each block counts who needs it: cells whose observation reaches into it, and its stream while the block is open, reserved, or
the one before the open block. A block that nobody needs any more gives its bytes back at once.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import HEADER_BYTES, RAW, Bytes, Codec, with_header
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store import saved_state
from sb3_extra_buffers.store.arena import CHUNK_BITS, Arena
from sb3_extra_buffers.store.layout import FrameLayout
from sb3_extra_buffers.store.observation_bytes import ObservationBytes
from sb3_extra_buffers.store.threads import LARGE_BATCH_BYTES, run_in_threads, thread_count

_TABLES = saved_state.TABLES

#: Every so many blocks it is looked at whether the base is still like the frames; if not, it is replaced.
_BASE_BLOCKS = 32
#: Blocks in a row that the codec did not shrink before it is only tried now and then, and how often then.
_GIVE_UP_AFTER, _TRY_AGAIN_EVERY = 8, 16


#: Tokens are kept in 32 bits.
_MOST_FRAMES = 2**31 - 2**20


class MemoryUsage(NamedTuple):
    """What observations take. `raw_bytes` is what plain arrays of the written cells would take."""

    raw_bytes: int
    stored_bytes: int
    ratio: float
    blocks: int


class FrameStore:
    """The streams of one observation leaf.

    :param layout: how an observation is cut into frames
    :param n_cells: cells of one column
    :param codec: what encodes a block
    :param n_streams: streams; one per env
    :param n_columns: columns that share the streams
    :param block_frames: frames in a block, at least ``layout.stack``
    """

    _n_slots: int
    _unhelpful: int  # blocks in a row that the codec did not shrink
    _current_base: int  # slot, or -1
    _base_age: int  # in blocks

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
        self.layout, self.codec, self.block_frames = layout, codec, block_frames
        self.n_cells, self.n_streams, self.n_columns = n_cells, n_streams, n_columns
        self._lock = threading.RLock()
        self._load_kernels()
        self._allocate()

    # ---- writing

    def write(self, column: int, cells: NDArray[np.int64], observations: NDArray[Any]) -> None:
        """Put observations into cells, in this order.

        :param cells: ``(n,)``
        :param observations: ``(n, *shape)`` of the layout's dtype
        """
        self.write_columns(column, cells, (observations,))

    def write_columns(self, first: int, cells: NDArray[np.int64], observations: tuple[NDArray[Any], ...]) -> None:
        """Put observations into the same cells of one or more columns, in one pass.

        :param first: number of the first column
        :param observations: ``(n, *shape)`` for each column
        """
        values = tuple([self._bytes_of(array) for array in observations])
        total = len(cells) * len(values)
        stack, block_frames, append = self.layout.stack, self.block_frames, self._kernels.append
        written = 0
        with self._lock:
            while written < total:
                written, n_freed, full = append(
                    values, first, cells, written, self._heads, self._staging, self._streams, self._references,
                    self._previous, stack, block_frames, self._freed,
                )  # fmt: skip
                if written < 0:
                    raise IndexError(f"Cells {cells.min()}..{cells.max()} are not all among the {self.n_cells} of this store")
                if n_freed:
                    for slot in self._freed[:n_freed].tolist():
                        self._drop(slot)
                if full >= 0:
                    self._seal(full)

    def clear(self) -> None:
        """Forget everything that was written."""
        with self._lock:
            self._heads[:] = 0
            self._arena.clear()
            self._reset_tables()

    # ---- reading

    def read(self, column: int, cells: NDArray[np.int64]) -> NDArray[Any]:
        """The observations in cells ``(n,)`` as a new array ``(n, *shape)``; zeros where nothing was written."""
        return self.read_columns((column,), cells)[0]

    def read_columns(self, columns: tuple[int, ...], cells: NDArray[np.int64]) -> list[NDArray[Any]]:
        """The same cells of several columns; blocks that they share are decoded once."""
        n = len(cells)
        out = np.empty((len(columns) * n, self.layout.observation_bytes), np.uint8)
        with self._lock:
            tokens = np.concatenate([self._heads[column][cells] for column in columns]).astype(np.int64) - 1
            self._gather(tokens, out)
        return [self.layout.from_bytes(out[i * n : (i + 1) * n]) for i in range(len(columns))]

    def memory_usage(self) -> MemoryUsage:
        """What the written cells would take as plain arrays, and what they take here (index and open blocks included)."""
        with self._lock:
            written = int(np.count_nonzero(self._heads))
            raw = written * self.layout.observation_bytes
            tables = sum(getattr(self, name).nbytes for name in _TABLES)
            # Of the heads only what was written to is in memory: the rest are pages that were never touched.
            stored = self._arena.live_bytes + self._staging.nbytes + written * self._heads.itemsize + tables
            blocks = int(np.count_nonzero(self._references[: self._n_slots]))
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
            bad: int = self._kernels.fetch(
                tokens, part, out, self._staging, self._previous, self._place, self._length, self._base,
                self._arena.addresses, self.layout.stack, self.block_frames,
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
        pieces = np.concatenate((slots[order], self._previous[slots[reaching_back]]))
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
        place = int(self._place[slot])
        if place < 0:
            return self._staging[-1 - place, self.layout.stack :]
        frames = np.empty((n_frames, self.layout.frame_bytes), np.uint8)
        base = self._base_frame(int(self._base[slot]))
        self.codec.decode(self._arena.get(place, int(self._length[slot])), frames, base, verify=False)
        return frames

    # ---- blocks

    def _seal(self, stream: int) -> None:
        """Encode a full block and open the reserved one behind it."""
        stack, block_frames = self.layout.stack, self.block_frames
        fill, head, sealed, opened = self._streams[stream].tolist()
        rows = self._staging[stream]
        frames = rows[stack : stack + block_frames]
        self._keep(sealed, self._encode(sealed, frames))
        # The last frames of this block are the context of the next, whatever stands behind them is its beginning.
        kept = stack + fill - block_frames
        leftover = rows[block_frames : block_frames + kept]
        rows[:kept] = leftover if kept <= block_frames else leftover.copy()
        self._place[opened] = -1 - stream
        self._streams[stream] = fill - block_frames, head, opened, self._new_slot(previous=opened)
        before = int(self._previous[sealed])
        if before >= 0:
            self._release(before)
        chunk = self._arena.sparsest_chunk()
        if chunk is not None:
            self._empty_chunk(chunk)

    def _encode(self, slot: int, frames: Bytes) -> bytes:
        if self._unhelpful >= _GIVE_UP_AFTER and (self._unhelpful - _GIVE_UP_AFTER) % _TRY_AGAIN_EVERY:
            self._unhelpful += 1
            return with_header(RAW, frames)
        base = self._choose_base(frames[0]) if self.codec.uses_base else -1
        data = self.codec.encode(frames, self._base_frame(base))
        if data[0] == RAW:
            self._unhelpful += 1
        else:
            self._unhelpful = 0
            if base >= 0:
                self._base[slot] = base
                self._references[base] += 1
        return data

    def _choose_base(self, frame: Bytes) -> int:
        """Slot of the base frame for a block that begins with ``frame``; a new base where the old one has grown unlike."""
        self._base_age += 1
        if self._current_base >= 0:
            if self._base_age < _BASE_BLOCKS:
                return self._current_base
            base = self._base_frame(self._current_base)
            if base is not None and self.codec.resembles(base, frame):
                self._base_age = 0
                return self._current_base
            self._release(self._current_base)
        self._current_base, self._base_age = self._new_slot(previous=-1), 0
        self._keep(self._current_base, with_header(RAW, frame))
        return self._current_base

    def _base_frame(self, slot: int) -> Bytes | None:
        return None if slot < 0 else self._arena.get(int(self._place[slot]), int(self._length[slot]))[HEADER_BYTES:]

    def _keep(self, slot: int, data: bytes) -> None:
        self._place[slot], self._length[slot] = self._arena.put(data), len(data)

    def _new_slot(self, previous: int) -> int:
        """A slot with one reference, that of whoever asked for it."""
        if self._free_slots:
            slot = self._free_slots.pop()
        else:
            slot, self._n_slots = self._n_slots, self._n_slots + 1
            if slot * self.block_frames > _MOST_FRAMES:
                raise OverflowError(f"A frame store numbers at most {_MOST_FRAMES} frames")
            if slot == len(self._references):
                for name in _TABLES:
                    table = getattr(self, name)
                    setattr(self, name, np.concatenate((table, np.zeros(len(table) // 2 + 16, table.dtype))))
        self._references[slot], self._previous[slot], self._base[slot] = 1, previous, -1
        self._length[slot] = 0
        return slot

    def _release(self, slot: int) -> None:
        self._references[slot] -= 1
        if self._references[slot] == 0:
            self._drop(slot)

    def _drop(self, slot: int) -> None:
        """Give back the bytes and the slot of a sealed block that nobody needs."""
        self._arena.free(int(self._place[slot]), int(self._length[slot]))
        self._free_slots.append(slot)
        base = int(self._base[slot])
        if base >= 0:
            self._release(base)

    def _empty_chunk(self, chunk: int) -> None:
        """Move what is alive in a chunk to the end of the arena, so that the chunk goes back to the system."""
        alive = (self._references[: self._n_slots] > 0) & (self._length[: self._n_slots] > 0)
        for slot in np.flatnonzero(alive & (self._place[: self._n_slots] >> CHUNK_BITS == chunk)).tolist():
            place, length = int(self._place[slot]), int(self._length[slot])
            self._place[slot] = self._arena.put(self._arena.get(place, length))
            self._arena.free(place, length)

    # ---- state

    def _allocate(self) -> None:
        stack = self.layout.stack
        self._heads = np.zeros((self.n_columns, self.n_cells), np.int32)
        rows = stack + self.block_frames + stack  # an observation that fills the block may be longer than its rest
        self._staging = np.zeros((self.n_streams, rows, self.layout.frame_bytes), np.uint8)
        self._freed = np.empty(64, np.int32)
        self._arena = Arena()
        self._reset_tables()

    def _reset_tables(self) -> None:
        self._references, self._previous, self._base, self._length = (np.zeros(64, np.int32) for _ in range(4))
        self._place = np.zeros(64, np.int64)
        self._free_slots: list[int] = []
        self._n_slots, self._unhelpful, self._current_base, self._base_age = 0, 0, -1, 0
        self._streams = np.zeros((self.n_streams, 4), np.int64)
        for stream in range(self.n_streams):
            opened = self._new_slot(previous=-1)
            self._place[opened] = -1 - stream
            # Streams begin at different places of their first block, so that they are not all sealed at one step.
            phase = stream * self.block_frames // self.n_streams
            self._staging[stream, : self.layout.stack + phase] = 0
            self._streams[stream] = phase, -1, opened, self._new_slot(previous=opened)

    def _load_kernels(self) -> None:
        # Here and not at the top: numba takes a while to import, and this library is imported for other things too.
        from sb3_extra_buffers.store import kernels

        self._kernels: Any = kernels
        self._bytes_of = ObservationBytes(self.layout)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return saved_state.save(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved_state.check(state)
        self._lock = threading.RLock()
        saved_state.restore(self, state)
