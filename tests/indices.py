"""Arbitrary NumPy indices for an array of shape (*LEADING, *OBS)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

LEADING = (4, 3)
OBS = (2, 5)
_SHAPE = (*LEADING, *OBS)


@st.composite
def indices(draw: st.DrawFn) -> Any:
    """Items, slices, index arrays that are broadcast together, masks, ellipsis and newaxis; some out of bounds."""
    items: list[Any] = []
    together = draw(st.integers(1, 3))  # length of all index arrays
    axis = 0
    wanted = draw(st.integers(1, len(_SHAPE)))
    while axis < wanted:
        size = _SHAPE[axis]
        kind = draw(st.sampled_from(["int", "slice", "slice", "array", "list", "mask", "mask2", "none", "full"]))
        if kind == "int":
            items.append(
                draw(st.integers(-size - 1, size)) if draw(st.integers(0, 9)) == 0 else draw(st.integers(-size, size - 1))
            )
        elif kind == "slice":
            items.append(draw(st.slices(size)))
        elif kind in ("array", "list"):
            values = draw(st.lists(st.integers(-size, size - 1), min_size=together, max_size=together))
            items.append(np.array(values) if kind == "array" else values)
        elif kind == "mask":
            mask = np.zeros(size, bool)
            mask[draw(st.permutations(range(size)))[: min(together, size)]] = True
            items.append(mask)
        elif kind == "mask2" and axis + 1 < wanted:
            mask = np.zeros(_SHAPE[axis : axis + 2], bool)
            mask.reshape(-1)[draw(st.permutations(range(mask.size)))[:together]] = True
            items.append(mask)
            axis += 1
        elif kind == "none" and sum(item is None for item in items) < 2:
            items.append(None)
            continue
        else:
            items.append(slice(None))
        axis += 1
    if draw(st.integers(0, 4)) == 0 and not any(item is Ellipsis for item in items):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)
