"""A contact sheet: frames of a saved buffer, evenly spread over what it holds, as one PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers._optional import require
from sb3_extra_buffers.cli.columns import columns_of

COLUMNS, ROWS = 6, 4
SMALLEST_TILE, CAPTION, GAP = 128, 14, 6
BACKGROUND, INK = (24, 24, 27), (212, 212, 216)


class Shown(NamedTuple):
    """What can be shown of one leaf: `size` observations, read by their numbers, with a caption for each."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int
    read: Callable[[NDArray[np.int64]], Any]
    caption: Callable[[int, int], str]


def save_contact_sheet(buffer: Any, path: Path, key: str | None = None) -> dict[str, Any]:
    """Save frames as PNG.

    :param buffer: anything that can be saved
    :param key: key of a Dict observation; None for the first that is an image
    :return: what was drawn: key and number of frames
    """
    require("PIL", extra="extra", what="A contact sheet")
    from PIL import Image, ImageDraw

    key, shown = _image_of(_leaves(buffer), key)
    if shown.size == 0:
        raise ValueError("The buffer is empty: there are no frames to show")
    numbers = np.unique(np.linspace(0, shown.size - 1, COLUMNS * ROWS).astype(np.int64))
    pictures = shown.read(numbers)
    if not isinstance(pictures, np.ndarray):  # a tensor, of a GPU buffer
        pictures = pictures.cpu().numpy()
    tiles = [Image.fromarray(newest_frame(picture)) for picture in pictures]
    scale = max(1, -(-SMALLEST_TILE // max(tiles[0].size)))
    width, height = tiles[0].width * scale, tiles[0].height * scale
    n_rows = -(-len(tiles) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (width + GAP) + GAP, n_rows * (height + CAPTION + GAP) + GAP), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for i, (tile, number) in enumerate(zip(tiles, numbers.tolist(), strict=True)):
        x, y = GAP + i % COLUMNS * (width + GAP), GAP + i // COLUMNS * (height + CAPTION + GAP)
        sheet.paste(tile.resize((width, height), Image.Resampling.NEAREST), (x, y))
        draw.text((x, y + height + 1), shown.caption(i, number), fill=INK)
    sheet.save(path, format="PNG")
    return {"path": str(path), "key": key, "count": len(tiles)}


def _leaves(buffer: Any) -> dict[str, Shown]:
    """What there is to show, by key; ``""`` where there are no keys."""
    from stable_baselines3.common.buffers import BaseBuffer

    from sb3_extra_buffers.recording import RecordBuffer

    if isinstance(buffer, BaseBuffer):
        return {key: _of_column(buffer, column) for key, column in columns_of(buffer).items()}
    if isinstance(buffer, RecordBuffer):
        shape = buffer.frame_shape if buffer.frames is not None else ()
        return {
            "": Shown(
                shape, buffer.dtypes.frame, len(buffer), lambda numbers: buffer[numbers].frame,
                lambda _, number: f"{number}, r={float(buffer[number].reward):g}",
            )
        }  # fmt: skip
    cells = buffer.shape[: len(buffer.shape) - len(buffer.obs_shape)]
    return {
        "": Shown(
            buffer.obs_shape, buffer.dtype, int(np.prod(cells)), lambda numbers: buffer[np.unravel_index(numbers, cells)],
            lambda _, number: ", ".join(map(str, np.unravel_index(number, cells))),
        )
    }  # fmt: skip


def _of_column(buffer: Any, column: Any) -> Shown:
    """A slot for each picture, of one env after the other."""
    is_flat = getattr(buffer, "generator_ready", False)  # by SB3, env by env, when minibatches of a rollout are read

    def read(slots: NDArray[np.int64]) -> Any:
        envs = np.arange(len(slots)) % buffer.n_envs
        return column[envs * buffer.buffer_size + slots] if is_flat else column[slots, envs]

    def caption(i: int, slot: int) -> str:
        env = i % buffer.n_envs
        return f"{slot}, env {env}, r={buffer.rewards[slot, env]:g}"

    return Shown(tuple(column.shape[1 if is_flat else 2 :]), column.dtype, buffer.size(), read, caption)


def newest_frame(observation: NDArray[Any]) -> NDArray[np.uint8]:
    """The newest frame of a stacked observation as a picture: ``(h, w)`` in grey or ``(h, w, 3)`` in colour."""
    picture = observation
    if picture.ndim == 3:
        if picture.shape[0] < picture.shape[-1]:
            picture = np.moveaxis(picture, 0, -1)  # channels last
        channels = 3 if picture.shape[-1] % 3 == 0 else 1
        picture = picture[..., -channels:]
        picture = picture[..., 0] if channels == 1 else picture
    if picture.dtype == np.bool_:
        picture = picture * np.uint8(255)
    return np.ascontiguousarray(picture, np.uint8)


def _image_of(leaves: dict[str, Shown], key: str | None) -> tuple[str, Shown]:
    images = {name: one for name, one in leaves.items() if _is_picture(one)}
    if not images:
        shapes = {name: (one.shape, str(one.dtype)) for name, one in leaves.items()}
        raise ValueError(f"No observation here is a picture (two or three axes of uint8 or bool): {shapes}")
    name = next(iter(images)) if key is None else key
    if name not in images:
        raise ValueError(f"No picture named {name!r}. There are {list(images)}")
    return name, images[name]


def _is_picture(one: Shown) -> bool:
    return len(one.shape) in (2, 3) and one.dtype in (np.uint8, np.bool_) and min(sorted(one.shape)[-2:]) >= 4
