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


def find_smallest_dtype(n: int, signed: bool = False) -> type[np.integer[Any]]:
    """The smallest integer dtype that holds 0..n.

    :param n: largest number
    :param signed: whether it must hold -n too
    """
    kinds: list[type[np.integer[Any]]]
    kinds = [np.int8, np.int16, np.int32, np.int64] if signed else [np.uint8, np.uint16, np.uint32, np.uint64]
    for kind in kinds:
        if 0 <= n <= np.iinfo(kind).max:
            return kind
    raise ValueError(f"No {'signed' if signed else 'unsigned'} integer dtype holds 0..{n}")


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


def init_jit(elem_type: DTypeLike = np.uint8, runs_type: DTypeLike = np.uint16) -> None:
    """Compile the kernels of `rle-jit` for these dtypes now; does nothing if numba is not installed.

    :param elem_type: dtype of an observation
    :param runs_type: unsigned dtype of run lengths
    """
    if not has_numba():
        return
    make_codec("rle-jit", {"elem_type": elem_type, "runs_type": runs_type}).prepare()
