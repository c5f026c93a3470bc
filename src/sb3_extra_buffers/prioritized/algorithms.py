"""DQN that learns from prioritized replay. Below: SB3's `train`, with another loss. quantiles.py has QR-DQN.

model = PrioritizedDQN("CnnPolicy", env, buffer_size=1_000_000)
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from torch.nn import functional

from sb3_extra_buffers.compressed.rebinding import Instead, rebound
from sb3_extra_buffers.prioritized.buffers import (
    CompressedPrioritizedDictReplayBuffer,
    CompressedPrioritizedNStepReplayBuffer,
    CompressedPrioritizedReplayBuffer,
)
from sb3_extra_buffers.prioritized.sampling import PrioritizedSampling


class PrioritizedLearning(OffPolicyAlgorithm):
    """Put before an algorithm of SB3's kind: weighs the loss of each transition, and tells the buffer its error.

    Without a `replay_buffer_class` the buffer is the compressed one for the env's observations.
    """

    def _setup_model(self) -> None:
        with warnings.catch_warnings():
            if self.replay_buffer_class is None:
                self._choose_buffer()
                warnings.filterwarnings("ignore", "`n_steps=.* is ignored", UserWarning)  # it is not
            super()._setup_model()
        self._prioritized_buffer()

    def _choose_buffer(self) -> None:
        if isinstance(self.observation_space, spaces.Dict):
            if self.n_steps > 1:
                raise ValueError("There is no n-step replay buffer for Dict observations; leave n_steps at 1")
            self.replay_buffer_class = CompressedPrioritizedDictReplayBuffer
        elif self.n_steps > 1:
            self.replay_buffer_class = CompressedPrioritizedNStepReplayBuffer
            self.replay_buffer_kwargs.update(n_steps=self.n_steps, gamma=self.gamma)
        else:
            self.replay_buffer_class = CompressedPrioritizedReplayBuffer

    def _prioritized_buffer(self) -> PrioritizedSampling:
        if not isinstance(self.replay_buffer, PrioritizedSampling):
            raise TypeError(
                f"{type(self).__name__} needs a prioritized replay buffer, got {type(self.replay_buffer).__name__}. "
                "Leave replay_buffer_class out, or take one of sb3_extra_buffers.prioritized"
            )
        return self.replay_buffer

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """The algorithm's own `train`, with a weighted loss."""
        self._prioritized_buffer().progress_remaining = self._current_progress_remaining
        rebound(super().train.__func__, **self._replaced_names())(self, gradient_steps, batch_size)  # type: ignore[attr-defined]

    @abstractmethod
    def _replaced_names(self) -> dict[str, Any]:
        """What the names of the loss in the algorithm's module are to stand for: see `rebound`."""

    def _weighted(self, errors: th.Tensor, losses: th.Tensor, loss: th.Tensor) -> th.Tensor:
        """The loss of the last batch, weighted. The buffer gets the errors.

        :param errors: of each transition
        :param losses: of each transition
        :param loss: the mean of them as the algorithm has it
        """
        buffer = self._prioritized_buffer()
        weights, indices = buffer.latest
        buffer.update_priorities(indices, errors)
        if buffer.current_beta() == 0:  # all weights are 1: what the algorithm has, to the last bit
            return loss
        return (weights.reshape(losses.shape) * losses).mean()


class PrioritizedDQN(PrioritizedLearning, DQN):
    """SB3's DQN with prioritized replay: takes the same arguments.

    The buffer's own, `alpha`, `beta` and `eps`, go into `replay_buffer_kwargs`.
    """

    def _replaced_names(self) -> dict[str, Any]:
        return {"F": Instead(functional, smooth_l1_loss=self._huber_loss)}

    def _huber_loss(self, current: th.Tensor, target: th.Tensor) -> th.Tensor:
        losses = functional.smooth_l1_loss(current, target, reduction="none")
        return self._weighted((target - current).detach().abs(), losses, functional.smooth_l1_loss(current, target))
