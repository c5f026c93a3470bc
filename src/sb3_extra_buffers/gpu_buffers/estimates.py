"""How many bytes the observations of a GPU buffer take, from what was measured per codec family and level.

The table is written by scripts/fit_heap_heuristic.py. A ratio is bytes per transition as a part of one stacked observation,
of the game that compresses worst.
"""

from __future__ import annotations

import math

import numpy as np
import torch as th
from numpy.typing import DTypeLike

from sb3_extra_buffers.gpu_buffers.dtypes import numpy_dtype_to_torch
from sb3_extra_buffers.gpu_buffers.methods import DEFAULT_LEVEL, split_method

# BEGIN TABLE
# Worst of: BeamRider, Breakout, MsPacman, Pong, Qbert, Seaquest, SpaceInvaders.
# Family -> level (0 for families without levels) -> ratio.
RATIOS: dict[str, dict[int, float]] = {
    "none": {0: 0.2540},
    "rle": {0: 0.1935},
    "tiles": {0: 0.0144},
    "zstd": {-5: 0.0768, 1: 0.0519, 3: 0.0516, 9: 0.0496, 15: 0.0471, 19: 0.0467},
}
# END TABLE

#: What is asked for beyond the estimate, so that most buffers never need more.
SAFETY = 1.25


def estimate_ratio(method: str) -> float:
    """Bytes to ask for per observation, as a part of the observation. Never more than what dense observations take.

    Levels that were not measured lie between their neighbours, and never outside what the family was measured at.

    :param method: e.g. ``"zstd9"``; a level that the family does not have is a ValueError
    """
    family, level = split_method(method)
    levels = sorted(RATIOS[family])
    wanted = DEFAULT_LEVEL.get(family, 0) if level is None else level
    ratio = float(np.interp(wanted, levels, [RATIOS[family][known] for known in levels]))
    return min(ratio * SAFETY, 1.0)


def estimate_heap_bytes(
    obs_shape: int | tuple[int, ...],
    n_cells: int,
    elem_dtype: DTypeLike | th.dtype = th.uint8,
    compression_method: str = "tiles",
) -> int:
    """`heap_bytes` for a GPU buffer. This is what it takes if it is not told how many.

    :param obs_shape: shape of an observation
    :param n_cells: observations in a full buffer, of all envs; `next_obs` shares the frames of `obs` and does not count
    :param elem_dtype: dtype of an observation
    :param compression_method: the method that will be used
    """
    if n_cells < 0:
        raise ValueError(f"n_cells must be a number of observations, got {n_cells}")
    n = obs_shape if isinstance(obs_shape, int) else math.prod(obs_shape)
    per_cell = estimate_ratio(compression_method) * n * numpy_dtype_to_torch(elem_dtype).itemsize
    return math.ceil(per_cell) * int(n_cells)
