"""A store of the core as a Python object: owns the handle, turns codes into exceptions. Above: store/host and store/device."""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from ctypes import addressof, byref, c_char, c_int32, c_int64
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.native.binding import (
    ENCODE,
    NO_MEMORY,
    NO_NEIGHBOURS,
    OK,
    TOO_LARGE,
    ChangesStruct,
    Config,
    Decoded,
    Neighbours,
    TakenStruct,
    UsageStruct,
    address_of,
    check,
    core,
)

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Encode = Callable[[int, Bytes], Any]
#: How the core keeps frames, `SB3X_FRAMES_...`.
RAW, DELTA, CODEC, OUTSIDE = range(4)
#: What stands in a table of blocks, see `sb3x_taken`, and how a codec's number stands there: below this one.
PREVIOUS, BASE, LENGTH, PIECE, COLUMNS = range(5)
CODED = -3


class Usage(NamedTuple):
    """What a store takes, see `sb3x_usage`."""

    n_written: int
    n_blocks: int
    stored_bytes: int
    held_bytes: int
    live_bytes: int


class Changes(NamedTuple):
    """New frames to keep by token, and blocks to let go of. Views of the core's memory: valid until its next call."""

    tokens: Ints
    frames: Bytes
    freed: Ints


class CodedPieces(NamedTuple):
    """Pieces that must be decoded for a batch: who has encoded each, where its bytes lie, and how many frames are needed."""

    data: Bytes
    codecs: Ints
    begins: Ints
    lengths: Ints
    n_frames: Ints
    decoded: Decoded


class NativeStore:
    """One `sb3x_store`. Not for several threads at a time.

    :param frames: `RAW`, `DELTA`, `CODEC` or `OUTSIDE`
    :param piece_frames: see `keep_as`
    :param neighbours: where similar values of a frame lie
    """

    def __init__(
        self,
        *,
        n_cells: int,
        n_streams: int,
        n_columns: int,
        stack: int,
        frame_bytes: int,
        block_frames: int,
        frames: int,
        piece_frames: int = 0,
        neighbours: Neighbours = NO_NEIGHBOURS,
    ) -> None:
        self.core = core()
        self.n_columns, self.stack, self.frame_bytes, self.block_frames = n_columns, stack, frame_bytes, block_frames
        sizes = (n_cells, n_streams, n_columns, stack, frame_bytes, block_frames)
        if max(sizes) >= 2**62:
            raise ValueError(self._too_large(sizes))
        config, error = Config(*sizes, frames, piece_frames, *neighbours), c_int32()
        self.handle: int | None = self.core.sb3x_create(byref(config), byref(error))
        if not self.handle:
            if error.value == TOO_LARGE:
                raise ValueError(self._too_large(sizes))
            if error.value == NO_MEMORY:
                raise MemoryError(
                    f"No memory for the open blocks of {n_streams} envs: {block_frames} frames of {frame_bytes} bytes each. "
                    "Use smaller blocks (block_frames) or fewer envs"
                )
            check(error.value, "make a store")
        self._changes = ChangesStruct()
        self._changes_at = addressof(self._changes)
        # What was planned, which the core points to until the commit: a step, or cells.
        self._planned: tuple[int, NDArray[Any], NDArray[Any]] | None = None
        self._planned_cells: tuple[Ints, NDArray[Any]] | None = None
        weakref.finalize(self, self.core.sb3x_destroy, self.handle).atexit = False

    @staticmethod
    def _too_large(sizes: tuple[int, ...]) -> str:
        n_cells, n_streams, n_columns, stack, frame_bytes, block_frames = sizes
        return (
            f"{n_cells} observations in {n_columns} columns, {n_streams} envs, {stack} frames of {frame_bytes} bytes in "
            f"blocks of block_frames={block_frames}: more than a store can count. "
            "Use smaller blocks (block_frames) or a smaller buffer_size"
        )

    # ---- writing

    def plan(self, slot: int, first: NDArray[Any], second: NDArray[Any], encode: Encode | None = None) -> None:
        """Plan to write the observations of a step. Nothing has changed yet; the arrays are kept until the commit.

        :param first: C-contiguous observations of all streams
        :param encode: encodes a piece ``(frames, frame_bytes)`` by the codec of this number; gives bytes, or None to keep it
            as it is
        """
        self._planned = slot, first, second
        try:
            try:  # `address_of`, without the call
                one, two = addressof(c_char.from_buffer(first)), addressof(c_char.from_buffer(second))
            except (TypeError, ValueError):
                one, two = address_of(first), address_of(second)
            status = self.core.sb3x_plan(self.handle, slot, one, two, 0, self._changes_at)
            while status == ENCODE and encode is not None:
                self._encode_full_pieces(encode)
                status = self.core.sb3x_plan(self.handle, slot, one, two, 1, self._changes_at)
            if status != OK:
                check(status, "store a step of observations")
        except BaseException:
            self._planned = None
            raise

    def plan_again(self, encode: Encode) -> None:
        """Plan again what is planned, if anything is: the core has one plan at a time, and another write came in between."""
        if self._planned is not None:
            self.plan(*self._planned, encode)

    def commit(self) -> None:
        """Write what was planned last; nothing if nothing is planned."""
        self.core.sb3x_commit(self.handle, self._changes_at)
        self._planned = None

    def write(self, column: int, cells: Ints, observations: NDArray[Any], encode: Encode) -> None:
        """Write observations into cells of a column, one after the other, each whole or not at all."""
        done = c_int64(-1)
        where, what = address_of(cells), address_of(observations)
        while True:
            status = self.core.sb3x_write(self.handle, column, where, len(cells), what, byref(done))
            if status != ENCODE:
                break
            self._encode_full_pieces(encode)
        check(status, "store observations")

    def _encode_full_pieces(self, encode: Encode) -> None:
        stream, part, n = c_int64(), c_int64(), c_int64()
        while address := self.core.sb3x_full_piece(self.handle, byref(stream), byref(part), byref(n)):
            codec = self.core.sb3x_codec_of(self.handle, stream, part)
            data = encode(codec, array_at(address, (n.value, self.frame_bytes)))
            given = np.frombuffer(b"" if data is None else data, np.uint8)
            status = self.core.sb3x_give_encoded(self.handle, stream, part, address_of(given), given.size)
            check(status, "keep an encoded piece")

    def keep_as(self, frames: int, codec: int = 0, piece_frames: int = 0) -> None:
        """Keep blocks that are opened from now on in another way. Not while a step is planned.

        :param frames: `RAW`, `DELTA` or `CODEC`
        :param codec: a number, below 256, that `coded_pieces` tells again
        :param piece_frames: frames that are encoded together; 0 for a whole block, or, for `DELTA`, as it finds best
        """
        check(self.core.sb3x_keep_as(self.handle, frames, codec, piece_frames), "change the codec")

    def read_as(self, codec: int, format: int) -> None:
        """Let the core itself read what the codec of this number writes, `SB3X_READ_...`."""
        check(self.core.sb3x_read_as(self.handle, codec, format), "read the format of a codec")

    def use_file(self, path: str | os.PathLike[str]) -> None:
        """Keep sealed blocks in a new file at this path, which is removed with the store."""
        check(self.core.sb3x_use_file(self.handle, os.fsencode(path)), f"keep blocks in {path}")

    # ---- frames outside

    def changes(self) -> Changes:
        """What the last plan, commit or erase has told."""
        changes = self._changes
        return Changes(
            array_at(changes.tokens, (changes.n_new,), np.int64),
            array_at(changes.frames, (changes.n_new, self.frame_bytes)),
            array_at(changes.freed, (changes.n_freed,), np.int64),
        )

    def plan_cells(self, column: int, cells: Ints, observations: NDArray[Any]) -> None:
        """Plan to write into cells of a column, each of another stream."""
        status = self.core.sb3x_plan_cells(
            self.handle, column, address_of(cells), len(cells), address_of(observations), self._changes_at
        )
        check(status, "store observations")
        self._planned_cells = cells, observations

    def erase(self, cells: Ints) -> None:
        """Empty cells of all columns, at most as many as there are streams."""
        check(self.core.sb3x_erase(self.handle, address_of(cells), len(cells), self._changes_at), "erase cells")

    def freed(self) -> Ints:
        """Blocks that were freed and not let go of yet."""
        self.core.sb3x_freed(self.handle, self._changes_at)
        return array_at(self._changes.freed, (self._changes.n_freed,), np.int64)

    def let_go(self) -> None:
        """Nothing is kept for freed blocks any more: they may be used again."""
        self.core.sb3x_let_go(self.handle)

    @property
    def token_end(self) -> int:
        """All tokens are smaller."""
        return int(self.core.sb3x_token_end(self.handle))

    # ---- reading

    def gather(self, slots: Ints, envs: Ints | None, columns: int, out: int, decoded: Decoded | None = None) -> None:
        """Copy observations to the address ``out``.

        :param columns: 1 for the first, 2 for the second, 3 for both
        """
        status = self.core.sb3x_gather(
            self.handle, address_of(slots), None if envs is None else address_of(envs), len(slots), columns,
            None if decoded is None else byref(decoded), out,
        )  # fmt: skip
        if status != OK:
            check(status, "read observations")

    def expect_gather(self) -> None:
        """A batch will be read soon."""
        self.core.sb3x_expect_gather(self.handle)

    def coded_pieces(self, slots: Ints, envs: Ints | None, columns: int) -> CodedPieces | None:
        """What has to be decoded before `gather` can be called; None if nothing."""
        most = self.core.sb3x_most_pieces(self.handle, len(slots), columns)
        table, n_bytes = np.empty((5, most), np.int64), c_int64()
        start, step = address_of(table), 8 * most
        decoded = Decoded(0, *(start + i * step for i in range(5)), None)
        status = self.core.sb3x_coded_pieces(
            self.handle, address_of(slots), None if envs is None else address_of(envs), len(slots), columns, byref(decoded),
            byref(n_bytes),
        )  # fmt: skip
        if status != OK:
            check(status, "read observations")
        if not decoded.n:
            return None
        data = np.empty(n_bytes.value, np.uint8)
        check(self.core.sb3x_coded_bytes(self.handle, byref(decoded), address_of(data)), "read observations")
        codecs, begins, lengths, n_frames = table[1:, : decoded.n]
        return CodedPieces(data, codecs, begins, lengths, n_frames, decoded)

    def tokens(self, slots: Ints, envs: Ints | None, columns: int) -> tuple[Ints, Ints]:
        """The tokens of all frames of observations, each once, and the order ``(columns, n, stack)`` that reads them."""
        n = len(slots) * (columns.bit_count()) * self.stack
        distinct, order, count = np.empty(n, np.int64), np.empty(n, np.int64), c_int64()
        status = self.core.sb3x_tokens(
            self.handle, address_of(slots), None if envs is None else address_of(envs), len(slots), columns,
            address_of(distinct), address_of(order), byref(count),
        )  # fmt: skip
        check(status, "read observations")
        return distinct[: count.value], order

    # ---- all of it

    def clear(self) -> None:
        """Forget everything that was written."""
        self._planned = None
        self.core.sb3x_clear(self.handle)

    def usage(self) -> Usage:
        """What it takes."""
        usage = UsageStruct()
        self.core.sb3x_measure(self.handle, byref(usage))
        return Usage(*(getattr(usage, name) for name in Usage._fields))

    def check(self) -> None:
        """Raise CorruptDataError unless every count and link is what the cells imply. Looks at everything: for tests."""
        check(self.core.sb3x_check(self.handle), "check a store")

    # ---- segments

    def take(self, cells: Ints) -> TakenCells:
        """Cells with all the blocks that they need. To be read before the store is changed, and closed."""
        error = c_int32()
        handle = self.core.sb3x_take(self.handle, address_of(cells), len(cells), byref(error))
        if not handle:
            check(error.value, "take observations out of a store")
        return TakenCells(self, handle, len(cells))

    def receive(self, table: Ints, cells: Ints, heads: Ints, data: Iterable[Any]) -> None:
        """Put what another store has given out into cells: all of it or nothing. What is planned is forgotten.

        :param table: its blocks, with the numbers that this store has for codecs
        :param heads: ``(cells, columns)``
        :param data: the bytes of the blocks, in parts of any length
        """
        self._planned = None
        error = c_int32()
        incoming = self.core.sb3x_receive(self.handle, address_of(table), len(table), byref(error))
        if not incoming:
            check(error.value, "take on observations")
        try:
            for part in whole_blocks(table[:, LENGTH], data):
                check(self.core.sb3x_receive_bytes(incoming, address_of(part), part.size), "take on observations")
            check(
                self.core.sb3x_receive_cells(incoming, address_of(cells), len(cells), address_of(heads)),
                "take on observations",
            )
        finally:
            self.core.sb3x_end_receiving(incoming)


class TakenCells:
    """What `NativeStore.take` gives: tables that are copies, and bytes that are still the store's."""

    def __init__(self, store: NativeStore, handle: int, n: int) -> None:
        self._store, self._handle = store, handle
        taken = TakenStruct()
        store.core.sb3x_look_at_segment(handle, byref(taken))
        #: ``(cells, columns)``: tokens + 1, by the numbers that blocks have here.
        self.heads: Ints = array_at(taken.heads, (n, store.n_columns), np.int64).copy()
        #: ``(blocks, 4)``: see `sb3x_taken`.
        self.table: Ints = array_at(taken.table, (taken.n_blocks, COLUMNS), np.int64).copy()
        self.n_bytes: int = taken.n_bytes

    def parts(self, most: int = 1 << 20) -> Iterator[Bytes]:
        """The bytes of the blocks, a part at a time: each part is overwritten by the next."""
        room = np.empty(min(most, max(self.n_bytes, 1)), np.uint8)
        while n := self._store.core.sb3x_read_segment(self._handle, address_of(room), room.size):
            yield room[:n]

    def close(self) -> None:
        """Give its memory back."""
        handle, self._handle = self._handle, 0
        if handle:
            self._store.core.sb3x_free_segment(handle)


def whole_blocks(lengths: Ints, data: Iterable[Any]) -> Iterator[Bytes]:
    """The same bytes in parts that end where blocks do. ValueError if they are not as many as the blocks have."""
    ends = np.cumsum(lengths)
    begin, rest = 0, np.empty(0, np.uint8)
    for part in data:
        given = np.frombuffer(part, np.uint8)
        held = np.concatenate((rest, given)) if rest.size else given
        fits = int(np.searchsorted(ends, begin + held.size, side="right"))
        end = int(ends[fits - 1]) if fits else 0
        if end > begin:
            yield held[: end - begin]
            held, begin = held[end - begin :], end
        rest = held.copy()  # what it was cut from may be overwritten
    if rest.size or begin != (int(ends[-1]) if len(ends) else 0):
        raise CorruptDataError(f"The blocks of a segment have {begin + rest.size} bytes; its table names {ends[-1:].sum()}")


def array_at(address: int | None, shape: tuple[int, ...], dtype: Any = np.uint8) -> NDArray[Any]:
    """The core's memory at an address as an array; a view that must not outlive it."""
    n = math.prod(shape) * np.dtype(dtype).itemsize
    if not n or not address:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_ubyte * n).from_address(address), dtype).reshape(shape)
