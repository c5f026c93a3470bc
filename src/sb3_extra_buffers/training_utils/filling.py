"""Transitions -> replay buffers, also those that were made for fewer envs. Below: play. Above: eval_model and buffer_warmup.

A buffer for 2 envs and 6 envs that play: steps wait until there are enough for a run. Then the run of envs 0 and 1 is added,
after it that of 2 and 3, then that of 4 and 5. So a trajectory lies in runs, each cut off where the next one begins.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.preprocessing import get_obs_shape
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.training_utils.play import Transitions

#: Steps of a run. They wait uncompressed, so there must not be too many; each run cuts a trajectory, so nor too few.
_RUN = 64


class ReplayLike(Protocol):
    """Whatever takes transitions as SB3's replay buffers do."""

    def add(
        self, obs: Any, next_obs: Any, action: NDArray[Any], reward: NDArray[Any], done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None: ...  # fmt: skip


Buffers = ReplayLike | Sequence[ReplayLike] | None


class Filling:
    """Replay buffers that get all that is played, from the first step to `finish`.

    :param buffer: one buffer, several, or None
    :param env: what is played in; a buffer for fewer envs gets their steps in turn
    """

    def __init__(self, buffer: Buffers, env: VecEnv) -> None:
        self.buffers = _checked(buffer, env)
        #: Time spent in `add`, by buffer.
        self.seconds = [0.0] * len(self.buffers)
        self._n_playing = env.num_envs
        self._n_envs = [getattr(one, "n_envs", env.num_envs) for one in self.buffers]
        self._waiting: list[list[Transitions]] = [[] for _ in self.buffers]

    def add(self, step: Transitions) -> None:
        """Add one step of all envs to each buffer."""
        for i, n_envs in enumerate(self._n_envs):
            if n_envs == self._n_playing:
                self._add(i, step)
                continue
            self._waiting[i].append(deepcopy(step))  # an env may use its arrays again
            if len(self._waiting[i]) == _RUN:
                self._deal_out(i)

    def finish(self, last: Transitions) -> None:
        """Mark episodes that were not played to their end as cut off, so that no later step is taken for their next one.

        :param last: the step that was added last
        """
        for i, n_envs in enumerate(self._n_envs):
            if n_envs == self._n_playing:
                cut_off(self.buffers[i], last)
            elif self._waiting[i]:
                self._deal_out(i)

    def _deal_out(self, i: int) -> None:
        """Add the steps that wait for a buffer: a run of some envs, then that of the next."""
        for first in range(0, self._n_playing, self._n_envs[i]):
            run = [_part(step, slice(first, first + self._n_envs[i])) for step in self._waiting[i]]
            for step in run:
                self._add(i, step)
            cut_off(self.buffers[i], run[-1])
        self._waiting[i].clear()

    def _add(self, i: int, step: Transitions) -> None:
        start = time.perf_counter()
        self.buffers[i].add(*step)
        self.seconds[i] += time.perf_counter() - start


def cut_off(buffer: ReplayLike, last: Transitions) -> None:
    """Let the episodes of a buffer that go on end here. A cut is no end of an episode: values are still bootstrapped there.

    Hindsight replay and n-step returns look beyond a step.

    :param last: the step that was added last
    """
    if isinstance(buffer, HerReplayBuffer):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it does what is asked of it here
            buffer.truncate_last_trajectory()
    elif isinstance(buffer, ReplayBuffer):
        buffer.timeouts[buffer.pos - 1, ~np.asarray(last.done, bool)] = 1


def _checked(buffer: Buffers, env: VecEnv) -> list[ReplayLike]:
    """The buffers to fill, none to many, if they fit the env."""
    # A buffer is told by its `add`: a class may have both `add` and a length.
    buffers = (
        [] if buffer is None else list(buffer) if isinstance(buffer, Iterable) and not hasattr(buffer, "add") else [buffer]
    )
    obs_shape = get_obs_shape(env.observation_space)
    for one in buffers:
        name = type(one).__name__
        if not callable(getattr(one, "add", None)) or isinstance(one, RolloutBuffer):
            raise ValueError(f"buffer must be a replay buffer, several of them, or None; got {name}")
        n_envs, shape = getattr(one, "n_envs", env.num_envs), getattr(one, "obs_shape", obs_shape)
        if env.num_envs % n_envs:
            raise ValueError(
                f"{name} was made for n_envs={n_envs}, and the steps of {env.num_envs} envs cannot be dealt out to it. "
                f"Make the env with n_envs={n_envs}, or a multiple of it"
            )
        if shape != obs_shape:  # SB3's buffers would repeat what is too small
            raise ValueError(f"{name} was made for obs_shape={shape}, but the env has {obs_shape}")
    return buffers


def _part(step: Transitions, envs: slice) -> Transitions:
    """The step of some of the envs."""
    obs, next_obs = (
        {key: one[envs] for key, one in whole.items()} if isinstance(whole, dict) else whole[envs]
        for whole in (step.obs, step.next_obs)
    )
    return Transitions(obs, next_obs, step.action[envs], step.reward[envs], step.done[envs], step.infos[envs])
