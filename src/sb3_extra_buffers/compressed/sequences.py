"""Sequences of steps from a replay buffer, for recurrent networks. Below: the columns, which decode shared frames once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecNormalize


class SequenceSamples(NamedTuple):
    """A batch of sequences: the first axis is the batch, the second is time.

    :param observations: ``(batch_size, length, ...)``, a dict of these for Dict observations
    :param actions: ``(batch_size, length, action_dim)``
    :param rewards: ``(batch_size, length)``
    :param dones: ``(batch_size, length)``: 1 where an episode ended, but not by a timeout, as SB3 has it
    :param mask: ``(batch_size, length)``, bool: the steps of the episode that a sequence is about. All of them with
        `across_episodes`
    :param next_observations: ``(batch_size, ...)``: what came after the last step of the sequence
    """

    observations: Any
    actions: th.Tensor
    rewards: th.Tensor
    dones: th.Tensor
    mask: th.Tensor
    next_observations: Any


def check_windows(batch_size: int, length: int, burn_in: int) -> None:
    """Refuse wrong arguments of `sample_sequences`."""
    for name, value in (("batch_size", batch_size), ("length", length)):
        if not _is_whole(value) or value < 1:
            raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    if not _is_whole(burn_in) or not 0 <= burn_in < length:
        raise ValueError(f"burn_in must be from 0 to length - 1, got {burn_in!r} of {length} steps")


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def draw_windows(n_steps: int, n_envs: int, batch_size: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Steps ``(batch_size, length)``, counted from the oldest on, and envs ``(batch_size,)``; all are equally likely."""
    if n_steps < length:
        raise ValueError(f"The buffer has {n_steps} steps of each env: add more, or ask for sequences shorter than {length}")
    starts = np.random.randint(0, n_steps - length + 1, size=batch_size)
    envs = np.random.randint(0, n_envs, size=batch_size)
    return starts[:, None] + np.arange(length), envs


def same_episode(ends: NDArray[np.bool_], step: int) -> NDArray[np.bool_]:
    """Which steps of a sequence are of the episode that one of them is of.

    :param ends: ``(batch_size, length)``: whether an episode ended with the step
    :param step: number of this step
    """
    episode: NDArray[np.int64] = np.cumsum(ends, axis=1) - ends  # episodes that have ended before
    of_it: NDArray[np.bool_] = episode == episode[:, step : step + 1]
    return of_it


def read_sequences(
    buffer: Any, slots: NDArray[np.int64], envs: NDArray[np.int64], mask: NDArray[np.bool_], env: VecNormalize | None
) -> SequenceSamples:
    """The batch of these steps, as SB3's buffers make theirs.

    :param slots: ``(batch_size, length)``
    """
    batch_size, length = slots.shape
    flat, pairs = slots.reshape(-1), np.repeat(envs, length)

    def observations(columns: Any, slots: NDArray[np.int64], envs: NDArray[np.int64], shape: tuple[int, ...]) -> Any:
        if isinstance(columns, dict):
            read = buffer._normalize_obs({key: column[slots, envs] for key, column in columns.items()}, env)
            return {key: _shaped(buffer.to_torch(one), shape) for key, one in read.items()}
        return _shaped(buffer.to_torch(buffer._normalize_obs(columns[slots, envs], env)), shape)

    def array(name: str) -> NDArray[Any]:
        values: NDArray[Any] = getattr(buffer, name)[flat, pairs]
        return values

    dones = array("dones") * (1 - array("timeouts"))
    rewards = buffer._normalize_reward(array("rewards").reshape(-1, 1), env)
    return SequenceSamples(
        observations(buffer.observations, flat, pairs, (batch_size, length)),
        _shaped(buffer.to_torch(array("actions")), (batch_size, length)),
        buffer.to_torch(rewards).reshape(batch_size, length),
        buffer.to_torch(dones).reshape(batch_size, length),
        buffer.to_torch(mask),
        observations(buffer.next_observations, slots[:, -1].copy(), envs, (batch_size,)),
    )


def _shaped(values: th.Tensor, shape: tuple[int, ...]) -> th.Tensor:
    return values.reshape(*shape, *values.shape[1:])
