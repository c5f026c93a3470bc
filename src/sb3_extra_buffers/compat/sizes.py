"""How many bytes single observations take by each method, as 0.5 estimated it. Above: gpu_stores, and heaps by hand.

The figures are those that 0.5 published: MsPacman, stacks of four, each observation compressed on its own. The GPU buffers
share frames and take less; `gpu_buffers.estimates` has their figures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from numpy.typing import DTypeLike

from sb3_extra_buffers.codecs import CODECS
from sb3_extra_buffers.codecs.registry import split_spec
from sb3_extra_buffers.compressed.dtypes import find_smallest_dtype as find_smallest_numpy_dtype
from sb3_extra_buffers.errors import CodecError
from sb3_extra_buffers.gpu_buffers.dtypes import numpy_dtype_to_torch
from sb3_extra_buffers.gpu_buffers.estimates import RATIOS
from sb3_extra_buffers.gpu_buffers.methods import DEFAULT_LEVEL

#: Family -> level (0 for families without levels) -> bytes as a part of the observation.
SAVE_RATIOS: dict[str, dict[int, float]] = {
    "baseline": {0: 1.0},
    "none": {0: 1.001},
    "rle": {0: 0.753},
    "rle-jit": {0: 0.753},
    "gzip": {1: 0.096, 3: 0.076},
    "igzip": {0: 0.120, 1: 0.106, 3: 0.076},
    "zstd": {
        -100: 0.360, -50: 0.284, -20: 0.168, -5: 0.077, -3: 0.069, -1: 0.061,
        1: 0.057, 3: 0.055, 5: 0.052, 10: 0.049, 15: 0.045, 22: 0.044,
    },
    "lz4-frame": {1: 0.109, 5: 0.070, 9: 0.068, 12: 0.067},
    "lz4-block": {1: 0.077, 5: 0.070, 9: 0.067, 16: 0.066},
    "tiles": RATIOS["tiles"],
}  # fmt: skip
#: Methods that write the bytes of a library, whose largest payload was taken to be a quarter of the observation.
_BYTE_CODECS = ("gzip", "igzip", "zstd", "lz4-frame", "lz4-block")
#: No estimate is smaller.
_SMALLEST = 64


def parse_compression_method(method: str) -> tuple[str, int | None]:
    """Family and level of a method: ``"zstd-5"`` -> ``("zstd", -5)``, ``"rle"`` -> ``("rle", None)``."""
    family, level = split_spec(method)
    if level is None and method[-1:].isdigit() and method not in CODECS:
        raise CodecError(f"{method!r} is no method with a level. Write it as 'zstd3' or 'lz4-frame/5'")
    return family, level


def validate_compresslevel(family: str, level: int) -> None:
    """Raise ValueError if a family does not have this level. Families that there are not have all."""
    if family in CODECS:
        codec: Any = CODECS[family].load()
        if codec.levels is not None:
            codec(level=level)  # which checks it


def resolve_compresslevel(family: str, parsed_level: int | None, compresslevel: int | None) -> int | None:
    """The level to use: ``compresslevel``, else that of the method's name, else the one that a bare name stands for."""
    if compresslevel is not None:
        return compresslevel
    return DEFAULT_LEVEL.get(family) if parsed_level is None else parsed_level


def is_benchmark_family(family: str) -> bool:
    """Whether there are figures for a family."""
    return family in SAVE_RATIOS


def legacy_save_ratio(family: str, level: int | None) -> float:
    """What to expect of a family that there are no figures for: twice the observation."""
    return 2.0


def poly_save_ratio(level: float, coeffs: tuple[float, ...], bounds: tuple[float, float, float, float]) -> float:
    """The value of a polynomial at a level, kept within bounds; the largest where the level was not measured.

    :param coeffs: of the polynomial, the highest power first
    :param bounds: lowest and highest level that were measured, smallest and largest ratio
    """
    lowest, highest, smallest, largest = bounds
    if not lowest <= level <= highest:
        return largest
    return float(np.clip(np.polyval(coeffs, level), smallest, largest))


def estimate_save_ratio(compression_method: str, compresslevel: int | None = None) -> float:
    """Bytes of an observation as a part of it. Between measured levels it is interpolated; beyond them it is the worst one.

    :param compression_method: e.g. ``"zstd3"``; ``"zstd"`` is ``"zstd-3"``, other bare names are the codec's default level
    :param compresslevel: a level that overrides the one in the name
    """
    family, parsed = parse_compression_method(compression_method)
    level = resolve_compresslevel(family, parsed, compresslevel)
    if family not in SAVE_RATIOS:
        return legacy_save_ratio(family, level)
    measured = SAVE_RATIOS[family]
    if len(measured) == 1:
        return measured[0]
    if level is None:
        level = int(vars(CODECS[family].load())["level"])
    validate_compresslevel(family, level)
    levels = sorted(measured)
    if not levels[0] <= level <= levels[-1]:
        return max(measured.values())
    return float(np.interp(level, levels, [measured[known] for known in levels]))


def estimate_max_slot_bytes(
    flat_len: int, elem_type: th.dtype | DTypeLike, runs_type: th.dtype | DTypeLike, compression_method: str,
    overalloc_factor: float = 1.5, compresslevel: int | None = None,
) -> int:  # fmt: skip
    """Bytes to have ready for one observation.

    :param flat_len: values of an observation
    :param elem_type: their dtype
    :param runs_type: dtype of run lengths
    :param compression_method: e.g. ``"zstd3"``
    :param overalloc_factor: times what was measured
    :param compresslevel: a level that overrides the one in the name
    """
    family, _ = parse_compression_method(compression_method)
    raw = flat_len * torch_dtype_element_size(elem_type)
    if family == "tiles":  # which shares what observations have in common, so that there is no largest one
        least = 0
    elif family in ("none", "baseline"):
        least = raw
    elif family in _BYTE_CODECS:
        least = raw // 4 + raw // 255 + _SMALLEST
    else:  # runs of one value each
        least = raw + flat_len * torch_dtype_element_size(runs_type)
    if not is_benchmark_family(family):
        return least
    expected = int(raw * estimate_save_ratio(compression_method, compresslevel) * overalloc_factor)
    return max(_SMALLEST, expected, least)


def estimate_total_heap_bytes(
    n_cells: int, flat_len: int, elem_type: th.dtype | DTypeLike, runs_type: th.dtype | DTypeLike, compression_method: str,
    overalloc_factor: float = 1.5, compresslevel: int | None = None,
) -> int:  # fmt: skip
    """Bytes to have ready for ``n_cells`` observations. See `estimate_max_slot_bytes` for the other parameters."""
    return n_cells * estimate_max_slot_bytes(
        flat_len, elem_type, runs_type, compression_method, overalloc_factor, compresslevel
    )


def find_smallest_dtype(max_val: float, signed: bool = False, fallback: th.dtype = th.float32) -> th.dtype:
    """The smallest integer dtype of torch that holds 0..max_val; see the one for NumPy, `compressed.find_smallest_dtype`."""
    found = find_smallest_numpy_dtype(max_val, signed, None)
    return fallback if found is None else numpy_dtype_to_torch(found)


def torch_dtype_element_size(dtype: th.dtype | DTypeLike) -> int:
    """Bytes of one value, of torch's or NumPy's dtype."""
    return dtype.itemsize if isinstance(dtype, th.dtype) else np.dtype(dtype).itemsize
