"""A contact sheet: frames of a replay buffer, evenly spread over what it holds, as one PNG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers._optional import require
from sb3_extra_buffers.cli.columns import columns_of

if TYPE_CHECKING:
    from stable_baselines3.common.buffers import ReplayBuffer

COLUMNS, ROWS = 6, 4
SMALLEST_TILE, CAPTION, GAP = 128, 14, 6
BACKGROUND, INK = (24, 24, 27), (212, 212, 216)


def save_contact_sheet(buffer: ReplayBuffer, path: Path, key: str | None = None) -> dict[str, Any]:
    """Save frames as PNG.

    :param key: key of a Dict observation; None for the first that is an image
    :return: what was drawn: key and number of frames
    """
    require("PIL", extra="extra", what="A contact sheet")
    from PIL import Image, ImageDraw

    key, column = _image_column(buffer, key)
    size = buffer.size()
    if size == 0:
        raise ValueError("The buffer is empty: there are no frames to show")
    slots = np.unique(np.linspace(0, size - 1, COLUMNS * ROWS).astype(np.int64))
    envs = np.arange(len(slots)) % buffer.n_envs
    pictures = column[slots, envs]
    if not isinstance(pictures, np.ndarray):  # a tensor, of a GPU buffer
        pictures = pictures.cpu().numpy()
    tiles = [Image.fromarray(newest_frame(picture)) for picture in pictures]
    scale = max(1, -(-SMALLEST_TILE // max(tiles[0].size)))
    width, height = tiles[0].width * scale, tiles[0].height * scale
    n_rows = -(-len(tiles) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (width + GAP) + GAP, n_rows * (height + CAPTION + GAP) + GAP), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for i, (tile, slot, env) in enumerate(zip(tiles, slots.tolist(), envs.tolist(), strict=True)):
        x, y = GAP + i % COLUMNS * (width + GAP), GAP + i // COLUMNS * (height + CAPTION + GAP)
        sheet.paste(tile.resize((width, height), Image.Resampling.NEAREST), (x, y))
        draw.text((x, y + height + 1), f"{slot}, env {env}, r={buffer.rewards[slot, env]:g}", fill=INK)
    sheet.save(path, format="PNG")
    return {"path": str(path), "key": key, "count": len(tiles)}


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


def _image_column(buffer: ReplayBuffer, key: str | None) -> tuple[str, Any]:
    columns = columns_of(buffer)
    images = {name: column for name, column in columns.items() if _is_picture(column)}
    if not images:
        shapes = {name: (column.shape[2:], str(column.dtype)) for name, column in columns.items()}
        raise ValueError(f"No observation here is a picture (two or three axes of uint8 or bool): {shapes}")
    name = next(iter(images)) if key is None else key
    if name not in images:
        raise ValueError(f"No picture named {name!r}. There are {list(images)}")
    return name, images[name]


def _is_picture(column: Any) -> bool:
    shape = column.shape[2:]
    return len(shape) in (2, 3) and column.dtype in (np.uint8, np.bool_) and min(sorted(shape)[-2:]) >= 4
