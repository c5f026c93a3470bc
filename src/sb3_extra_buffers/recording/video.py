"""A record as a video: GIF by Pillow, MP4 by imageio. Both are imported when used. Above: also the viewer."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers._optional import require

if TYPE_CHECKING:
    from sb3_extra_buffers.recording.record import RecordBuffer

#: A GIF cannot show a frame for longer than some minutes.
_SLOWEST = 0.01


def save_video(
    record: RecordBuffer, path: str | os.PathLike[str], fps: float, positions: range, channels: Sequence[int] | None
) -> None:
    """See `RecordBuffer.save_video`."""
    path = Path(path)
    writers = {".gif": write_gif, ".mp4": write_mp4}
    if path.suffix.lower() not in writers:
        raise ValueError(f"save_video writes {' and '.join(writers)}, got {path.name!r}")
    if isinstance(fps, bool) or not isinstance(fps, (int, float, np.number)) or not _SLOWEST <= fps < math.inf:
        raise ValueError(f"fps must be a number of at least {_SLOWEST}, got {fps!r}")
    if record.dtypes.frame not in (np.uint8, np.bool_):
        raise ValueError(f"save_video shows frames of uint8 or bool, this record keeps {record.dtypes.frame}")
    if not positions:
        raise ValueError(f"There is nothing to show: no such steps among the {len(record)} of this record")
    shown = _shown_channels(record.frame_shape[0], channels)
    writers[path.suffix.lower()](path, float(fps), _pictures(record, positions, shown))


def _shown_channels(n: int, channels: Sequence[int] | None) -> list[int]:
    if channels is None:
        return list(range(n))[-3:] if n % 3 == 0 else [n - 1]
    known = range(-n, n)
    if (
        not isinstance(channels, Iterable)
        or len(chosen := list(channels)) not in (1, 3)
        or any(c not in known for c in chosen)
    ):
        raise ValueError(f"channels must be 1 or 3 of the {n} channels of a frame, such as [0]; got {channels!r}")
    return [int(channel) for channel in chosen]


def _pictures(record: RecordBuffer, positions: range, channels: list[int]) -> Iterator[NDArray[np.uint8]]:
    """Frames as ``(H, W)`` or ``(H, W, 3)``."""
    for step in record.steps(positions):
        picture = step.frame[channels].astype(np.uint8)
        if step.frame.dtype == bool:
            picture *= 255
        yield np.ascontiguousarray(picture[0] if len(channels) == 1 else np.moveaxis(picture, 0, -1))


def write_gif(path: Path, fps: float, pictures: Iterator[NDArray[np.uint8]]) -> None:
    """Write pictures, ``(H, W)`` or ``(H, W, 3)``, as a GIF."""
    image: Any = require("PIL.Image", extra="video", what="Saving a GIF")
    frames = map(image.fromarray, pictures)
    first = next(frames)
    # GIF counts hundredths of a second, and viewers slow down frames that are shorter than two of them.
    duration = max(20, 10 * round(100 / fps))
    first.save(path, format="GIF", save_all=True, append_images=frames, duration=duration, loop=0)


def write_mp4(path: Path, fps: float, pictures: Iterator[NDArray[np.uint8]]) -> None:
    """Write pictures, ``(H, W)`` or ``(H, W, 3)``, as an MP4."""
    require("imageio_ffmpeg", extra="video", what="Saving an MP4")
    imageio: Any = require("imageio.v2", extra="video", what="Saving an MP4")
    with imageio.get_writer(path, format="FFMPEG", fps=fps, macro_block_size=1) as writer:
        for picture in pictures:
            writer.append_data(_even(picture))


def _even(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames with an even height and width, which MP4 players need: the last row or column may be repeated."""
    odd = [(0, n % 2) for n in picture.shape[:2]] + [(0, 0)] * (picture.ndim - 2)
    return np.pad(picture, odd, mode="edge")
