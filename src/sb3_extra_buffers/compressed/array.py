"""CompressedArray: an ndarray-like for hand-made buffers, each cell one compressed observation."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from sb3_extra_buffers.codecs import AUTO, Codec, make_codec
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.files import replacing
from sb3_extra_buffers.segments.runs import Contents, StoredBuffer, make_from_file, put_run, write_buffer
from sb3_extra_buffers.store import ArrayView, FrameLayout, LeafStore, MemoryUsage, StorePlan


class CompressedArray(ArrayView):
    """An array of shape ``(*shape, *obs_shape)`` that begins as zeros. Each observation is compressed on its own.

    Indexing works as in a plain ndarray, but reading returns new arrays, never views.

    :param shape: leading axes; they number the cells
    :param dtype: dtype of an observation
    :param obs_shape: shape of an observation
    :param compression_method: codec, e.g. ``"zstd3"``
    :param compression_kwargs: options of the codec
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike = np.uint8,
        obs_shape: tuple[int, ...] = (),
        compression_method: str = "auto",
        compression_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
        layout = FrameLayout(tuple(obs_shape), np.dtype(dtype))
        codec: Codec | str = compression_method
        if compression_method not in AUTO or compression_kwargs:
            codec = make_codec(compression_method, compression_kwargs, elem_type=layout.dtype.name)
        # One observation per block: cells are written in any order, and a block lives as long as any of its frames.
        plan = StorePlan(layout.shape, layout.dtype, math.prod(shape), 1, 1, codec=codec, frame_stack=1, block_frames=1)
        super().__init__(LeafStore(plan), 0, shape, layout.shape, layout.dtype)
        self._method, self._kwargs = compression_method, dict(compression_kwargs or {}) or None

    def memory_usage(self) -> MemoryUsage:
        """Bytes of the written cells in a plain array, and bytes that are stored."""
        with self.leaf.lock:
            return self.leaf.store.memory_usage()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of the array to a file, which `sb3_extra_buffers.load_buffer` reads. It holds no pickle."""
        with replacing(path) as file, self.leaf.lock:
            cells = np.arange(self.leaf.plan.n_cells)
            arguments = {
                "shape": list(self._shape), "dtype": self.dtype.str, "obs_shape": list(self.obs_shape),
                "compression_method": self._method, "compression_kwargs": self._kwargs,
            }  # fmt: skip
            about = {"class": "CompressedArray", "arguments": arguments, "slots": len(cells), "n_envs": 1}
            write_buffer(file, Contents(about, cells, 1, {}, {"array": self.leaf}))

    @classmethod
    def _from_stored(cls, stored: StoredBuffer) -> CompressedArray:
        shapes = [(stored.about.get("arguments") or {}).get(name) for name in ("shape", "obs_shape")]
        if not all(isinstance(one, list) and all(type(n) is int and n >= 0 for n in one) for one in shapes):
            raise CorruptDataError(f"The file describes an array of the shape {shapes}")
        made = make_from_file(cls, stored.about)
        cells = np.arange(made.leaf.plan.n_cells)
        if len(cells) != stored.n_steps:
            raise CorruptDataError(f"The file has {stored.n_steps} observations for {len(cells)} places")
        for run in stored.runs:
            put_run(Contents({}, cells, 1, {}, {"array": made.leaf}), run, cells[run.first : run.first + run.count, None])
        return made
