"""How many bytes an observation takes on a device, from what was measured per codec family and level.

The table is written by scripts/fit_heap_heuristic.py. A ratio is bytes per transition as a part of one stacked observation,
of the game that compresses worst.
"""

from __future__ import annotations

import numpy as np

from sb3_extra_buffers.gpu_buffers.methods import split_method

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

#: The level that a family without a level in its name stands for.
DEFAULT_LEVEL = {"zstd": 3}


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
