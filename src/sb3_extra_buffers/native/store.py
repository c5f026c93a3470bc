"""A store of the core as a Python object: owns the handle, turns codes into exceptions. Above: store/host and store/device."""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from ctypes import addressof, byref, c_char, c_int32, c_int64
from typing import Any, NamedTuple, cast

import numpy as np
from numpy import ndarray
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
from sb3_extra_buffers.native.direct import DOES_NOT_FIT, StepCalls

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Encode = Callable[[int, Bytes], Any]
#: How the core keeps frames, `SB3X_FRAMES_...`.
RAW, DELTA, CODEC, OUTSIDE = range(4)
#: Columns of a table of blocks, see `sb3x_taken`. A codec number n is written as CODED - n.
PREVIOUS, BASE, LENGTH, PIECE, COLUMNS = range(5)
CODED = -3


class Usage(NamedTuple):
    """Memory of a store, see `sb3x_usage`."""

    n_written: int
    n_blocks: int
    stored_bytes: int
    held_bytes: int
    live_bytes: int


class Changes(NamedTuple):
    """New frames by token, and blocks to free. These are views of the core's memory, valid until its next call."""

    tokens: Ints
    frames: Bytes
    freed: Ints


class CodedPieces(NamedTuple):
    """Pieces that must be decoded for a batch: the codec, the bytes and the number of needed frames of each."""

    data: Bytes
    codecs: Ints
    begins: Ints
    lengths: Ints
    n_frames: Ints
    decoded: Decoded


class NativeStore:
    """One `sb3x_store`. Not for several threads at a time, but for `gather` and `coded_pieces`.

    :param frames: `RAW`, `DELTA`, `CODEC` or `OUTSIDE`
    :param piece_frames: see `keep_as`
    :param neighbours: where similar values of a frame are
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
        # The planned step or cells, which the core points to until the commit.
        self._planned: tuple[int, NDArray[Any], NDArray[Any]] | None = None
        self._planned_cells: tuple[Ints, NDArray[Any]] | None = None
        self._calls: StepCalls | None = None
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
        """Plan to write the observations of a step. Changes no cell. The arrays are kept alive until the commit.

        :param first: C-contiguous observations of all streams
        :param encode: encodes a piece ``(frames, frame_bytes)`` with the codec of this number; returns bytes, or None to
            keep the piece uncompressed
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

    def take_arrays(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Let `plan_given` take observations ``(streams, ...)`` of this shape and dtype, whose bytes are frames in order."""
        with suppress(ValueError):  # bfloat16, dates: the buffer protocol does not know them, and ctypes does without
            self._calls = StepCalls(self.core, cast(int, self.handle), shape, dtype)

    def plan_given(self, slot: int, first: Any, second: Any, encode: Encode) -> bool:
        """`plan` with what a user has given. False, and nothing is planned, if `take_arrays` was told of other arrays."""
        # Only of NumPy's own arrays is it certain that bytes stay in place, and that to look at them runs no code of others.
        if self._calls is None or not type(first) is type(second) is ndarray:
            return False
        before, self._planned = self._planned, (slot, first, second)
        try:
            status = self._calls.plan(slot, first, second)
            while status == ENCODE:
                self._encode_full_pieces(encode)
                status = self._calls.plan(slot, first, second, None)
            if status == OK:
                return True
            if status != DOES_NOT_FIT:
                check(status, "store a step of observations")
        except BaseException:
            self._planned = None
            raise
        self._planned = before  # the core has it still: this may be an `add` within another
        return False

    def plan_again(self, encode: Encode) -> None:
        """Repeat the current plan, if there is one. The core has one plan at a time, and another write has replaced it."""
        if self._planned is not None:
            self.plan(*self._planned, encode)

    def commit(self) -> None:
        """Write what was planned last. Does nothing without a plan."""
        if self._calls is not None:
            self._calls.commit()
        else:
            self.core.sb3x_commit(self.handle, self._changes_at)
        self._planned = None

    def write(self, column: int, cells: Ints, observations: NDArray[Any], encode: Encode) -> None:
        """Write observations into cells of a column, one after the other. Each is written whole or not at all."""
        done = c_int64(-1)
        where, what = address_of(cells), address_of(observations)
        while True:
            status = self.core.sb3x_write(self.handle, column, where, len(cells), what, byref(done))
            if status != ENCODE:
                break
            self._encode_full_pieces(encode)
        check(status, "store observations")

    def write_steps(self, slot: int, first: NDArray[Any], second: NDArray[Any], encode: Encode) -> None:
        """Write consecutive steps, one after the other, each whole or not at all. What is planned is forgotten.

        :param slot: of the first of them
        :param first: ``(steps, streams, ...)``, each step C-contiguous; steps may overlap
        :param second: with the strides of `first`
        """
        self._planned = None
        done, stride = c_int64(-1), first.strides[0]
        one, two = first.ctypes.data, second.ctypes.data
        while True:
            status = self.core.sb3x_write_steps(self.handle, slot, len(first), one, two, stride, byref(done))
            if status != ENCODE:
                break
            self._encode_full_pieces(encode)
        check(status, "store steps of observations")

    def _encode_full_pieces(self, encode: Encode) -> None:
        stream, part, n = c_int64(), c_int64(), c_int64()
        while address := self.core.sb3x_full_piece(self.handle, byref(stream), byref(part), byref(n)):
            codec = self.core.sb3x_codec_of(self.handle, stream, part)
            data = encode(codec, array_at(address, (n.value, self.frame_bytes)))
            given = np.frombuffer(b"" if data is None else data, np.uint8)
            status = self.core.sb3x_give_encoded(self.handle, stream, part, address_of(given), given.size)
            check(status, "keep an encoded piece")

    def keep_as(self, frames: int, codec: int = 0, piece_frames: int = 0) -> None:
        """Set how new blocks are encoded. Not while a step is planned.

        :param frames: `RAW`, `DELTA` or `CODEC`
        :param codec: a number below 256, which `coded_pieces` reports
        :param piece_frames: frames that are encoded together; 0 for a whole block, or for `DELTA`, as many as it finds best
        """
        check(self.core.sb3x_keep_as(self.handle, frames, codec, piece_frames), "change the codec")

    def read_as(self, codec: int, format: int, channels: int) -> None:
        """Let the core itself read blocks of the codec with this number, `SB3X_READ_...`.

        :param channels: number of channels that were interleaved before encoding; else 1
        """
        check(self.core.sb3x_read_as(self.handle, codec, format, channels), "read the format of a codec")

    def use_file(self, path: str | os.PathLike[str]) -> None:
        """Keep sealed blocks in a new file at this path, which is removed with the store."""
        check(self.core.sb3x_use_file(self.handle, os.fsencode(path)), f"keep blocks in {path}")

    # ---- frames outside

    def changes(self) -> Changes:
        """The changes of the last plan, commit or erase."""
        changes = self._changes
        return Changes(
            array_at(changes.tokens, (changes.n_new,), np.int64),
            array_at(changes.frames, (changes.n_new, self.frame_bytes)),
            array_at(changes.freed, (changes.n_freed,), np.int64),
        )

    def plan_cells(self, column: int, cells: Ints, observations: NDArray[Any]) -> None:
        """Plan to write into cells of a column, no two of one stream."""
        status = self.core.sb3x_plan_cells(
            self.handle, column, address_of(cells), len(cells), address_of(observations), self._changes_at
        )
        check(status, "store observations")
        self._planned_cells = cells, observations

    def erase(self, cells: Ints) -> None:
        """Empty cells of all columns, at most as many as there are streams."""
        check(self.core.sb3x_erase(self.handle, address_of(cells), len(cells), self._changes_at), "erase cells")

    def freed(self) -> Ints:
        """Freed blocks whose frames are still kept outside."""
        self.core.sb3x_freed(self.handle, self._changes_at)
        return array_at(self._changes.freed, (self._changes.n_freed,), np.int64)

    def let_go(self) -> None:
        """Tell the core that the frames of freed blocks are gone, so that the blocks can be reused."""
        self.core.sb3x_let_go(self.handle)

    @property
    def token_end(self) -> int:
        """The end of the range of tokens."""
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
        """Pieces that have to be decoded before `gather` can be called; None if there are none."""
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
        """The tokens of all frames of observations, each once, and each frame's position in them ``(columns, n, stack)``."""
        n = len(slots) * (columns.bit_count()) * self.stack
        distinct, order, count = np.empty(n, np.int64), np.empty(n, np.int64), c_int64()
        status = self.core.sb3x_tokens(
            self.handle, address_of(slots), None if envs is None else address_of(envs), len(slots), columns,
            address_of(distinct), address_of(order), byref(count),
        )  # fmt: skip
        check(status, "read observations")
        return distinct[: count.value], order

    # ---- the whole store

    def clear(self) -> None:
        """Remove all observations."""
        self._planned = None
        self.core.sb3x_clear(self.handle)

    def usage(self) -> Usage:
        """Memory of the store."""
        usage = UsageStruct()
        self.core.sb3x_measure(self.handle, byref(usage))
        return Usage(*(getattr(usage, name) for name in Usage._fields))

    def check(self) -> None:
        """Raise CorruptDataError unless all counts and links are consistent. Slow; for tests."""
        check(self.core.sb3x_check(self.handle), "check a store")

    # ---- segments

    def take(self, cells: Ints) -> TakenCells:
        """Cells with all the blocks that they need. Must be read before the store changes, and then closed."""
        error = c_int32()
        handle = self.core.sb3x_take(self.handle, address_of(cells), len(cells), byref(error))
        if not handle:
            check(error.value, "take observations out of a store")
        return TakenCells(self, handle, len(cells))

    def receive(self, table: Ints, cells: Ints, heads: Ints, data: Iterable[Any]) -> None:
        """Put cells and blocks of another store into cells. An error changes nothing. Discards the current plan.

        :param table: the blocks, with the codec numbers of this store
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
    """The result of `NativeStore.take`: copies of the tables, and the blocks, which still belong to the store."""

    def __init__(self, store: NativeStore, handle: int, n: int) -> None:
        self._store, self._handle = store, handle
        taken = TakenStruct()
        store.core.sb3x_look_at_segment(handle, byref(taken))
        #: ``(cells, columns)``: tokens + 1, with the block numbers of the table.
        self.heads: Ints = array_at(taken.heads, (n, store.n_columns), np.int64).copy()
        #: ``(blocks, 4)``: see `sb3x_taken`.
        self.table: Ints = array_at(taken.table, (taken.n_blocks, COLUMNS), np.int64).copy()
        self.n_bytes: int = taken.n_bytes

    def parts(self, most: int = 1 << 16) -> Iterator[Bytes]:
        """The bytes of the blocks in parts. Each part is overwritten by the next."""
        room = np.empty(min(most, max(self.n_bytes, 1)), np.uint8)
        while n := self._store.core.sb3x_read_segment(self._handle, address_of(room), room.size):
            yield room[:n]

    def close(self) -> None:
        """Free its memory."""
        handle, self._handle = self._handle, 0
        if handle:
            self._store.core.sb3x_free_segment(handle)


def whole_blocks(lengths: Ints, data: Iterable[Any]) -> Iterator[Bytes]:
    """The same bytes in parts that end at the end of a block. CorruptDataError if their number is wrong."""
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
        rest = held.copy()  # the part may be overwritten
    if rest.size or begin != (int(ends[-1]) if len(ends) else 0):
        raise CorruptDataError(f"The blocks of a segment have {begin + rest.size} bytes; its table names {ends[-1:].sum()}")


def array_at(address: int | None, shape: tuple[int, ...], dtype: Any = np.uint8) -> NDArray[Any]:
    """An array over the core's memory at an address. It must not outlive that memory."""
    n = math.prod(shape) * np.dtype(dtype).itemsize
    if not n or not address:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_ubyte * n).from_address(address), dtype).reshape(shape)
