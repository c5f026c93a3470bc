"""`rle` and `zstd`: each frame is encoded on its own, as a payload in the shared heap. Below: heap.

`rle` is encoded and decoded on the device, with a fixed number of torch calls for any number of frames:

    payload = one bit per 8-byte word of the frame: does it differ from the word before? | the words that do

A frame that would not get smaller is its own payload. `zstd` uses the codec of the other buffers on the CPU, and keeps its
bytes in the heap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch as th

from sb3_extra_buffers.codecs.base import Codec
from sb3_extra_buffers.store.device.budget import ByteBudget
from sb3_extra_buffers.store.device.heap import SharedRawHeap
from sb3_extra_buffers.store.device.memory import Expected, FrameMemory
from sb3_extra_buffers.store.device.payloads import ALIGNMENT, Ints, RawBuffer, aligned
from sb3_extra_buffers.store.device.rows import Indices, Tokens

_BITS = 64


class PayloadCodec(Protocol):
    """Frames <-> payloads in a heap."""

    @property
    def method(self) -> str:
        """The codec's shorthand."""

    def encode(self, frames: th.Tensor) -> tuple[th.Tensor, Ints]:
        """Payloads of uint8 frames ``(n, frame_bytes)`` as int64 words, one after the other, and their lengths in bytes."""

    def decode(self, payloads: RawBuffer, cells: Ints, frame_bytes: int) -> th.Tensor:
        """The frames in cells of a RawBuffer, as a uint8 tensor ``(n, frame_bytes)`` on its device."""


@dataclass(frozen=True)
class DeviceRle:
    """Runs of equal 8-byte words, on the device."""

    method: ClassVar[str] = "rle"

    def encode(self, frames: th.Tensor) -> tuple[th.Tensor, Ints]:
        words = as_words(frames)  # (n, size)
        n, size = words.shape
        n_maps = -(-size // _BITS)
        starts = th.ones((n, n_maps * _BITS), dtype=th.bool, device=words.device)
        starts[:, 1:size] = words[:, 1:] != words[:, :-1]
        starts[:, size:] = False
        counts = starts.sum(1) + n_maps
        starts[counts >= size] = True  # not smaller: keep all words, and no map
        counts = counts.clamp(max=size)
        lengths = counts.cpu().numpy()
        payloads = th.empty(int(lengths.sum()), dtype=th.int64, device=words.device)
        ends = counts.cumsum(0)
        is_raw = counts == size
        shifts = th.arange(_BITS, device=words.device)
        maps = (starts.view(n, n_maps, _BITS).to(th.int64) << shifts).sum(2)
        places = (ends - counts)[:, None] + th.arange(n_maps, device=words.device)
        payloads.index_copy_(0, places.view(-1), maps.view(-1))
        # Words after the maps, so that the words of a raw frame begin where the map would.
        row, column = starts[:, :size].nonzero(as_tuple=True)
        before = starts[:, :size].cumsum(1)[row, column] - 1
        first = ends - counts + th.where(is_raw, 0, n_maps)
        payloads.index_copy_(0, first.index_select(0, row) + before, words[row, column])
        return payloads, lengths * ALIGNMENT

    def decode(self, payloads: RawBuffer, cells: Ints, frame_bytes: int) -> th.Tensor:
        heap, heap_words = payloads.heap, payloads.heap.words
        size = -(-frame_bytes // ALIGNMENT)
        n_maps = -(-size // _BITS)
        starts = payloads.start_idx[cells] // ALIGNMENT
        is_raw = payloads.lengths[cells] == size * ALIGNMENT
        table = np.stack((starts, starts + np.where(is_raw, 0, n_maps) - 1, np.where(is_raw, -1, 0)))
        begins, firsts, raw = th.from_numpy(table).to(heap.device)
        places = begins[:, None] + th.arange(n_maps, device=heap.device)
        # A payload without a map may be shorter than one, and be the last of the heap.
        places = places.clamp_(max=len(heap_words) - 1).view(-1)
        maps = heap_words.index_select(0, places).view(len(cells), n_maps) | raw[:, None]
        bits = (maps[:, :, None] >> th.arange(_BITS, device=heap.device)) & 1
        index = bits.view(len(cells), n_maps * _BITS)[:, :size].cumsum(1) + firsts[:, None]
        words = heap_words.index_select(0, index.view(-1)).view(len(cells), size)
        return as_frames(words, frame_bytes)


@dataclass(frozen=True)
class HostCodec:
    """A codec of the other buffers, run on the CPU.

    :param codec: the codec of a frame
    """

    codec: Codec

    @property
    def method(self) -> str:
        return self.codec.spec

    def encode(self, frames: th.Tensor) -> tuple[th.Tensor, Ints]:
        encoded = [self.codec.encode(frame[None]) for frame in frames.cpu().numpy()]
        lengths = np.array([len(data) for data in encoded], np.int64)
        padded = b"".join(data.ljust(int(size), b"\0") for data, size in zip(encoded, aligned(lengths), strict=True))
        return th.frombuffer(bytearray(padded), dtype=th.int64).to(frames.device), lengths

    def decode(self, payloads: RawBuffer, cells: Ints, frame_bytes: int) -> th.Tensor:
        words, starts = payloads.read(cells)
        data = words.cpu().numpy().view(np.uint8)
        frames = np.empty((len(cells), frame_bytes), np.uint8)
        for frame, start, length in zip(frames, starts.tolist(), payloads.lengths[cells].tolist(), strict=True):
            self.codec.decode(data[start : start + length], frame[None], verify=False)
        return th.from_numpy(frames).to(words.device)


class HeapMemory(FrameMemory):
    """Frames as payloads in a heap that the leaves of a buffer share. The payload of token t is in cell t + 1.

    :param heap: the heap
    :param codec: encodes frames as payloads
    """

    batch_frames = 16

    def __init__(
        self, expected: Expected, device: th.device, budget: ByteBudget, *, heap: SharedRawHeap, codec: PayloadCodec
    ) -> None:
        super().__init__(expected, device, budget)
        self.heap, self.codec, self.payloads = heap, codec, RawBuffer(1, heap)
        # Cell 0 is a frame of zeros, for tokens without a payload.
        self.put(np.full(1, -1), th.zeros((1, self.frame_bytes), dtype=th.uint8, device=device))

    def put(self, tokens: Tokens, frames: th.Tensor, *, strict: bool = False) -> None:
        if len(tokens):
            payloads, lengths = self.codec.encode(frames)
            self.payloads.write(tokens + 1, payloads, lengths, strict=strict)

    def gather(self, tokens: Tokens, order: Indices | None = None) -> th.Tensor:
        frames = self.codec.decode(self.payloads, self._cells(tokens), self.frame_bytes)
        return frames if order is None else frames.index_select(0, self.index(order))

    def _cells(self, tokens: Tokens) -> Ints:
        """Cells of tokens: 0 for those that have no payload."""
        starts = self.payloads.start_idx
        cells = np.minimum(tokens + 1, len(starts) - 1)
        cells[(starts[cells] < 0) | (cells != tokens + 1)] = 0
        return cells

    def free(self, tokens: Tokens) -> None:
        self.payloads.free(tokens[tokens >= 0] + 1)

    def clear(self) -> None:
        self.payloads.free(self.tokens() + 1)
        self.heap.compact()

    def compact(self) -> None:
        self.heap.compact()

    def tokens(self) -> Tokens:
        return np.flatnonzero(self.payloads.start_idx[1:] >= 0)

    def parts(self) -> dict[int, int]:
        return {id(self.heap): self.heap.capacity}

    @property
    def nbytes(self) -> int:
        """This memory's share of the heap, free bytes included."""
        own = int(aligned(self.payloads.lengths).sum())
        return self.heap.capacity * own // max(self.heap.live_bytes, 1)

    @property
    def host_bytes(self) -> int:
        return self.payloads.places.nbytes

    @property
    def method(self) -> str:  # type: ignore[override]
        return self.codec.method

    def check(self) -> None:
        self.heap.check()


def as_words(frames: th.Tensor) -> th.Tensor:
    """uint8 frames as int64 words, padded with zeros."""
    padding = -frames.shape[1] % ALIGNMENT
    return (th.nn.functional.pad(frames, (0, padding)) if padding else frames.contiguous()).view(th.int64)


def as_frames(words: th.Tensor, frame_bytes: int) -> th.Tensor:
    """The inverse of `as_words`."""
    frames = words.view(th.uint8)
    return frames if frames.shape[1] == frame_bytes else frames[:, :frame_bytes].contiguous()
