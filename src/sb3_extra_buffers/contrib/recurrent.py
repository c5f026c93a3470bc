"""RecurrentPPO builds its rollout buffer itself; `compress_rollout_buffer(model)` replaces it by a compressed one."""

from __future__ import annotations

from typing import Any

from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from sb3_contrib.ppo_recurrent.ppo_recurrent import RecurrentPPO

from sb3_extra_buffers.compressed.rollout import RolloutObservations


class CompressedRecurrentRolloutBuffer(RolloutObservations, RecurrentRolloutBuffer):  # type: ignore[misc]
    """sb3-contrib's RecurrentRolloutBuffer, with observations kept compressed."""


class CompressedRecurrentDictRolloutBuffer(RolloutObservations, RecurrentDictRolloutBuffer):  # type: ignore[misc]
    """sb3-contrib's RecurrentDictRolloutBuffer, with observations kept compressed."""


def compress_rollout_buffer(model: RecurrentPPO, **options: Any) -> RecurrentPPO:
    """Give a RecurrentPPO model a compressed rollout buffer in place of its own.

    :param model: a model that is not in the middle of a rollout
    :param options: storage keywords of the compressed buffers, e.g. ``compression_method``
    :return: the same model
    """
    old = model.rollout_buffer
    if not isinstance(old, (RecurrentRolloutBuffer, RecurrentDictRolloutBuffer)):
        raise TypeError(f"compress_rollout_buffer expects a RecurrentPPO model, got one with a {type(old).__name__}")
    is_dict = isinstance(old, RecurrentDictRolloutBuffer)
    buffer_class = CompressedRecurrentDictRolloutBuffer if is_dict else CompressedRecurrentRolloutBuffer
    model.rollout_buffer = buffer_class(
        old.buffer_size, old.observation_space, old.action_space, old.hidden_state_shape,
        device=old.device, gae_lambda=old.gae_lambda, gamma=old.gamma, n_envs=old.n_envs, **options,
    )  # fmt: skip
    return model
