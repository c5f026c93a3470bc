"""dtypes and sizes for the keywords of the GPU buffers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch as th
from numpy.typing import DTypeLike

from sb3_extra_buffers.compressed.dtypes import find_smallest_dtype
from sb3_extra_buffers.gpu_buffers.methods import split_method
from sb3_extra_buffers.gpu_buffers.size_estimation import estimate_ratio
from sb3_extra_buffers.store.device.observations import torch_dtype

__all__ = ["estimate_max_slot_bytes", "estimate_total_heap_bytes", "find_gpu_buffer_dtypes", "numpy_dtype_to_torch"]


def numpy_dtype_to_torch(dtype: DTypeLike | th.dtype) -> th.dtype:
    """The torch dtype of the same bits.

    :param dtype: NumPy dtype; one of torch stays as it is
    """
    return dtype if isinstance(dtype, th.dtype) else torch_dtype(np.dtype(dtype))


def find_gpu_buffer_dtypes(
    obs_shape: int | tuple[int, ...], elem_dtype: DTypeLike | th.dtype = th.uint8, compression_method: str = "tiles"
) -> dict[str, Any]:
    """`dtypes=` for a GPU buffer: store in this dtype, with the smallest run lengths that fit an observation.

    :param obs_shape: shape of an observation
    :param elem_dtype: dtype of an observation
    :param compression_method: the method that will be used; one that there is not is refused
    """
    split_method(compression_method)
    n = obs_shape if isinstance(obs_shape, int) else math.prod(obs_shape)
    return {"elem_type": numpy_dtype_to_torch(elem_dtype), "runs_type": torch_dtype(np.dtype(find_smallest_dtype(n)))}


def estimate_max_slot_bytes(
    obs_shape: int | tuple[int, ...], elem_dtype: DTypeLike | th.dtype = th.uint8, compression_method: str = "tiles"
) -> int:
    """Bytes to ask for per observation.

    :param obs_shape: shape of an observation
    :param elem_dtype: dtype of an observation
    :param compression_method: the method that will be used
    """
    n = obs_shape if isinstance(obs_shape, int) else math.prod(obs_shape)
    return math.ceil(estimate_ratio(compression_method) * n * numpy_dtype_to_torch(elem_dtype).itemsize)


def estimate_total_heap_bytes(
    obs_shape: int | tuple[int, ...],
    n_cells: int,
    elem_dtype: DTypeLike | th.dtype = th.uint8,
    compression_method: str = "tiles",
) -> int:
    """`heap_bytes` for a buffer.

    :param obs_shape: shape of an observation
    :param n_cells: observations in a full buffer, of all envs; `next_obs` shares the frames of `obs` and does not count
    :param elem_dtype: dtype of an observation
    :param compression_method: the method that will be used
    """
    if n_cells < 0:
        raise ValueError(f"n_cells must be a number of observations, got {n_cells}")
    return estimate_max_slot_bytes(obs_shape, elem_dtype, compression_method) * int(n_cells)
