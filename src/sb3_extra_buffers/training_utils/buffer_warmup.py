"""Fill replay buffers with a trained model's experience before training starts. Below: eval_model, filling, play."""

from __future__ import annotations

import math
from typing import Any

from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv

from sb3_extra_buffers.training_utils.eval_model import closing_if, eval_model, process_outcome, progress
from sb3_extra_buffers.training_utils.filling import Buffers, Filling
from sb3_extra_buffers.training_utils.play import play

_LABEL = "Warming up"


def warm_up(
    buffer: Buffers,
    n_envs: int,
    warmup_env: VecEnv,
    warmup_model: PolicyPredictor,
    warmup_episodes: int | None = None,
    mean_ep_len: float | None = None,
    *,
    close_env: bool = False,
    deterministic: bool = True,
    progress_bar: bool = True,
) -> tuple[list[float], list[float]]:
    """Play whole episodes into the buffers, or until the buffers are full if no number is given.

    :param buffer: replay buffer to fill, or several
    :param n_envs: number of envs that the buffers were made for
    :param warmup_env: env to play in, apart from the one to train in, with as many envs or a multiple of it; the buffers get
        the steps of all of them in turn. It is left open
    :param warmup_model: model that plays
    :param warmup_episodes: number of episodes to play
    :param mean_ep_len: length of an episode; without ``warmup_episodes``, enough episodes are played to fill the largest
        buffer
    :param close_env: close the envs at the end
    :param deterministic: take the model's best action instead of drawing one
    :param progress_bar: show a bar on a terminal, where tqdm is installed
    :return: the rewards of the episodes that ended, and the seconds spent in each buffer's `add`
    """
    filling = Filling(buffer, warmup_env)
    buffers: list[Any] = filling.buffers
    if not buffers:
        raise ValueError("warm_up needs a buffer to fill, got none")
    for one in buffers:
        if getattr(one, "n_envs", n_envs) != n_envs:
            raise ValueError(f"n_envs is {n_envs}, but {type(one).__name__} was made for n_envs={one.n_envs}")
    endless = [type(one).__name__ for one in buffers if not isinstance(one, BaseBuffer)]
    if warmup_episodes is None and endless:
        raise ValueError(f"{endless[0]} is no SB3 buffer and cannot say when it is full. Give warmup_episodes")
    if warmup_episodes is None and mean_ep_len is not None:
        if not 0 < mean_ep_len < math.inf:
            raise ValueError(f"mean_ep_len must be positive, got {mean_ep_len}")
        warmup_episodes = math.ceil(max(one.buffer_size for one in buffers) * n_envs / mean_ep_len)
    if warmup_episodes is not None:
        return eval_model(
            warmup_episodes, warmup_env, warmup_model, close_env, buffers,
            deterministic=deterministic, progress_bar=progress_bar, label=_LABEL,
        )  # fmt: skip
    rewards = list[float]()
    missing = max(one.buffer_size - one.size() for one in buffers) * n_envs
    steps = math.ceil(missing / warmup_env.num_envs)
    bar_of = progress(missing, "transition", _LABEL, progress_bar)
    with closing_if(close_env, warmup_env), bar_of as bar:
        for _, step in zip(range(steps), play(warmup_env, warmup_model, deterministic), strict=False):
            filling.add(step)
            of_episodes, ended = process_outcome(step.infos)
            rewards += of_episodes[ended].tolist()
            if bar is not None:
                bar.update(warmup_env.num_envs)
        if steps:
            filling.finish(step)
    return rewards, filling.seconds
