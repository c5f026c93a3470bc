"""A small game for tests of the viewer: a square moves, and everything about a step follows from its number."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_extra_buffers.compressed import CompressedReplayBuffer

SIZE, STACK = 24, 4
ACTIONS = ("STAY", "LEFT", "RIGHT")


def frame(env: int, step: int) -> np.ndarray:
    """The picture of a step: a square, and the number of the step in the first pixels."""
    picture = np.full((SIZE, SIZE), 30 + 10 * env, np.uint8)
    at = step % (SIZE - 6)
    picture[8:14, at : at + 6] = 220
    picture[0, :2] = step % 256, step // 256
    return picture


def stacked(env: int, step: int) -> np.ndarray:
    """The last frames, oldest first."""
    return np.stack([frame(env, max(step - i, 0)) for i in reversed(range(STACK))])


def length_of(env: int, episode: int) -> int:
    """Steps of an episode."""
    return 20 + 7 * env + 5 * (episode % 4)


class Game:
    """Plays into a buffer, as long as one likes. Every third episode ends by a timeout."""

    def __init__(self, n_steps: int, n_envs: int = 2, **options: Any) -> None:
        actions = spaces.Discrete(len(ACTIONS))
        actions.names = ACTIONS  # type: ignore[attr-defined]
        space = spaces.Box(0, 255, (STACK, SIZE, SIZE), np.uint8)
        self.buffer = CompressedReplayBuffer(n_steps * n_envs, space, actions, "cpu", n_envs, **options)
        self.n_envs, self.step = n_envs, 0
        self._done_at = [length_of(env, 0) - 1 for env in range(n_envs)]
        self._episode = [0] * n_envs

    def play(self, n_steps: int) -> Game:
        """So many more steps of all envs."""
        for _ in range(n_steps):
            t, envs = self.step, range(self.n_envs)
            done = np.array([t == self._done_at[env] for env in envs])
            infos = [{"TimeLimit.truncated": bool(done[env]) and self._episode[env] % 3 == 2} for env in envs]
            rewards = np.array([1.0 if t % 5 == 0 else -0.5 if t % 11 == 0 else 0.0 for _ in envs])
            obs, following = (np.stack([stacked(env, t + k) for env in envs]) for k in (0, 1))
            self.buffer.add(obs, following, np.full((self.n_envs, 1), t % 3), rewards, done, infos)
            for env in envs:
                if done[env]:
                    self._episode[env] += 1
                    self._done_at[env] = t + length_of(env, self._episode[env])
            self.step += 1
        return self
