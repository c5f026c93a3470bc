"""The block store: frames in encoded blocks, in the memory of the native core.

    add:     observation -> index (what is new?) -> new frames -> open block -> encoded -> chunk
    sample:  cells -> index (which frames?) -> blocks -> observations

Columns share the streams, so a frame that is in both `obs` and `next_obs` is stored once. `delta` and `none` run in the core.
Other codecs are called here: they encode pieces of blocks when these are full, and decode the pieces that a batch needs. Each
block records its coding, so that `choosing` can change the coding of new blocks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import Bytes, Codec
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.native import NativeStore
from sb3_extra_buffers.native.binding import address_of
from sb3_extra_buffers.native.store import BASE, CODED, CodedPieces, TakenCells
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.host.batches import new_batch
from sb3_extra_buffers.store.host.block_folder import BlockFolder
from sb3_extra_buffers.store.host.choosing import Chooser, chooser_for_order, make_chooser
from sb3_extra_buffers.store.host.coding import Coding, piece_frames_for
from sb3_extra_buffers.store.host.threads import run_in_threads
from sb3_extra_buffers.store.layout import FrameLayout
from sb3_extra_buffers.store.observation_bytes import ObservationBytes

#: Bytes of observations that are decoded at a time.
_DECODED_BYTES = 1 << 20
#: Of chunks, so many bytes may be free without being counted: three chunks.
_FREE_BYTES = 3 << 19


class BlockStore(Store):
    """The streams of one observation leaf, in encoded blocks.

    :param layout: how an observation is cut into frames
    :param n_cells: cells of one column
    :param codec: the codec of blocks, or a preference (``"auto"``, ``"auto-fast"``, ``"auto-small"``)
    :param n_streams: streams; one per env
    :param n_columns: columns that share the streams
    :param block_frames: frames in a block, at least ``layout.stack``
    :param is_whole: whether a codec gets whole blocks instead of pieces
    :param directory: where sealed blocks are kept in files; in memory if not given
    """

    def __init__(
        self,
        layout: FrameLayout,
        n_cells: int,
        codec: Codec | str,
        *,
        n_streams: int = 1,
        n_columns: int = 1,
        block_frames: int = 16,
        is_whole: bool = True,
        directory: str | None = None,
    ) -> None:
        if block_frames < layout.stack:
            raise ValueError(f"block_frames must be at least the {layout.stack} frames of an observation, got {block_frames}")
        super().__init__(layout, n_cells, n_streams, n_columns)
        self.block_frames = block_frames
        self._chooser: Chooser | None
        if isinstance(codec, str):
            self._chooser = make_chooser(codec, layout, block_frames)
            self._coding = self._chooser.chosen
        else:
            self._coding = Coding(codec, 0 if is_whole else piece_frames_for(codec, layout, block_frames))
            self._chooser = None if is_whole else chooser_for_order(self._coding, layout, block_frames)
        #: All codings that blocks have been encoded with. The core stores the index of its coding for each block.
        self._codings = [self._coding]
        self._native = NativeStore(
            n_cells=n_cells, n_streams=n_streams, n_columns=n_columns, stack=layout.stack,
            frame_bytes=max(layout.frame_bytes, 1), block_frames=block_frames, frames=int(self._coding.codec.frames),
            piece_frames=self._coding.piece_frames, neighbours=layout.neighbours,
        )  # fmt: skip
        self._folder = None if directory is None else BlockFolder(directory)
        if self._folder is not None:
            self._native.use_file(self._folder.path / "blocks")
        self._needs_decoding = False  # whether some blocks may have to be decoded here
        self._announce(self._codings)
        self._is_empty = layout.frame_bytes == 0  # observations without bytes: there is nothing to store
        # the bytes of an observation are already frames in order
        self._is_in_order = not (layout.is_interleaved or self._is_empty)
        self._bytes_of = ObservationBytes(layout)
        if self._is_in_order:
            self._native.take_arrays((n_streams, *layout.shape), layout.dtype)

    @property
    def codec(self) -> Codec:
        """The codec of new blocks."""
        return self._coding.codec

    @property
    def method(self) -> str:  # type: ignore[override]
        """See `Store.method`."""
        return self._coding.spec

    # ---- writing

    def prepare_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.prepare_step`."""
        first, second = observations[0], observations[-1]
        if not (self._is_in_order and first.flags.c_contiguous and second.flags.c_contiguous):
            if self._is_empty:
                self._cells(self._cells_of(slot), None)
                return
            first, second = self._bytes_of(first), self._bytes_of(second, 1)
        if self._chooser is not None and self._chooser.is_due():
            self._choose(self._chooser, second)
        self._native.plan(slot, first, second, self._encode)

    def prepare_given(self, slot: int, observations: tuple[Any, ...]) -> bool:
        """See `Store.prepare_given`. The core checks the arrays, in a tenth of the time."""
        if not self._native.plan_given(slot, observations[0], observations[-1], self._encode):
            return False
        chooser = self._chooser
        if chooser is not None and chooser.is_due():  # only now is it certain that these are arrays to look at
            coding = self._coding
            self._choose(chooser, observations[-1])
            if self._coding is not coding:  # which has dropped the plan
                return self._native.plan_given(slot, observations[0], observations[-1], self._encode)
        return True

    def commit_step(self) -> None:
        """See `Store.commit_step`."""
        self._native.commit()

    def write_steps(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_steps`. The core writes as many as come before the next look of the chooser."""
        first, second = observations[0], observations[-1]
        if not self._is_in_order:
            super().write_steps(slot, observations)
            return
        if first.strides != second.strides or not first[:1].flags.c_contiguous:
            first, second = np.ascontiguousarray(first), np.ascontiguousarray(second)
        i = 0
        while i < len(first):
            n = len(first) - i if self._chooser is None else self._chooser.skip(len(first) - i)
            if n:
                self._native.write_steps(slot + i, first[i : i + n], second[i : i + n], self._encode)
            else:
                self.write_step(slot + i, (first[i], second[i]))
            i += max(n, 1)

    def write(self, column: int, cells: Cells, observations: NDArray[Any]) -> None:
        """See `Store.write`."""
        cells = np.ascontiguousarray(cells, np.int64)
        if self._is_empty:
            self._cells(cells, None)
            return
        given = self._bytes_of(observations, 2)
        if self._chooser is not None and len(cells) and self._chooser.is_due():
            self._choose(self._chooser, given)
        self._native.write(column, cells, given, self._encode)
        self._native.plan_again(self._encode)

    def clear(self) -> None:
        """See `Store.clear`."""
        self._native.clear()

    def erase(self, cells: Cells) -> None:
        """See `Store.erase`."""
        cells = np.ascontiguousarray(cells, np.int64)
        for first in range(0, 0 if self._is_empty else len(cells), self.n_streams):
            self._native.erase(cells[first : first + self.n_streams])

    def held_bytes(self) -> int:
        """See `Store.held_bytes`. Dead bytes count, but for a few chunks that are always partly free; a file does not."""
        usage = self._native.usage()
        if self._folder is not None:
            return usage.stored_bytes - usage.live_bytes
        return usage.stored_bytes + max(usage.held_bytes - usage.live_bytes - _FREE_BYTES, 0)

    def _announce(self, codings: list[Coding]) -> None:
        """Tell the core which of these it can read itself."""
        for number, coding in enumerate(codings):
            self._native.read_as(number, int(coding.format), coding.channels)
        self._needs_decoding = any(coding.is_decoded_here for coding in codings)

    def _encode(self, number: int, frames: Bytes) -> Any:
        return self._codings[number].encode(frames)

    def _choose(self, chooser: Chooser, observations: NDArray[Any]) -> None:
        """Let the chooser look at the newest frame, and use its choice for new blocks."""
        first: Bytes = observations.reshape(-1).view(np.uint8)[: self.layout.observation_bytes]
        chooser.look(first[-self.layout.frame_bytes :])
        self._use(chooser.chosen)

    def _use(self, coding: Coding) -> None:
        """Use this coding for new blocks."""
        if coding == self._coding:
            return
        # Registered before the core uses it, so that an interrupt in between leaves no unreadable block.
        if coding not in self._codings:
            self._codings.append(coding)
        self._announce(self._codings)
        self._native.keep_as(int(coding.codec.frames), self._codings.index(coding), coding.piece_frames)
        self._coding = coding

    # ---- reading

    def let_go_of_files(self) -> None:
        """Remove the files of this empty store. It can still be written to: its file then has no name."""
        self._native.clear()
        if self._folder is not None:
            self._folder.remove()

    def expect_read(self) -> None:
        """See `Store.expect_read`."""
        if not self._needs_decoding:
            self._native.expect_gather()

    def read_columns(self, columns: tuple[int, ...], slots: Cells, envs: Cells | None = None) -> list[NDArray[Any]]:
        """See `Store.read_columns`. What the columns share is decoded once."""
        n, layout = len(slots), self.layout
        if self._is_empty:
            self._cells(slots, envs)
            return [np.zeros((n, *layout.shape), layout.dtype) for _ in columns]
        slots = np.ascontiguousarray(slots, np.int64)
        envs = None if envs is None else np.ascontiguousarray(envs, np.int64)
        out = new_batch((len(columns), n, *layout.shape), layout.dtype)
        frames = new_batch(out.shape, layout.dtype) if layout.is_interleaved else out
        if self._needs_decoding:
            self._read_coded(columns, slots, envs, frames)
        else:
            self._native.gather(slots, envs, 3 if len(columns) == 2 else 1 << columns[0], address_of(frames))
        if layout.is_interleaved:
            layout.join_frames(frames, out)
        return list(out)

    def _read_coded(self, columns: tuple[int, ...], slots: Cells, envs: Cells | None, out: NDArray[Any]) -> None:
        """Fill ``out`` (columns, n, ...) if some blocks were encoded by libraries.

        A few observations at a time, so that decoded frames are still in the cache when they are copied, and their memory is
        reused. All at once, half of the time of a large batch was spent in page faults.
        """
        n, size, native = len(slots), self.layout.observation_bytes, self._native
        mask, start = sum(1 << column for column in columns), address_of(out)
        rows = max(_DECODED_BYTES // (size * len(columns)), 1)

        def read(first: int) -> None:
            last = min(first + rows, n)
            some_envs = None if envs is None else envs[first:last]
            pieces, decoded = native.coded_pieces(slots[first:last], some_envs, mask), None
            if pieces is not None:
                frames = self._decode(pieces)
                decoded = pieces.decoded
                decoded.frames = ctypes.addressof(frames)
            for i, column in enumerate(columns):
                native.gather(slots[first:last], some_envs, 1 << column, start + (i * n + first) * size, decoded)

        if any(coding.codec.uses_threads for coding in self._codings):
            run_in_threads(read, range(0, n, rows))
        else:
            for first in range(0, n, rows):
                read(first)

    def _decode(self, pieces: CodedPieces) -> Any:
        """The addresses of the frames of each piece, in memory that lives as long as the result."""
        data, size = memoryview(pieces.data), self.layout.frame_bytes
        try:
            work = [
                (self._codings[codec], data[begin : begin + length], n_frames)
                for codec, begin, length, n_frames in zip(*(column.tolist() for column in pieces[1:5]), strict=True)
            ]
        except IndexError:
            raise CorruptDataError("A saved block store is damaged: a block names a codec that the store does not") from None

        arrays = [coding.decode(payload, n_frames, size) for coding, payload, n_frames in work]
        addresses = (ctypes.c_void_p * len(arrays))(*map(address_of, arrays))
        addresses.arrays = arrays  # type: ignore[attr-defined]
        return addresses

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`. Open blocks count as well."""
        usage = self._native.usage()
        raw = usage.n_written * self.layout.observation_bytes
        return MemoryUsage.of(raw, usage.stored_bytes, usage.n_blocks, self.reason)

    @property
    def reason(self) -> str:
        """How observations are encoded, and why, if `auto` has chosen."""
        return self._coding.name if self._chooser is None else self._chooser.reason()

    def check(self) -> None:
        """Raise CorruptDataError unless all counts and links are consistent. Slow; for tests."""
        self._native.check()

    # ---- extracts: cells with the blocks that they need, see store/extract.py

    @property
    def codings(self) -> list[Coding]:
        """All codings, by the number that the core stores for a block."""
        return self._codings

    @property
    def chosen(self) -> int:
        """Number of the coding of new blocks."""
        return self._codings.index(self._coding)

    @contextmanager
    def taken(self, cells: Cells) -> Iterator[TakenCells]:
        """Cells and their blocks. Nothing may be written meanwhile."""
        taken = self._native.take(np.ascontiguousarray(cells, np.int64))
        try:
            yield taken
        finally:
            taken.close()

    def can_receive(self, layout: FrameLayout, block_frames: int) -> bool:
        """Whether blocks of such a store can be copied without decoding."""
        return layout == self.layout and block_frames == self.block_frames

    def receive(
        self,
        cells: Cells,
        heads: Cells,
        table: Cells,
        codings: Sequence[dict[str, Any]],
        data: Iterable[Any],
        chosen: int | None = None,
    ) -> None:
        """Put cells and blocks of another store into cells of this one. An error changes nothing.

        :param codings: codings of the other store, by number
        :param chosen: the coding that the other store had chosen; a chooser here continues from it
        """
        if self._is_empty:
            self._cells(cells, None)
            return
        table = np.ascontiguousarray(table)
        known = [Coding.restored(saved) for saved in codings]
        self._codings += [coding for coding in known if coding not in self._codings]
        self._announce(self._codings)
        numbers = np.array([self._codings.index(coding) for coding in known], np.int64)
        coded = table[:, BASE] <= CODED
        if coded.any():
            given = CODED - table[coded, BASE]
            if given.max() >= len(numbers):
                raise CorruptDataError("A segment is damaged: a block names a codec that the segment does not")
            table = table.copy()
            table[coded, BASE] = CODED - numbers[given]
        self._native.receive(table, cells, heads, data)
        if self._chooser is not None and chosen is not None:
            self._chooser.resume(known[chosen])
            self._use(known[chosen])
