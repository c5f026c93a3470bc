"""Workloads: transitions as SB3's algorithms hand them to `add`, rebuilt step by step outside of the timed part.

A recording keeps of each step only the new frame of each env, which is all that the stacks are made of: a stack moves on by
one frame, and after a reset it is zeros and the first frame. `recording` makes them.

Names: a game such as ``MsPacman``; a scenario of ViZDoom with what is seen of it, ``basic-labels`` or ``basic-rgb``; an env
with a camera such as ``CarRacing``, see `CAMERAS`; ``noise``; ``tiny``; ``vectors``, or ``vectors-64`` for another width than
17. ``CarRacing/3`` has stacks of three frames; without a number, frames of cameras are single and others are stacks of four.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

#: The arguments of a replay buffer's `add`.
Step = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]
#: `update(done, note)` of a progress bar
Update = Callable[[int, str], None]

CACHE_VARIABLE = "SB3_EXTRA_BUFFERS_CACHE"
SIDE, TINY_SIDE, STACK, N_ENVS, ACTIONS = 84, 20, 4, 4, 6
#: Steps that a recording has at most, of all envs: 40,000 transitions of a game; 4,000 of ViZDoom, whose frames are large.
RECORDED_STEPS, RECORDED_DOOM_STEPS = 10_000, 1000
#: Envs with a camera, of which one is played, and the steps that are recorded of them. `recording` knows how to make them.
CAMERAS = {
    "CarRacing": 5000, "MiniGrid": 5000, "AtariRGB": 5000, "ViZDoom": 5000, "Walker2d": 5000,
    "RobotRGB": 500, "RobotDepth16": 500, "RobotDepth": 500,
}  # fmt: skip
#: Numbers of a vector.
WIDTH = 17
EPISODE = 1000


@dataclass(frozen=True)
class Frames:
    """Frames of several envs, from which stacked observations are rebuilt.

    :param first: frames that the envs start with, ``(n_envs, h, w)``, or ``(n_envs, channels, h, w)``
    :param new: the newest frame after each step, of the new episode where one has ended, ``(steps, n_envs, ...)``
    :param dones: ``(steps, n_envs)``
    :param terminals: last frames of the episodes that have ended, in the order of ``np.argwhere(dones)``
    :param stack: frames of an observation
    """

    first: NDArray[Any]
    new: NDArray[Any]
    dones: NDArray[np.bool_]
    terminals: NDArray[Any]
    stack: int = STACK

    @property
    def n_envs(self) -> int:
        return len(self.first)

    @property
    def observation_space(self) -> spaces.Box:
        *channels, height, width = self.first.shape[1:]
        dtype = self.first.dtype
        high = np.iinfo(dtype).max if dtype.kind == "u" else np.inf
        return spaces.Box(0, high, (self.stack * math.prod(channels), height, width), dtype.type)

    @property
    def action_space(self) -> spaces.Space[Any]:
        return spaces.Discrete(ACTIONS)

    @property
    def frame_bytes(self) -> int:
        return int(self.first[0].nbytes)

    def stacks(self) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]]:
        """Observations, next observations and ends of episodes, once through; arrays are fresh at each step."""
        obs, shape = self._reset_stacks(), (self.n_envs, *self.observation_space.shape)
        terminal = iter(self.terminals)
        for new, dones in zip(self.new, self.dones, strict=True):
            seen = np.empty_like(obs)  # (n_envs, stack, ...)
            seen[:, :-1], seen[:, -1] = obs[:, 1:], new
            after = seen.copy()
            for env in np.flatnonzero(dones):
                after[env, -1] = next(terminal)
                seen[env, :-1] = 0
            yield obs.reshape(shape), after.reshape(shape), dones
            obs = seen

    def steps(self) -> Iterator[Step]:
        """Arguments for `add` without end: the recording again and again, cut off by the end of an episode."""
        rng = np.random.default_rng(0)
        last = len(self.new) - 1
        while True:
            for i, (obs, after, dones) in enumerate(self.stacks()):
                ends = dones if i < last else np.ones_like(dones)
                actions, rewards = rng.integers(ACTIONS, size=self.n_envs), rng.random(self.n_envs, np.float32)
                yield obs, after, actions, rewards, ends.copy(), [{} for _ in range(self.n_envs)]

    def cut(self, steps: int) -> Frames:
        """The first steps alone."""
        dones = self.dones[:steps]
        return replace(self, new=self.new[:steps].copy(), dones=dones.copy(), terminals=self.terminals[: dones.sum()].copy())

    def save(self, path: Path) -> None:
        """Write a compressed file; a reader sees all of it or nothing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with partial.open("wb") as file:
            np.savez_compressed(file, first=self.first, new=self.new, dones=self.dones, terminals=self.terminals)
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Frames:
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in ("first", "new", "dones", "terminals")})

    def _reset_stacks(self) -> NDArray[Any]:
        obs = np.zeros((self.n_envs, self.stack, *self.first.shape[1:]), self.first.dtype)
        obs[:, -1] = self.first
        return obs


@dataclass(frozen=True)
class Vectors:
    """Small float32 observations of one env that move at random, and continuous actions, as SAC has them."""

    walk: NDArray[np.float32]  # (steps + 1, width)

    n_envs = 1
    action_space = spaces.Box(-1, 1, (6,), np.float32)

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(-np.inf, np.inf, self.walk.shape[1:], np.float32)

    @property
    def frame_bytes(self) -> int:
        return self.walk.itemsize * int(self.walk.shape[1])

    def steps(self) -> Iterator[Step]:
        """Arguments for `add` without end."""
        rng = np.random.default_rng(0)
        while True:
            for i in range(len(self.walk) - 1):
                done = np.array([i % EPISODE == EPISODE - 1 or i == len(self.walk) - 2])
                actions, rewards = rng.uniform(-1, 1, (1, 6)).astype(np.float32), rng.random(1, np.float32)
                # Where an episode has ended, the next one starts somewhere else than the last one stopped.
                after = self.walk[i + 1] + done
                yield self.walk[i : i + 1].copy(), after[None].astype(np.float32), actions, rewards, done, [{}]


Workload = Frames | Vectors


def noise(steps: int) -> Frames:
    """Frames that no codec can shrink, in stacks that move on as those of a game do."""
    rng = np.random.default_rng(0)
    dones = rng.random((steps, N_ENVS)) < 1 / EPISODE

    def random(*shape: int) -> NDArray[np.uint8]:
        return rng.integers(256, size=(*shape, SIDE, SIDE), dtype=np.uint8)

    return Frames(random(N_ENVS), random(steps, N_ENVS), dones, random(int(dones.sum())))


def tiny(steps: int) -> Frames:
    """Small frames in which one pixel moves: in the memory of a process the library shows, and not the buffer."""
    pixels = np.arange(TINY_SIDE**2)
    shown = np.uint8(255) * (pixels == np.arange(steps + 1)[:, None] % len(pixels))  # (steps + 1, pixels)
    new = shown.reshape(-1, 1, TINY_SIDE, TINY_SIDE).repeat(N_ENVS, axis=1)
    return Frames(new[0], new[1:], np.zeros((steps, N_ENVS), np.bool_), new[:0, 0])


#: Workloads of frames that need no recording.
MADE_UP: dict[str, Callable[[int], Frames]] = {"noise": noise, "tiny": tiny}


def vectors(steps: int, width: int = WIDTH) -> Vectors:
    """A random walk."""
    walk = np.random.default_rng(0).standard_normal((steps + 1, width), np.float32).cumsum(axis=0)
    return Vectors(walk)


def load_workload(name: str, steps: int, cache: Path) -> Workload:
    """The workload with this name, of at most so many different steps; games and scenarios must have been recorded."""
    if is_vectors(name):
        return vectors(steps, int(name.partition("-")[2] or WIDTH))
    recorded, stack = split_stack(name)
    steps = min(steps, most_recorded(recorded))
    if recorded in MADE_UP:
        return MADE_UP[recorded](steps)
    return replace(Frames.load(find_recording(cache, recorded, steps)).cut(steps), stack=stack)


def split_stack(name: str) -> tuple[str, int]:
    """What is recorded, and how many frames an observation has: ``CarRacing/3`` -> ``CarRacing``, 3."""
    recorded, _, stack = name.partition("/")
    return recorded, int(stack) if stack else 1 if recorded in CAMERAS else STACK


def envs_of(name: str) -> int:
    """How many envs a workload has."""
    return 1 if is_vectors(name) or split_stack(name)[0] in CAMERAS else N_ENVS


def is_vectors(name: str) -> bool:
    """Whether the workload is vectors."""
    return name.partition("-")[0] == "vectors"


def is_doom(name: str) -> bool:
    """Whether the workload is a scenario of ViZDoom."""
    return name.endswith(("-labels", "-rgb"))


def most_recorded(name: str) -> int:
    """Steps that are recorded at most; larger buffers get them again and again."""
    return CAMERAS.get(name, RECORDED_DOOM_STEPS if is_doom(name) else RECORDED_STEPS)


# ---- recordings


def default_cache() -> Path:
    """Where recordings are kept: what the environment variable says, or the user's cache."""
    if CACHE_VARIABLE in os.environ:
        return Path(os.environ[CACHE_VARIABLE])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sb3-extra-buffers"


def find_recording(cache: Path, game: str, steps: int) -> Path:
    """The shortest recording that is long enough; if there is none, the path for a new one."""
    lengths = {int(path.stem.rpartition("-")[2]): path for path in (cache / "frames").glob(f"{game}-*.npz")}
    enough = [length for length in lengths if length >= steps]
    return lengths[min(enough)] if enough else cache / "frames" / f"{game}-{steps}.npz"
