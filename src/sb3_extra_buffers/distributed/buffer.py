"""Replay buffers whose transitions are in shards, for SB3's off-policy algorithms.

    add:     the learner's own env -> a small local buffer -> segment, every `push_steps` steps -> a shard
    sample:  pool -> rows of the window -> SB3's own `_get_samples`

Above: learning, prioritized_buffer. Below: pool and pushing.
"""

from __future__ import annotations

import itertools
import os
import weakref
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from ray.exceptions import ActorDiedError, RayActorError
from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize

from sb3_extra_buffers.compressed.memory_usage import BufferMemoryUsage
from sb3_extra_buffers.distributed import sessions
from sb3_extra_buffers.distributed.pool import Pool, Pools
from sb3_extra_buffers.distributed.pushing import Pushing
from sb3_extra_buffers.distributed.remote import RemoteShard, start_shards
from sb3_extra_buffers.distributed.shard import Shard, ShardState
from sb3_extra_buffers.distributed.spec import LEAST_STEPS, BufferSpec
from sb3_extra_buffers.distributed.wire import Wire, steps_from_wire
from sb3_extra_buffers.segments.runs import Ints
from sb3_extra_buffers.store import MemoryUsage


class RayReplayBuffer(ReplayBuffer):
    """A replay buffer for SB3's off-policy algorithms whose transitions are held by Ray actors, compressed.

    :param buffer_size: transitions that all shards hold together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param n_envs: envs of the learner, whose transitions `add` takes
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param replay_buffer_class: what a shard holds: a replay buffer of this library with compressed observations, not
        hindsight. By default the one for the space
    :param n_shards: shards to start
    :param shards: handles of shards that are there already, instead; `RayReplayBuffer.shards` has them
    :param prefetch: batches that are asked for ahead of time. A transition of a batch was drawn at most twice as many batches
        of its size before. With 0 every batch is drawn when it is asked for
    :param push_steps: steps of the learner's env that travel together; until then `sample` does not see them
    :param checkpoint: folder for the shards' checkpoints, which they begin with. All nodes must see it
    :param timeout: seconds that a remote call may take
    :param address: for `ray.init`; without it Ray on this machine is used or started
    :param seed: of the draws; at random if not given
    :param arguments: more for `replay_buffer_class`
    """

    _prioritized = False

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        *,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        n_shards: int = 1,
        shards: list[Any] | None = None,
        prefetch: int = 16,
        push_steps: int = LEAST_STEPS,
        checkpoint: str | os.PathLike[str] | None = None,
        timeout: float = 300.0,
        address: str | None = None,
        seed: int | None = None,
        **arguments: Any,
    ) -> None:
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)  # SB3's would allocate arrays
        for name, given, least in (("n_shards", n_shards, 1), ("prefetch", prefetch, 0), ("push_steps", push_steps, 1)):
            if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < least:
                raise ValueError(f"{name} must be a whole number from {least} on, got {given!r}")
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float, np.number)) or not timeout >= 0:
            raise ValueError(f"timeout must be a number from 0 on, got {timeout!r}")
        if buffer_size < n_shards:
            raise ValueError(f"{n_shards} shards cannot share {buffer_size} transitions: give a larger buffer_size")
        made_class = replay_buffer_class or BufferSpec.default_class(observation_space, prioritized=self._prioritized)
        self.spec = BufferSpec(made_class, observation_space, action_space, arguments)
        if self.spec.is_prioritized != self._prioritized:
            other = "RayReplayBuffer" if self._prioritized else "RayPrioritizedReplayBuffer"
            raise TypeError(f"{type(self).__name__} cannot hold a {self.spec.buffer_class.__name__}: use {other}")
        self.n_transitions, self.buffer_size = buffer_size, max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = False
        self.handle_timeout_termination = bool(arguments.get("handle_timeout_termination", True))
        self._options: dict[str, Any] = {
            "n_shards": n_shards, "prefetch": prefetch, "push_steps": push_steps, "timeout": timeout, "address": address,
            "seed": seed, "checkpoint": None if checkpoint is None else os.path.abspath(checkpoint),
        }  # fmt: skip
        self._open(shards)

    def _open(self, given: list[Any] | None) -> None:
        """Start the shards, or use those that are given."""
        options = self._options
        self._check_spec()
        sessions.join(options["address"])
        self.shards: list[Any] = list(given or ())
        self._started: list[Any] = []
        self._finalizer = weakref.finalize(self, _close, self._started)
        if not self.shards:
            self._started += start_shards(
                self.spec, self.n_transitions, options["n_shards"], folder=options["checkpoint"], seed=options["seed"]
            )
            self.shards += self._started
        self._remotes = [RemoteShard(handle, i, options["timeout"]) for i, handle in enumerate(self.shards)]
        self._rng = np.random.default_rng(options["seed"])
        self._pools = self._new_pools()
        self._pushing = Pushing(self.spec, self._remotes, self.n_envs, options["push_steps"])

    def _new_pools(self) -> Pools:
        return Pools(self.spec, self._remotes, prefetch=self._options["prefetch"], device=self.device, rng=self._rng)

    def _check_spec(self) -> None:
        """Let the class of the shards refuse wrong arguments here, not in another process."""
        self.spec.make(1)

    # ---- writing

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """SB3's `add`. Every `push_steps` steps what was added travels to a shard."""
        self._check_open()
        self._pushing.add(obs, next_obs, action, reward, done, infos)

    def flush(self) -> None:
        """Send to a shard what was added and has not travelled yet."""
        self._pushing.flush()

    def push(self, data: Wire) -> None:
        """Append the steps of a segment to the next shard."""
        self._check_open()
        self._pushing.push(data)

    def reset(self) -> None:
        """Forget all transitions."""
        self._check_open()
        self._pushing.drop()
        for remote in self._remotes:
            remote.call("reset")
        self._pools = self._new_pools()  # the old ones would take shards that begin anew for lost ones

    # ---- reading

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """A batch as SB3's. Of all transitions that the shards hold, each is equally likely.

        :param batch_size: number of transitions
        :param env: normalizes the batch, as in SB3
        """
        pool, (slots, _, _) = self._take(batch_size)
        return self._read(pool, slots, env)

    def _take(self, batch_size: int) -> tuple[Pool, tuple[Ints, Ints, Ints]]:
        self._check_open()
        self._pushing.flush_first()
        pool = self._pools.of(batch_size)
        return pool, pool.take()

    def _read(self, pool: Pool, slots: Ints, env: VecNormalize | None) -> Any:
        pool.window.device = self.device  # SB3 sets it when it loads a buffer
        return pool.window._reading(lambda: pool.window._get_samples(slots, env))

    def states(self) -> list[ShardState]:
        """What each shard says of itself."""
        self._check_open()
        return [remote.call("state") for remote in self._remotes]

    def size(self) -> int:
        """Transitions in the shards, per env of the learner."""
        return sum(state.size for state in self.states()) // self.n_envs

    def can_sample(self, n: int) -> bool:
        """Whether the shards hold so many transitions. Asks them only before the first batch and after a loss."""
        if self._pools.n_known >= n:
            return True
        return sum(state.size for state in self.states()) >= n

    def memory_usage(self) -> BufferMemoryUsage:
        """What the observations of all shards take."""
        self._check_open()
        usages: list[BufferMemoryUsage] = [remote.call("memory_usage") for remote in self._remotes]
        keys = {key: _sum([one.keys[key] for one in usages]) for key in usages[0].keys}
        raw, stored, blocks = (sum(getattr(one, name) for one in usages) for name in ("raw_bytes", "stored_bytes", "blocks"))
        return BufferMemoryUsage(raw, stored, stored / raw if raw else 0.0, blocks, keys)

    def to_local(self) -> Any:
        """A buffer of the shards' class with all their transitions, in this process: to save it, to look at it.

        It has one env; the steps of an env that travelled together stand one behind the other.
        """
        self.flush()
        self._pushing.wait()
        shard = Shard(self.spec, self.n_transitions)
        for data in itertools.chain(*self._dumps()):
            shard.append(data, keep_priorities=True)
        return shard._buffer

    def _dumps(self) -> list[list[Wire]]:
        """All transitions, by shard."""
        found: list[list[Wire]] = []
        for remote in self._remotes:
            found.append([])
            begin, left = 0, 1
            while left:
                data, left = remote.call("dump", begin)
                begin += _steps_in(data)
                found[-1].append(data)
        return found

    # ---- checkpoints, closing, pickling

    def checkpoint(self, *, wait: bool = True) -> None:
        """Let all shards write what is new to their folders.

        :param wait: until it is on disk; otherwise a thread of each shard writes it
        """
        self._check_open()
        self.flush()
        refs = [(remote, remote.start("checkpoint", background=not wait)) for remote in self._remotes]
        for remote, ref in refs:
            try:
                remote.result(ref)
            except ActorDiedError:
                raise
            except RayActorError:  # begins anew from the last one
                pass

    def close(self) -> None:
        """End the shards that this buffer has started, and Ray, if it was started for it."""
        if self._finalizer.detach():
            _close(self._started)
        self._remotes, self.shards = [], []
        self._pools = self._new_pools()
        self._pushing = Pushing(self.spec, [], self.n_envs, self._options["push_steps"])

    @property
    def folder(self) -> str | None:
        """Where its shards are saved."""
        folder: str | None = self._options["checkpoint"]
        return folder

    @property
    def is_closed(self) -> bool:
        """Whether its shards were ended."""
        return not self._remotes

    def _check_open(self) -> None:
        if not self._remotes:
            raise ValueError(
                "The shards of this buffer were ended, and their transitions are gone. Make a new one; with "
                "checkpoint=folder it begins with what was saved there"
            )

    def __getstate__(self) -> dict[str, Any]:
        """The state for a pickle, with all transitions as segments."""
        self._check_open()
        self.flush()
        live = {"shards", "_started", "_finalizer", "_remotes", "_rng", "_pools", "_pushing", "latest"}
        state = {name: value for name, value in self.__dict__.items() if name not in live}
        options = {**self._options, "n_shards": len(self.shards), "checkpoint": None}
        return {**state, "_options": options, "_dumped": self._dumps()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        dumped = state.pop("_dumped")
        self.__dict__.update(state)
        self._open(None)
        for remote, parts in zip(self._remotes, dumped, strict=True):  # each has room for what was in one
            for data in parts:
                remote.append(data, keep_priorities=True)


def _close(started: list[Any]) -> None:
    sessions.end_actors(started)
    sessions.leave()


def _sum(usages: list[MemoryUsage]) -> MemoryUsage:
    raw, stored, blocks = (sum(getattr(one, name) for one in usages) for name in ("raw_bytes", "stored_bytes", "blocks"))
    return MemoryUsage.of(raw, stored, blocks, usages[0].codec)


def _steps_in(data: Wire) -> int:
    return steps_from_wire(data).count
