"""`auto`: finds the best coding for the frames by trying. Above: blocks, which uses the choice.

From time to time, a few frames are encoded with every candidate. The one with the lowest score is chosen:

    score = size + price * work

Size is encoded bytes per byte. Work is the cost of reading a frame, in copies of that frame. It is computed from sizes and
never measured by a clock, so the same observations always lead to the same choice. The price of work is the user's preference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from sb3_extra_buffers.codecs import CODECS, make_codec
from sb3_extra_buffers.codecs.base import Bytes, Frames
from sb3_extra_buffers.native import best_piece, delta_encode
from sb3_extra_buffers.store.host.coding import Coding, piece_frames_for
from sb3_extra_buffers.store.layout import FrameLayout

#: Steps at which the first looks begin; later one every `_LATER` steps.
_LOOKS = (16, 32, 64, 128, 256, 512, 1024)
_LATER = 4096
#: A choice uses the means of the last so many looks.
_REMEMBERED = 8
#: After the first `_REMEMBERED` looks, libraries are tried at every so many looks, unless their scores are less than this
#: factor above the lowest: their calls are the longest steps of a look.
_FULL_LOOKS, _CLEARLY = 8, 2.0
#: The fewest frames of a look: one to start from, and a few that follow.
_FEWEST_FRAMES = 5
#: Another coding must have a score lower by this factor, so that similar codings do not alternate.
_BETTER = 0.9
#: Beginning to read a piece of a library takes as long as copying so many bytes.
_CALL_BYTES = 80_000
#: Bytes of a piece if only size counts.
_LARGE_PIECE = 1 << 16
#: A library encodes at most so many bytes in a step, or this part of a frame if that is more. What it shrinks well is quick to
#: encode, and small parts would hide how well.
_HARD_BYTES, _EASY_BYTES, _FRAME_PARTS = 7 << 10, 1 << 16, 8
#: This part of a part is encoded first, to wake the library.
_WAKING_PART = 16
#: Encoded bytes per byte up to which frames count as easy, in the last look.
_EASY = 0.2
#: Libraries for `auto`, the best first.
_LIBRARIES = ("zstd", "igzip", "gzip")

#: The price of work, by preference: how much size one copy of a frame is worth, as a part of the uncompressed size.
TASTES = {"auto": 0.07, "auto-fast": 0.3, "auto-small": 0.0}
#: The price for choosing the byte order of a named codec: only size counts, because the user has chosen the codec.
_NAMED = 0.0


class Estimate(NamedTuple):
    """Size and work of a coding for some frames.

    :param size: encoded bytes per byte
    :param work: of reading a frame, in copies of it
    """

    size: float
    work: float


class Chooser:
    """Tries codings on the frames of one stream.

    A look is spread over many steps. Each step does a small part of the work: it copies a frame, or encodes a frame or a
    part of one. So no single `add` takes long.

    :param candidates: codings to choose from; the first is used until the first look is complete
    :param price: see `TASTES`
    """

    def __init__(self, layout: FrameLayout, candidates: Sequence[Coding], block_frames: int, price: float) -> None:
        self.candidates, self.price = list(candidates), price
        self.chosen = self.candidates[0]
        self._layout, self._block_frames = layout, block_frames
        # Steps that may be written before `look` must be called again.
        self._n_quiet = _LOOKS[0] - 1
        self._n_steps = self._n_quiet  # those included
        self._base: Bytes | None = None
        self._frames: Bytes | None = None  # of a look; the first `_n_frames` are filled
        self._n_frames = 0
        self._trials: Iterator[list[Estimate] | None] | None = None
        self._looks: deque[list[Estimate]] = deque(maxlen=_REMEMBERED)
        self._full: list[Estimate] = []  # the last look at which libraries were tried
        self._n_since = 0  # looks since then
        self._n_needed = max(_FEWEST_FRAMES, *map(self._frames_for, candidates))

    def is_due(self) -> bool:
        """Count a step that is about to be written. Returns whether `look` must be called for it."""
        if self._n_quiet:
            self._n_quiet -= 1
            return False
        self._n_steps += 1
        return True

    def skip(self, most: int) -> int:
        """Count up to so many steps for which `look` must not be called. How many they are."""
        n = min(self._n_quiet, most)
        self._n_quiet -= n
        return n

    def look(self, newest: Bytes) -> None:
        """Do the next small part of a look. After the last part, `chosen` may be another.

        :param newest: the newest frame ``(frame_bytes,)`` of the stream
        """
        try:
            if self._trials is None:
                self._collect(newest)
                return
            found = next(self._trials, ())  # None while there are more parts; empty if a look was interrupted
            if found is None:
                return
            if found:
                self._looks.append(found)
                after = next((step for step in _LOOKS if step > self._n_steps), self._n_steps + _LATER)
                self._n_quiet = after - 1 - self._n_steps
                self._n_steps = after - 1
                self.chosen = self._choice()
            self._forget_frames()
        except BaseException:  # Ctrl-C, no memory, a codec that fails: start a new look
            self._forget_frames()
            raise

    def resume(self, chosen: Coding) -> None:
        """Continue from a saved choice, even if another library is installed here."""
        if chosen not in self.candidates:
            self.candidates.append(chosen)
            self._n_needed = max(self._n_needed, self._frames_for(chosen))
            self._looks.clear()  # they did not try it, and neither did the full one
            self._full = []
            self._forget_frames()
        self.chosen = chosen

    def estimates(self) -> list[Estimate]:
        """The mean of the last looks for each candidate; empty before the first."""
        n = len(self._looks)
        return [
            Estimate(sum(one.size for one in ways) / n, sum(one.work for one in ways) / n)
            for ways in zip(*self._looks, strict=True)
        ]

    def reason(self) -> str:
        """The choice and its figures, in words."""
        if not self._looks:
            return f"{self.chosen.name} until others have been tried"
        scores, estimates = self._scores(), zip(self.candidates, self.estimates(), strict=False)
        tried = ", ".join(f"{coding.name} {one.size:.1%} size and {one.work:.1f} work" for coding, one in estimates)
        is_least = scores[self.candidates.index(self.chosen)] <= min(scores)
        why = "lowest" if is_least else "kept, as none is a tenth lower, by its"
        return f"{self.chosen.name}: {why} size + {self.price:g} * work of {tried}"

    def _collect(self, newest: Bytes) -> None:
        if self._frames is None:
            self._frames = np.empty((self._n_needed, len(newest)), np.uint8)
        elif np.array_equal(newest, self._frames[self._n_frames - 1]):
            return  # an equal frame, which the store keeps only once
        self._frames[self._n_frames] = newest
        self._n_frames += 1
        if self._n_frames == len(self._frames):
            self._trials = self._try_all(self._frames)

    def _frames_for(self, coding: Coding) -> int:
        """Number of frames for trying this coding: one to start from, and a piece."""
        return 1 + min(coding.piece_frames or self._block_frames, self._block_frames) if coding.is_library else 0

    def _forget_frames(self) -> None:
        self._frames, self._n_frames, self._trials = None, 0, None

    def _scores(self) -> list[float]:
        """The score of each candidate, summed over the last looks."""
        return [sum(scores) for scores in zip(*map(self._score_all, self._looks), strict=True)]

    def _score_all(self, estimates: list[Estimate]) -> list[float]:
        return [size + self.price * work for size, work in estimates]

    def _choice(self) -> Coding:
        scores = self._scores()
        best, current = min(scores), scores[self.candidates.index(self.chosen)]
        return self.candidates[scores.index(best)] if best < _BETTER * current else self.chosen

    # ---- trying codings

    def _try_all(self, frames: Bytes) -> Iterator[list[Estimate] | None]:
        """Yields None after each part of the work, and all estimates at the end."""
        found: list[Estimate] = []
        last = self._looks[-1] if self._looks else ()
        is_settled: bool | None = None
        for coding in self.candidates:
            if coding.is_library:
                if is_settled is None:
                    is_settled = self._is_settled(found)
                    yield None
                if is_settled:
                    found.append(self._full[len(found)])
                    continue
                most = _EASY_BYTES if last and last[len(found)].size <= _EASY else _HARD_BYTES
                found.append((yield from self._try_library(coding, frames, max(most, frames.shape[1] // _FRAME_PARTS))))
            elif coding.codec.frames == Frames.DELTA:
                found.append((yield from self._try_delta(coding, frames)))
            else:
                found.append(Estimate(1.0, coding.codec.work[0]))
            yield None
        self._base = frames[-1].copy()
        yield None
        self._full, self._n_since = (self._full, self._n_since + 1) if is_settled else (found, 0)
        yield found

    def _is_settled(self, found: list[Estimate]) -> bool:
        """Whether libraries need not be tried: they were, not long ago, and with half their scores would not be chosen either.

        :param found: by the candidates before them, in this look
        """
        if len(self._looks) < _REMEMBERED or self._n_since + 1 >= _FULL_LOOKS:
            return False
        mean = self._scores()
        return self._others_win(self._score_all(found), self._score_all(self._full)) and self._others_win(mean, mean)

    def _others_win(self, scores: list[float], of_libraries: list[float]) -> bool:
        """Whether the best of the other codings has half the score of the best library, or less."""
        others = [score for coding, score in zip(self.candidates, scores, strict=False) if not coding.is_library]
        libraries = [score for coding, score in zip(self.candidates, of_libraries, strict=True) if coding.is_library]
        return bool(others) and _CLEARLY * min(others) <= min(libraries)

    def _try_delta(self, coding: Coding, frames: Bytes) -> Generator[None, None, Estimate]:
        """A piece is one frame encoded against the base, and others encoded against the previous frame."""
        before = frames[0] if self._base is None else self._base
        sizes = []
        for frame in frames[1:_FEWEST_FRAMES]:
            encoded = delta_encode(frame[None], before, frame.size, self._layout.neighbours)
            sizes.append(1.0 if encoded is None else len(encoded) / frame.size)
            before = frame
            yield
        stack, first, change = self._layout.stack, sizes[0], max(fmean(sizes[1:]), 1e-4)
        frame_bytes = self._layout.frame_bytes
        piece = best_piece(int(change * frame_bytes) + 1, stack * frame_bytes, self._block_frames)
        fixed, per_byte = coding.codec.work
        walked = first + (piece - 1) / 2 * change
        size = (first + (piece - 1) * change) / piece
        return Estimate(size, fixed + per_byte * walked / min(stack, piece)) if size < 1 else Estimate(1.0, 1.0)

    def _try_library(self, coding: Coding, frames: Bytes, part_bytes: int) -> Generator[None, None, Estimate]:
        """A whole piece is decoded for each observation that has frames in it.

        :param part_bytes: the piece is encoded in parts of so many bytes: bands of all its frames
        """
        piece, stack = min(coding.piece_frames or self._block_frames, len(frames)), self._layout.stack
        channels = frames[-piece:].reshape(piece, coding.channels, -1)
        width = max(part_bytes // (piece * coding.channels), 1)
        # A library that was not called for a while takes twice as long. So a little of the first part is encoded before the
        # others. It does not count: a small part shrinks less.
        coding.encode(np.ascontiguousarray(channels[:, :, : -(-width // _WAKING_PART)]).reshape(piece, -1))
        yield
        length = 0
        for first in range(0, channels.shape[2], width):
            band = np.ascontiguousarray(channels[:, :, first : first + width]).reshape(piece, -1)
            payload = coding.encode(band)
            length += band.nbytes if payload is None else len(payload)
            yield
        if length >= channels.nbytes:
            return Estimate(1.0, 1.0)
        fixed, per_byte = coding.codec.work
        size, used = length / channels.nbytes, min(stack, piece)
        work = (fixed + per_byte * size + (coding.channels > 1)) * piece + _CALL_BYTES / frames.shape[1]
        return Estimate(size, work / used)


def make_chooser(taste: str, layout: FrameLayout, block_frames: int) -> Chooser:
    """The chooser for a preference: from `delta`, `none`, and the best installed library."""
    library = make_codec(next(name for name in _LIBRARIES if CODECS[name].is_installed))
    coding = Coding(library, piece_frames_for(library, layout, block_frames, None if TASTES[taste] else _LARGE_PIECE))
    candidates = [Coding(make_codec("delta")), Coding(make_codec("none")), *orders_of(coding, layout)]
    return Chooser(layout, candidates, block_frames, TASTES[taste])


def orders_of(coding: Coding, layout: FrameLayout) -> list[Coding]:
    """A coding, and the same coding with interleaved channels if the channels are separate."""
    channel = layout.neighbours.channel
    apart = layout.frame_bytes // channel if channel else 1
    if not coding.is_library or apart == 1 or layout.dtype.itemsize > 1:
        return [coding]
    return [coding, Coding(coding.codec, coding.piece_frames, apart)]


def chooser_for_order(coding: Coding, layout: FrameLayout, block_frames: int) -> Chooser | None:
    """The chooser of the byte order for a named codec; None if there is only one order."""
    orders = orders_of(coding, layout)
    return Chooser(layout, orders, block_frames, _NAMED) if len(orders) > 1 else None
