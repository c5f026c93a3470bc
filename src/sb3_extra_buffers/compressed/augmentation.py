"""Random shifts of image batches, as DrQ learns from them. Above: replay buffers, which apply them to what they draw."""

from __future__ import annotations

from typing import Any

import torch as th
from stable_baselines3.common.preprocessing import is_image_space_channels_first

from sb3_extra_buffers.spaces import Leaf

#: torch gathers none of these, which cameras of depth may have, but their bits are those of others.
_SIGNED = {th.uint16: th.int16, th.uint32: th.int32, th.uint64: th.int64}


def random_shift(images: th.Tensor, pad: int, *, channels_first: bool = True) -> th.Tensor:
    """Shift each image at random by up to `pad` pixels, up or down and left or right. The border's pixels are repeated.

    The random numbers are torch's, of the device that the images are on.

    :param images: ``(batch, channels, height, width)``, or sequences of these, ``(batch, length, ...)``: all images of a
        sequence get the same shift
    :param pad: the most pixels that an image is shifted by
    :param channels_first: whether channels come before height and width, or after them
    """
    _check_pixels(pad)
    if images.ndim not in (4, 5):
        raise ValueError(f"random_shift takes batches of images or of their sequences, got the shape {tuple(images.shape)}")
    return shifted(images, draw_shifts(images, pad), channels_first=channels_first)


def draw_shifts(images: th.Tensor, pad: int) -> th.Tensor:
    """How many rows and columns to shift each image or sequence of a batch by: ``(batch, 2)``."""
    return th.randint(-pad, pad + 1, (len(images), 2), device=images.device)


def shifted(images: th.Tensor, shifts: th.Tensor, *, channels_first: bool) -> th.Tensor:
    """The images, each with its own shift."""
    if not channels_first:
        return shifted(images.movedim(-1, -3), shifts, channels_first=True).movedim(-3, -1)
    *_, height, width = images.shape
    rows = (th.arange(height, device=images.device) + shifts[:, :1]).clamp_(0, height - 1)
    columns = (th.arange(width, device=images.device) + shifts[:, 1:]).clamp_(0, width - 1)
    pixels = (rows[:, :, None] * width + columns[:, None, :]).reshape(len(images), 1, -1)
    flat = images.reshape(len(images), -1, height * width).view(_SIGNED.get(images.dtype, images.dtype))
    return flat.gather(2, pixels.expand(flat.shape)).view(images.dtype).view(images.shape)


def shift_batch(batch: Any, pad: int, leaves: dict[str, Leaf]) -> Any:
    """A batch with all its images shifted: observations and next observations each for itself, as in DrQ.

    In a batch of sequences, the next observation of a sequence gets the shift of the sequence.

    :param leaves: those of the buffer, by key
    """
    drawn: dict[str, th.Tensor] = {}

    def one(leaf: Leaf, values: th.Tensor) -> th.Tensor:
        if not is_shiftable(leaf):
            return values
        if leaf.key not in drawn or "mask" not in batch._fields:
            drawn[leaf.key] = draw_shifts(values, pad)
        return shifted(values, drawn[leaf.key], channels_first=is_image_space_channels_first(leaf.space))  # type: ignore[arg-type]

    def all_of(observations: Any) -> Any:
        if isinstance(observations, dict):
            return {key: one(leaves[key], values) for key, values in observations.items()}
        [leaf] = leaves.values()
        return one(leaf, observations)

    return batch._replace(**{name: all_of(getattr(batch, name)) for name in ("observations", "next_observations")})


def is_shiftable(leaf: Leaf) -> bool:
    """Whether it has the three axes of an image. Cameras of depth have other dtypes than SB3's images."""
    return len(leaf.shape) == 3


def check_pad(pad: Any, leaves: list[Leaf]) -> None:
    """ValueError unless images of these leaves can be shifted by so much."""
    _check_pixels(pad)
    images = [leaf for leaf in leaves if is_shiftable(leaf)]
    if pad and not images:
        shapes = ", ".join(str(leaf.shape) for leaf in leaves)
        raise ValueError(f"random_shift={pad} needs images, with channels, height and width: got observations of {shapes}")
    for leaf in images:
        *_, height, width = sorted(leaf.shape)
        if pad >= min(height, width):
            raise ValueError(f"random_shift={pad} would shift images of {leaf.shape} out of sight: give a few pixels, e.g. 4")


def _check_pixels(pad: Any) -> None:
    if not isinstance(pad, int) or isinstance(pad, bool) or pad < 0:
        raise ValueError(f"random_shift must be a number of pixels, got {pad!r}")
