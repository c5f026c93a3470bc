"""CompressedArray: an ndarray-like for hand-made buffers, each cell one compressed observation."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import DTypeLike

from sb3_extra_buffers.compressed.contents import argument_to_json
from sb3_extra_buffers.compressed.options import CompressionOptions
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.files import replacing
from sb3_extra_buffers.segments.runs import Contents, StoredBuffer, make_from_file, put_run, write_buffer
from sb3_extra_buffers.spaces import PLAIN, Leaf
from sb3_extra_buffers.store import ArrayView, LeafStore, MemoryUsage

_SAVED_OPTIONS = ("dtypes", "compression_method", "compression_kwargs")


class CompressedArray(ArrayView):
    """An array of shape ``(*shape, *obs_shape)`` that begins as zeros. Each observation is compressed on its own.

    Indexing works as in a plain ndarray, but reading returns new arrays, never views.

    :param shape: leading axes; they number the cells
    :param dtype: dtype of an observation
    :param obs_shape: shape of an observation
    :param buffer: must be None: cells have no memory that could be given
    :param offset: must be 0
    :param strides: must be None
    :param order: without effect
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as of the buffers
    :param compression_method: codec, e.g. ``"zstd3"``
    :param compression_kwargs: options of the codec
    :param decompression_kwargs: kept for compatibility; may hold the same options
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike = np.uint8,
        obs_shape: int | tuple[int, ...] = (),
        buffer: None = None,
        offset: int = 0,
        strides: None = None,
        order: Literal["K", "A", "C", "F"] | None = None,
        dtypes: Mapping[str, Any] | None = None,
        compression_method: str = "auto",
        compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if buffer is not None or offset or strides is not None:
            raise ValueError(
                "A CompressedArray has no plain memory: buffer, offset and strides must be left out. "
                "To fill it, assign to it: array[:] = values"
            )
        shape, obs_shape = _as_shape(shape), _as_shape(obs_shape)
        options = CompressionOptions(dtypes, False, compression_method, compression_kwargs, decompression_kwargs)
        # One observation a block: cells are written in any order, and a block lives as long as any of its frames.
        options.frame_stack = options.block_frames = 1
        leaf = Leaf(PLAIN, spaces.Space(), obs_shape, np.dtype(dtype))
        plan = options.plans([leaf], n_cells=math.prod(shape), n_streams=1, n_columns=1)[PLAIN]
        super().__init__(LeafStore(plan), 0, shape, obs_shape, leaf.dtype, stored_dtype=plan.dtype)
        self._options = options

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
                **{name: argument_to_json(getattr(self._options, name), name) for name in _SAVED_OPTIONS},
            }  # fmt: skip
            about = {"class": "CompressedArray", "arguments": arguments, "slots": len(cells), "n_envs": 1}
            write_buffer(file, Contents(about, cells, 1, {}, {"array": self.leaf}))

    @classmethod
    def _from_stored(cls, stored: StoredBuffer) -> CompressedArray:
        shapes = [(stored.about.get("arguments") or {}).get(name) for name in ("shape", "obs_shape")]
        if not all(isinstance(one, list) and all(type(n) is int and n >= 0 for n in one) for one in shapes):
            raise CorruptDataError(f"The file describes an array of the shape {shapes}")
        made = make_from_file(cls, stored.about)
        if made.leaf.plan.n_cells != stored.n_steps:
            raise CorruptDataError(f"The file has {stored.n_steps} observations for {made.leaf.plan.n_cells} places")
        cells = np.arange(stored.n_steps)
        for run in stored.runs:
            put_run(Contents({}, cells, 1, {}, {"array": made.leaf}), run, cells[run.first : run.first + run.count, None])
        return made


def _as_shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
