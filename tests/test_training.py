"""Training with a fixed seed ends in the same weights, bit for bit, as with SB3's own buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, FakeImageEnv
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.bench.cameras import make_camera
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.contrib import (
    CompressedMaskableRolloutBuffer,
    CompressedRecurrentRolloutBuffer,
    compress_rollout_buffer,
)


def off_policy() -> dict[str, Any]:
    """New each time: SB3 writes into the policy_kwargs that it is given."""
    return {"buffer_size": 120, "learning_starts": 40, "batch_size": 16, "policy_kwargs": {"net_arch": [16]}}


def assert_same_weights(ours: Any, theirs: Any) -> None:
    mine, other = ours.policy.state_dict(), theirs.policy.state_dict()
    assert mine.keys() == other.keys()
    for key in other:
        assert mine[key].numpy().tobytes() == other[key].numpy().tobytes(), key


def train_both(make: Callable[..., Any], ours: dict[str, Any], theirs: dict[str, Any], steps: int) -> tuple[Any, Any]:
    """Two models by the same seed, one per kind of buffer. Fails too if training did not move the weights."""
    models = []
    for options in (ours, theirs):
        model = make(**options)
        before = {key: value.clone() for key, value in model.policy.state_dict().items()}
        model.learn(steps)
        assert any(not th.equal(before[key], value) for key, value in model.policy.state_dict().items())
        models.append(model)
    assert_same_weights(*models)
    return models[0], models[1]


def vec(name: str, n_envs: int = 2) -> VecEnv:
    return make_vec_env(name, n_envs=n_envs, seed=0)


def normalized(name: str) -> VecEnv:
    return VecNormalize(vec(name))


@pytest.mark.parametrize("env", [vec, normalized])
def test_dqn(env: Callable[[str], VecEnv]) -> None:
    train_both(
        lambda **options: DQN("MlpPolicy", env("CartPole-v1"), seed=1, train_freq=2, **off_policy(), **options),
        {"replay_buffer_class": CompressedReplayBuffer},
        {},
        400,
    )


@pytest.mark.parametrize("env", [vec, normalized])
def test_sac(env: Callable[[str], VecEnv]) -> None:
    train_both(
        lambda **options: SAC("MlpPolicy", env("Pendulum-v1"), seed=1, **off_policy(), **options),
        {"replay_buffer_class": CompressedReplayBuffer, "optimize_memory_usage": True},
        {},
        200,
    )


def test_n_step_dqn() -> None:
    """SB3's `n_steps` argument picks SB3's buffer; ours is given with its own arguments."""
    ours, theirs = train_both(
        lambda **options: DQN("MlpPolicy", vec("CartPole-v1"), seed=1, train_freq=2, gamma=0.97, **off_policy(), **options),
        {"replay_buffer_class": CompressedNStepReplayBuffer, "replay_buffer_kwargs": {"n_steps": 3, "gamma": 0.97}},
        {"n_steps": 3},
        400,
    )
    assert ours.replay_buffer.n_steps == theirs.replay_buffer.n_steps == 3


@pytest.mark.parametrize("algorithm", [DQN, SAC])
def test_her(algorithm: Any) -> None:
    def make(**options: Any) -> Any:
        env = make_vec_env(lambda: BitFlippingEnv(n_bits=4, max_steps=6, continuous=algorithm is SAC), n_envs=2, seed=0)
        return algorithm("MultiInputPolicy", env, seed=1, **{**off_policy(), "learning_starts": 60}, **options)

    train_both(make, {"replay_buffer_class": CompressedHerReplayBuffer}, {"replay_buffer_class": HerReplayBuffer}, 240)


class DictEnv(gym.Env[Any, Any]):
    """A camera, a vector and a gear, all drawn at random; episodes of ten steps."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (1, 36, 36), np.uint8),
            "speed": spaces.Box(-10, 10, (5,), np.float32),
            "gear": spaces.Discrete(4),
        }
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.observation_space.sample(), float(action), self.t == 10, self.t == 7, {}


@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_dict_observations(algorithm: Any) -> None:
    def make(**options: Any) -> Any:
        env = make_vec_env(DictEnv, n_envs=2, seed=0)
        if algorithm is DQN:
            return DQN("MultiInputPolicy", env, seed=1, **off_policy(), **options)
        return PPO("MultiInputPolicy", env, seed=1, n_steps=16, batch_size=8, n_epochs=2, **options)

    is_dqn = algorithm is DQN
    name, ours = (
        ("replay_buffer_class", CompressedDictReplayBuffer)
        if is_dqn
        else ("rollout_buffer_class", CompressedDictRolloutBuffer)
    )
    train_both(make, {name: ours}, {}, 96)


@pytest.mark.parametrize("env", [vec, normalized])
@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_on_policy(algorithm: Any, env: Callable[[str], VecEnv]) -> None:
    options: dict[str, Any] = {"n_steps": 32} if algorithm is A2C else {"n_steps": 32, "batch_size": 16, "n_epochs": 2}
    train_both(
        lambda **more: algorithm("MlpPolicy", env("CartPole-v1"), seed=1, **options, **more),
        {"rollout_buffer_class": CompressedRolloutBuffer},
        {},
        320,
    )


def test_maskable_ppo() -> None:
    def make(**options: Any) -> Any:
        env = make_vec_env(lambda: InvalidActionEnvDiscrete(dim=20, n_invalid_actions=10), n_envs=2, seed=0)
        return MaskablePPO("MlpPolicy", env, seed=1, n_steps=32, batch_size=16, n_epochs=2, **options)

    train_both(make, {"rollout_buffer_class": CompressedMaskableRolloutBuffer}, {}, 192)


@pytest.mark.parametrize("policy", ["MlpLstmPolicy", "MultiInputLstmPolicy"])
def test_recurrent_ppo(policy: str) -> None:
    def make(compress: bool) -> Any:
        env = vec("CartPole-v1") if policy == "MlpLstmPolicy" else make_vec_env(DictEnv, n_envs=2, seed=0)
        kwargs = {"lstm_hidden_size": 16, "net_arch": [16]}
        model = RecurrentPPO(policy, env, seed=1, n_steps=16, batch_size=16, n_epochs=2, policy_kwargs=kwargs)
        return compress_rollout_buffer(model, compression_method="gzip") if compress else model

    ours, _ = train_both(make, {"compress": True}, {"compress": False}, 96)
    if policy == "MlpLstmPolicy":
        assert type(ours.rollout_buffer) is CompressedRecurrentRolloutBuffer


def test_compress_rollout_buffer_wants_a_recurrent_model() -> None:
    with pytest.raises(TypeError, match="expects a RecurrentPPO model"):
        compress_rollout_buffer(PPO("MlpPolicy", vec("CartPole-v1"), n_steps=8, batch_size=8))  # type: ignore[arg-type]


class TinyCnn(BaseFeaturesExtractor):
    """Looks at every fourth pixel: training is quick, and a wrong pixel still changes the weights."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, 16)
        self.net = th.nn.Sequential(
            th.nn.Conv2d(observation_space.shape[0], 4, 8, stride=8), th.nn.ReLU(), th.nn.Flatten(), th.nn.LazyLinear(16)
        )
        with th.no_grad():
            self.net(th.zeros(1, *observation_space.shape))

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return self.net(observations)


ATARI_POLICY = {"features_extractor_class": TinyCnn, "net_arch": []}


def atari(game: str) -> VecEnv:
    gym.register_envs(ale_py)
    return VecFrameStack(make_atari_env(game, n_envs=2, seed=0), 4)


@pytest.mark.parametrize("method", ["auto", "zstd3"])
def test_atari_dqn(method: str) -> None:
    ours, theirs = train_both(
        lambda **options: DQN(
            "CnnPolicy",
            atari("PongNoFrameskip-v4"),
            seed=1,
            buffer_size=400,
            learning_starts=100,
            batch_size=16,
            train_freq=4,
            policy_kwargs=dict(ATARI_POLICY),
            **options,
        ),
        {"replay_buffer_class": CompressedReplayBuffer, "replay_buffer_kwargs": {"compression_method": method}},
        {},
        600,
    )
    usage = ours.replay_buffer.memory_usage()
    assert usage.raw_bytes == theirs.replay_buffer.observations.nbytes * 2
    assert usage.ratio < 0.1


def test_atari_ppo() -> None:
    train_both(
        lambda **options: PPO(
            "CnnPolicy",
            atari("MsPacmanNoFrameskip-v4"),
            seed=1,
            n_steps=64,
            batch_size=32,
            n_epochs=2,
            policy_kwargs=dict(ATARI_POLICY),
            **options,
        ),
        {"rollout_buffer_class": CompressedRolloutBuffer, "rollout_buffer_kwargs": {"compression_method": "zstd3"}},
        {},
        256,
    )


@pytest.mark.parametrize("name", ["CarRacing", "MiniGrid"])
def test_colour_dqn(name: str) -> None:
    """The choice of `auto` and its change of codecs in the middle leave no trace in the weights."""
    ours, _ = train_both(
        lambda **options: DQN(
            "CnnPolicy", make_camera(name), seed=1, buffer_size=150, learning_starts=50, batch_size=16, train_freq=4,
            policy_kwargs=dict(ATARI_POLICY), **options,
        ),
        {"replay_buffer_class": CompressedReplayBuffer, "replay_buffer_kwargs": {"compression_method": "auto-small"}},
        {},
        260,
    )  # fmt: skip
    assert ours.replay_buffer.memory_usage().ratio < 0.1


def test_a_single_image_env() -> None:
    def make(**options: Any) -> Any:
        env = FakeImageEnv(screen_height=40, screen_width=40, n_channels=3, discrete=True)
        env.observation_space.seed(0)
        policy: dict[str, Any] = dict(ATARI_POLICY)
        return DQN(
            "CnnPolicy", env, seed=1, buffer_size=100, learning_starts=30, batch_size=8, policy_kwargs=policy, **options
        )

    train_both(make, {"replay_buffer_class": CompressedReplayBuffer}, {}, 200)
