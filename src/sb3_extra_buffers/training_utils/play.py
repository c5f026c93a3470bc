"""A model playing in a VecEnv -> transitions as SB3's own collection would store them. Above: eval_model and buffer_warmup."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.preprocessing import get_obs_shape
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer


class ReplayLike(Protocol):
    """Anything with the `add` of SB3's replay buffers."""

    def add(
        self, obs: Any, next_obs: Any, action: NDArray[Any], reward: NDArray[Any], done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None: ...  # fmt: skip


Buffers = ReplayLike | Sequence[ReplayLike] | None


class Transitions(NamedTuple):
    """One step of all envs: the arguments of a replay buffer's `add`."""

    obs: Any
    next_obs: Any
    action: NDArray[Any]
    reward: NDArray[Any]
    done: NDArray[Any]
    infos: list[dict[str, Any]]


def play(env: VecEnv, model: PolicyPredictor, deterministic: bool = True) -> Iterator[Transitions]:
    """Reset the envs and play without end.

    At the end of an episode, `next_obs` is its last observation, not the first of the next episode. With VecNormalize, the
    model sees normalized observations, and the transitions have the original ones. Box actions are scaled to [-1, 1], as SB3
    stores them.

    :param deterministic: take the model's best action instead of drawing one
    """
    normalizer = unwrap_vec_normalize(env)
    if any(env.env_is_wrapped(EpisodicLifeEnv)):
        # EpisodicLifeEnv would continue a running game, whose earlier steps must not count.
        env.env_method("set_wrapper_attr", "was_real_done", True)
    seen = env.reset()  # what the model sees
    original = normalizer.get_original_obs() if normalizer else seen
    state: tuple[NDArray[Any], ...] | None = None
    done = np.ones(env.num_envs, bool)
    while True:
        action, state = model.predict(seen, state=state, episode_start=done, deterministic=deterministic)  # type: ignore[arg-type]
        seen, reward, done, infos = env.step(action)
        following = normalizer.get_original_obs() if normalizer else seen
        next_obs = deepcopy(following)
        for i in np.flatnonzero(done):
            last = infos[i].get("terminal_observation")
            if last is not None:
                _put(next_obs, int(i), normalizer.unnormalize_obs(last) if normalizer else last)
        yield Transitions(
            original, next_obs, _as_stored(action, env.action_space),
            normalizer.get_original_reward() if normalizer else reward, done, infos,
        )  # fmt: skip
        original = following


def as_buffers(buffer: Buffers, env: VecEnv) -> list[ReplayLike]:
    """A list of the buffers to fill, which may be empty. Buffers that do not fit the env are refused.

    :param buffer: one buffer, several, or None
    """
    # A buffer is recognised by its `add`: it may also have a length.
    buffers = (
        [] if buffer is None else list(buffer) if isinstance(buffer, Iterable) and not hasattr(buffer, "add") else [buffer]
    )
    for one in buffers:
        if not callable(getattr(one, "add", None)) or isinstance(one, RolloutBuffer):
            raise ValueError(f"buffer must be a replay buffer, several of them, or None; got {type(one).__name__}")
        for name, needed in (("n_envs", env.num_envs), ("obs_shape", get_obs_shape(env.observation_space))):
            given = getattr(one, name, needed)
            if given != needed:  # SB3's buffers would silently repeat values that are too few
                raise ValueError(f"{type(one).__name__} was made for {name}={given}, but the env has {needed}")
    return buffers


def fill(buffers: Sequence[ReplayLike], step: Transitions, seconds: list[float]) -> None:
    """Add one step to each buffer.

    :param seconds: time spent in `add` by buffer, which is increased
    """
    for i, buffer in enumerate(buffers):
        start = time.perf_counter()
        buffer.add(*step)
        seconds[i] += time.perf_counter() - start


def close_trajectories(buffers: Sequence[ReplayLike], last: Transitions) -> None:
    """Mark unfinished episodes as truncated, so that no later step counts as their continuation.

    Hindsight replay and n-step returns look beyond a step. Values are still bootstrapped at a truncation.

    :param last: the step that was added last
    """
    for buffer in buffers:
        if isinstance(buffer, HerReplayBuffer):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # SB3 warns about exactly this, which is intended here
                buffer.truncate_last_trajectory()
        elif isinstance(buffer, ReplayBuffer):
            buffer.timeouts[buffer.pos - 1, ~np.asarray(last.done, bool)] = 1


def _put(observations: Any, i: int, observation: Any) -> None:
    if isinstance(observations, dict):
        for key, value in observations.items():
            value[i] = observation[key]
    else:
        observations[i] = observation


def _as_stored(action: NDArray[Any], space: spaces.Space[Any]) -> NDArray[Any]:
    if not isinstance(space, spaces.Box):
        return action
    return cast(NDArray[Any], 2.0 * ((action - space.low) / (space.high - space.low)) - 1.0)
