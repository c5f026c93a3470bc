"""The buffers that shards, collectors and learners keep: one class and its arguments, in the sizes that each of them needs."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedNStepReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.compressed.replay import ReplayObservations
from sb3_extra_buffers.prioritized import CompressedPrioritizedDictReplayBuffer, CompressedPrioritizedReplayBuffer
from sb3_extra_buffers.prioritized.sampling import PrioritizedSampling

#: What stands for SB3's own classes.
_COMPRESSED: dict[type, type] = {
    ReplayBuffer: CompressedReplayBuffer,
    DictReplayBuffer: CompressedDictReplayBuffer,
    NStepReplayBuffer: CompressedNStepReplayBuffer,
}
#: Arguments that belong to one buffer in one process.
_REFUSED = {
    "directory": "the observations of a shard are in memory. Use checkpoint= to keep them on disk",
    "keep": "the observations of a shard are in memory. Use checkpoint= to keep them on disk",
    "max_memory": "the shards of a buffer hold buffer_size transitions together. Choose buffer_size by memory",
}
#: A buffer has at least so many steps of each env: with fewer, its blocks are shorter and cannot be copied as they are.
LEAST_STEPS = 64


@dataclass(frozen=True)
class BufferSpec:
    """A class of replay buffers with compressed observations, and its arguments.

    :param buffer_class: one of this library, or SB3's own, which stands for the compressed one of its kind
    :param arguments: of its constructor, beside sizes, spaces and device
    """

    buffer_class: Any
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = _COMPRESSED.get(self.buffer_class, self.buffer_class)
        object.__setattr__(self, "buffer_class", known)
        name = getattr(known, "__name__", repr(known))
        if not isinstance(known, type) or not issubclass(known, ReplayObservations):
            raise TypeError(
                f"Shards hold replay buffers of this library, got {name}. Give CompressedReplayBuffer, or one derived from it"
            )
        if issubclass(known, HerReplayBuffer):
            raise TypeError(
                f"{name} cannot be spread over shards: hindsight makes goals of later steps of an episode, and rewards by the "
                "learner's env. Train with it on one machine"
            )
        for given in self.arguments:
            if given in _REFUSED and self.arguments[given]:
                raise ValueError(f"{given}= is not for shards: {_REFUSED[given]}")
        if issubclass(known, NStepReplayBuffer) and not self.arguments.get("handle_timeout_termination", True):
            raise ValueError(
                f"{name} over shards needs timeouts, which tell it where the steps of a collector end: leave out "
                "handle_timeout_termination=False"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Small, however large the bounds of a space are: Ray must be able to start a shard again at any time."""
        fields = (self.buffer_class, self.observation_space, self.action_space, dict(self.arguments))
        return _unpacked, (zlib.compress(cloudpickle.dumps(fields), 1),)

    @classmethod
    def default_class(cls, observation_space: spaces.Space[Any], *, prioritized: bool) -> type:
        """The class of this library for a space."""
        is_dict = isinstance(observation_space, spaces.Dict)
        if prioritized:
            return CompressedPrioritizedDictReplayBuffer if is_dict else CompressedPrioritizedReplayBuffer
        return CompressedDictReplayBuffer if is_dict else CompressedReplayBuffer

    def make(self, n_steps: int, n_envs: int = 1, device: Any = "cpu") -> Any:
        """An empty buffer.

        :param n_steps: steps of each env
        """
        return self.buffer_class(
            n_steps * n_envs, self.observation_space, self.action_space, device=device, n_envs=n_envs, **self.arguments
        )

    @property
    def is_prioritized(self) -> bool:
        return issubclass(self.buffer_class, PrioritizedSampling)

    @property
    def window(self) -> int:
        """Steps that a transition of a batch is made of."""
        return int(self.arguments.get("n_steps", 3)) if issubclass(self.buffer_class, NStepReplayBuffer) else 1


def _unpacked(packed: bytes) -> BufferSpec:
    return BufferSpec(*cloudpickle.loads(zlib.decompress(packed)))
