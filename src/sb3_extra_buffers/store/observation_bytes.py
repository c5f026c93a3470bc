"""Observations as bytes: a fast `FrameLayout.to_bytes` for the arrays that SB3 passes. Above: the stores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import Bytes
from sb3_extra_buffers.native import split_parts
from sb3_extra_buffers.store.layout import FrameLayout

#: The most bytes that are kept for the next step.
_MOST_SCRATCH = 1 << 22


class ObservationBytes:
    """Like `FrameLayout.to_bytes`, but reuses its memory in the next call for the same column.

    :param layout: how an observation is cut into frames
    """

    def __init__(self, layout: FrameLayout) -> None:
        self._layout = layout
        self._is_in_order = not layout.is_interleaved
        # Pictures with channels last in memory. The interleaved parts are the frames of a stack, or single channels if the
        # space has channels first.
        self._is_picture = len(layout.shape) == 3 and (layout.axis == 0 or layout.stack > 1)
        self._parts = layout.stack if layout.axis == -1 else layout.shape[0] if layout.shape else 1
        self._n_pixels = math.prod(layout.shape[:-1] if layout.axis == -1 else layout.shape[1:])
        self._scratch: dict[int, Bytes] = {}

    def __call__(self, observations: NDArray[Any], column: int = 0) -> NDArray[Any]:
        """``(n, *shape)`` -> C-contiguous bytes with frames one after the other, in any shape.

        :param column: calls whose results are needed at the same time must give different numbers
        """
        if self._is_in_order and observations.flags.c_contiguous:
            return observations
        if self._is_picture and (pixels := self._channels_last(observations)).flags.c_contiguous:
            out = self._room_for(len(pixels), column)
            split_parts(pixels.reshape(len(pixels), -1).view(np.uint8), self._n_pixels, self._parts, out)
            return out
        return self._layout.to_bytes(observations)

    def _room_for(self, n: int, column: int) -> Bytes:
        room = self._scratch.get(column)
        if room is None or len(room) != n:
            room = np.empty((n, self._layout.observation_bytes), np.uint8)
            if room.nbytes <= _MOST_SCRATCH:
                self._scratch[column] = room
        return room

    def _channels_last(self, observations: NDArray[Any]) -> NDArray[Any]:
        return observations.transpose(0, 2, 3, 1) if self._layout.axis == 0 else observations
