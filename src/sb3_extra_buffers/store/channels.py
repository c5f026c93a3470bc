"""The kernel behind ObservationBytes: stacks whose frames lie between each other, taken apart."""

from __future__ import annotations

from sb3_extra_buffers.codecs.base import Bytes
from sb3_extra_buffers.codecs.kernels import COMPILED, jit, split_pixels

__all__ = ["COMPILED", "split_four_channels"]


@jit
def split_four_channels(source: Bytes, out: Bytes) -> None:
    """Pixels of four interleaved bytes to four planes: ``(n, pixels, 4)`` -> ``(n, 4, pixels)``, as a flat array.

    What SB3 hands over for a stack of four grayscale frames: VecFrameStack stacks on the last axis, VecTransposeImage only
    changes the strides. NumPy takes ten times as long for this copy.
    """
    n, n_pixels, _ = source.shape
    flat, planes = source.reshape(-1), out
    for i in range(n):
        begin = i * n_pixels * 4
        done = 0
        while done + 16 <= n_pixels:
            split_pixels(flat, begin + done * 4, planes, begin + done, n_pixels)
            done += 16
        for pixel in range(done, n_pixels):
            for channel in range(4):
                planes[begin + channel * n_pixels + pixel] = flat[begin + pixel * 4 + channel]
