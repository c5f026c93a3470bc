"""Frames that wait until there are enough to encode them together, and the memory that then keeps them. Above: store.

Frames are put on the device at once. They are read from here until they are encoded.
"""

from __future__ import annotations

import numpy as np
import torch as th

from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.store.device.budget import ByteBudget
from sb3_extra_buffers.store.device.memory import DenseMemory, Expected, FrameMemory, MakeMemory
from sb3_extra_buffers.store.device.rows import Indices, Rows, Tokens, TokenTable, wide

#: The most frames that wait, unless a step has more.
_LARGEST_BATCH = 512
#: Frames that are moved at a time when another memory takes over.
_CHUNK_FRAMES = 1 << 10


class WaitingFrames:
    """Places for a few frames. The place of each token is authoritative; the free places follow from it.

    :param n_places: frames that may wait
    :param frame_bytes: bytes of a frame
    :param device: where they wait
    """

    def __init__(self, n_places: int, frame_bytes: int, device: th.device) -> None:
        self._frames = th.zeros((n_places, frame_bytes), dtype=th.uint8, device=device)
        self._table = TokenTable()  # token -> place + 1
        self._waits = np.full(n_places, -1, np.int64)  # place -> token
        self._end = 0  # places from here on are free
        self._is_changing = False

    def __len__(self) -> int:
        """Number of used places, including those of frames that were freed."""
        self._settle()
        return self._end

    @property
    def n_places(self) -> int:
        return len(self._waits)

    @property
    def nbytes(self) -> int:
        return self._frames.numel()

    @property
    def host_bytes(self) -> int:
        return self._table.nbytes + self._waits.nbytes

    def places(self, tokens: Tokens) -> Rows:
        """The place of each token, from 1 on; 0 if it does not wait."""
        return self._table.get(tokens)

    def select(self, places: Rows) -> th.Tensor:
        """The frames at places, which are counted from 1 on."""
        return self._frames.index_select(0, th.from_numpy(places - 1).to(self._frames.device))

    def tokens(self) -> Tokens:
        """All tokens that wait, in the order in which they came."""
        self._settle()
        waits = self._waits[: self._end]
        return waits[waits >= 0]

    def put(self, tokens: Tokens, frames: th.Tensor) -> None:
        """Add frames. There must be enough free places, and no token may already wait."""
        begin, end = len(self), len(self) + len(tokens)
        self._frames[begin:end] = frames
        self._is_changing = True
        self._waits[begin:end], self._end = tokens, end
        self._table.set(tokens, np.arange(begin + 1, end + 1, dtype=np.int32))
        self._is_changing = False

    def drop(self, tokens: Tokens) -> None:
        """Remove these tokens."""
        places = self.places(tokens)
        places = places[places > 0] - 1
        if len(places):
            self._settle()
            self._is_changing = True
            self._table.set(self._waits[places], 0)
            self._waits[places] = -1
            self._is_changing = False

    def clear(self) -> None:
        """Remove all tokens."""
        tokens = self.tokens()
        self._is_changing = True
        self._table.set(tokens, 0)
        self._waits[:], self._end = -1, 0
        self._is_changing = False

    def _settle(self) -> None:
        if not self._is_changing:
            return
        tokens = self._table.tokens()
        places = self._table.get(tokens) - 1
        self._waits[:] = -1
        self._waits[places] = tokens
        self._end = int(places.max(initial=-1)) + 1
        self._is_changing = False

    def check(self) -> None:
        """Raise ValueError unless each waiting token has its own place. For tests."""
        self._settle()
        tokens = self._table.tokens()
        if not np.array_equal(self._waits[self.places(tokens) - 1], tokens) or len(self.tokens()) != len(tokens):
            raise ValueError("Two frames wait at one place")


class BatchingMemory(FrameMemory):
    """A memory that encodes frames in batches, and the frames that wait for the next batch.

    If encoding does not make the frames smaller, a DenseMemory replaces it.

    :param make_memory: makes the memory that encodes
    """

    def __init__(self, expected: Expected, device: th.device, budget: ByteBudget, *, make_memory: MakeMemory) -> None:
        super().__init__(expected, device, budget)
        self.inner = make_memory(expected, device, budget)
        n_places = max(self.inner.batch_frames, min(expected.n_streams * 16, _LARGEST_BATCH))
        if budget.is_hard:  # a whole step must fit after a batch, so that `reserve` can promise it
            n_places += expected.step_frames
        self.waiting = WaitingFrames(n_places, self.frame_bytes, device)

    # ---- writing

    def put(self, tokens: Tokens, frames: th.Tensor, *, strict: bool = False) -> None:
        self.waiting.drop(tokens)
        n_places = self.waiting.n_places
        for start in range(0, len(tokens), n_places or len(tokens)):
            some = tokens[start : start + n_places]
            if self.is_dense or len(self.waiting) + len(some) > n_places:
                self.flush(strict=strict)
            if self.is_dense:  # as it was, or since the flush
                self.inner.put(tokens[start:], frames[start:], strict=strict)
                return
            self.waiting.put(some, frames[start : start + n_places])

    @property
    def is_dense(self) -> bool:
        """Whether frames are kept uncompressed by now, and do not wait."""
        return self.inner.batch_frames == 0

    def reserve(self, n_frames: int) -> None:
        if not self.is_dense and len(self.waiting) + n_frames > self.waiting.n_places:
            try:
                self.flush(strict=True)
            except HeapFullError as error:  # it names only the first part that did not fit: count all waiting frames
                needed = max(error.needed_bytes, self.budget.taken + len(self.waiting) * self.frame_bytes)
                raise HeapFullError(str(error), needed) from error
        self.inner.reserve(n_frames)

    def flush(self, *, strict: bool = False) -> None:
        tokens = self.waiting.tokens()
        if len(tokens):
            frames = self.waiting.select(self.waiting.places(tokens))
            try:
                self.inner.put(tokens, frames, strict=strict)
            except HeapFullError:
                if not self._fits_dense():
                    raise
                self._become_dense()
                self.inner.put(tokens, frames, strict=strict)
        self.waiting.clear()
        if not self.inner.is_worth_it():
            self._become_dense()
        if self.is_dense and self.waiting.n_places:
            self.waiting = WaitingFrames(0, self.frame_bytes, self.device)

    def _fits_dense(self) -> bool:
        """Whether all frames, including those that wait, would fit uncompressed although they do not fit encoded."""
        others = self.budget.taken - sum(self.inner.parts().values())
        dense = (len(self.tokens()) + 1) * self.frame_bytes  # with the row of zeros
        return self.inner.may_become_dense and others + dense <= self.budget.limit

    def _become_dense(self) -> None:
        """Change to a DenseMemory, because frames like noise are smaller uncompressed."""
        dense = DenseMemory(self.expected, self.device, self.budget)
        tokens = self.inner.tokens()
        for start in range(0, len(tokens), _CHUNK_FRAMES):
            some = tokens[start : start + _CHUNK_FRAMES]
            dense.put(some, self.inner.gather(some))
        self.inner = dense

    def free(self, tokens: Tokens) -> None:
        self.waiting.drop(tokens)
        self.inner.free(tokens)

    def clear(self) -> None:
        self.waiting.clear()
        self.inner.clear()

    def compact(self) -> None:
        self.inner.compact()

    # ---- reading

    def gather(self, tokens: Tokens, order: Indices | None = None) -> th.Tensor:
        places = self.waiting.places(tokens)
        frames = self.inner.gather(tokens, order)
        if places.any():
            frames = frames.contiguous()  # tiles return views of larger rows
            if order is not None:
                places = places.take(order)
            late = np.flatnonzero(places)
            wide(frames).index_copy_(0, self.index(late), wide(self.waiting.select(places[late])))
        return frames

    def tokens(self) -> Tokens:
        return np.union1d(self.waiting.tokens(), self.inner.tokens())

    # ---- sizes

    def parts(self) -> dict[int, int]:
        return self.inner.parts()

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes + self.waiting.nbytes

    @property
    def host_bytes(self) -> int:
        return self.inner.host_bytes + self.waiting.host_bytes

    @property
    def method(self) -> str:  # type: ignore[override]
        return self.inner.method

    def check(self) -> None:
        self.waiting.check()
        self.inner.check()
