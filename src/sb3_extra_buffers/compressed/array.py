"""CompressedArray: an ndarray-like for hand-made buffers, each cell one compressed observation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from sb3_extra_buffers.codecs import AUTO, Codec, make_codec
from sb3_extra_buffers.store import ArrayView, FrameLayout, LeafStore, MemoryUsage, StorePlan


class CompressedArray(ArrayView):
    """An array of shape ``(*shape, *obs_shape)`` that begins as zeros and keeps each observation compressed on its own.

    Indexing reads and writes what it would read and write in a plain ndarray; reads give new arrays, never views.

    :param shape: leading axes, one cell each
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
        # One observation a block: cells are written in any order, and a block lives as long as any of its frames.
        plan = StorePlan(layout.shape, layout.dtype, math.prod(shape), 1, 1, codec=codec, frame_stack=1, block_frames=1)
        super().__init__(LeafStore(plan), 0, shape, layout.shape, layout.dtype)

    def memory_usage(self) -> MemoryUsage:
        """What the written cells would take as a plain array, and what they take."""
        with self.leaf.lock:
            return self.leaf.store.memory_usage()
