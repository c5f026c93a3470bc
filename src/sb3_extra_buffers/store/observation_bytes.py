"""Observations as bytes, the fast way: `FrameLayout.to_bytes` for what SB3 really hands over. Above: both stores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import Bytes
from sb3_extra_buffers.store.layout import FrameLayout


class ObservationBytes:
    """Does what `FrameLayout.to_bytes` does; the result can always be written to.

    :param layout: how an observation is cut into frames
    """

    def __init__(self, layout: FrameLayout) -> None:
        from sb3_extra_buffers.store import channels  # imports numba, so not at the top

        self._layout = layout
        self._split = channels.split_four_channels
        one_byte, one_channel = layout.dtype.itemsize == 1, len(layout.shape) == 3 and layout.frame_shape[layout.axis] == 1
        self._four_channels = channels.COMPILED and layout.stack == 4 and one_byte and one_channel
        self._is_in_order, self._is_bytes = not layout.is_interleaved, layout.dtype == np.uint8

    def __call__(self, observations: NDArray[Any]) -> Bytes:
        """``(n, *shape)`` -> all bytes, frames one behind the other."""
        if self._is_in_order and observations.flags.c_contiguous:
            values = observations.reshape(-1)
            if not self._is_bytes:
                values = values.view(np.uint8)
        elif self._four_channels and (pixels := self._channels_last(observations)).flags.c_contiguous:
            values = np.empty(pixels.size, np.uint8)
            self._split(pixels.reshape(len(pixels), -1, 4).view(np.uint8), values)
        else:
            values = self._layout.to_bytes(observations).reshape(-1)
        # Kernels are compiled for arrays that can be written to; a second set for read-only ones is not worth its time.
        return values if values.flags.writeable else values.copy()

    def _channels_last(self, observations: NDArray[Any]) -> NDArray[Any]:
        return observations.transpose(0, 2, 3, 1) if self._layout.axis == 0 else observations
