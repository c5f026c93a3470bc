"""Observation <-> frames: which axis of an observation is a stack in time, and how many frames it holds.

(4, 84, 84) uint8   stack=4 axis=0   -> 4 frames of 7,056 bytes
(84, 84, 12) uint8  stack=4 axis=-1  -> 4 frames of 21,168 bytes
(17,) float32       stack=1          -> 1 frame of 68 bytes
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs.base import Bytes
from sb3_extra_buffers.native import Neighbours, join_parts

#: The longest stack that is detected; longer ones can be set by `frame_stack`.
LONGEST_STACK = 16
#: Below this many bytes a frame costs more to encode than it saves; measured on vectors and small grids.
SMALLEST_FRAME = 256
#: Frames of fewer bytes are not stored separately.
SMALLEST_STACKED_FRAME = 64


@dataclass(frozen=True)
class FrameLayout:
    """How observations of one leaf are cut into frames.

    :param shape: shape of one observation
    :param dtype: dtype that is stored
    :param stack: frames in an observation
    :param axis: the axis they are stacked on, 0 or -1
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stack: int = 1
    axis: int = 0

    def __post_init__(self) -> None:
        if self.stack < 1 or (self.stack > 1 and (not self.shape or self.shape[self.axis] % self.stack)):
            raise ValueError(
                f"An observation of shape {self.shape} cannot be cut into {self.stack} frames on axis {self.axis}"
            )

    @cached_property
    def observation_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @cached_property
    def frame_bytes(self) -> int:
        return self.observation_bytes // self.stack

    @cached_property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of one frame; an axis of length one stays."""
        shape = list(self.shape)
        if self.stack > 1:
            shape[self.axis] //= self.stack
        return tuple(shape)

    @cached_property
    def neighbours(self) -> Neighbours:
        """Where similar values of a frame are. A vector has none."""
        shape, item = self.frame_shape, self.dtype.itemsize
        is_planar = len(shape) == 3 and shape[0] < shape[-1]
        image = shape[1:] if is_planar else shape
        row = math.prod(image[1:]) * item if len(image) > 1 else 0
        channel = self.frame_bytes // shape[0] if is_planar and shape[0] > 1 else 0
        return Neighbours(row, channel, item if item in (2, 4) and self.dtype.isnative else 1)

    def to_bytes(self, observations: NDArray[Any]) -> Bytes:
        """Bytes of observations with their frames one after the other: ``(n, *shape)`` -> ``(n, observation_bytes)``."""
        if self.is_interleaved:
            observations = np.moveaxis(observations.reshape(self._cut_shape(len(observations))), -2, 1)
        contiguous = np.ascontiguousarray(observations, self.dtype)
        return contiguous.reshape(-1).view(np.uint8).reshape(len(observations), self.observation_bytes)

    def join_frames(self, frames: NDArray[Any], out: NDArray[Any]) -> None:
        """Interleave frames again into observations: the inverse of `to_bytes`.

        :param frames: bytes of observations, C-contiguous, in any shape
        :param out: the same number of observations
        """
        n = frames.nbytes // self.observation_bytes
        planes, pixels = (array.reshape(-1).view(np.uint8).reshape(n, self.observation_bytes) for array in (frames, out))
        join_parts(planes, math.prod(self.shape[:-1]), self.stack, pixels)

    @cached_property
    def is_interleaved(self) -> bool:
        """Whether frames are interleaved in memory, so that the bytes of an observation have to be rearranged."""
        return self.stack > 1 and self.axis == -1 and len(self.shape) > 1

    def _cut_shape(self, n: int) -> tuple[int, ...]:
        return (n, *self.shape[:-1], self.stack, self.shape[-1] // self.stack)


def possible_stacks(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[FrameLayout]:
    """Possible layouts with more than one frame for an observation of this shape, most frames first."""
    for axis in _channel_axes(shape):
        for stack in range(min(shape[axis], LONGEST_STACK), 1, -1):
            if shape[axis] % stack == 0:
                layout = FrameLayout(shape, dtype, stack, axis)
                if layout.frame_bytes >= SMALLEST_STACKED_FRAME:
                    yield layout


def layout_for_stack(shape: tuple[int, ...], dtype: np.dtype[Any], stack: int) -> FrameLayout:
    """The layout for a number of frames that the user gave. The stack is on the channel axis: the shorter of first and last.

    :param stack: frames in an observation; must divide the channel axis
    """
    if stack == 1:
        return FrameLayout(shape, dtype)
    axes = [axis for axis in _channel_axes(shape) if shape[axis] % stack == 0]
    if stack < 1 or not axes:
        raise ValueError(
            f"frame_stack={stack} does not fit an observation of shape {shape}: it must be 'auto', 1, "
            "or divide its first or last axis"
        )
    return FrameLayout(shape, dtype, stack, axes[0])


def _channel_axes(shape: tuple[int, ...]) -> list[int]:
    """Axes that may be the channels, the likelier (shorter) one first."""
    axes = [0, -1] if len(shape) > 1 else [0] if shape else []
    return sorted(axes, key=lambda axis: shape[axis])
