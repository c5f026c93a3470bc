"""Observations as pictures: how a leaf is cut into frames, and its frames as PNG, pixel by pixel as they are stored.

A sheet has all frames of an observation beside each other, oldest first, and below them those of `next_obs`. The page cuts it,
so one request has all that is shown of a step.
"""

from __future__ import annotations

import colorsys
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers.viewer.experience import Experience, LeafShape

Pixels = NDArray[np.uint8]

#: A picture is at least so high and wide.
_LEAST = 3
#: Values of a whole-number leaf up to which it is taken for labels.
_MOST_LABELS = 64


@dataclass(frozen=True)
class Picture:
    """How a leaf is seen.

    :param channels_first: where the channels are; None for pictures without such an axis
    :param n_frames: frames of a stack, oldest first
    :param n_channels: of one frame: 1 is grey, 3 is colour
    :param low: value that is black
    :param high: value that is white
    """

    height: int
    width: int
    channels_first: bool | None
    n_frames: int
    n_channels: int
    low: float = 0.0
    high: float = 255.0
    is_exact: bool = True

    def frames(self, observation: NDArray[Any]) -> NDArray[Any]:
        """``(frames, height, width, channels)``."""
        if self.channels_first is None:
            return observation[None, :, :, None]
        last = np.moveaxis(observation, 0, -1) if self.channels_first else observation
        shape = (self.height, self.width, self.n_frames, self.n_channels)
        return np.moveaxis(last.reshape(shape), 2, 0)

    def pixels(self, values: NDArray[Any]) -> Pixels:
        """Values as bytes: as they are if they are bytes, else from `low` to `high`."""
        if self.is_exact:
            return values.astype(np.uint8) * (255 if values.dtype == np.bool_ else 1)
        span = self.high - self.low or 1.0
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = (values.astype(np.float64) - self.low) * (255 / span)
        return np.nan_to_num(np.clip(scaled, 0, 255)).astype(np.uint8)


def picture_of(leaf: LeafShape, space: spaces.Space[Any] | None, sample: NDArray[Any] | None = None) -> Picture | None:
    """How a leaf is seen as a picture; None if it is none.

    :param sample: some observations, for the range of values where neither dtype nor space has one
    """
    shape = leaf.shape
    if len(shape) not in (2, 3) or leaf.dtype.kind not in "biuf":
        return None
    if len(shape) == 2:
        if min(shape) < _LEAST + 1:
            return None
        return Picture(shape[0], shape[1], None, 1, 1, *_range(leaf, space, sample))
    first = leaf.axis == 0 if leaf.stack > 1 else shape[0] <= shape[-1]
    n, (height, width) = (shape[0], shape[1:]) if first else (shape[-1], shape[:2])
    if min(height, width) < _LEAST:
        return None
    frame = n // leaf.stack if leaf.stack > 1 and n % leaf.stack == 0 else (3 if n % 3 == 0 else 1)
    frame = frame if frame in (1, 3) else 1
    return Picture(height, width, first, n // frame, frame, *_range(leaf, space, sample))


def _range(leaf: LeafShape, space: spaces.Space[Any] | None, sample: NDArray[Any] | None) -> tuple[float, float, bool]:
    if leaf.dtype in (np.uint8, np.bool_):
        return 0.0, 255.0, True
    if isinstance(space, spaces.Box):
        low, high = float(np.min(space.low)), float(np.max(space.high))
        if np.isfinite([low, high]).all() and high - low < 1e6 and low < high:
            return low, high, False
    if sample is not None and np.isfinite(sample).any():
        finite = sample[np.isfinite(sample)].astype(np.float64)
        return float(finite.min()), float(finite.max()), False
    return 0.0, 1.0, False


def looks_like_labels(key: str, sample: NDArray[Any]) -> bool:
    """Whether the pixels of pictures name classes: few values, or a name that says so."""
    if sample.dtype.kind not in "biu" or not sample.size:
        return False
    values = np.unique(sample)
    is_named = any(word in key.lower() for word in ("label", "mask", "segment", "semantic"))
    return len(values) <= (_MOST_LABELS if is_named else 12) and (is_named or int(values.max()) < 32)


def sheet(experience: Experience, key: str, picture: Picture, env: int, position: int, *, newest: bool = False) -> Pixels:
    """All frames of a step beside each other, and those of `next_obs` below.

    :param newest: only the newest frame of `obs`
    """
    at = np.array([position])
    rows = [experience.observations(key, env, at)[0]]
    if experience.leaves[key].has_next and not newest:
        rows.append(experience.observations(key, env, at, following=True)[0])
    lines = [np.concatenate(list(picture.frames(row)[-1:] if newest else picture.frames(row)), axis=1) for row in rows]
    return picture.pixels(np.concatenate(lines, axis=0))


def newest_frame(picture: Picture, observation: NDArray[Any]) -> Pixels:
    """The newest frame, ``(height, width)`` or ``(height, width, 3)``."""
    frame = picture.pixels(picture.frames(observation)[-1])
    return np.ascontiguousarray(frame[..., 0] if frame.shape[-1] == 1 else frame)


def _palette() -> list[tuple[int, int, int]]:
    """A colour for each of 256 labels, neighbours far from each other: steps of the golden angle."""
    colours = [(24, 26, 38)]
    for i in range(1, 256):
        tone = colorsys.hls_to_rgb(i * 0.381966 % 1, 0.5 + 0.12 * (i * 7 % 3 - 1), 0.62)
        colours.append((round(255 * tone[0]), round(255 * tone[1]), round(255 * tone[2])))
    return colours


PALETTE = _palette()


def png(pixels: Pixels, *, labels: bool = False) -> bytes:
    """``(height, width, 1 or 3)`` as PNG.

    :param labels: show each value in a colour of its own; of one channel
    """
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = pixels.reshape(height, -1)
    is_indexed = labels and channels == 1
    head = struct.pack(">IIBBBBB", width, height, 8, 3 if is_indexed else 2 if channels == 3 else 0, 0, 0, 0)
    colours = [(b"PLTE", bytes(value for colour in PALETTE for value in colour))] if is_indexed else []
    chunks = [(b"IHDR", head), *colours, (b"IDAT", zlib.compress(lines.tobytes(), 1)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
