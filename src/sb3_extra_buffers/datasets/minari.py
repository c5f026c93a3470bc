"""Minari datasets <-> replay buffers. Below: episodes and writing, and recording, which writes datasets.

Minari stores the observations of an episode, one more than steps. A buffer stores transitions: an episode is a run of steps
where each next observation is the observation of the step after.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers._optional import require
from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.datasets.arranging import channels_first, unscaled
from sb3_extra_buffers.datasets.episodes import write_episodes
from sb3_extra_buffers.datasets.report import logger
from sb3_extra_buffers.datasets.steps import Observations, pieces
from sb3_extra_buffers.datasets.writing import Request, writing
from sb3_extra_buffers.recording.minari_dataset import check_request, write_dataset
from sb3_extra_buffers.store.extract import on_host
from sb3_extra_buffers.training_utils.eval_model import progress

#: Steps to read from a buffer at a time.
_READ_STEPS = 256


def from_minari(
    dataset: Any,
    *,
    observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
    into: Any = None,
    buffer_size: int | None = None,
    buffer_kwargs: Mapping[str, Any] | None = None,
    scale_actions: bool = True,
    progress_bar: bool = True,
) -> Any:
    """Fill a replay buffer from a Minari dataset. Needs Minari. Nothing is downloaded; one episode at a time is in memory.

    Truncations are kept as timeouts. Infos are not kept.

    :param dataset: the id of a dataset on this machine, or a ``minari.MinariDataset``
    :param observation_space: of the buffer; by default that of the dataset, with the channels of images first, as SB3's
        algorithms see them
    :param action_space: of the buffer; by default that of the dataset
    :param into: this and all arguments below: see `from_episodes`
    :return: the buffer
    """
    opened = _local_dataset(dataset) if isinstance(dataset, str) else dataset
    if not hasattr(opened, "iterate_episodes"):
        raise TypeError(f"from_minari takes the id of a dataset or a MinariDataset, got {dataset!r}")
    request = Request(into, buffer_size, buffer_kwargs, observation_space, action_space, scale_actions, progress_bar)
    known = channels_first(opened.observation_space), opened.action_space
    with writing(request, str(opened.spec.dataset_id), *known, int(opened.total_steps)) as target:
        write_episodes(target, opened.iterate_episodes())
    return target.buffer


def _local_dataset(dataset_id: str) -> Any:
    """A dataset on this machine, or an error with the ids of those that there are."""
    minari: Any = require("minari", extra="minari", what="from_minari")
    require("h5py", extra="minari", what="from_minari")
    try:
        return minari.load_dataset(dataset_id)
    except FileNotFoundError:
        there = list(minari.list_local_datasets())
        close = difflib.get_close_matches(dataset_id, there, 1)
        hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(there) or 'none'}."
        raise FileNotFoundError(
            f"There is no Minari dataset {dataset_id!r} on this machine. {hint} To get it: minari download {dataset_id}"
        ) from None


def to_minari(
    buffer: ReplayBuffer, dataset_id: str, *, unscale_actions: bool = True, progress_bar: bool = True, **metadata: Any
) -> Any:
    """Write a replay buffer as a Minari dataset, without loss: images are not turned into JPEGs. Needs Minari.

    An episode that the buffer does not hold to its end is truncated there. If its first steps were overwritten, it begins with
    the first one that is left. One episode at a time is in memory.

    :param buffer: of this library, or of SB3
    :param dataset_id: as Minari has it, e.g. ``"mspacman/expert-v0"``
    :param unscale_actions: scale actions of a Box back from [-1, 1], as SB3's algorithms store them, to their space
    :param progress_bar: show a progress bar, on a terminal and where tqdm is installed
    :param metadata: more arguments of ``minari.create_dataset_from_buffers``: ``env``, ``author``, ...
    :return: the ``minari.MinariDataset``
    """
    require("minari", extra="minari", what="to_minari")
    if not isinstance(buffer, ReplayBuffer):
        raise TypeError(f"to_minari takes a replay buffer, got {type(buffer).__name__}; a record has its own to_minari")
    if buffer.optimize_memory_usage:
        raise ValueError(
            "SB3's optimize_memory_usage does not store the last observation of an episode: use compress_buffer(buffer) first"
        )
    check_request(dataset_id, metadata)
    spaces_of = {"observation_space": buffer.observation_space, "action_space": buffer.action_space}
    export = _Export(buffer, unscale_actions)
    episodes = export.episodes()
    if not episodes:
        raise ValueError(f"This {type(buffer).__name__} has no steps")
    n_steps = sum(one.last - one.first for one in episodes)
    with progress(n_steps, "step", dataset_id, progress_bar) as bar:
        dataset = write_dataset(dataset_id, export.read(episodes, bar), {**spaces_of, **metadata})
    n_cut = sum(one.is_cut for one in episodes)
    logger.log(
        30 if n_cut else 20, "%s: %d steps of %d episodes.%s", dataset_id, n_steps, len(episodes),
        f" The buffer does not hold {n_cut} of them to their end: they are truncated." if n_cut else "",
    )  # fmt: skip
    return dataset


class _Run(NamedTuple):
    """Steps of one env that form an episode. The oldest step has the number 0.

    :param last: the step after the last
    :param is_cut: whether the buffer does not hold the end of the episode
    """

    env: int
    first: int
    last: int
    is_cut: bool


class _Export:
    """Reads a buffer, one episode at a time."""

    def __init__(self, buffer: Any, unscale_actions: bool) -> None:
        self.buffer, self._unscale = buffer, unscale_actions
        if isinstance(buffer, CompressedObservations):
            with buffer._at_rest() as contents:
                self.slots = contents.slots
        else:
            self.slots = (np.arange(buffer.size()) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size

    def episodes(self) -> list[_Run]:
        """All episodes of all envs."""
        found = []
        for env in range(self.buffer.n_envs):
            dones = self.buffer.dones[self.slots, env].astype(bool)
            ends = dones | ~self._follows(env)
            found += [_Run(env, first, last, not dones[last - 1]) for first, last in pieces(ends)]
        return found

    def _follows(self, env: int) -> NDArray[np.bool_]:
        """Whether the next observation of a step is the observation of the step after."""
        n = len(self.slots)
        follows = np.zeros(n, bool)
        for first in range(0, n - 1, _READ_STEPS):
            last = min(first + _READ_STEPS, n - 1)
            after, now = (
                self._observations("next_observations", env, first, last),
                self._observations("observations", env, first + 1, last + 1),
            )
            same = (
                [_equal_rows(after[key], now[key]) for key in after] if isinstance(after, dict) else [_equal_rows(after, now)]
            )
            follows[first:last] = np.logical_and.reduce(same)
        return follows

    def read(self, episodes: list[_Run], bar: Any) -> Iterator[dict[str, Any]]:
        """The episodes, as Minari's ``EpisodeBuffer`` takes them."""
        buffer = self.buffer
        for run in episodes:
            slots, n = self.slots[run.first : run.last], run.last - run.first
            ends = np.arange(n) == n - 1
            has_terminated = bool(buffer.dones[slots[-1], run.env]) and not buffer.timeouts[slots[-1], run.env]
            yield {
                "observations": self._all_observations(run),
                "actions": self._actions(buffer.actions[slots, run.env]),
                "rewards": buffer.rewards[slots, run.env],
                "terminations": ends & has_terminated,
                "truncations": ends & (not has_terminated),
            }
            if bar is not None:
                bar.update(n)

    def _all_observations(self, run: _Run) -> Observations:
        """The observations of an episode, with the last next observation."""
        n = run.last - run.first
        last = self._observations("next_observations", run.env, run.last - 1, run.last)
        out = {key: np.empty((n + 1, *one.shape[1:]), one.dtype) for key, one in _by_key(last).items()}
        for first in range(0, n, _READ_STEPS):
            end = min(first + _READ_STEPS, n)
            part = self._observations("observations", run.env, run.first + first, run.first + end)
            for key, values in _by_key(part).items():
                out[key][first:end] = values
        for key, values in _by_key(last).items():
            out[key][n:] = values
        space = self.buffer.observation_space
        if not isinstance(space, spaces.Dict):
            return out[None].reshape(n + 1, *(space.shape or ()))
        return {key: one.reshape(n + 1, *(space[key].shape or ())) for key, one in out.items()}

    def _observations(self, name: str, env: int, first: int, last: int) -> Observations:
        columns, slots = getattr(self.buffer, name), self.slots[first:last]
        envs = np.full(len(slots), env)
        if isinstance(columns, dict):
            return {key: on_host(column[slots, envs]) for key, column in columns.items()}
        return on_host(columns[slots, envs])

    def _actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """As the env takes them, ``(n, ...)`` of their space."""
        space = self.buffer.action_space
        shaped = actions.reshape(len(actions), *(space.shape or ()))
        if isinstance(space, spaces.Box) and self._unscale:
            shaped = unscaled(shaped, space)
        return shaped.astype(space.dtype)


def _by_key(observations: Observations) -> dict[Any, NDArray[Any]]:
    return observations if isinstance(observations, dict) else {None: observations}


def _equal_rows(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows have the same bits."""
    rows = [np.ascontiguousarray(each).reshape(len(each), -1).view(np.uint8) for each in (one, other)]
    return np.asarray((rows[0] == rows[1]).all(axis=1))
