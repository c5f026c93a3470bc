"""Prioritized replay over shards: errors go to the shards, which draw by them. Below: buffer and pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from numpy.typing import ArrayLike
from stable_baselines3.common.vec_env import VecNormalize

from sb3_extra_buffers.distributed.buffer import RayReplayBuffer
from sb3_extra_buffers.prioritized.sampling import PrioritizedReplayBufferSamples, PrioritizedSampling, Schedule, as_array


class RayPrioritizedReplayBuffer(RayReplayBuffer, PrioritizedSampling):
    """Prioritized replay over shards, for `PrioritizedDQN` and `PrioritizedQRDQN`.

    Transitions are drawn in proportion to the priorities that they had when they were drawn: up to twice `prefetch` batches
    before. What `update_priorities` says of transitions that are gone is ignored.

    :param alpha: how much priorities count; with 0, sampling is uniform
    :param beta: how much `weights` make up for it: a number from 0 to 1, or a schedule of SB3's kind
    :param eps: is added to every error, so that no transition is lost
    :param arguments: see `RayReplayBuffer`
    """

    _prioritized = True

    def __init__(
        self, *args: Any, alpha: float = 0.6, beta: float | Schedule = 0.4, eps: float = 1e-6, **arguments: Any
    ) -> None:
        self.alpha, self.beta, self.eps = alpha, beta, eps
        self.progress_remaining = 1.0
        RayReplayBuffer.__init__(self, *args, alpha=alpha, beta=beta if not callable(beta) else 0.4, eps=eps, **arguments)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> PrioritizedReplayBufferSamples:  # type: ignore[override]
        """A batch, with the weights of its transitions and their indices.

        :param batch_size: number of transitions
        :param env: normalizes the batch, as in SB3
        """
        pool, (slots, shards, numbers) = self._take(batch_size)
        batch = self._read(pool, slots, env)
        weights = np.ones(batch_size, np.float32)
        if self.alpha > 0:
            drawn = pool.priorities(slots)
            weights = (drawn / drawn.min()) ** np.float32(-self.current_beta())
        self.latest = self.to_torch(weights.reshape(-1, 1)), numbers * len(self._remotes) + shards
        return PrioritizedReplayBufferSamples._make([*batch, *self.latest])

    def update_priorities(self, indices: ArrayLike | th.Tensor, errors: ArrayLike | th.Tensor) -> None:
        """Give transitions the priority of their error.

        :param indices: of the batch
        :param errors: absolute errors of these transitions
        """
        self._check_open()
        given, size = as_array(indices, np.int64), as_array(errors, np.float32)
        if given.shape != size.shape:
            raise ValueError(f"There must be an error for each transition, got {len(size)} errors for {len(given)} indices")
        if len(size) and not (size.min() >= 0 and size.max() < np.inf):
            raise ValueError("errors must be finite and not negative: pass their absolute values")
        n = len(self._remotes)
        for i, remote in enumerate(self._remotes):
            if (is_here := given % n == i).any():
                remote.update_priorities(given[is_here] // n, size[is_here])
