"""QR-DQN that learns from prioritized replay; needs sb3-contrib."""

from __future__ import annotations

from typing import Any

import torch as th
from sb3_contrib import QRDQN
from sb3_contrib.common.utils import quantile_huber_loss

from sb3_extra_buffers.prioritized.algorithms import PrioritizedLearning


class PrioritizedQRDQN(PrioritizedLearning, QRDQN):
    """sb3-contrib's QRDQN with prioritized replay: takes the same arguments.

    A transition's priority is its loss, so that errors in the shape of the distribution count too.
    """

    def _replaced_names(self) -> dict[str, Any]:
        return {"quantile_huber_loss": self._quantile_loss}

    def _quantile_loss(self, current: th.Tensor, target: th.Tensor, **options: Any) -> th.Tensor:
        def of_one(current: th.Tensor, target: th.Tensor) -> Any:
            return quantile_huber_loss(current[None], target[None], **options)

        losses = th.vmap(of_one)(current, target)
        return self._weighted(losses.detach(), losses, quantile_huber_loss(current, target, **options))
