"""A store of the core as a Python object: owns the handle, turns codes into exceptions. Above: store/host and store/device."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable
from ctypes import addressof, byref, c_char, c_int32, c_int64
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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

    def save(self) -> bytes:
        """All of it as bytes."""
        n = c_int64()
        address = self.core.sb3x_save(self.handle, byref(n))
        if not address:
            check(NO_MEMORY, "save a store")
        try:
            return ctypes.string_at(address, n.value)
        finally:
            self.core.sb3x_free_saved(address)

    def load(self, data: Any) -> None:
        """Take on what `save` gave for a store of the same sizes."""
        given = np.frombuffer(data, np.uint8)
        check(self.core.sb3x_load(self.handle, address_of(given), given.size), "load a store")


def array_at(address: int | None, shape: tuple[int, ...], dtype: Any = np.uint8) -> NDArray[Any]:
    """The core's memory at an address as an array; a view that must not outlive it."""
    n = math.prod(shape) * np.dtype(dtype).itemsize
    if not n or not address:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_ubyte * n).from_address(address), dtype).reshape(shape)
