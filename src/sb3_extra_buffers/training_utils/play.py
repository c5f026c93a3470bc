"""A model playing in a VecEnv -> transitions as SB3's own collection would store them. Above: filling and eval_model."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize


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
            original, next_obs, as_stored(action, env.action_space),
            normalizer.get_original_reward() if normalizer else reward, done, infos,
        )  # fmt: skip
        original = following


def _put(observations: Any, i: int, observation: Any) -> None:
    if isinstance(observations, dict):
        for key, value in observations.items():
            value[i] = observation[key]
    else:
        observations[i] = observation


def as_stored(action: NDArray[Any], space: spaces.Space[Any]) -> NDArray[Any]:
    """Actions as SB3 stores them: those of a Box scaled from its bounds to [-1, 1]."""
    if not isinstance(space, spaces.Box):
        return action
    return cast(NDArray[Any], 2.0 * ((action - space.low) / (space.high - space.low)) - 1.0)


def as_taken(action: NDArray[Any], space: spaces.Box) -> NDArray[Any]:
    """Actions as the env takes them: scaled back from [-1, 1] to the bounds of the space."""
    return cast(NDArray[Any], space.low + (0.5 * (action + 1.0) * (space.high - space.low)))
