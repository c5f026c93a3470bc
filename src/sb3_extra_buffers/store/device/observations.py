"""Observations on a device: tensors made of frames, and what a frame's layout says about its lines. Above: store, view."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch as th

from sb3_extra_buffers.store.layout import FrameLayout


def line_bytes_of(layout: FrameLayout) -> int:
    """Bytes of a line of a frame, if frames are pictures; else 0. Pictures have channels first or last, or none."""
    shape = layout.frame_shape
    channels_last = layout.axis == -1 if layout.stack > 1 else shape[-1:] < shape[:1]
    line = shape[1:] if len(shape) == 3 and channels_last else shape[-1:]
    return math.prod(line) * layout.dtype.itemsize if math.prod(line) < math.prod(shape) and len(shape) > 1 else 0


def observations_of(layout: FrameLayout, frames: th.Tensor) -> th.Tensor:
    """uint8 frames ``(n * stack, frame_bytes)`` as observations ``(n, *shape)``, on their device."""
    n = len(frames) // layout.stack
    values = frames.view(n, layout.observation_bytes).view(torch_dtype(layout.dtype))
    if layout.stack == 1 or layout.axis == 0 or len(layout.shape) == 1:
        return values.view(n, *layout.shape)
    lead, channels = layout.shape[:-1], layout.shape[-1] // layout.stack
    return values.view(n, layout.stack, *lead, channels).movedim(1, -2).reshape(n, *layout.shape)


def torch_dtype(dtype: np.dtype[Any]) -> th.dtype:
    """The torch dtype of the same bits.

    :param dtype: NumPy dtype
    """
    try:
        return th.from_numpy(np.empty(0, dtype)).dtype
    except TypeError as error:
        raise TypeError(f"torch has no dtype for NumPy's {np.dtype(dtype)}; give the observation space another one") from error
