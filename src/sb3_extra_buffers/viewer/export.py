"""An episode as a file: GIF or MP4 of what the player shows, NPZ of everything. Written a few steps at a time."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.recording.video import write_gif, write_mp4
from sb3_extra_buffers.viewer.experience import Experience
from sb3_extra_buffers.viewer.pictures import Picture, Pixels, newest_frame

FORMATS = {"gif": "image/gif", "mp4": "video/mp4", "npz": "application/octet-stream"}
#: Pillow holds all pictures of a GIF at once.
_GIF_BYTES = 64 << 20
#: Bytes of one picture of a video: more than one of 4K has.
_PICTURE_BYTES = 32 << 20


@dataclass(frozen=True)
class Clip:
    """Steps of an env to be exported, by positions.

    :param key: the leaf that is shown
    :param zoom: pixels of the video for one of the frame
    """

    experience: Experience
    env: int
    first: int
    last: int
    key: str = ""
    picture: Picture | None = None
    fps: float = 15.0
    zoom: int = 1

    def write(self, path: Path, suffix: str) -> None:
        """To a file of one of `FORMATS`. ValueError where that cannot be."""
        if suffix == "npz":
            write_npz(self, path)
            return
        if self.picture is None:
            raise ValueError(f"{self.key or 'Observations'} are no pictures: only NPZ can hold them")
        one = self.picture.height * self.picture.width * self.zoom**2 * self.picture.n_channels
        n_bytes = (self.last - self.first) * one
        if suffix == "gif" and n_bytes > _GIF_BYTES:
            raise ValueError(
                f"A GIF of {self.last - self.first:,} steps at this zoom would take {n_bytes / 1e6:,.0f} MB of memory, more "
                f"than {_GIF_BYTES / 1e6:.0f}. Save it as MP4, or with a smaller zoom"
            )
        if one > _PICTURE_BYTES:
            raise ValueError(
                f"Pictures at {self.zoom} times their size have {one / 1e6:,.0f} MB each. Save with a smaller zoom"
            )
        {"gif": write_gif, "mp4": write_mp4}[suffix](path, self.fps, self._pictures(self.picture))

    def _pictures(self, picture: Picture) -> Iterator[Pixels]:
        for chunk in self.chunks(self.key):
            for observation in chunk:
                frame = newest_frame(picture, observation)
                yield frame.repeat(self.zoom, axis=0).repeat(self.zoom, axis=1)

    def chunks(self, key: str, *, following: bool = False) -> Iterator[NDArray[Any]]:
        """Observations of the clip, some at a time."""
        return self.experience.chunks(key, self.env, np.arange(self.first, self.last), following=following)


def write_npz(clip: Clip, path: Path) -> None:
    """All that belongs to the steps, which `numpy.load` reads: observations by key, and the arrays of the buffer."""
    experience, env = clip.experience, clip.env
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name in experience.names:
            values = experience.rows(name, env, clip.first, clip.last)
            _write_array(file, name, values.dtype, values.shape, iter([values]))
        for key, leaf in experience.leaves.items():
            several = len(experience.leaves) > 1
            shape = (clip.last - clip.first, *leaf.shape)
            for following in (False, True)[: 1 + leaf.has_next]:
                name = ("next_observations" if following else "observations") + (f".{key}" if several else "")
                _write_array(file, name, leaf.dtype, shape, clip.chunks(key, following=following))


def _write_array(
    file: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], chunks: Iterator[NDArray[Any]]
) -> None:
    safe = "".join(letter if letter.isalnum() or letter in "._- " else "_" for letter in name)
    with file.open(f"{safe}.npy", "w", force_zip64=True) as out:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(out, header)
        for chunk in chunks:
            out.write(np.ascontiguousarray(chunk).tobytes())
