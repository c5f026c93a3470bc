"""dtypes for `dtypes=`, and compilation ahead of time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from sb3_extra_buffers._optional import installed
from sb3_extra_buffers.codecs import AUTO, make_codec


def has_numba() -> bool:
    """Whether numba is installed, which `rle-jit` needs; without it, `rle` takes its place."""
    return installed("numba")


def has_igzip() -> bool:
    """Whether isal is installed, which `igzip` needs; without it, `gzip` takes its place."""
    return installed("isal")


def find_smallest_dtype(max_val: float, signed: bool = False, fallback: Any = np.float32) -> Any:
    """The smallest integer dtype that holds 0..max_val; beyond 64 bits float32 or float64.

    :param max_val: largest number
    :param signed: whether it must hold -max_val too
    :param fallback: what to return if no dtype holds it
    """
    if max_val < 0:
        raise ValueError(f"max_val is the largest number that is to be held, from 0 on, got {max_val}")
    for kind in (np.int8, np.int16, np.int32, np.int64) if signed else (np.uint8, np.uint16, np.uint32, np.uint64):
        if max_val <= np.iinfo(kind).max:
            return kind
    return next((kind for kind in (np.float32, np.float64) if max_val <= float(np.finfo(kind).max)), fallback)


def find_buffer_dtypes(
    obs_shape: int | tuple[int, ...], elem_dtype: DTypeLike = np.uint8, compression_method: str = "auto"
) -> dict[str, Any]:
    """`dtypes=` for a compressed buffer: the stored dtype, and the smallest run-length dtype that fits an observation.

    A codec that has to be compiled is compiled now, so that the first `add` does not wait for it.

    :param obs_shape: shape of an observation
    :param elem_dtype: dtype of an observation
    :param compression_method: the codec that will be used
    """
    n = obs_shape if isinstance(obs_shape, int) else math.prod(obs_shape)
    dtypes: dict[str, Any] = {"elem_type": np.dtype(elem_dtype).type, "runs_type": find_smallest_dtype(n)}
    if compression_method not in AUTO:
        make_codec(compression_method, **dtypes).prepare()
    return dtypes


def init_jit(elem_type: DTypeLike = np.uint8, runs_type: DTypeLike = np.uint16, **more: Any) -> None:
    """Compile the kernels of `rle-jit` for these dtypes now; does nothing where numba is not installed.

    :param elem_type: dtype of an observation
    :param runs_type: unsigned dtype of run lengths
    :param more: ignored, so that all that ``dtypes=`` may hold can be given
    """
    if not has_numba():
        return
    make_codec("rle-jit", {"elem_type": elem_type, "runs_type": runs_type}).prepare()
