"""GPU buffers give the batches that SB3's give, to the bit, and training with them ends in the same weights."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from sb3_extra_buffers.gpu_buffers import (
    GpuDictReplayBuffer,
    GpuDictRolloutBuffer,
    GpuReplayBuffer,
    GpuRolloutBuffer,
    available_methods,
)
from tests.oracle import (
    DICT_SPACE,
    SPACES,
    add_to_replay,
    add_to_rollout,
    assert_same_minibatches,
    assert_same_samples,
)
from tests.transitions import play

METHODS = available_methods()
ACTIONS = spaces.Discrete(4)
# Beside those that all buffers are tested with, frames that are large enough not to be kept as they are.
GPU_SPACES: dict[str, spaces.Space[Any]] = {
    **SPACES,
    "large-stack": spaces.Box(0, 255, (4, 20, 20), np.uint8),
    "large-stack-last": spaces.Box(0, 255, (20, 21, 4), np.uint8),
    "prime-image": spaces.Box(0, 255, (3, 31, 17), np.uint8),
    "uint16": spaces.Box(0, 65535, (1, 20, 20), np.uint16),
}
TINY = {"stack", "stack-last", "odd-image", "float32", "discrete", "multi-discrete", "multi-binary"}  # dense by any method
CASES = [(name, method) for name in GPU_SPACES for method in METHODS if name not in TINY or method == "tiles"]
CAMERAS = spaces.Dict({**DICT_SPACE.spaces, "wide": spaces.Box(0, 255, (4, 20, 20), np.uint8)})


def check_replay(ours: Any, theirs: Any, space: Any, n_envs: int, env: Any = None) -> None:
    for t, step in enumerate(play(space, ACTIONS, n_envs, int(ours.buffer_size * 3.4))):
        add_to_replay([ours, theirs], step)
        if t in (0, 1, 3, ours.buffer_size - 1) or t % 19 == 18:
            assert_same_samples(ours, theirs, seed=t, env=env)
    assert ours.pos == theirs.pos
    assert ours.full == theirs.full
    assert ours.size() == theirs.size()
    assert_same_samples(ours, theirs, batch_size=200, env=env)


def check_rollouts(ours: Any, theirs: Any, space: Any, n_envs: int) -> None:
    for step in play(space, ACTIONS, n_envs, 3 * ours.buffer_size):
        add_to_rollout([ours, theirs], step)
        if ours.full:
            for batch_size in (7, None):
                assert_same_minibatches(ours, theirs, batch_size)
            ours.reset()
            theirs.reset()


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize(("name", "method"), CASES)
def test_replay_equals_sb3(name: str, method: str, n_envs: int) -> None:
    space = GPU_SPACES[name]
    args = (40 * n_envs, space, ACTIONS, "cpu", n_envs)
    check_replay(GpuReplayBuffer(*args, compression_method=method), ReplayBuffer(*args), space, n_envs)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize(("name", "method"), CASES)
def test_rollout_equals_sb3(name: str, method: str, n_envs: int) -> None:
    space = GPU_SPACES[name]
    args = (20, space, ACTIONS, "cpu")
    ours = GpuRolloutBuffer(*args, n_envs=n_envs, compression_method=method)
    check_rollouts(ours, RolloutBuffer(*args, n_envs=n_envs), space, n_envs)


@pytest.mark.parametrize("method", [*METHODS, {"wide": "rle", "camera": "none"}], ids=str)
def test_dict_buffers_equal_sb3(method: Any) -> None:
    args = (120, CAMERAS, ACTIONS, "cpu", 3)
    check_replay(GpuDictReplayBuffer(*args, compression_method=method), DictReplayBuffer(*args), CAMERAS, 3)
    rollout_args = (20, CAMERAS, ACTIONS, "cpu")
    ours = GpuDictRolloutBuffer(*rollout_args, n_envs=3, compression_method=method)
    check_rollouts(ours, DictRolloutBuffer(*rollout_args, n_envs=3), CAMERAS, 3)


@pytest.mark.parametrize("norm_obs", [True, False])
@pytest.mark.parametrize("name", ["large-stack", "float32"])
def test_vec_normalize_works(name: str, norm_obs: bool) -> None:
    space = GPU_SPACES[name]

    class Env(gym.Env[Any, Any]):
        observation_space, action_space = space, ACTIONS

        def reset(self, **kwargs: Any) -> Any:
            return space.sample(), {}

        def step(self, action: Any) -> Any:
            return space.sample(), 1.5, False, False, {}

    env = VecNormalize(DummyVecEnv([Env]), norm_obs=norm_obs)
    env.reset()
    for _ in range(5):
        env.step(np.zeros(1, np.int64))
    args = (40, space, ACTIONS, "cpu", 1)
    check_replay(GpuReplayBuffer(*args), ReplayBuffer(*args), space, 1, env=env)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda buffer: pickle.loads(pickle.dumps(buffer))], ids=["copy", "pickle"])
@pytest.mark.parametrize("method", METHODS)
def test_a_copy_goes_on_as_the_original_would(method: str, copied: Callable[[Any], Any]) -> None:
    space = GPU_SPACES["large-stack"]
    args = (60, space, ACTIONS, "cpu", 2)
    ours, theirs = GpuReplayBuffer(*args, compression_method=method), ReplayBuffer(*args)
    steps = list(play(space, ACTIONS, 2, 100))
    for step in steps[:50]:
        add_to_replay([ours, theirs], step)
    clone = copied(ours)
    before = np.asarray(ours.observations)
    for step in steps[50:]:
        add_to_replay([clone, theirs], step)
        assert_same_samples(clone, theirs)
    assert np.array_equal(np.asarray(ours.observations), before)


@pytest.mark.parametrize("method", METHODS)
def test_columns_answer_like_arrays(method: str) -> None:
    space = GPU_SPACES["large-stack"]
    ours = GpuReplayBuffer(40, space, ACTIONS, "cpu", 2, compression_method=method)
    theirs = ReplayBuffer(40, space, ACTIONS, "cpu", 2)
    for step in play(space, ACTIONS, 2, 30):
        add_to_replay([ours, theirs], step)
    view, array = ours.observations, theirs.observations
    assert view.shape == array.shape
    assert view.dtype == array.dtype
    assert len(view) == len(array)
    for index in (
        3,
        -1,
        slice(2, 9),
        slice(5, 5),
        (4, 1),
        (slice(None), 0, 2),
        ([1, 2], [0, 1]),
        (np.array([-1]), np.array([0])),
    ):
        assert isinstance(view[index], th.Tensor)
        assert np.array_equal(view[index].numpy(), array[index])
    assert np.array_equal(np.asarray(view), array)
    view[3] = array[7]
    view[4, 1, 2] = 9
    array[3], array[4, 1, 2] = array[7], 9
    assert np.array_equal(np.asarray(view), array)


def atari() -> Any:
    gym.register_envs(ale_py)
    return VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=2, seed=0), 4)


def weights_after(algorithm: Any, method: str | None) -> dict[str, th.Tensor]:
    """What a training ends in, with a buffer of ours or, without a method, with SB3's."""
    kind = "replay" if algorithm is DQN else "rollout"
    options: dict[str, Any] = {
        DQN: {"buffer_size": 100, "learning_starts": 40, "batch_size": 8},
        PPO: {"n_steps": 16, "batch_size": 16, "n_epochs": 2},
        A2C: {"n_steps": 16},
    }[algorithm]
    if method:
        options[f"{kind}_buffer_class"] = {"replay": GpuReplayBuffer, "rollout": GpuRolloutBuffer}[kind]
        options[f"{kind}_buffer_kwargs"] = {"compression_method": method, "buffer_device": "cpu"}
    model = algorithm("CnnPolicy", atari(), seed=1, device="cpu", **options)
    before = {key: value.clone() for key, value in model.policy.state_dict().items()}
    model.learn(130 if algorithm is DQN else 64)
    weights = model.policy.state_dict()
    model.get_env().close()
    assert any(not th.equal(before[key], value) for key, value in weights.items())
    return weights


@cache
def weights_of_sb3(algorithm: Any) -> dict[str, th.Tensor]:
    return weights_after(algorithm, None)


@pytest.mark.parametrize("algorithm", [DQN, PPO, A2C])
@pytest.mark.parametrize("method", METHODS)
def test_training_ends_in_the_same_weights(method: str, algorithm: Any) -> None:
    ours, theirs = weights_after(algorithm, method), weights_of_sb3(algorithm)
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert ours[key].numpy().tobytes() == value.numpy().tobytes(), key
