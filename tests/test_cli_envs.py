"""Envs as `recommend` takes them: what `gym.make` takes, a file, arguments and wrappers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sb3_extra_buffers.cli.envs import EnvOptions, make_env
from sb3_extra_buffers.cli.finding import split_call

SOURCE = '''
import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv


class Robot(gym.Env):
    """A camera and joints."""

    def __init__(self, size=48):
        self.observation_space = spaces.Dict(
            camera=spaces.Box(0, 255, (size, size, 3), np.uint8), joints=spaces.Box(-1, 1, (6,), np.float32)
        )
        self.action_space = spaces.Discrete(2)
        self.size = size

    def _seen(self):
        camera = np.full((self.size, self.size, 3), self.t, np.uint8)
        return {"camera": camera, "joints": np.zeros(6, np.float32)}

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        print("hello from the env")
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        return self._seen(), 1.0, self.t > 30, False, {}


class Camera(gym.ObservationWrapper):
    def __init__(self, env, key="camera"):
        super().__init__(env)
        self.key, self.observation_space = key, env.observation_space[key]

    def observation(self, observation):
        return observation[self.key]


def make_small(size=32):
    return Robot(size)


def make_three():
    return DummyVecEnv([Robot] * 3)


number, nothing = 3, lambda: {}
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to start in, with a file; what tests import and register is forgotten."""
    (tmp_path / "my_robot.py").write_text(SOURCE)
    (tmp_path / "my_cart.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('MyCart-v2', entry_point='gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=50)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if name.startswith(("my_", "_file_")):
            del sys.modules[name]
    gym.registry.pop("MyCart-v2", None)


def space_of(name: str, n_envs: int | None = None, frame_stack: int | None = None, **options: Any) -> Any:
    env = make_env(name, n_envs=n_envs, frame_stack=frame_stack, options=EnvOptions(**options))
    try:
        assert env.num_envs == (n_envs or env.num_envs)
        env.reset()
        return env.observation_space
    finally:
        env.close()


# ---- what gym.make takes


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "CartPole", "gymnasium.envs.classic_control:CartPole-v1", "my_cart:MyCart-v2", "my_cart:MyCart"]
)
def test_ids_are_taken_with_and_without_a_version_or_a_package(name: str) -> None:
    assert space_of(name, n_envs=2).shape == gym.make("CartPole-v1").observation_space.shape


@pytest.mark.parametrize("module", ["my_cart", "my_cart.py"])
def test_what_is_imported_before_may_register_the_env(module: str) -> None:
    assert space_of("MyCart-v2", imports=[module]).shape == (4,)


def test_a_package_is_taken_as_gymnasium_takes_it() -> None:
    pytest.importorskip("minigrid")
    space = space_of("minigrid:MiniGrid-Empty-8x8-v0", wrappers=["minigrid.wrappers.ImgObsWrapper"])
    assert space.shape == (3, 7, 7)  # SB3's order


def test_env_kwargs_reach_the_env() -> None:
    assert space_of("FrozenLake-v1", kwargs={"map_name": "8x8"}).n == 64
    assert space_of("my_robot.py:Robot", kwargs={"size": 40})["camera"].shape == (3, 40, 40)


# ---- files


@pytest.mark.parametrize(
    ("name", "size"),
    [("my_robot.py", 48), ("my_robot.py:Robot", 48), ("./my_robot.py:make_small", 32), ("my_robot:Robot", 48)],
)
def test_a_file_has_an_env_class_or_a_function_that_makes_one(name: str, size: int) -> None:
    space = space_of(name, n_envs=2)
    assert isinstance(space, spaces.Dict)
    assert space["camera"].shape == (3, size, size)


@pytest.mark.parametrize("name", ["my_cart.py", "my_cart.py:MyCart-v2", "my_cart.py:CartPole-v1"])
def test_a_file_may_register_an_id(name: str) -> None:
    assert space_of(name).shape == (4,)


def test_a_file_may_be_named_like_an_imported_module_and_import_its_neighbours(folder: Path) -> None:
    (folder / "gymnasium.py").write_text("from my_robot import Robot\n")
    (folder / "my-env.py").write_text("from my_robot import Robot\n")
    assert space_of("gymnasium.py:Robot")["joints"].shape == (6,)
    assert space_of("my-env.py:Robot")["joints"].shape == (6,)
    assert gym.make("CartPole-v1")


def test_a_vec_env_is_taken_as_it_is() -> None:
    env = make_env("my_robot.py:make_three", n_envs=None)
    assert env.num_envs == 3
    env.close()


def test_a_function_is_called_once_for_each_env(folder: Path) -> None:
    (folder / "my_counting.py").write_text(
        "import gymnasium as gym\ncalls = []\ndef make():\n    calls.append(1)\n    return gym.make('CartPole-v1')\n"
    )
    make_env("my_counting.py:make", n_envs=3).close()
    assert len(sys.modules["my_counting"].calls) == 3


# ---- wrappers


@pytest.mark.parametrize(
    ("wrappers", "shape"),
    [
        (["my_robot.py:Camera"], (3, 48, 48)),
        (["my_robot:Camera"], (3, 48, 48)),
        (["my_robot.Camera(key='joints')"], (6,)),
        (["my_robot.py:Camera", "ResizeObservation(shape=(20, 30))"], (3, 20, 30)),
        (["my_robot.py:Camera", "gymnasium.wrappers.GrayscaleObservation( keep_dim = True )"], (1, 48, 48)),
        (["FlattenObservation"], (48 * 48 * 3 + 6,)),
    ],
)
def test_wrappers_go_around_each_env_the_first_innermost(wrappers: list[str], shape: tuple[int, ...]) -> None:
    assert space_of("my_robot.py", n_envs=2, wrappers=wrappers).shape == shape


def test_frames_are_stacked_around_wrappers() -> None:
    assert space_of("my_robot.py", frame_stack=3, wrappers=["my_robot.py:Camera"]).shape == (9, 48, 48)


def test_wrappers_take_the_place_of_ataris_preprocessing() -> None:
    pytest.importorskip("ale_py")
    assert space_of("ALE/Pong-v5").shape == (4, 84, 84)
    assert space_of("ale_py:ALE/Pong-v5", frame_stack=2).shape == (2, 84, 84)
    assert space_of("ALE/Pong-v5", wrappers=["ResizeObservation(shape=(60, 40))"]).shape == (3, 60, 40)
    assert space_of("ALE/Pong-v5", kwargs={"obs_type": "ram"}).shape == (128,)


def test_arguments_of_a_wrapper_are_plain_values() -> None:
    assert split_call("a.b:C") == ("a.b:C", {})
    assert split_call("C()") == ("C", {})
    assert split_call("C(x=1, y=(2, 'z'), w={'a': None})") == ("C", {"x": 1, "y": (2, "z"), "w": {"a": None}})


# ---- refusals


MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown id": ("CartPol-v1", {}, r"No env 'CartPol-v1'\. .*Did you mean: `CartPole`\?.*--import PACKAGE"),
    "unknown version": ("CartPole-v9", {}, r"No env 'CartPole-v9'\. .*versioned environments: \[ `v0`, `v1` \]\.$"),
    "unknown namespace": ("Nowhere/Env-v0", {}, r"No env 'Nowhere/Env-v0'\."),
    "no id": ("", {}, r"No env ''\. Malformed"),
    "unknown package": ("nopackage:Env-v0", {}, r"No module 'nopackage': install its package, or start in the folder"),
    "nothing in a package": ("my_cart:Env-v0", {}, r"No env 'Env-v0'"),
    "no package": (":Env-v0", {}, r"'' is no name of a module"),
    "no file": ("missing.py", {}, r"No file missing\.py"),
    "no such name in a file": ("my_robot.py:Robt", {}, r"my_robot\.py has no 'Robt'\. Did you mean 'Robot'\?"),
    "no env in a file": ("my_robot.py:number", {}, r"'number' of my_robot\.py must be an env class or a function"),
    "no env from a function": ("my_robot.py:nothing", {}, r"my_robot\.py:nothing must make an env, got dict"),
    "wrong argument": ("my_robot.py", {"kwargs": {"sise": 1}}, r"unexpected keyword argument 'sise'. --env-kwargs NAME=VALUE"),
    "wrong argument of an id": ("CartPole-v1", {"kwargs": {"foo": 1}}, r"'foo'.* --env-kwargs NAME=VALUE"),
    "unknown import": ("CartPole-v1", {"imports": ["nowhere.at_all"]}, r"No module 'nowhere'"),
    "empty import": ("CartPole-v1", {"imports": [""]}, r"'' is no name of a module"),
    "unknown wrapper": ("CartPole-v1", {"wrappers": ["TimeLimt"]}, r"no 'TimeLimt'\. Did you mean 'TimeLimit'\?"),
    "no wrapper": ("CartPole-v1", {"wrappers": [""]}, r"Say what to take from gymnasium\.wrappers"),
    "missing argument": (
        "CartPole-v1",
        {"wrappers": ["TimeLimit"]},
        r"--wrapper TimeLimit: .*'max_episode_steps'\. Arguments st",
    ),
    "argument without a name": ("CartPole-v1", {"wrappers": ["TimeLimit(5)"]}, r"Arguments must be named and plain values"),
    "argument that is code": ("CartPole-v1", {"wrappers": ["TimeLimit(max_episode_steps=exit())"]}, r"named and plain values"),
    "arguments as stars": ("CartPole-v1", {"wrappers": ["TimeLimit(**{'a': 1})"]}, r"named and plain values"),
    "open bracket": ("CartPole-v1", {"wrappers": ["TimeLimit(a=1"]}, r"named and plain values"),
    "wrappers of a VecEnv": ("my_robot.py:make_three", {"wrappers": ["my_robot.py:Camera"]}, r"a VecEnv of 3 envs.*leave out"),
    "space without a buffer": ("Blackjack-v1", {}, r"SB3 has no buffer for this env: .*\. A wrapper may help: --wrapper"),
}


@pytest.mark.parametrize(("name", "options", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_said(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_env(name, n_envs=None, options=EnvOptions(**options))


def test_another_number_of_envs_than_a_vec_env_has_is_refused() -> None:
    with pytest.raises(ValueError, match="makes a VecEnv of 3 envs, which is taken as it is"):
        make_env("my_robot.py:make_three", n_envs=2)


def test_several_envs_in_a_file_are_named(folder: Path) -> None:
    (folder / "my_two.py").write_text("import gymnasium as gym\nclass A(gym.Env): ...\nclass B(gym.Env): ...\n")
    (folder / "my_none.py").write_text("from gymnasium import Env\n")
    with pytest.raises(ValueError, match=r"Say which env of my_two\.py is meant: my_two\.py:NAME.* It has A, B"):
        make_env("my_two.py")
    with pytest.raises(ValueError, match=r"It has no env class and registers no id"):
        make_env("my_none.py")


@pytest.mark.parametrize(
    ("source", "message"),
    [("import not_there", "ModuleNotFoundError: No module named 'not_there'"), ("def f(:", "SyntaxError")],
)
def test_a_file_that_cannot_be_imported_says_why(source: str, message: str, folder: Path) -> None:
    (folder / "my_broken.py").write_text(source)
    for name in ("my_broken.py:Env", "my_broken:Env-v0"):
        with pytest.raises(ValueError, match=rf"{name.partition(':')[0]} was not imported: {message}"):
            make_env(name)
    assert "my_broken" not in sys.modules


def test_text_in_observations_is_refused_by_name() -> None:
    pytest.importorskip("minigrid")
    with pytest.raises(ValueError, match="SB3 has no buffer for this env: MissionSpace"):
        make_env("minigrid:MiniGrid-Empty-8x8-v0")


def test_values_that_come_back_are_those_of_the_env() -> None:
    env = make_env("my_robot.py", n_envs=2)
    seen = env.reset()
    assert isinstance(seen, dict)
    assert seen["camera"].shape == (2, 3, 48, 48)
    assert not np.any(seen["camera"])
    env.close()
