"""Replay logs in Dopamine's layout, made from episodes by a ring of their own, and the steps that they hold."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class LoggedStep(NamedTuple):
    """What a step must become.

    :param place: episode, and step in it
    """

    place: tuple[int, int]

    now: np.ndarray
    following: np.ndarray
    action: int
    reward: float
    terminal: bool


@dataclass
class Ring:
    """Dopamine's memory: entries of single frames in a ring, `stack - 1` of zeros before each episode.

    :param is_padded: whether these entries of zeros are there
    """

    capacity: int
    stack: int
    shape: tuple[int, ...] = (5, 4)
    dtype: Any = np.uint8
    is_padded: bool = True
    add_count: int = 0
    #: By entry: the episode it belongs to and its step there, -1 for padding.
    origin: list[tuple[int, int]] = field(default_factory=list)
    episodes: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.frames = np.zeros((self.capacity, *self.shape), self.dtype)
        self.actions, self.rewards = np.zeros(self.capacity, np.int32), np.zeros(self.capacity, np.float32)
        self.terminals = np.zeros(self.capacity, np.uint8)
        self.origin = [(-1, -1)] * self.capacity

    def _add(self, frame: Any, action: int, reward: float, terminal: bool, origin: tuple[int, int]) -> None:
        at = self.add_count % self.capacity
        self.frames[at], self.actions[at], self.rewards[at], self.terminals[at] = frame, action, reward, terminal
        self.origin[at] = origin
        self.add_count += 1

    def play(self, length: int, rng: np.random.Generator, *, terminates: bool = True) -> None:
        """Add an episode."""
        frames = rng.integers(0, 9, (length, *self.shape)).astype(self.dtype)
        if rng.random() < 0.3:
            frames[: int(rng.integers(1, length + 1))] = 0  # games may begin in the dark
        number = len(self.episodes)
        self.episodes.append(frames)
        for i in range((self.stack - 1) * self.is_padded):
            self._add(0, 0, 0.0, False, (number, i - self.stack + 1))
        for i, frame in enumerate(frames):
            action = int(rng.integers(1, 6)) if i == 0 or rng.random() < 0.7 else 0
            self._add(frame, action, float(rng.integers(0, 2)), terminates and i == length - 1, (number, i))

    def steps(self) -> list[LoggedStep]:
        """Those whose stack lies in the file without a break, and whose next frame does if they do not terminate."""
        found = []
        for at in range(min(self.add_count, self.capacity)):
            number, i = self.origin[at]
            before = range(at - self.stack + 1, at + 1)
            if not self.is_padded and self._is_told(at - i):
                before = range(at - min(i, self.stack - 1), at + 1)
            has_stack = all(self._follows(one) for one in before[1:]) and before[0] >= 0
            if i < 0 or not has_stack:
                continue
            terminal = bool(self.terminals[at])
            if not terminal and not (at + 1 < self.capacity and self._follows(at + 1)):
                continue
            now = self._stack(number, i)
            following = now if terminal else self._stack(number, i + 1)
            found.append(LoggedStep((number, i), now, following, int(self.actions[at]), float(self.rewards[at]), terminal))
        return found

    def _is_told(self, at: int) -> bool:
        """Whether the file tells, without padding, that an episode begins with an entry: by the terminal before it."""
        is_full = self.add_count >= self.capacity
        if at <= 0 or (is_full and at == self.add_count % self.capacity):
            return at == 0 and not is_full
        return bool(self.terminals[at - 1])

    def _follows(self, at: int) -> bool:
        """Whether an entry comes right after the one before it in the file."""
        number, i = self.origin[at]
        return at > 0 and self.origin[at - 1] == (number, i - 1)

    def _stack(self, number: int, i: int) -> np.ndarray:
        zeros = np.zeros((self.stack - 1, *self.shape), self.dtype)
        stacked = np.concatenate((zeros, self.episodes[number]))[i : i + self.stack]
        return stacked if self.stack > 1 or len(self.shape) == 2 else stacked[0]

    def save(self, folder: Path, number: int, **more: np.ndarray) -> None:
        """Write a checkpoint, as Dopamine does."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            "$store$_observation": self.frames, "$store$_action": self.actions, "$store$_reward": self.rewards,
            "$store$_terminal": self.terminals, "add_count": np.array(self.add_count),
            "invalid_range": (self.add_count - 1 + np.arange(self.stack + 1)) % self.capacity, **more,
        }  # fmt: skip
        for name, array in arrays.items():
            with gzip.GzipFile(folder / f"{name}_ckpt.{number}.gz", "wb") as file:
                np.save(file, array, allow_pickle=False)
