"""Atari and ViZDoom envs, the real ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedDictRolloutBuffer, CompressedReplayBuffer
from sb3_extra_buffers.errors import MissingBackendError
from sb3_extra_buffers.training_utils import atari, vizdoom
from sb3_extra_buffers.training_utils.eval_model import eval_model
from sb3_extra_buffers.training_utils.play import play
from tests.oracle import assert_same_samples

PONG = "PongNoFrameskip-v4"
BREAKOUT = "BreakoutNoFrameskip-v4"
MSPACMAN = "MsPacmanNoFrameskip-v4"


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, also of other processes that are started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("multiprocessing.process.ORIGINAL_DIR", str(tmp_path))
    return tmp_path


class AtRandom:
    """A model that draws its actions."""

    def __init__(self, env: VecEnv, seed: int = 0) -> None:
        self.space, self.n_envs = env.action_space, env.num_envs
        self.space.seed(seed)

    def predict(self, obs: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False) -> Any:
        return np.array([self.space.sample() for _ in range(self.n_envs)]), None


def save_picture(name: str, picture: np.ndarray) -> None:
    """For looking at: debug_obs/ at the root of the project, unless switched off."""
    if os.environ.get("DISABLE_TEST_OBSERVATIONS_SAVE", "").lower() == "true":
        return
    from PIL import Image

    folder = Path(__file__).parent.parent / "debug_obs"
    folder.mkdir(exist_ok=True)
    Image.fromarray(picture.squeeze()).save(folder / f"{name}.png")


@pytest.mark.parametrize("none", [None, 0])
def test_no_frame_stack_is_single_frames(none: int | None) -> None:
    env = atari.make_env(PONG, 1, framestack=none, seed=0)
    assert env.observation_space == spaces.Box(0, 255, (1, 84, 84), np.uint8)
    env.close()


@pytest.mark.parametrize("framestack", [1, 4])
def test_atari_observations_are_channel_first_stacks(framestack: int) -> None:
    env = atari.make_env(PONG, 1, framestack=framestack, seed=0)
    assert env.observation_space == spaces.Box(0, 255, (framestack, 84, 84), np.uint8)
    assert isinstance(env.unwrapped, DummyVecEnv), "one env needs no other process"
    obs = env.reset()
    assert obs.shape == (1, framestack, 84, 84)
    for _ in range(30):
        obs = env.step(np.array([env.action_space.sample()]))[0]
    save_picture(f"pong_{framestack}", np.concatenate(list(obs[0]), axis=1))
    assert len(np.unique(obs)) > 2
    env.close()


def test_a_terminal_observation_of_atari_is_channel_first_too() -> None:
    env = atari.make_env(BREAKOUT, 1, seed=0)
    for step in play(env, AtRandom(env)):
        if step.done[0]:
            assert step.infos[0]["terminal_observation"].shape == (4, 84, 84)
            assert not np.array_equal(step.next_obs, env.unwrapped.buf_obs[None]), "not the first of the next life"  # type: ignore[attr-defined]
            break
    env.close()


def test_atari_runs_in_processes_that_know_nothing_of_ale() -> None:
    env = atari.make_env(PONG, 2, seed=0, framestack=2)
    assert isinstance(env.unwrapped, SubprocVecEnv)
    assert env.reset().shape == (2, 2, 84, 84)
    assert env.action_space.names == ["NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE"]  # type: ignore[attr-defined]
    env.close()


def test_the_seed_decides_what_is_seen() -> None:
    runs = []
    for seed in (3, 3, 4):
        env = atari.make_env(MSPACMAN, 1, seed=seed)
        model = AtRandom(env)
        steps = play(env, model)
        runs.append(np.stack([next(steps).next_obs for _ in range(40)]))
        env.close()
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_options_reach_the_wrapper_and_the_game() -> None:
    env = atari.make_env(PONG, wrapper_kwargs={"screen_size": 42, "noop_max": 0}, full_action_space=True)
    assert env.observation_space.shape == (4, 42, 42)
    assert env.action_space == spaces.Discrete(18)
    env.close()


@pytest.mark.parametrize("value", [0, 1.5, "2", None, True])
@pytest.mark.parametrize("name", ["n_envs", "framestack"])
def test_wrong_numbers_are_refused(name: str, value: Any) -> None:
    for make_env, what in ((atari.make_env, PONG), (vizdoom.make_env, "basic")):
        if make_env is atari.make_env and name == "framestack" and not value:
            continue  # no stack, as in 0.5
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value!r}"):
            make_env(what, **{name: value})  # type: ignore[operator]


def test_what_is_no_game_of_atari_is_refused() -> None:
    with pytest.raises(ValueError, match="CartPole-v1 is no game of Atari"):
        atari.make_env("CartPole-v1")


@pytest.mark.parametrize(
    ("module", "make_env", "what"), [("ale_py", atari.make_env, PONG), ("vizdoom", vizdoom.make_env, "basic")]
)
def test_a_missing_package_is_named(module: str, make_env: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingBackendError, match=r'pip install "sb3-extra-buffers\['):
        make_env(what)


def test_episodes_of_breakout_are_games_and_buffers_equal_sb3() -> None:
    env = atari.make_env(BREAKOUT, 2, DummyVecEnv, seed=0)
    args = (2000, env.observation_space, env.action_space, "cpu", 2)
    ours, theirs = CompressedReplayBuffer(*args), ReplayBuffer(*args)
    rewards, seconds = eval_model(3, env, AtRandom(env), buffer=[ours, theirs])
    assert len(rewards) == 3
    assert len(seconds) == 2
    assert ours.dones.sum() > 3 * 4, "five lives a game"
    assert_same_samples(ours, theirs, batch_size=300)


@pytest.mark.parametrize("scenario", ["basic", "deadly_corridor", "health_gathering"])
def test_masks_hold_classes(scenario: str) -> None:
    env = vizdoom.make_env(scenario, seed=1)
    assert env.observation_space == spaces.Box(0, 255, (1, 120, 160), np.uint8)
    steps = play(env, AtRandom(env))
    masks = np.stack([next(steps).obs for _ in range(30)])
    save_picture(f"labels_{scenario}", masks[20, 0, 0])
    names = {vizdoom.CLASSES[value // vizdoom.CLASS_STEP] for value in np.unique(masks)}
    assert set(np.unique(masks)) <= set(range(0, 256, vizdoom.CLASS_STEP))
    assert {"Wall", "FloorOrCeiling"} < names
    assert {"basic": "Monster", "deadly_corridor": "Monster", "health_gathering": "Health"}[scenario] in names
    env.close()


def test_vizdoom_knows_no_class_that_we_do_not() -> None:
    assert set(pytest.importorskip("vizdoom").get_default_categories()) == set(vizdoom.CLASSES[3:])


def test_both_pictures_are_those_of_rgb_and_labels() -> None:
    seen: dict[str, Any] = {}
    for obs in ("labels", "rgb", "both"):
        env = vizdoom.make_env("deadly_corridor", obs=obs, seed=5)  # type: ignore[arg-type]
        steps = play(env, AtRandom(env))
        seen[obs] = [next(steps).obs for _ in range(10)]
        env.close()
    assert seen["rgb"][0].shape == (1, 3, 120, 160)
    save_picture("rgb_deadly_corridor", seen["rgb"][9][0].transpose(1, 2, 0))
    for both, labels, rgb in zip(seen["both"], seen["labels"], seen["rgb"], strict=True):
        assert both.keys() == {"labels", "rgb"}
        assert np.array_equal(both["labels"], labels)
        assert np.array_equal(both["rgb"], rgb)


def test_a_timeout_of_doom_is_no_termination_and_shows_the_last_picture() -> None:
    env = vizdoom.make_env("basic", obs="rgb", seed=0, episode_timeout=40)
    model = AtRandom(env)
    model.predict = lambda *args, **kwargs: (np.array([0]), None)  # type: ignore[method-assign]
    for step in play(env, model):
        if step.done[0]:
            assert step.infos[0]["TimeLimit.truncated"]
            assert np.array_equal(step.next_obs, step.obs)
            assert step.next_obs.any()
            break
    env.close()


def test_doom_in_processes_fills_dict_buffers_as_sb3_does() -> None:
    env = vizdoom.make_env("basic", 2, "both", framestack=2, seed=0, episode_timeout=60)
    assert isinstance(env.unwrapped, SubprocVecEnv)
    assert env.action_space.names == ["NONE", "ATTACK", "MOVE_RIGHT", "MOVE_LEFT"]  # type: ignore[attr-defined]
    args = (60, env.observation_space, env.action_space, "cpu", 2)
    ours, theirs = CompressedDictReplayBuffer(*args), DictReplayBuffer(*args)
    eval_model(4, env, AtRandom(env), buffer=[ours, theirs])
    assert_same_samples(ours, theirs)


def test_doom_trains_on_both_pictures() -> None:
    env = vizdoom.make_env("basic", obs="both", seed=0, max_buttons_pressed=0)
    model = PPO(
        "MultiInputPolicy", env, n_steps=16, batch_size=8, n_epochs=1, rollout_buffer_class=CompressedDictRolloutBuffer
    )
    assert isinstance(env.action_space, spaces.MultiBinary)
    model.learn(16)
    env.close()


@pytest.mark.parametrize("n_envs", [1, 2])
def test_a_game_writes_nothing_where_it_runs(own_folder: Path, n_envs: int) -> None:
    """Nor does it start there: its engine makes a folder, and dies where another one makes the same folder."""
    env = vizdoom.make_env("basic", n_envs)
    env.reset()
    assert list(own_folder.iterdir()) == []
    assert Path.cwd() == own_folder
    env.step(np.zeros(n_envs, int))
    env.close()
    assert list(own_folder.iterdir()) == []


def test_ale_prints_no_banner_in_this_process_or_another(capfd: pytest.CaptureFixture[str]) -> None:
    for n_envs in (1, 2):
        env = atari.make_env(PONG, n_envs)
        env.reset()
        env.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"scenario": "deadly_coridor"}, "No scenario named 'deadly_coridor'. Did you mean 'deadly_corridor'"),
        ({"scenario": "nowhere.cfg"}, "No config file at nowhere.cfg"),
        ({"obs": "depth"}, "obs must be one of 'labels', 'rgb', 'both', got 'depth'"),
        ({"resolution": (84, 84)}, r"no resolution \(84, 84\), only: 160x120, "),
        ({"resolution": "160x120"}, r"resolution must be \(width, height\), got '160x120'"),
        ({"resolution": 160}, r"resolution must be \(width, height\), got 160"),
        ({"frame_skip": 0}, "frame_skip must be an integer of at least 1, got 0"),
        ({"labels_buffer_enabled": False}, "labels_buffer_enabled follows from obs="),
        ({"screen_resolution": "RES_640X480"}, "screen_resolution follows from resolution="),
        ({"doom_skil": 3}, "ViZDoom does not take doom_skil=3"),
    ],
)
def test_what_doom_does_not_know_is_refused(kwargs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vizdoom.make_env(**kwargs)


@pytest.mark.parametrize("scenario", ["mine.cfg", "{folder}/mine.cfg"])
def test_a_scenario_can_be_a_file(own_folder: Path, scenario: str) -> None:
    scenarios = Path(pytest.importorskip("vizdoom").scenarios_path)
    for name in ("basic.cfg", "basic.wad", "defend_the_line.wad"):
        shutil.copy(scenarios / name, own_folder / name)
    (own_folder / "basic.cfg").rename(own_folder / "mine.cfg")
    seen = []
    for options in ({}, {"doom_scenario_path": "defend_the_line.wad"}):
        env = vizdoom.make_env(scenario.format(folder=own_folder), seed=0, **options)  # type: ignore[arg-type]
        seen.append(env.reset())
        env.close()
    assert seen[0].any()
    assert not np.array_equal(*seen), "a path among the options is where the caller is, too"
