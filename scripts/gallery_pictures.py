"""Make the pictures of the examples in the documentation: python scripts/gallery_pictures.py

Frames as an agent sees them, after some random steps. They go to `docs/pictures`, which is committed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from sb3_extra_buffers.training_utils import atari, vizdoom

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
GAP = 4  # pixels between frames


def strip(frames: list[np.ndarray], scale: int) -> Image.Image:
    """Frames beside each other, enlarged, on a transparent ground."""
    pictures = [Image.fromarray(frame).convert("RGBA") for frame in frames]
    pictures = [one.resize((one.width * scale, one.height * scale), Image.Resampling.NEAREST) for one in pictures]
    width = sum(one.width for one in pictures) + GAP * (len(pictures) - 1)
    whole = Image.new("RGBA", (width, pictures[0].height))
    at = 0
    for one in pictures:
        whole.paste(one, (at, 0))
        at += one.width + GAP
    return whole


def play(env, steps: int):
    """The observation of the only env after random steps."""
    env.action_space.seed(0)
    observation = env.reset()
    for _ in range(steps):
        observation, *_ = env.step(np.array([env.action_space.sample()]))
    env.close()
    return observation


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for game, steps in (("Pong", 60), ("MsPacman", 90)):
        stack = play(atari.make_env(f"{game}NoFrameskip-v4", framestack=4, seed=0), steps)[0]
        strip(list(stack), 2).save(FOLDER / f"{game.lower()}.png", optimize=True)
    seen = play(vizdoom.make_env("deadly_corridor", obs="both", seed=0), 12)
    rgb, labels = (np.moveaxis(seen[key][0], 0, -1) for key in ("rgb", "labels"))
    masks = (labels[..., 0].astype(float) * 255 / max(labels.max(), 1)).astype(np.uint8)
    strip([rgb, masks], 2).save(FOLDER / "doom.png", optimize=True)
    print(*sorted(path.name for path in FOLDER.glob("*.png")))


if __name__ == "__main__":
    main()
