"""Replay buffers: SB3's classes over columns. `obs` and `next_obs` share a store, so each frame is kept once.

That gives the saving of `optimize_memory_usage` always, and with the true terminal observation; the buffers accept the
argument everywhere (also where SB3 refuses it) and it changes nothing here. Better leave it off: SB3's algorithms, if they
get it, cut the last episode off when `learn` is called again.
"""

from __future__ import annotations

import inspect
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed.mixin import CompressedObservations


class ReplayObservations(CompressedObservations):
    """What is particular to replay buffers: two columns, one store."""

    _column_names = ("observations", "next_observations")
    _not_pickled = ("_lock", "_add_below")

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        names = self._positional_names()
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} takes {3 + len(names)} positional arguments, got {3 + len(args)}")
        given = dict(zip(names, args, strict=False))
        twice = sorted(given.keys() & kwargs.keys())
        if twice:
            raise TypeError(f"{type(self).__name__} got several values for {', '.join(twice)}")
        kwargs.update(given)
        # SB3's trick of one array for both is not needed here, and it would lose the terminal observation (SB3 #934).
        kwargs.pop("optimize_memory_usage", None)
        super().__init__(buffer_size, observation_space, action_space, **kwargs)

    def _connect(self) -> None:
        super()._connect()
        # What `super().add` is. To look it up at every step would take longer than to store a small observation.
        self._add_below: Any = super().add.__func__  # type: ignore[attr-defined]

    @classmethod
    def _positional_names(cls) -> list[str]:
        """Names of SB3's arguments behind the action space, in SB3's order."""
        for base in cls.__mro__[cls.__mro__.index(CompressedObservations) + 1 :]:
            names = list(inspect.signature(base).parameters)
            if "optimize_memory_usage" in names:
                return names[names.index("action_space") + 1 :]
        raise TypeError(f"{cls.__name__} has no SB3 replay buffer among its bases")

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any, *more: Any) -> None:
        """SB3's `add`. What is refused, an observation of a wrong shape or range for one, changes nothing.

        :param more: for a class below that takes more; it gets placeholders instead of observations
        """
        with self._lock:
            stored, step = self._stored, self.pos
            checked, written = stored.checked((obs, next_obs)), stored.written
            if more:
                super().add(written, written, action, reward, done, infos, *more)
            else:
                self._add_below(self, written, written, action, reward, done, infos)
            stored.write_step(step, checked)

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """SB3's `sample`."""
        return self._reading(lambda: super(ReplayObservations, self).sample(*args, **kwargs))


class CompressedReplayBuffer(ReplayObservations, ReplayBuffer):
    """SB3's ReplayBuffer, with observations kept compressed."""


class CompressedDictReplayBuffer(ReplayObservations, DictReplayBuffer):
    """SB3's DictReplayBuffer, with observations kept compressed."""


class CompressedHerReplayBuffer(ReplayObservations, HerReplayBuffer):
    """SB3's HerReplayBuffer, with observations kept compressed."""


class CompressedNStepReplayBuffer(ReplayObservations, NStepReplayBuffer):
    """SB3's NStepReplayBuffer, with observations kept compressed."""

    _reads_together = False  # obs and next_obs lie n steps apart
