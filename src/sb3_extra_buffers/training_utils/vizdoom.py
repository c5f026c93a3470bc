"""ViZDoom envs without a window: semantic-segmentation masks, RGB, or both. Below: vec_env.

ViZDoom gives the objects in a picture new numbers at every step. A mask here holds classes instead, which are the same for all
steps and scenarios. `CLASSES` names them; a pixel is the index of its class times `CLASS_STEP`. So SB3 treats masks as images,
and a network that divides by 255 can still tell the classes apart.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, SupportsFloat, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv

from sb3_extra_buffers._optional import require
from sb3_extra_buffers.training_utils.vec_env import VecEnvClass, check_counts, vectorize

Pictures = Literal["labels", "rgb", "both"]

#: The classes of a mask: the level's surfaces, then ViZDoom's categories of objects.
CLASSES = (
    "Wall", "FloorOrCeiling", "Unknown",
    "Ammo", "Armor", "Artifact", "Breakable", "Bridge", "Decoration", "DynamicLight", "Explosive", "Gibs", "Gore", "Hazard",
    "Health", "InteractiveObject", "Internal", "Key", "LightSource", "MapSpot", "Monster", "Player", "Power", "Powerup",
    "PuzzleItem", "QuestItem", "Self", "SFX", "ScriptThing", "Token", "Vegetation", "Weapon",
)  # fmt: skip

#: Distance between two classes in a mask.
CLASS_STEP = 256 // len(CLASSES)

_VALUES = {name: place * CLASS_STEP for place, name in enumerate(CLASSES)}


def make_env(
    scenario: str = "deadly_corridor",
    n_envs: int = 1,
    obs: Pictures = "labels",
    vec_env_cls: VecEnvClass = SubprocVecEnv,
    framestack: int = 1,
    seed: int | None = None,
    frame_skip: int = 4,
    resolution: tuple[int, int] = (160, 120),
    max_buttons_pressed: int = 1,
    **game_options: Any,
) -> VecEnv:
    """Doom without a window; observations are channel-first uint8 images.

    :param scenario: a scenario that ViZDoom brings, e.g. ``"basic"``, or the path of a .cfg file
    :param n_envs: number of envs; a single one runs in this process
    :param obs: ``"labels"`` for masks ``(1, h, w)``, ``"rgb"`` for ``(3, h, w)``, ``"both"`` for a Dict of the two
    :param vec_env_cls: how several envs run
    :param framestack: frames in an observation
    :param seed: seed of the first env, the others follow
    :param frame_skip: game tics that one action lasts
    :param resolution: width and height, one of ViZDoom's resolutions
    :param max_buttons_pressed: buttons of one action; with 0 any number, and actions become MultiBinary
    :param game_options: more of ViZDoom's config, e.g. ``doom_skill=3``
    """
    if obs not in get_args(Pictures):
        raise ValueError(f"obs must be one of {', '.join(map(repr, get_args(Pictures)))}, got {obs!r}")
    vizdoom = require("vizdoom", extra="vizdoom", what="vizdoom.make_env")
    check_counts(frame_skip=frame_skip)
    try:
        width, height = resolution
    except (TypeError, ValueError):
        raise ValueError(f"resolution must be (width, height), got {resolution!r}") from None
    name = f"RES_{width}X{height}"
    if not hasattr(vizdoom.ScreenResolution, name):
        known = sorted(vizdoom.ScreenResolution.__members__, key=lambda res: int(res.split("_")[1].split("X")[0]))
        raise ValueError(f"ViZDoom has no resolution {resolution}, only: {', '.join(res[4:].lower() for res in known)}")
    for key, option in (("screen_resolution", "resolution"), ("labels_buffer_enabled", "obs")):
        if key in game_options:
            raise ValueError(f"{key} follows from {option}=, choose it there")
    for key, value in game_options.items():
        if not vizdoom.DoomGame().set_config({key: value}):  # the game would ignore it
            raise ValueError(f"ViZDoom does not take {key}={value!r}. Its options: https://vizdoom.farama.org")
    options = {
        "screen_resolution": name,
        "screen_format": "RGB24",
        "labels_buffer_enabled": obs != "rgb",
        "doom_config_path": os.devnull,  # the game writes its settings here when it ends
        # The game starts in another folder, so a relative path would not be found.
        **{key: str(Path(value).resolve()) if key.endswith("_path") else value for key, value in game_options.items()},
    }
    make_one = partial(_make_game, _config_of(scenario), obs, frame_skip, max_buttons_pressed, options)
    return vectorize(make_one, n_envs, vec_env_cls, framestack, seed)


class DoomPictures(gym.Wrapper[Any, Any, Any, Any]):
    """The chosen pictures of ViZDoom's own env.

    The game shows nothing when an episode is over, so the last picture is repeated.

    :param env: ViZDoom's env
    :param obs: see `make_env`
    """

    def __init__(self, env: gym.Env[Any, Any], obs: Pictures) -> None:
        super().__init__(env)
        if not isinstance(env.observation_space, spaces.Dict):
            raise TypeError(f"DoomPictures expects ViZDoom's env, got one with {env.observation_space}")
        every = {"labels": env.observation_space.spaces.get("labels"), "rgb": env.observation_space["screen"]}
        self._only = None if obs == "both" else obs
        self.observation_space = spaces.Dict(every) if self._only is None else every[self._only]  # type: ignore[arg-type, assignment]
        self._last: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        running = self.unwrapped.game.is_running()  # type: ignore[attr-defined]
        with nullcontext() if running else _own_folder():
            raw, info = self.env.reset(seed=seed, options=options)
        return self._pictures(raw), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        raw, reward, over, timeout, info = self.env.step(action)
        return self._pictures(raw), reward, over and not timeout, timeout, info  # ViZDoom calls a timeout a termination too

    def _pictures(self, raw: dict[str, Any]) -> Any:
        state = self.unwrapped.state  # type: ignore[attr-defined]
        if state is not None:
            pictures = {"rgb": raw["screen"]}
            if "labels" in raw:
                pictures["labels"] = semantic_mask(raw["labels"], state.labels)
            self._last = pictures if self._only is None else pictures[self._only]
        return self._last


def semantic_mask(labels: NDArray[np.uint8], objects: Any) -> NDArray[np.uint8]:
    """ViZDoom's labels buffer with classes instead of the numbers of objects.

    :param labels: 0 for walls, 1 for floors and ceilings, else an object's number
    :param objects: ViZDoom's labels of these objects
    """
    table = np.full(256, _VALUES["Unknown"], np.uint8)
    table[:2] = _VALUES["Wall"], _VALUES["FloorOrCeiling"]
    for thing in objects:
        table[thing.value] = _VALUES.get(thing.object_category, _VALUES["Unknown"])
    return table[labels]


def _config_of(scenario: str) -> str:
    if scenario.endswith(".cfg"):
        if not Path(scenario).is_file():
            raise ValueError(f"No config file at {scenario}")
        return str(Path(scenario).resolve())
    vizdoom = require("vizdoom", extra="vizdoom", what="vizdoom.make_env")
    known = {Path(name).stem for name in vizdoom.configs}
    if scenario not in known:
        close = difflib.get_close_matches(scenario, known, n=1)
        suggestion = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"No scenario named {scenario!r}.{suggestion} There are: {', '.join(sorted(known))}")
    return str(Path(vizdoom.scenarios_path) / f"{scenario}.cfg")


def _make_game(
    config: str, obs: Pictures, frame_skip: int, max_buttons_pressed: int, options: dict[str, Any]
) -> gym.Env[Any, Any]:
    module = require("vizdoom.gymnasium_wrapper.base_gymnasium_env", extra="vizdoom", what="vizdoom.make_env")
    game = module.VizdoomEnv(config, frame_skip, max_buttons_pressed, render_mode="rgb_array", **options)
    if isinstance(game.action_space, spaces.Discrete):
        game.action_space.names = _button_names(game)  # type: ignore[attr-defined]  # saved with a buffer
    return DoomPictures(game, obs)


def _button_names(game: Any) -> list[str]:
    """The buttons that each action presses, e.g. ``"MOVE_LEFT+ATTACK"``."""
    buttons = [button.name for button in game.game.get_available_buttons()][game.num_delta_buttons :]
    pressed = ([name for name, is_down in zip(buttons, one, strict=True) if is_down] for one in game.button_map)
    return ["+".join(names) or "NONE" for names in pressed]


@contextmanager
def _own_folder() -> Iterator[None]:
    """A working directory for one game, which creates a folder _vizdoom there and fails if another game does so first."""
    before = os.getcwd()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
