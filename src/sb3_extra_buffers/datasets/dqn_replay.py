"""`from_dqn_replay`: replay logs of Dopamine -> a buffer. Below: dopamine_log, which turns them into steps, and writing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_extra_buffers.datasets.dopamine_log import Log
from sb3_extra_buffers.datasets.report import Report
from sb3_extra_buffers.datasets.writing import Request, writing
from sb3_extra_buffers.errors import CorruptDataError

_NAME = re.compile(r"\$store\$_observation_ckpt\.(\d+)\.gz")


def from_dqn_replay(
    folder: str | os.PathLike[str],
    checkpoints: int | Iterable[int] | None = None,
    *,
    stack: int = 4,
    action_space: spaces.Space[Any] | None = None,
    into: Any = None,
    buffer_size: int | None = None,
    buffer_kwargs: Mapping[str, Any] | None = None,
    progress_bar: bool = True,
) -> Any:
    """Fill a replay buffer from replay logs of Dopamine, such as the DQN Replay Dataset. Nothing is downloaded.

    Observations are stacks of frames, ``(stack, 84, 84)``, with frames of zeros at the beginning of an episode. A log has no
    next observation for a terminal step: its own observation is used. It does not say which episodes a time limit has ended.
    Rewards are those of the log; Dopamine clips them to -1 .. 1.

    :param folder: with ``$store$_observation_ckpt.N.gz``, the same for ``action``, ``reward`` and ``terminal``, and
        ``add_count_ckpt.N.gz``
    :param checkpoints: which N, in this order; all by default
    :param stack: frames per observation
    :param action_space: by default a Discrete with as many actions as the log uses
    :param into: this and all arguments below: see `from_episodes`
    :return: the buffer
    """
    if isinstance(stack, bool) or not isinstance(stack, int | np.integer) or stack < 1:
        raise ValueError(f"stack must be a positive number of frames, got {stack!r}")
    logs = [Log(Path(folder), number, int(stack)) for number in _numbers(Path(folder), checkpoints)]
    shape, dtype = logs[0].frame
    if others := [log.number for log in logs if log.frame != logs[0].frame]:
        raise CorruptDataError(
            f"The frames of checkpoints {others} in {folder} are not {dtype} of shape {shape}, like those of the first"
        )
    request = Request(into, buffer_size, buffer_kwargs, None, action_space, True, progress_bar)
    actions = spaces.Discrete(1 + max(int(log.read("action").max()) for log in logs)) if action_space is None else action_space
    n_entries = sum(log.n_entries for log in logs)
    with writing(request, str(folder), _space(shape, dtype, stack), actions, n_entries) as target:
        if target.buffer.action_space is actions and action_space is None:
            target.report.note(
                f"The action space is {actions}, after the largest action in the data; action_space sets another."
            )
        for log in logs:
            for found in log.steps():
                target.write(found)
        _describe(logs, target.report)
    return target.buffer


def _describe(logs: list[Log], report: Report) -> None:
    """Note what logs have besides steps."""
    report.unused(sorted({name for log in logs for name in log.unused()}))
    if n := sum(log.n_padding for log in logs):
        report.note(f"Entries of zeros before episodes ({n}) are padding, not steps.")
    if n := sum(log.n_unstacked for log in logs):
        report.note(f"Steps whose stack is not complete in the data ({n}) are left out.")
    if logs[0].stack == 1 and any(log.has_unmarked_ends() for log in logs):
        report.note(
            "Ends of episodes without a terminal are in a pickle, which is not read: those episodes run into the next one."
        )


def _space(shape: tuple[int, ...], dtype: np.dtype[Any], stack: int) -> spaces.Box:
    stacked = (stack, *shape) if stack > 1 or len(shape) == 2 else shape
    if dtype.kind not in "iu":
        return spaces.Box(-np.inf, np.inf, stacked, dtype.type)
    return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, stacked, dtype.type)


def _numbers(folder: Path, checkpoints: int | Iterable[int] | None) -> list[int]:
    """The numbers of the checkpoints to read, which are all there."""
    files = [_NAME.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    there = sorted(int(one[1]) for one in files if one)
    if not there:
        raise FileNotFoundError(
            f"{folder} has no replay log of Dopamine ($store$_observation_ckpt.N.gz). The DQN Replay Dataset is at "
            "gs://atari-replay-datasets/dqn, by game and run. For example, gsutil -m cp -R "
            "gs://atari-replay-datasets/dqn/Pong/1 . makes the folder 1/replay_logs"
        )
    if checkpoints is None:
        return there
    wanted = [checkpoints] if isinstance(checkpoints, int | np.integer) else list(checkpoints)
    if not wanted or any(isinstance(one, bool) or not isinstance(one, int | np.integer) for one in wanted):
        raise ValueError(f"checkpoints must be one number or several, got {checkpoints!r}. There are {_ranges(there)}")
    if missing := [int(one) for one in wanted if one not in there]:
        raise FileNotFoundError(f"{folder} has no checkpoint {', '.join(map(str, missing))}. There are {_ranges(there)}")
    return [int(one) for one in wanted]


def _ranges(numbers: list[int]) -> str:
    return (
        f"{numbers[0]}..{numbers[-1]}" if numbers == list(range(numbers[0], numbers[-1] + 1)) else ", ".join(map(str, numbers))
    )
