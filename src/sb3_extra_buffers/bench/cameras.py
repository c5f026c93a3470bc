"""Envs whose observations are pictures in colour, or depth, as SB3 hands them over: channels first. Below: recording.

Robots stand for what real ones deliver: MuJoCo's camera with 640x480 pixels, in colour, as depth in millimetres (uint16), or
in metres (float32). MuJoCo draws without a screen by EGL or OSMesa: ``MUJOCO_GL=osmesa``.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers._optional import require

#: Doom is drawn in this size, and made smaller, as most who train on it do.
DOOM_SCREEN, DOOM_SIZE = "RES_320X240", (160, 120)
MUJOCO_SIZE, ROBOT_SIZE = (84, 84), (640, 480)
TURN_DEGREES, NOISE, FARTHEST_METRES = 0.5, 0.002, 60.0


def make_camera(name: str) -> Any:
    """A vectorized env of one of `frames.CAMERAS`, without a stack."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecTransposeImage, is_vecenv_wrapped

    env: Any = DummyVecEnv([MAKERS[name]])
    env.seed(0)
    is_picture = env.observation_space.shape[-1] == 3 and not is_vecenv_wrapped(env, VecTransposeImage)
    return VecTransposeImage(env) if is_picture else env


class Picture(gym.Wrapper[Any, Any, Any, Any]):
    """What the env's own camera draws is the observation."""

    def __init__(self, env: gym.Env[Any, Any], size: tuple[int, int]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (size[1], size[0], 3), np.uint8)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        _, info = self.env.reset(**options)
        return self.picture(), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, info = self.env.step(action)
        return self.picture(), reward, terminated, truncated, info

    def picture(self) -> NDArray[Any]:
        """The picture of this moment."""
        return np.array(self.env.render())


class Turning(Picture):
    """The camera turns around the scene, as that of a robot that moves does."""

    def picture(self) -> NDArray[Any]:
        """The picture of this moment, a little further around."""
        viewer = self.env.unwrapped.mujoco_renderer._get_viewer(self.env.render_mode)  # type: ignore[attr-defined]
        viewer.cam.azimuth += TURN_DEGREES
        return super().picture()


class Depth(Turning):
    """How far away everything is: in metres, or in whole millimetres, with the noise of a sensor: 0.2 % of the distance."""

    def __init__(self, env: gym.Env[Any, Any], size: tuple[int, int], dtype: type[Any]) -> None:
        super().__init__(env, size)
        high = np.inf if dtype is np.float32 else np.iinfo(dtype).max
        self.observation_space = spaces.Box(0, high, (1, size[1], size[0]), dtype)
        self._rng = np.random.default_rng(0)

    def picture(self) -> NDArray[Any]:
        """MuJoCo says how far along between the nearest and the farthest that it draws."""
        model: Any = self.env.unwrapped.model  # type: ignore[attr-defined]
        near, far = (float(part * model.stat.extent) for part in (model.vis.map.znear, model.vis.map.zfar))
        metres = np.minimum(near / (1 - super().picture() * (1 - near / far)), FARTHEST_METRES)
        metres *= 1 + NOISE * self._rng.standard_normal(metres.shape, np.float32)
        dtype = self.observation_space.dtype
        return (metres if dtype == np.float32 else metres * 1000)[None].astype(dtype)


def _car_racing() -> gym.Env[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import crashes where its own warnings are errors
        require("Box2D", extra="cameras", what="CarRacing")
    return gym.make("CarRacing-v3", continuous=False)


def _mini_grid() -> Any:
    wrappers = require("minigrid.wrappers", extra="cameras", what="MiniGrid")
    return wrappers.ImgObsWrapper(wrappers.RGBImgPartialObsWrapper(gym.make("MiniGrid-MultiRoom-N6-v0")))


def _atari() -> gym.Env[Any, Any]:
    gym.register_envs(require("ale_py", extra="atari", what="AtariRGB"))
    return gym.make("ALE/MsPacman-v5")


def _doom() -> gym.Env[Any, Any]:
    from sb3_extra_buffers.training_utils.vizdoom import DoomPictures

    vizdoom = require("vizdoom", extra="vizdoom", what="ViZDoom")
    envs = require("vizdoom.gymnasium_wrapper.base_gymnasium_env", extra="vizdoom", what="ViZDoom")
    config = str(Path(vizdoom.scenarios_path) / "deadly_corridor.cfg")
    options = {"screen_resolution": DOOM_SCREEN, "screen_format": "RGB24", "doom_config_path": os.devnull}
    game = envs.VizdoomEnv(config, frame_skip=4, max_buttons_pressed=1, **options)
    return gym.wrappers.ResizeObservation(DoomPictures(game, "rgb"), (DOOM_SIZE[1], DOOM_SIZE[0]))


def _mujoco(name: str, size: tuple[int, int], mode: str = "rgb_array", **options: Any) -> gym.Env[Any, Any]:
    require("mujoco", extra="cameras", what=name)
    return gym.make(name, render_mode=mode, width=size[0], height=size[1], **options)


def _robot(mode: str) -> gym.Env[Any, Any]:
    return _mujoco("Ant-v5", ROBOT_SIZE, mode, camera_id=-1)  # a camera that can be turned


MAKERS = {
    "CarRacing": _car_racing,
    "MiniGrid": _mini_grid,
    "AtariRGB": _atari,
    "ViZDoom": _doom,
    "Walker2d": lambda: Picture(_mujoco("Walker2d-v5", MUJOCO_SIZE), MUJOCO_SIZE),
    "RobotRGB": lambda: Turning(_robot("rgb_array"), ROBOT_SIZE),
    "RobotDepth16": lambda: Depth(_robot("depth_array"), ROBOT_SIZE, np.uint16),
    "RobotDepth": lambda: Depth(_robot("depth_array"), ROBOT_SIZE, np.float32),
}
