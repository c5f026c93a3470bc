"""Recordings: games and ViZDoom scenarios are played once, and their frames are kept in the cache. Below: frames.

The recorder checks that what it keeps rebuilds what the env gave.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from .cameras import make_camera
from .frames import CAMERAS, N_ENVS, STACK, Frames, Update, find_recording, is_doom, most_recorded, split_stack

#: An action is held for this many steps on average.
HOLD = 4


def ensure_recording(cache: Path, game: str, steps: int, update: Update) -> None:
    """Record a game, unless that was done before.

    :param game: its name, e.g. ``MsPacman`` or ``basic-rgb``
    :param steps: steps of all envs
    """
    steps = min(steps, most_recorded(game))
    path = find_recording(cache, game, steps)
    if not path.exists() or not zipfile.is_zipfile(path):
        record(game, steps, update).save(path)


def record(game: str, steps: int, update: Update) -> Frames:
    """Play a game by random actions that are held for a while.

    :param game: its name, e.g. ``MsPacman`` or ``basic-rgb``
    """
    env = make_camera(game) if game in CAMERAS else _make_doom(game) if is_doom(game) else _make_atari(game)
    try:
        return _play(env, steps, split_stack(game)[1], update)
    finally:
        env.close()


def _make_atari(game: str) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv

    from sb3_extra_buffers.training_utils.atari import make_env

    return make_env(f"{game}NoFrameskip-v4", N_ENVS, DummyVecEnv, STACK, seed=0)


def _make_doom(game: str) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv

    from sb3_extra_buffers.training_utils.vizdoom import make_env

    scenario, _, obs = game.rpartition("-")
    return make_env(scenario, N_ENVS, obs, DummyVecEnv, STACK, seed=0)  # type: ignore[arg-type]


def _play(env: Any, steps: int, stack: int, update: Update) -> Frames:
    rng = np.random.default_rng(0)
    first = _newest(env.reset(), stack)
    new = np.empty((steps, *first.shape), first.dtype)
    all_dones = np.zeros((steps, len(first)), np.bool_)
    terminals: list[NDArray[Any]] = []
    checksums: list[tuple[int, int]] = []  # of what the env gives, to compare with what is rebuilt
    actions = _random_actions(env.action_space, rng, len(first))
    for i in range(steps):
        changed = rng.random(len(first)) < 1 / HOLD
        actions[changed] = _random_actions(env.action_space, rng, int(changed.sum()))
        seen, _, dones, infos = env.step(actions)
        new[i], all_dones[i] = _newest(seen, stack), dones
        after = seen.copy()
        for j in np.flatnonzero(dones):
            after[j] = infos[j]["terminal_observation"]
            terminals.append(_newest(after[j : j + 1], stack)[0])
        checksums.append((_checksum(seen), _checksum(after)))
        if i % 50 == 0:
            update(i, f"{i * len(first):,} transitions")
    update(steps, f"{steps * len(first):,} transitions")
    frames = Frames(first, new, all_dones, np.array(terminals, first.dtype).reshape(-1, *first.shape[1:]), stack)
    _check(frames, checksums)
    return frames


def _random_actions(space: Any, rng: np.random.Generator, n: int) -> NDArray[Any]:
    if isinstance(space, spaces.Box):
        return rng.uniform(space.low, space.high, (n, *space.shape)).astype(space.dtype)
    return rng.integers(space.n, size=n)


def _newest(obs: NDArray[Any], stack: int) -> NDArray[Any]:
    """A copy of the newest frames of stacks: ``(n, stack, h, w)`` -> ``(n, h, w)``, or ``(n, channels, h, w)``."""
    channels = obs.shape[1] // stack
    return (obs[:, -1] if channels == 1 else obs[:, -channels:]).copy()


def _check(frames: Frames, checksums: list[tuple[int, int]]) -> None:
    """Refuse a recording that would not give back what was played: the env stacks frames in another way."""
    before = None
    for i, ((obs, after, _), (seen, expected)) in enumerate(zip(frames.stacks(), checksums, strict=True)):
        if _checksum(after) != expected or (before is not None and _checksum(obs) != before):
            raise ValueError(f"Step {i} of the recording cannot be rebuilt from its frames")
        before = seen


def _checksum(array: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array))
