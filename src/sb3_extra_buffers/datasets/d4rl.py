"""D4RL's HDF5 files -> a buffer, some thousand steps at a time. Below: writing.

A file has flat arrays with one row per step: observations, actions, rewards, terminals, mostly timeouts, and sometimes
next_observations. Other arrays (infos, metadata) are not used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers._optional import require
from sb3_extra_buffers.datasets.report import Report
from sb3_extra_buffers.datasets.steps import Found, Steps, find_steps, pieces
from sb3_extra_buffers.datasets.writing import Request, writing
from sb3_extra_buffers.errors import CorruptDataError

_NEEDED = ("observations", "actions", "rewards", "terminals")
_KNOWN = (*_NEEDED, "timeouts", "next_observations")
#: Bytes of observations to read at a time.
_READ_BYTES = 8 << 20


def from_d4rl(
    path: str | os.PathLike[str],
    *,
    observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
    max_episode_steps: int | None = None,
    into: Any = None,
    buffer_size: int | None = None,
    buffer_kwargs: Mapping[str, Any] | None = None,
    scale_actions: bool = True,
    progress_bar: bool = True,
) -> Any:
    """Fill a replay buffer from an HDF5 file of D4RL. Needs h5py. Nothing is downloaded.

    Timeouts are kept. If a file has no next observations, the next observation of a step is the observation of the step after
    it. A step with a timeout then has none and is left out, as in D4RL's own `qlearning_dataset`.

    :param path: the file
    :param observation_space: of the buffer; by default a Box without bounds. Give that of your env to mix with its data
    :param action_space: the same; by default a Box from -1 to 1
    :param max_episode_steps: time limit of the env, for old files without timeouts
    :param into: this and all arguments below: see `from_episodes`
    :return: the buffer
    """
    h5py: Any = require("h5py", extra="datasets", what="from_d4rl")
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {path}. D4RL's files are at http://rail.eecs.berkeley.edu/datasets/offline_rl, for example "
            "gym_mujoco_v2/halfcheetah_medium-v2.hdf5"
        )
    request = Request(into, buffer_size, buffer_kwargs, observation_space, action_space, scale_actions, progress_bar)
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise CorruptDataError(f"{path} is not an HDF5 file, or it is damaged: {error}") from error
    with file:
        data = _Data(path, file, max_episode_steps)
        boxes = _box(file["observations"], np.inf), _box(file["actions"], 1)
        with writing(request, path.name, *boxes, data.n_kept) as target:
            data.describe(target.report)
            for found in data.steps():
                target.write(found)
    return target.buffer


class _Data:
    """The arrays of a file. Rewards and ends of episodes are in memory, observations and actions are not.

    :param file: an open ``h5py.File``
    """

    def __init__(self, path: Path, file: Any, max_episode_steps: int | None) -> None:
        self.path, self.file = path, file
        if missing := [name for name in _NEEDED if name not in file]:
            raise CorruptDataError(f"{path} is not a D4RL file: it has {list(file)}, but lacks {', '.join(missing)}")
        self.n = len(file["rewards"])
        if self.n == 0:
            raise ValueError(f"{path} has no steps")
        for name in _KNOWN:
            if name in file and len(file[name]) != self.n:
                raise CorruptDataError(f"{path} is damaged: {self.n} rewards, and {len(file[name])} {name}")
        self.rewards = np.asarray(file["rewards"]).reshape(self.n, -1)[:, 0]
        self.terminals = np.asarray(file["terminals"]).reshape(self.n).astype(bool)
        self.timeouts = self._timeouts(max_episode_steps) & ~self.terminals
        self.has_next = "next_observations" in file
        self.ends = self.terminals | self.timeouts
        #: Steps without a next observation, except terminal ones.
        self.n_left_out = 0 if self.has_next else int(self.timeouts.sum()) + (not self.ends[-1])

    @property
    def n_kept(self) -> int:
        return self.n - self.n_left_out

    def describe(self, report: Report) -> None:
        """Note the arrays that are not used."""
        names: list[str] = []
        self.file.visititems(lambda name, one: names.append(name) if hasattr(one, "shape") else None)
        report.unused(name for name in names if name not in _KNOWN)
        if "timeouts" not in self.file:
            report.note("The file has no timeouts; max_episode_steps says where they are.")

    def steps(self) -> Iterator[Found]:
        """All steps, one chunk of the file after the other."""
        rows = self.file["observations"]
        at_once = max(_READ_BYTES // max(rows.dtype.itemsize * int(np.prod(rows.shape[1:])), 1), 1)
        for first in range(0, self.n, at_once):
            last = min(first + at_once, self.n)
            if self.has_next:
                yield self._whole(first, last)
            else:
                yield from self._by_episode(first, last)

    def _whole(self, first: int, last: int) -> Found:
        some, is_cut = slice(first, last), last == self.n and not self.ends[-1]
        now, following, actions = (
            np.asarray(self.file[name][some]) for name in ("observations", "next_observations", "actions")
        )
        ends = self.terminals[some], self.timeouts[some]
        return Found([Steps(now, following, actions, self.rewards[some], *ends, is_cut)])

    def _by_episode(self, first: int, last: int) -> Iterator[Found]:
        observations = np.asarray(self.file["observations"][first : last + 1])  # one more than steps, if there is one
        actions, rewards = np.asarray(self.file["actions"][first:last]), self.rewards[first:last]
        for begin, end in pieces(self.ends[first:last]):
            following = first + end  # the step after them
            is_end = bool(self.ends[following - 1])
            has_next = not is_end and following < self.n
            some, seen = slice(begin, end), observations[begin : end + has_next]
            ends = self.terminals[first:last][some], self.timeouts[first:last][some]
            steps = Steps(seen, None, actions[some], rewards[some], *ends)
            yield find_steps(steps, len(seen), goes_on=has_next and self._is_kept(following))

    def _is_kept(self, step: int) -> bool:
        """Whether a step has a next observation, or needs none."""
        return bool(self.terminals[step]) or not (self.timeouts[step] or step == self.n - 1)

    def _timeouts(self, most: int | None) -> NDArray[np.bool_]:
        if "timeouts" in self.file:
            return np.asarray(self.file["timeouts"]).reshape(self.n).astype(bool)
        if most is None:
            raise ValueError(
                f"{self.path} has no timeouts: give max_episode_steps, the time limit of the env. If it has none, give a "
                "number larger than any episode"
            )
        if isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1:
            raise ValueError(f"max_episode_steps must be a positive number, got {most!r}")
        begins = np.concatenate(([0], np.flatnonzero(self.terminals)[:-1] + 1)) if self.terminals.any() else np.zeros(1, int)
        steps = np.arange(self.n)
        begun = begins[np.searchsorted(begins, steps, side="right") - 1]
        return np.asarray((steps - begun) % most == most - 1)


def _box(rows: Any, bound: float) -> spaces.Box:
    """A space for the rows of an array."""
    dtype = rows.dtype if rows.dtype.kind == "f" else np.dtype(np.float32)
    return spaces.Box(-bound, bound, rows.shape[1:], dtype.type)
