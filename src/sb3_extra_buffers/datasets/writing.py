"""Steps -> a replay buffer of any class. Above: the importers, which all write through `StepWriter`.

    Steps -> checked, cast, actions scaled -> many at once into a buffer of this library, or `buffer.add` one by one

Many at once are written only to slots that hold no step yet, so a failure leaves the steps of the buffer as they were. A class
with an `add` of its own, SB3's, this library's or a user's, gets every step through that `add`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.preprocessing import get_action_dim, get_obs_shape
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.compressed.contents import contents_of, stand_at
from sb3_extra_buffers.compressed.replay import ReplayObservations
from sb3_extra_buffers.datasets.arranging import arranged, scaled
from sb3_extra_buffers.datasets.report import Report
from sb3_extra_buffers.datasets.steps import Found, Steps, part_of
from sb3_extra_buffers.segments.runs import Contents
from sb3_extra_buffers.spaces import PLAIN, leaves_of
from sb3_extra_buffers.store.array_view import cast
from sb3_extra_buffers.training_utils.eval_model import progress

#: Classes whose `add` does nothing that writing many steps at once does not do.
_PLAIN_ADDS = {BaseBuffer, ReplayBuffer, DictReplayBuffer, ReplayObservations}
_PLAIN_ARRAYS = {"actions", "rewards", "dones", "timeouts"}


@dataclass
class Request:
    """What the caller of an importer asked for; see `from_episodes`."""

    into: Any
    buffer_size: int | None
    buffer_kwargs: Mapping[str, Any] | None
    observation_space: spaces.Space[Any] | None
    action_space: spaces.Space[Any] | None
    scale_actions: bool
    progress_bar: bool


@contextmanager
def writing(
    request: Request,
    source: str,
    observation_space: spaces.Space[Any] | None,
    action_space: spaces.Space[Any] | None,
    n_steps: int | None,
) -> Iterator[StepWriter]:
    """A writer with a progress bar, for a new buffer or the caller's. At the end the report is logged.

    :param source: name of the data
    :param observation_space: of the data; used unless the caller gave another
    :param action_space: the same
    :param n_steps: how many steps there are at most; None if that is unknown
    """
    buffer = _buffer_for(request, observation_space, action_space, n_steps)
    made = StepWriter(buffer, Report(source), n_steps, scale_actions=request.scale_actions)
    with progress(n_steps or 0, "step", source, request.progress_bar) as made.bar:
        yield made
    made.report.log()


class StepWriter:
    """Writes steps into a buffer.

    :param buffer: a replay buffer of one env
    :param report: counts what was done
    :param n_steps: how many steps will come at most. If they are more than the buffer holds, the first ones are skipped
    """

    #: Shows how many steps were written.
    bar: Any = None

    def __init__(self, buffer: Any, report: Report, n_steps: int | None, *, scale_actions: bool) -> None:
        self.buffer, self.report = buffer, report
        space = buffer.observation_space
        self._leaves = leaves_of(space, get_obs_shape(space))
        self._action_dim = get_action_dim(buffer.action_space)
        self._scales = scale_actions
        report.keeps_timeouts = bool(buffer.handle_timeout_termination)
        if buffer.optimize_memory_usage:
            raise ValueError(
                "SB3's optimize_memory_usage uses the observation of the next step as the next observation, which is wrong "
                "where the data break off. Leave it out"
            )
        if not report.keeps_timeouts and isinstance(buffer, NStepReplayBuffer | HerReplayBuffer):
            raise ValueError(
                f"A {type(buffer).__name__} reads consecutive steps, and timeouts tell it where the data break off: leave out "
                "handle_timeout_termination=False"
            )
        #: Where many steps are written at once; None where each goes through `add`.
        self._contents = contents_of(buffer, np.arange(0)) if _takes_many(buffer) else None
        self._surplus = 0 if n_steps is None else max(n_steps - buffer.buffer_size, 0)

    def write(self, found: Found) -> None:
        """Append steps, except the first ones of the data if the buffer has no room for all."""
        self.report.n_stand_ins += found.n_stand_ins
        self.report.n_left_out += found.n_left_out
        n_rows = sum(len(steps.rewards) for steps in found.steps) if found.n_rows is None else found.n_rows
        skipped, self._surplus = min(self._surplus, n_rows), max(self._surplus - n_rows, 0)
        for steps in found.steps:
            n = min(skipped, len(steps.rewards))
            skipped -= n
            self.report.n_skipped += n
            if n < len(steps.rewards):
                self._write(steps.part(n, len(steps.rewards)) if n else steps)
        if self.bar is not None:
            self.bar.update(n_rows)

    def _write(self, steps: Steps) -> None:
        checked, n, buffer, free = self._checked(steps), len(steps.rewards), self.buffer, 0
        if self._contents is not None and not buffer.full:
            free = buffer.buffer_size - buffer.size()
            self._put(self._contents, checked.part(0, min(n, free)))
        for i in range(min(n, free), n):
            self._add(checked, i)

    def _checked(self, steps: Steps) -> _Checked:
        """Check and count steps, and convert them to what the buffer keeps."""
        terminated = steps.terminated.astype(bool)
        truncated = steps.truncated.astype(bool) & ~terminated
        report, n = self.report, len(steps.rewards)
        timeouts = truncated if report.keeps_timeouts else np.zeros(n, bool)
        dones = terminated | truncated
        is_cut = steps.is_cut and not dones[-1]
        if is_cut and report.keeps_timeouts:
            dones, timeouts = dones.copy(), timeouts.copy()
            dones[-1] = timeouts[-1] = True
        rewards = np.asarray(steps.rewards)
        if rewards.shape != (n,):
            raise ValueError(f"rewards must be one number per step, got an array of shape {rewards.shape}")
        checked = _Checked(
            arranged(steps.observations, self._leaves, n, report), arranged(steps.next_observations, self._leaves, n, report),
            self._actions(np.asarray(steps.actions), n), rewards.astype(np.float32), dones, timeouts,
        )  # fmt: skip
        report.n_steps += n
        report.n_terminated += int(terminated.sum())
        report.n_truncated += int(truncated.sum())
        report.n_cut += is_cut
        return checked

    def _actions(self, actions: NDArray[Any], n: int) -> NDArray[Any]:
        space = self.buffer.action_space
        if len(actions) != n or actions.size != n * self._action_dim:
            raise ValueError(f"Actions of shape {actions.shape} do not fit {n} steps of {space}")
        if isinstance(space, spaces.Discrete) and n:
            low, high = int(actions.min()), int(actions.max())
            if low < space.start or high >= space.start + space.n:
                raise ValueError(
                    f"The data have actions from {low} to {high}, but the action space is {space}. Give action_space"
                )
        if isinstance(space, spaces.Box) and self._scales:
            actions = scaled(actions.reshape(n, *space.shape), space, self.report)
        return actions.reshape(n, self._action_dim)

    def _put(self, contents: Contents, steps: _Checked) -> None:
        """Write many steps to slots that hold none."""
        buffer, n = self.buffer, len(steps.rewards)
        with buffer._lock:
            first = buffer.pos
            for key, leaf in contents.leaves.items():
                columns = (steps.observations[key], steps.next_observations[key])
                dtype = leaf.plan.dtype  # another than the space's, if `dtypes` asks for it
                stored = (cast(one, dtype, saturate=True)[:, None] for one in columns)
                leaf.write_steps(first, tuple(stored))
            for name in _PLAIN_ARRAYS:
                contents.arrays[name][first : first + n] = getattr(steps, name)[:, None]
            stand_at(buffer, (first + n) % buffer.buffer_size, first + n == buffer.buffer_size)

    def _add(self, steps: _Checked, i: int) -> None:
        buffer = self.buffer
        pair = [part_of(each, i, i + 1) for each in (steps.observations, steps.next_observations)]
        obs, next_obs = pair if isinstance(buffer.observation_space, spaces.Dict) else (one[PLAIN] for one in pair)
        infos = [{"TimeLimit.truncated": bool(steps.timeouts[i])}]
        buffer.add(obs, next_obs, steps.actions[i : i + 1], steps.rewards[i : i + 1], steps.dones[i : i + 1], infos)


@dataclass
class _Checked:
    """Steps as a buffer keeps them. Observations are by key, also those of a space that is no Dict."""

    observations: dict[str, NDArray[Any]]
    next_observations: dict[str, NDArray[Any]]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    dones: NDArray[np.bool_]
    timeouts: NDArray[np.bool_]

    def part(self, first: int, last: int) -> _Checked:
        """A slice of them."""
        if (first, last) == (0, len(self.rewards)):
            return self
        some = slice(first, last)
        return _Checked(
            part_of(self.observations, first, last), part_of(self.next_observations, first, last), self.actions[some],
            self.rewards[some], self.dones[some], self.timeouts[some],
        )  # fmt: skip


def _takes_many(buffer: Any) -> bool:
    """Whether many steps may be written at once: a buffer of this library whose `add` does nothing more."""
    adds = {one for one in type(buffer).__mro__ if "add" in vars(one)}
    if not isinstance(buffer, ReplayObservations) or adds - _PLAIN_ADDS:
        return False
    if getattr(buffer._options, "max_memory", None) is not None:  # its `add` keeps the limit
        return False
    buffer.size()
    if buffer._interrupted is not None:  # it was closed: `add` says so
        return False
    contents = contents_of(buffer, np.arange(0))
    return set(contents.arrays) == _PLAIN_ARRAYS and not contents.objects


def _buffer_for(
    request: Request, observation_space: spaces.Space[Any] | None, action_space: spaces.Space[Any] | None, n_steps: int | None
) -> Any:
    """The buffer that the caller has given, or a new one."""
    observation_space = observation_space if request.observation_space is None else request.observation_space
    action_space = action_space if request.action_space is None else request.action_space
    into = request.into
    if isinstance(into, ReplayBuffer):
        return _checked_buffer(into, request)
    if observation_space is None or action_space is None:
        raise ValueError("The data have no spaces: give observation_space and action_space")
    if into is None:
        into = CompressedDictReplayBuffer if isinstance(observation_space, spaces.Dict) else CompressedReplayBuffer
    if not (isinstance(into, type) and issubclass(into, ReplayBuffer)):
        raise TypeError(f"into must be a replay buffer or a class of replay buffers, got {into!r}")
    arguments = dict(request.buffer_kwargs or {})
    if arguments.get("n_envs", 1) != 1:
        raise ValueError(_ONE_ENV.format(arguments["n_envs"]))
    return into(_size(request.buffer_size, n_steps), observation_space, action_space, **arguments)


def _size(asked: Any, n_steps: int | None) -> int:
    if asked is None:
        if n_steps is None:
            raise ValueError("The number of steps of an iterator is not known: give buffer_size")
        if n_steps < 1:
            raise ValueError("The data have no steps")
        return n_steps
    if isinstance(asked, bool) or not isinstance(asked, int | np.integer) or asked < 1:
        raise ValueError(f"buffer_size must be a positive number, got {asked!r}")
    return int(asked)


_ONE_ENV = (
    "Data are written as the steps of one env, got n_envs={}. OfflineMix mixes such a buffer with any number of envs; "
    "load_buffer(path, n_envs=...) distributes the episodes of a saved one to more envs"
)


def _checked_buffer(buffer: ReplayBuffer, request: Request) -> ReplayBuffer:
    if buffer.n_envs != 1:
        raise ValueError(_ONE_ENV.format(buffer.n_envs))
    given = {"buffer_size": request.buffer_size, "buffer_kwargs": request.buffer_kwargs}
    if several := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"{' and '.join(several)} are for a new buffer, but into is already a {type(buffer).__name__}")
    for name in ("observation_space", "action_space"):
        if getattr(request, name) not in (None, getattr(buffer, name)):
            raise ValueError(f"The buffer was made for the {name} {getattr(buffer, name)}, got {getattr(request, name)}")
    return buffer
