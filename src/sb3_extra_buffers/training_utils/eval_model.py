"""Evaluate a model over whole episodes, and fill buffers with what it meets. Below: play, filling. Above: buffer_warmup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, is_vecenv_wrapped

from sb3_extra_buffers._optional import installed, require
from sb3_extra_buffers.training_utils.filling import Buffers, Filling
from sb3_extra_buffers.training_utils.play import play


def eval_model(
    n_eps: int,
    eval_env: VecEnv,
    model: PolicyPredictor,
    close_env: bool = True,
    buffer: Buffers = None,
    *,
    deterministic: bool = True,
    progress_bar: bool = True,
    label: str = "Evaluating",
) -> tuple[list[float], list[float]]:
    """Play exactly ``n_eps`` whole episodes, and return their rewards.

    Episodes are counted by the Monitor: a lost life does not end one, and rewards are not clipped. Each env plays a fixed
    share of the episodes; counting whichever ends first would favour short episodes. Buffers get every step of every env.

    :param n_eps: number of episodes
    :param eval_env: envs with a Monitor
    :param model: an SB3 model or policy
    :param close_env: close the envs at the end
    :param buffer: replay buffer to fill, or several; a buffer for fewer envs gets the steps of all in turn
    :param deterministic: take the model's best action instead of drawing one
    :param progress_bar: show a bar on a terminal, where tqdm is installed
    :param label: text of the bar
    :return: the episodes' rewards, in the order in which they ended, and the seconds spent in each buffer's `add`
    """
    if isinstance(n_eps, bool) or not isinstance(n_eps, (int, np.integer)) or n_eps < 1:
        raise ValueError(f"n_eps must be at least 1, got {n_eps!r}")
    if not isinstance(eval_env, VecEnv):
        raise ValueError(f"eval_env must be a VecEnv, got {type(eval_env).__name__}. Make one: DummyVecEnv([lambda: env])")
    if not (is_vecenv_wrapped(eval_env, VecMonitor) or all(eval_env.env_is_wrapped(Monitor))):
        raise ValueError("eval_env has no Monitor, which tells where episodes end. Wrap it: VecMonitor(eval_env)")
    filling, rewards = Filling(buffer, eval_env), list[float]()
    shares = np.array([(n_eps + i) // eval_env.num_envs for i in range(eval_env.num_envs)])
    with closing_if(close_env, eval_env), progress(n_eps, "episode", label, progress_bar) as bar:
        for step in play(eval_env, model, deterministic):
            filling.add(step)
            of_episodes, ended = process_outcome(step.infos)
            for i in np.flatnonzero(ended & (shares > 0)):
                shares[i] -= 1
                rewards.append(float(of_episodes[i]))
                if bar is not None:
                    bar.set_postfix_str(f"mean reward {np.mean(rewards):.1f}", refresh=False)
                    bar.update()
            if not shares.any():
                filling.finish(step)
                break
    return rewards, filling.seconds


def process_outcome(infos: Sequence[dict[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Which episodes have ended, as the Monitor has it, and with which reward.

    :param infos: the info dict of each env
    :return: the reward of each env's episode, nan where it goes on, and whether it has ended
    """
    rewards = np.array([info["episode"]["r"] if "episode" in info else np.nan for info in infos], np.float64)
    return rewards, np.array(["episode" in info for info in infos], bool)


@contextmanager
def closing_if(wanted: bool, env: VecEnv) -> Iterator[None]:
    """Close the envs at the end, also after an error, if asked to."""
    try:
        yield
    finally:
        if wanted:
            env.close()


@contextmanager
def progress(total: int, unit: str, label: str, wanted: bool) -> Iterator[Any]:
    """A progress bar, or None."""
    if not (wanted and installed("tqdm")):
        yield None
        return
    tqdm = require("tqdm", extra="extra", what="The progress bar")
    with tqdm.tqdm(total=total, unit=unit, desc=label, disable=None) as bar:  # None: only on a terminal
        yield bar
