"""Buffers under faults: ours is interrupted, refused memory or given nonsense; SB3's gets what ours has accepted.

A transition is accepted when `pos` has moved, whatever was raised. A refused one may leave the slot at `pos` undefined, as it
does in SB3, until the next `add` writes it; every other slot must be SB3's at any time.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.gpu_buffers import GpuDictReplayBuffer, GpuReplayBuffer, GpuRolloutBuffer
from sb3_extra_buffers.native.binding import core
from tests.oracle import DICT_SPACE, SPACES, add_to_replay, add_to_rollout, assert_same_minibatches, assert_same_samples
from tests.test_oracle_her import goal_env
from tests.transitions import Step, play

ACTIONS = spaces.Discrete(5)
N_ENVS = 2
STEPS = 11  # per env, in a buffer
#: How many faults the longer tests inject.
FAULTS = int(os.environ.get("FAULTS", "250"))


@dataclasses.dataclass(frozen=True)
class Case:
    """A buffer class of ours and SB3's, a space (None: SB3's goal env), and what else ours is given."""

    name: str
    ours: type[Any]
    theirs: type[Any]
    space: spaces.Space[Any] | None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    n_envs: int = N_ENVS

    @property
    def is_rollout(self) -> bool:
        return issubclass(self.theirs, RolloutBuffer)


def _replay(name: str, space: str, method: str, **options: Any) -> Case:
    return Case(name, CompressedReplayBuffer, ReplayBuffer, SPACES[space], {"compression_method": method, **options})


_SMALL = {"block_frames": 5}  # blocks are sealed at nearly every step
_STACKED = {"compression_method": "delta", "frame_stack": 4, **_SMALL}
#: A Dict with blocks and rows.
FEW_KEYS = spaces.Dict({key: DICT_SPACE[key] for key in ("camera", "speed", "gear")})
#: Buffers on the host. Each is put under every kind of fault.
HOST_CASES = [
    _replay("delta", "stack", "delta", frame_stack=4, **_SMALL),
    _replay("detected", "stack-last", "auto"),
    _replay("none", "stack", "none", frame_stack=4, **_SMALL),
    _replay("zstd", "rgb-stack", "zstd", frame_stack=4, **_SMALL),
    _replay("rle", "image", "rle", block_frames=2, frame_stack=1),
    _replay("vectors", "float32", "auto"),
    _replay("discrete", "discrete", "auto"),
    Case("dict", CompressedDictReplayBuffer, DictReplayBuffer, FEW_KEYS, {"frame_stack": {"camera": 4}}),
    Case("her", CompressedHerReplayBuffer, HerReplayBuffer, None),
    Case("n-step", CompressedNStepReplayBuffer, NStepReplayBuffer, SPACES["stack"], _STACKED),
    Case("rollout", CompressedRolloutBuffer, RolloutBuffer, SPACES["stack"], _STACKED),
    Case("rollout-vectors", CompressedRolloutBuffer, RolloutBuffer, SPACES["float32"]),
    Case("rollout-zstd", CompressedRolloutBuffer, RolloutBuffer, SPACES["stack"], {"compression_method": "zstd", **_SMALL}),
    Case("dict-rollout", CompressedDictRolloutBuffer, DictRolloutBuffer, FEW_KEYS),
]
#: Buffers on a device, in torch's memory. They have tests of their own: here they take part if FAULTS asks for many.
_ON_CPU = {"buffer_device": "cpu"}
DEVICE_CASES = [
    Case("gpu-tiles", GpuReplayBuffer, ReplayBuffer, SPACES["stack"], {**_ON_CPU, "frame_stack": 4}),
    Case("gpu-none", GpuReplayBuffer, ReplayBuffer, SPACES["stack-last"], {**_ON_CPU, "compression_method": "none"}),
    Case("gpu-zstd", GpuReplayBuffer, ReplayBuffer, SPACES["stack"], {**_ON_CPU, "compression_method": "zstd"}),
    Case("gpu-vectors", GpuReplayBuffer, ReplayBuffer, SPACES["float32"], _ON_CPU),
    Case("gpu-dict", GpuDictReplayBuffer, DictReplayBuffer, FEW_KEYS, _ON_CPU),
    Case("gpu-rollout", GpuRolloutBuffer, RolloutBuffer, SPACES["stack"], _ON_CPU),
]
CASES = [*HOST_CASES, *(DEVICE_CASES if FAULTS >= 1000 else [])]

ARRAYS = (
    "observations", "next_observations", "actions", "rewards", "dones", "timeouts", "episode_starts", "values", "log_probs",
    "ep_start", "ep_length",
)  # fmt: skip
HER_ARRAYS = ("ep_start", "ep_length")


class Twins:
    """A buffer of ours and SB3's with the same transitions.

    :param case: what they are
    :param seed: of the experience
    :param steps: that they hold
    """

    #: The slot that a refused step may have touched.
    undefined: int | None = None

    def __init__(self, case: Case, seed: int = 0, steps: int = STEPS) -> None:
        self.case, self.n_accepted = case, 0
        self.env = goal_env(case.n_envs) if case.space is None else None
        space: Any = case.space if self.env is None else self.env.observation_space
        actions = ACTIONS if self.env is None else self.env.action_space
        size = steps if case.is_rollout else steps * case.n_envs
        args: dict[str, Any] = {"device": "cpu", "n_envs": case.n_envs, **({} if self.env is None else {"env": self.env})}
        self.ours = case.ours(size, space, actions, **args, **case.options)
        self.theirs = case.theirs(size, space, actions, **args)
        self.steps = iter(play(space, actions, case.n_envs, 10**9, seed) if self.env is None else goal_steps(self.env, seed))

    # ---- writing

    def add(self, step: Step, during: Callable[[Callable[[], None]], Any] | None = None) -> bool:
        """Offer a step to ours, while something happens; theirs gets it if ours has accepted it. Whether it has.

        :param during: calls what it is given, under a fault; what it raises is the caller's
        """
        if self.case.is_rollout and self.theirs.full:
            self.finish_rollout()
        if self.ours.pos != self.theirs.pos:
            self.ours.size()  # any call makes up for what was interrupted before
        before, returned = (self.ours.pos, self.ours.full), False
        try:
            if during is None:
                self._add(self.ours, step)
            else:
                during(lambda: self._add(self.ours, step))
            returned = True
        finally:
            accepted = returned or (self.ours.pos, self.ours.full) != before
            if accepted:
                self._add(self.theirs, step)
                self.n_accepted += 1
            self.undefined = None if accepted else self.theirs.pos
        return accepted

    def add_next(self) -> None:
        """A step without a fault."""
        self.add(next(self.steps))

    def _add(self, buffer: Any, step: Step) -> None:
        (add_to_rollout if self.case.is_rollout else add_to_replay)([buffer], step)

    def finish_rollout(self) -> None:
        """What PPO does with a full rollout."""
        self.check()
        for buffer in (self.ours, self.theirs):
            buffer.compute_returns_and_advantage(th.ones(self.case.n_envs), np.zeros(self.case.n_envs))
        assert_same_minibatches(self.ours, self.theirs, 7)
        self.reset()

    def reset(self) -> None:
        for buffer in (self.ours, self.theirs):
            buffer.reset()
            if hasattr(buffer, "ep_length"):
                # SB3's `reset` leaves episodes behind whose steps are gone, and a pickle does not.
                buffer.ep_length[:] = buffer._current_ep_start[:] = 0
        self.undefined = None

    def reload(self) -> None:
        """Save ours and go on with what is loaded."""
        self.ours = pickle.loads(pickle.dumps(self.ours))
        if self.env is not None:
            self.ours.set_env(self.env)

    # ---- comparing

    def check(self) -> None:
        """Every slot is SB3's, but for one that a refused step may have touched."""
        ours, theirs = self.ours, self.theirs
        assert ours.size() == theirs.size()
        assert (ours.pos, ours.full) == (theirs.pos, theirs.full)
        slots = np.array([slot for slot in range(theirs.size()) if slot != self.undefined], np.int64)
        for name in ARRAYS:
            if not hasattr(theirs, name) or (name in HER_ARRAYS and self.undefined is not None):
                continue
            mine, other = getattr(ours, name), getattr(theirs, name)
            for key in other if isinstance(other, dict) else [None]:
                a, b = (mine, other) if key is None else (mine[key], other[key])
                assert np.asarray(a)[slots].tobytes() == b[slots].tobytes(), (self.case.name, name, key)
        if hasattr(theirs, "_current_ep_start") and self.undefined is None:
            assert ours._current_ep_start.tolist() == theirs._current_ep_start.tolist()
        for leaf in ours._leaves.values():
            if hasattr(leaf.store, "check"):
                leaf.store.check()

    def check_samples(self, seed: int = 0) -> None:
        """Batches are SB3's, if there is anything to sample."""
        if self.undefined is None and self.can_sample():
            assert_same_samples(self.ours, self.theirs, seed=seed)

    def can_sample(self) -> bool:
        has_episode = not hasattr(self.theirs, "ep_length") or bool((self.theirs.ep_length > 0).any())
        return not self.case.is_rollout and self.theirs.size() > 0 and has_episode


def goal_steps(env: Any, seed: int) -> Iterator[Step]:
    """What an off-policy algorithm gets from SB3's goal env."""
    env.action_space.seed(seed)
    obs = env.reset()
    for _ in itertools.count():
        actions = np.array([env.action_space.sample() for _ in range(env.num_envs)])
        after, rewards, dones, infos = env.step(actions)
        next_obs = {key: value.copy() for key, value in after.items()}
        for i in np.flatnonzero(dones):
            for key in next_obs:
                next_obs[key][i] = infos[i]["terminal_observation"][key]
        yield Step(obs, next_obs, actions, rewards, dones, infos)
        obs = after


# ---- other faults than interrupts


def refuse(number: int, *, forever: bool, call: Callable[[], Any]) -> None:
    """Let an allocation of the core fail during a call, and with ``forever`` all behind it."""
    core().sb3x_fail_allocation(number, int(forever))
    try:
        call()
    finally:
        core().sb3x_fail_allocation(-1, 0)


def wrong_steps(step: Step, case: Case) -> Iterator[tuple[str, Step]]:
    """Steps that no buffer can take."""
    n = case.n_envs
    if not case.is_rollout:
        yield "infos", step._replace(infos=[*step.infos, {}, {}])
        yield "infos", step._replace(infos=[None] * n)  # type: ignore[list-item]
    yield "reward", step._replace(reward=np.zeros(n + 1, np.float32))
    yield "done", step._replace(done=np.zeros(n + 1, bool))
    yield "action", step._replace(action=np.zeros(5 * n + 3, np.int64))
    yield "obs", step._replace(obs=_changed(step.obs, lambda value: np.zeros((n + 1, *value.shape[1:], 2), value.dtype)))
    if not case.is_rollout:
        doubled = _changed(step.next_obs, lambda value: np.stack((value, value), axis=-1))
        yield "next_obs", step._replace(next_obs=doubled)
    last = list(step.obs.values())[-1] if isinstance(step.obs, dict) else step.obs
    if last.dtype.kind in "ui":
        yield "range", step._replace(obs=_changed(step.obs, lambda value: np.full(value.shape, -(2.0**70))))
    if isinstance(step.obs, dict):
        yield "key", step._replace(obs=dict(list(step.obs.items())[1:]))


def _changed(observation: Any, change: Callable[[Any], Any]) -> Any:
    """An observation with its last leaf changed."""
    if not isinstance(observation, dict):
        return change(observation)
    key = list(observation)[-1]
    return {**observation, key: change(observation[key])}


def run_in_process(module: str, *arguments: Any, timeout: float = 3000) -> dict[str, Any]:
    """What a function of a module reports. A crash there is no crash here.

    :param arguments: the function, and its arguments
    """
    command = [sys.executable, "-X", "faulthandler", "-m", f"tests.{module}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, f"exit {done.returncode}: {done.stdout[-2000:]}{done.stderr[-6000:]}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_function(*functions: Callable[..., dict[str, Any]]) -> None:
    """The other end of `run_in_process`. Two threads, also where there is one core."""
    core().sb3x_set_threads(2)
    os.environ["SB3_EXTRA_BUFFERS_THREADS"] = "2"
    name, *arguments = (int(one) if one.isdigit() else one for one in sys.argv[1:])
    [function] = (one for one in functions if one.__name__ == name)
    sys.stdout.write(json.dumps(function(*arguments)) + "\n")
