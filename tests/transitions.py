"""Made-up experience for the oracle tests: frame stacks that shift, resets, terminal observations, timeouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces


class Step(NamedTuple):
    obs: Any
    next_obs: Any
    action: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    infos: list[dict[str, Any]]


class StackedEnv:
    """Observations of one env: a stack of frames along an axis that shifts by one at every step, zeros at a reset."""

    def __init__(self, space: spaces.Box, stack: int, axis: int, rng: np.random.Generator) -> None:
        self.space, self.stack, self.axis, self.rng = space, stack, axis, rng
        frame = list(space.shape)
        frame[axis] //= stack
        self.frame_shape = tuple(frame)
        self.picture = rng.integers(0, 256, self.frame_shape).astype(space.dtype)
        self.frames = [np.zeros(self.frame_shape, space.dtype)] * stack

    def _draw(self) -> np.ndarray:
        if self.rng.random() < 0.85:  # sometimes nothing moves
            self.picture = self.picture.copy()
            where = tuple(int(self.rng.integers(0, n)) for n in self.frame_shape)
            self.picture[where] = self.rng.integers(0, 256)
        return self.picture

    def reset(self) -> np.ndarray:
        self.frames = [np.zeros(self.frame_shape, self.space.dtype)] * (self.stack - 1) + [self._draw()]
        return self.now()

    def step(self) -> np.ndarray:
        self.frames = [*self.frames[1:], self._draw()]
        return self.now()

    def now(self) -> np.ndarray:
        return np.concatenate(self.frames, axis=self.axis)


class SampledEnv:
    """Observations drawn from the space: nothing repeats."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space

    def reset(self) -> Any:
        return self.space.sample()

    step = reset


class DictEnv:
    """One env per key."""

    def __init__(self, envs: dict[str, Any]) -> None:
        self.envs = envs

    def reset(self) -> dict[str, Any]:
        return {key: env.reset() for key, env in self.envs.items()}

    def step(self) -> dict[str, Any]:
        return {key: env.step() for key, env in self.envs.items()}


def env_for(space: spaces.Space[Any], rng: np.random.Generator) -> Any:
    """An env for a space: stacked where the space is an image with four (or twelve) channels."""
    space.seed(int(rng.integers(1 << 30)))
    if isinstance(space, spaces.Dict):
        return DictEnv({key: env_for(sub, rng) for key, sub in space.spaces.items()})
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        axis = -1 if space.shape[-1] == 4 else 0
        if space.shape[axis] in (4, 12):
            return StackedEnv(space, 4, axis, rng)
    return SampledEnv(space)


def batched(observations: list[Any]) -> Any:
    """Observations of several envs as SB3's VecEnv hands them over."""
    if isinstance(observations[0], dict):
        return {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}
    return np.stack(observations)


def copied(observation: Any) -> Any:
    return {key: value.copy() for key, value in observation.items()} if isinstance(observation, dict) else observation.copy()


def play(
    space: spaces.Space[Any], action_space: spaces.Space[Any], n_envs: int, n_steps: int, seed: int = 0
) -> Iterator[Step]:
    """Steps of several envs. Episodes end at random, a third of them by a timeout."""
    rng = np.random.default_rng(seed)
    action_space.seed(seed)
    envs = [env_for(space, rng) for _ in range(n_envs)]
    now = [env.reset() for env in envs]
    for _ in range(n_steps):
        obs = batched(now)
        after = [env.step() for env in envs]
        next_obs = batched(after)
        done = rng.random(n_envs) < 0.12
        infos = [{"TimeLimit.truncated": bool(d and rng.random() < 0.33)} for d in done]
        now = [env.reset() if d else seen for env, d, seen in zip(envs, done, after, strict=True)]
        action = np.stack([np.asarray(action_space.sample()) for _ in range(n_envs)])
        yield Step(obs, next_obs, action, rng.normal(size=n_envs).astype(np.float32), done, infos)
