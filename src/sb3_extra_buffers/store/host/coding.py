"""A coding: a codec, how many frames it gets at a time, and in which byte order. Above: blocks, choosing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from sb3_extra_buffers.codecs import restore_codec
from sb3_extra_buffers.codecs.base import Bytes, Codec, Format, Frames, Readable
from sb3_extra_buffers.native import join_parts, split_parts
from sb3_extra_buffers.store.layout import FrameLayout


@dataclasses.dataclass(frozen=True)
class Coding:
    """How the frames of a block are encoded.

    :param codec: what encodes them
    :param piece_frames: frames that are encoded together; 0 for a whole block, or for `delta`, as many as the core finds best
    :param channels: number of separate channels that are interleaved, pixel by pixel, before encoding; else 1
    """

    codec: Codec
    piece_frames: int = 0
    channels: int = 1

    @property
    def spec(self) -> str:
        """The codec's shorthand."""
        return self.codec.spec

    @property
    def name(self) -> str:
        """The shorthand, and the byte order if it differs from that of the observations."""
        return self.spec if self.channels == 1 else f"{self.spec} by pixels"

    @property
    def is_library(self) -> bool:
        """Whether the codec's library, not the core, encodes and decodes."""
        return self.codec.frames == Frames.CODEC

    @property
    def format(self) -> Format:
        """What the core reads. A subclass that decodes in another way, and does not say which format that is, has its own."""
        classes = type(self.codec).__mro__
        latest = next(vars(one) for one in classes if "format" in vars(one) or "decompress" in vars(one))
        return self.codec.format if "format" in latest else Format.OWN

    @property
    def is_decoded_here(self) -> bool:
        """Whether a batch needs `decode` before the core can gather it."""
        return self.is_library and self.format == Format.OWN

    def encode(self, frames: Bytes) -> Readable | None:
        """The encoded piece ``(frames, frame_bytes)``; None if it would not be smaller."""
        if self.channels > 1:
            pixels = np.empty_like(frames)
            join_parts(frames, self._n_pixels(frames), self.channels, pixels)
            frames = pixels
        payload = self.codec.compress(frames, None)
        return None if payload is None or len(payload) >= frames.nbytes else payload

    def decode(self, payload: memoryview, n_frames: int, frame_bytes: int) -> Bytes:
        """The first frames of a piece, in new memory."""
        decoded = np.empty((n_frames, frame_bytes), np.uint8)
        self.codec.decompress(payload, decoded, None)
        if self.channels == 1:
            return decoded
        frames = np.empty_like(decoded)
        split_parts(decoded, self._n_pixels(decoded), self.channels, frames)
        return frames

    def _n_pixels(self, frames: Bytes) -> int:
        return int(frames.shape[1]) // self.channels

    def saved(self) -> dict[str, Any]:
        """Plain values for `restored`."""
        return {
            "codec": self.codec.name, "options": dataclasses.asdict(self.codec), "piece_frames": int(self.piece_frames),
            "channels": int(self.channels),
        }  # fmt: skip

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> Coding:
        """A coding from saved values. Raises MissingBackendError if the backend is missing and has no stand-in."""
        return cls(restore_codec(saved["codec"], saved["options"]), saved["piece_frames"], saved["channels"])


def piece_frames_for(codec: Codec, layout: FrameLayout, block_frames: int, piece_bytes: int | None = None) -> int:
    """The default number of frames that a codec gets at a time; see `Codec.piece_bytes`."""
    if codec.frames != Frames.CODEC:
        return 0
    frames, most = 1, codec.piece_bytes if piece_bytes is None else piece_bytes
    while frames * 2 <= block_frames and frames * 2 * layout.frame_bytes <= most:
        frames *= 2
    return frames if frames < block_frames else 0
