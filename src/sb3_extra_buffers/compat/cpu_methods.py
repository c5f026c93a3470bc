"""Single arrays <-> bytes, in the formats and with the functions of 0.5. Above: `BaseCompressedBuffer`, and pickles of 0.5.

The buffers do not come here: they keep blocks of frames, encoded by `sb3_extra_buffers.codecs`. Here the libraries behind
those codecs are called for one array at a time. Run lengths are found and written by the native core.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sb3_extra_buffers import native
from sb3_extra_buffers._optional import installed, require
from sb3_extra_buffers.compressed.dtypes import has_igzip, has_numba
from sb3_extra_buffers.errors import CorruptDataError

Array = NDArray[Any]


class CompressionMethods(NamedTuple):
    """How an array becomes bytes, and how bytes become an array."""

    compress: Callable[..., bytes]
    decompress: Callable[..., Array]


def has_zstd() -> bool:
    """Whether the `zstd` codec is installed."""
    return installed("zstandard")


def has_lz4() -> bool:
    """Whether the `lz4-frame` and `lz4-block` codecs are installed."""
    return installed("lz4")


HAS_IGZIP, HAS_NUMBA, HAS_ZSTD, HAS_LZ4 = has_igzip(), has_numba(), has_zstd(), has_lz4()


def find_optimal_shape(arr_len: int, dtype: DTypeLike = np.uint8) -> tuple[int, int, int]:
    """Rows, columns and remainder that make up ``arr_len``, with as many columns as the dtype can count."""
    columns = int(np.iinfo(dtype).max)
    rows, remainder = divmod(arr_len, columns)
    return rows, columns, remainder


def no_compress(arr: Array, *args: Any, elem_type: DTypeLike = np.uint8, **kwargs: Any) -> bytes:
    """The values in another dtype, as they are."""
    return np.asarray(arr).astype(elem_type, copy=False).tobytes()


def no_decompress(data: bytes, *args: Any, elem_type: DTypeLike = np.uint8, **kwargs: Any) -> Array:
    """The inverse of `no_compress`."""
    return np.frombuffer(data, elem_type)


# ---- run lengths: all lengths, then all values


def rle_compress(arr: Array, elem_type: DTypeLike = np.uint8, runs_type: DTypeLike = np.uint16) -> bytes:
    """Runs of equal values. Unlike in 0.5, one that is longer than ``runs_type`` can say is split."""
    items = _as_bits(np.ascontiguousarray(arr, elem_type).reshape(-1))
    longest = min(int(np.iinfo(runs_type).max), max(items.size, 1))
    runs = native.find_runs(items, longest, items.size, np.dtype(runs_type))
    if runs is None:  # which cannot be: there are no more runs than items
        raise CorruptDataError("rle: there are more runs than values")
    values, lengths = runs
    return lengths.tobytes() + values.tobytes()


def rle_numpy_decompress(data: bytes, elem_type: DTypeLike, runs_type: DTypeLike, arr_configs: Mapping[str, Any]) -> Array:
    """The inverse of `rle_compress`.

    :param arr_configs: ``shape``, the number of values, and ``dtype``, that of the result
    """
    elem, length = np.dtype(elem_type), np.dtype(runs_type)
    count, rest = divmod(len(data), elem.itemsize + length.itemsize)
    out = np.empty(arr_configs["shape"], elem)
    lengths = np.frombuffer(data, length, count)
    values = np.frombuffer(data, f"<u{elem.itemsize}", count, lengths.nbytes)
    if rest or native.write_runs(values, lengths, _as_bits(out.reshape(-1))) != out.size:
        raise CorruptDataError(f"rle: {len(data)} bytes are no runs of {out.size} values of {elem} with lengths of {length}")
    return out.astype(arr_configs.get("dtype", elem), copy=False)


def rle_numpy_decompress_old(data: bytes, elem_type: DTypeLike, runs_type: DTypeLike, arr_configs: Mapping[str, Any]) -> Array:
    """The same as `rle_numpy_decompress`."""
    return rle_numpy_decompress(data, elem_type, runs_type, arr_configs)


def rle_numba_decompress(
    data: bytes, *args: Any, elem_type: DTypeLike, runs_type: DTypeLike, arr_configs: Mapping[str, Any], **kwargs: Any
) -> Array:
    """The same as `rle_numpy_decompress`. The native core reads runs as fast as numba, so numba is not needed."""
    return rle_numpy_decompress(data, elem_type, runs_type, arr_configs)


def _as_bits(values: Array) -> Array:
    """Values as unsigned integers of their size, so that NaN and -0.0 stay what they are."""
    return values.view(f"<u{values.dtype.itemsize}")


# ---- what libraries do. As in 0.5, the bytes of the array are compressed, whatever its dtype is


def gzip_compress(arr: Array, *args: Any, compresslevel: int = 9, **kwargs: Any) -> bytes:
    """gzip's bytes."""
    return gzip.compress(_bytes(arr), compresslevel)


def gzip_decompress(data: bytes, *args: Any, elem_type: DTypeLike = np.uint8, **kwargs: Any) -> Array:
    """The inverse of `gzip_compress`."""
    return np.frombuffer(gzip.decompress(data), elem_type)


def igzip_compress(arr: Array, *args: Any, compresslevel: int = 3, **kwargs: Any) -> bytes:
    """gzip's bytes by ISA-L, which has levels up to 3; higher ones are that."""
    encoded: bytes = _igzip().compress(_bytes(arr), min(compresslevel, 3))
    return encoded


def igzip_decompress(data: bytes, *args: Any, elem_type: DTypeLike = np.uint8, **kwargs: Any) -> Array:
    """The inverse of `igzip_compress`."""
    return np.frombuffer(_igzip().decompress(data), elem_type)


def zstd_compress(arr: Array, *args: Any, compresslevel: int = 0, threads: int = 0, **kwargs: Any) -> bytes:
    """zstd's bytes. Level 0 is zstd's default, 3; ``threads`` has no effect."""
    encoded: bytes = _zstandard().compress(_bytes(arr), compresslevel)
    return encoded


def zstd_decompress(data: bytes, *args: Any, elem_type: DTypeLike = np.uint8, **kwargs: Any) -> Array:
    """The inverse of `zstd_compress`."""
    return np.frombuffer(_zstandard().decompress(data), elem_type)


def lz4_frame_compress(arr: Array, *args: Any, compresslevel: int = 0, block_size: int = 0, **kwargs: Any) -> bytes:
    """lz4's bytes, as a frame."""
    encoded: bytes = _lz4("frame").compress(_bytes(arr), compression_level=compresslevel, block_size=block_size)
    return encoded


def lz4_frame_decompress(data: bytes, *args: Any, elem_type: DTypeLike = np.uint8, **kwargs: Any) -> Array:
    """The inverse of `lz4_frame_compress`."""
    return np.frombuffer(_lz4("frame").decompress(data), elem_type)


def lz4_block_compress(arr: Array, *args: Any, compresslevel: int = 9, **kwargs: Any) -> bytes:
    """lz4's bytes, as a block. Below 0 faster, above 0 smaller."""
    mode = {"compression": compresslevel} if compresslevel > 0 else {"acceleration": max(1, -compresslevel)}
    name = "high_compression" if compresslevel > 0 else "fast"
    encoded: bytes = _lz4("block").compress(_bytes(arr), mode=name, **mode)
    return encoded


def lz4_block_decompress(data: bytes, *args: Any, elem_type: DTypeLike = np.uint8, **kwargs: Any) -> Array:
    """The inverse of `lz4_block_compress`."""
    return np.frombuffer(_lz4("block").decompress(data), elem_type)


def _bytes(arr: Array) -> bytes:
    return np.asarray(arr).tobytes()


def _igzip() -> Any:
    return require("isal.igzip", extra="isal", what="igzip")


def _zstandard() -> Any:
    return require("zstandard", extra="zstd", what="zstd")


def _lz4(part: str) -> Any:
    return require(f"lz4.{part}", extra="lz4", what=f"lz4-{part}")


#: Name -> functions, for every method of 0.5 that is installed.
COMPRESSION_METHOD_MAP: dict[str, CompressionMethods] = {
    "none": CompressionMethods(no_compress, no_decompress),
    "rle": CompressionMethods(rle_compress, rle_numpy_decompress),
    "rle-old": CompressionMethods(rle_compress, rle_numpy_decompress_old),
    "rle-jit": CompressionMethods(rle_compress, rle_numba_decompress),
    "gzip": CompressionMethods(gzip_compress, gzip_decompress),
}
if HAS_IGZIP:
    COMPRESSION_METHOD_MAP["igzip"] = CompressionMethods(igzip_compress, igzip_decompress)
if HAS_ZSTD:
    COMPRESSION_METHOD_MAP["zstd"] = CompressionMethods(zstd_compress, zstd_decompress)
if HAS_LZ4:
    COMPRESSION_METHOD_MAP["lz4-frame"] = CompressionMethods(lz4_frame_compress, lz4_frame_decompress)
    COMPRESSION_METHOD_MAP["lz4-block"] = CompressionMethods(lz4_block_compress, lz4_block_decompress)
