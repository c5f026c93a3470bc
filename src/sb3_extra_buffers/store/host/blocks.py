"""The block store: frames in encoded blocks, in the memory of the native core.

    add:     observation -> index (what is new?) -> new frames -> open block -> encoded -> chunk
    sample:  cells -> index (which frames?) -> blocks -> observations

Columns share the streams, so what stands in both `obs` and `next_obs` is kept once. `delta` and `none` never leave the core;
other codecs encode a full block and decode what a batch needs, here.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs import restore_codec
from sb3_extra_buffers.codecs.base import RAW, Bytes, Codec, Frames
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.native import NativeStore
from sb3_extra_buffers.native.binding import address_of
from sb3_extra_buffers.native.store import CodedBlock
from sb3_extra_buffers.store.base import Cells, MemoryUsage, Store
from sb3_extra_buffers.store.host.batches import new_batch
from sb3_extra_buffers.store.host.threads import run_in_threads
from sb3_extra_buffers.store.layout import FrameLayout
from sb3_extra_buffers.store.observation_bytes import ObservationBytes

FORMAT = 3


class BlockStore(Store):
    """The streams of one observation leaf, in encoded blocks.

    :param layout: how an observation is cut into frames
    :param n_cells: cells of one column
    :param codec: what encodes a block
    :param n_streams: streams; one per env
    :param n_columns: columns that share the streams
    :param block_frames: frames in a block, at least ``layout.stack``
    """

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
        super().__init__(layout, n_cells, n_streams, n_columns)
        self.codec, self.method, self.block_frames = codec, codec.spec, block_frames
        self._native = NativeStore(
            n_cells=n_cells, n_streams=n_streams, n_columns=n_columns, stack=layout.stack,
            frame_bytes=max(layout.frame_bytes, 1), block_frames=block_frames, frames=int(codec.frames),
        )  # fmt: skip
        self._is_coded = codec.frames == Frames.CODEC  # by the codec itself, here
        self._is_empty = layout.frame_bytes == 0  # observations without bytes: there is nothing to keep
        self._is_in_order = not (layout.is_interleaved or self._is_empty)  # as they come, observations are frames in a row
        self._bytes_of = ObservationBytes(layout)

    # ---- writing

    def prepare_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.prepare_step`."""
        first, second = observations[0], observations[-1]
        if not (self._is_in_order and first.flags.c_contiguous and second.flags.c_contiguous):
            if self._is_empty:
                self._cells(self._cells_of(slot), None)
                return
            first, second = self._bytes_of(first), self._bytes_of(second, 1)
        self._native.plan(slot, first, second, self._encode)

    def commit_step(self) -> None:
        """See `Store.commit_step`."""
        self._native.commit()

    def write(self, column: int, cells: Cells, observations: NDArray[Any]) -> None:
        """See `Store.write`."""
        cells = np.ascontiguousarray(cells, np.int64)
        if self._is_empty:
            self._cells(cells, None)
            return
        self._native.write(column, cells, self._bytes_of(observations, 2), self._encode)
        self._native.plan_again(self._encode)

    def clear(self) -> None:
        """See `Store.clear`."""
        self._native.clear()

    def _encode(self, frames: Bytes) -> bytes | None:
        data = self.codec.encode(frames)
        return None if data[0] == RAW else data

    # ---- reading

    def expect_read(self) -> None:
        """See `Store.expect_read`."""
        if not self._is_coded:
            self._native.expect_gather()

    def read_columns(self, columns: tuple[int, ...], slots: Cells, envs: Cells | None = None) -> list[NDArray[Any]]:
        """See `Store.read_columns`. Blocks that the columns share are decoded once."""
        n, layout = len(slots), self.layout
        if self._is_empty:
            self._cells(slots, envs)
            return [np.zeros((n, *layout.shape), layout.dtype) for _ in columns]
        slots = np.ascontiguousarray(slots, np.int64)
        envs = None if envs is None else np.ascontiguousarray(envs, np.int64)
        out = new_batch((len(columns), n, *layout.shape), layout.dtype)
        frames = new_batch(out.shape, layout.dtype) if layout.is_interleaved else out
        mask = 3 if len(columns) == 2 else 1 << columns[0]
        if self._is_coded:
            self._native.gather_coded(slots, envs, mask, address_of(frames), self._decode)
        else:
            self._native.gather(slots, envs, mask, address_of(frames))
        if layout.is_interleaved:
            layout.join_frames(frames, out)
        return list(out)

    def _decode(self, blocks: list[CodedBlock]) -> list[Bytes]:
        """The first frames of each block. The codecs' libraries release the GIL, so threads share the work."""

        def decode(block: CodedBlock) -> Bytes:
            frames = np.empty((block.n_frames, self.layout.frame_bytes), np.uint8)
            self.codec.decode(block.data, frames, verify=False)
            return frames

        return run_in_threads(decode, blocks)

    def memory_usage(self) -> MemoryUsage:
        """See `Store.memory_usage`. Open blocks count as well."""
        usage = self._native.usage()
        return MemoryUsage.of(usage.n_written * self.layout.observation_bytes, usage.stored_bytes, usage.n_blocks)

    def check(self) -> None:
        """Raise CorruptDataError unless all counts and links are what the cells imply. Looks at everything: for tests."""
        self._native.check()

    # ---- pickling: what the core saves, with a checksum

    def __getstate__(self) -> dict[str, Any]:
        payload = self._native.save()
        given = {
            "shape": tuple(map(int, self.layout.shape)), "dtype": self.layout.dtype.str, "stack": int(self.layout.stack),
            "axis": int(self.layout.axis), "n_cells": int(self.n_cells), "n_streams": int(self.n_streams),
            "n_columns": int(self.n_columns), "block_frames": int(self.block_frames), "codec": self.codec.name,
            "options": dataclasses.asdict(self.codec),
        }  # fmt: skip
        return {"format": FORMAT, "given": given, "payload": payload, "checksum": _checksum(given, payload)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.get("format") != FORMAT:
            raise CorruptDataError(
                f"A block store of format {state.get('format')!r} cannot be read; this version reads format {FORMAT}"
            )
        given = state["given"]
        if state["checksum"] != _checksum(given, state["payload"]):
            raise CorruptDataError("A saved block store is damaged: its checksum does not match")
        layout = FrameLayout(given["shape"], np.dtype(given["dtype"]), given["stack"], given["axis"])
        # Made anew: a backend may be missing here, which is said now, or a stand-in reads the same bytes.
        codec = restore_codec(given["codec"], given["options"])
        sizes = {name: given[name] for name in ("n_streams", "n_columns", "block_frames")}
        BlockStore.__init__(self, layout, given["n_cells"], codec, **sizes)
        self._native.load(state["payload"])


def _checksum(given: dict[str, Any], payload: bytes) -> int:
    """Over all that is saved; built of plain values only, so that it does not depend on how anything prints."""
    said = "\n".join(f"{name}={value!r}" for name, value in sorted(given.items()))
    return zlib.crc32(payload, zlib.crc32(said.encode()))
