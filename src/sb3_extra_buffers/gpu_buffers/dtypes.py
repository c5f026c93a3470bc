"""dtypes of NumPy and of torch, for `dtypes=` of the GPU buffers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch as th
from numpy.typing import DTypeLike

from sb3_extra_buffers.compressed.dtypes import find_smallest_dtype
from sb3_extra_buffers.gpu_buffers.methods import split_method
from sb3_extra_buffers.store.device.observations import torch_dtype


def numpy_dtype_to_torch(dtype: DTypeLike | th.dtype) -> th.dtype:
    """The torch dtype of the same bits.

    :param dtype: NumPy dtype; one of torch stays as it is
    """
    return dtype if isinstance(dtype, th.dtype) else torch_dtype(np.dtype(dtype))


def torch_dtype_to_numpy(dtype: th.dtype) -> np.dtype[Any]:
    """The NumPy dtype of the same bits; TypeError where NumPy has none.

    :param dtype: torch dtype
    """
    return th.empty(0, dtype=dtype).numpy().dtype


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
    runs_type = numpy_dtype_to_torch(find_smallest_dtype(n))
    return {
        "elem_type": numpy_dtype_to_torch(elem_dtype),
        "runs_type": th.uint16 if runs_type == th.uint8 else runs_type,
    }
