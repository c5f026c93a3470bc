"""A shard: one part of a replay memory, usable in any process. Below: wire. Above: actors, which lets Ray run it.

    append:  segment -> checked -> its blocks, as they are -> slots of a ring
    draw:    random slots -> segment with the blocks that they need

Each slot is one transition, of whatever env and collector: the steps of one env in a segment stand one behind the other. A
transition has a number, counted from the first one ever appended. It says which slot it is in, and whether it is still there.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import NStepReplayBuffer

from sb3_extra_buffers.compressed.contents import contents_of
from sb3_extra_buffers.compressed.episodes import end_episodes
from sb3_extra_buffers.compressed.memory_usage import BufferMemoryUsage
from sb3_extra_buffers.distributed.spec import BufferSpec
from sb3_extra_buffers.distributed.wire import Outbox, Wire, steps_from_wire, steps_to_wire
from sb3_extra_buffers.errors import CorruptDataError, SegmentVersionError
from sb3_extra_buffers.persistence import load_buffer
from sb3_extra_buffers.segments.folders import is_checkpoint, read_list
from sb3_extra_buffers.segments.runs import Ints, StoredRun, put_run
from sb3_extra_buffers.store.extract import check_to_the_end

#: Numbers begin at a random multiple of the size, one of so many: those of an earlier life are not taken for the shard's own.
_LIVES = 1 << 16
#: Steps in a message when all of a shard is read.
_DUMPED_STEPS = 1 << 14
#: A shard knows the last segments of so many senders.
_MOST_SENDERS = 1024
#: Arguments of buffers that say how transitions are drawn and read, not how they are kept.
_READING = ("n_steps", "gamma", "beta", "eps", "handle_timeout_termination")


@dataclass(frozen=True)
class ShardState:
    """What a shard says of itself with every answer.

    :param life: differs after a restart
    :param size: transitions that it holds
    :param weight: what it is to be drawn in proportion to: its size, or the sum of its priorities
    :param appended: transitions that it ever got, those of the checkpoint that it began with included
    :param restored: transitions that it began with, from a checkpoint
    :param damage: of the checkpoint that it could not begin with, and where that is now
    """

    life: str
    size: int
    weight: float
    appended: int
    restored: int
    damage: str = ""


class Shard:
    """A part of a replay memory.

    :param spec: what buffer it is
    :param size: transitions that it holds
    :param folder: where its checkpoints are; if there is one, the shard begins with what that holds
    :param seed: of the draws
    """

    def __init__(self, spec: BufferSpec, size: int, folder: str | None = None, seed: int | None = None) -> None:
        self._spec, self._folder = spec, None if folder is None else Path(folder)
        self._damage = ""
        self._received: dict[str, int] = {}
        self._buffer = self._restored(size) or spec.make(size)
        self._n_restored = int(self._buffer.size())
        self._rng = np.random.default_rng(seed)
        self._outbox = Outbox()
        self._life = secrets.token_hex(6)
        self._first_number = secrets.randbelow(_LIVES) * size

    def _restored(self, size: int) -> Any:
        """What is in the folder, if anything is."""
        if self._folder is None or not is_checkpoint(self._folder):
            return None
        try:
            buffer = load_buffer(self._folder, buffer_size=size, device="cpu", truncate_last_traj=False)
            received = read_list(self._folder).extra.get("received")
        except SegmentVersionError:
            raise
        except CorruptDataError as error:
            self._set_aside(self._folder, error)
            return None
        self._check_restored(buffer)
        if isinstance(received, dict):
            self._received = received
        made = self._spec.make(1)
        for name in _READING:
            if hasattr(made, name):
                setattr(buffer, name, getattr(made, name))
        if self._spec.is_prioritized:
            buffer.change_alpha(made.alpha)
        if buffer._age % size != buffer.pos % size:  # of another size: begin to count anew
            buffer._age = buffer.pos + (size if buffer.full else 0)
        return buffer

    def _set_aside(self, folder: Path, error: CorruptDataError) -> None:
        """Move a damaged checkpoint, which someone may still repair, out of the way of the next one."""
        aside = folder.with_name(f"damaged-{folder.name}-{secrets.token_hex(4)}")
        folder.rename(aside)
        folder.mkdir()
        self._damage = f"{str(error).replace(str(folder), str(aside))}. It is kept as {aside}"

    def _check_restored(self, buffer: Any) -> None:
        """ValueError if a checkpoint is of another kind."""
        spec = self._spec
        if (buffer.observation_space, buffer.action_space) != (spec.observation_space, spec.action_space):
            raise ValueError(
                f"{self._folder} holds transitions of {buffer.observation_space}, {buffer.action_space}; this run has "
                f"{spec.observation_space}, {spec.action_space}. Give another folder"
            )
        if type(buffer).__name__ != spec.buffer_class.__name__ or buffer.n_envs != 1:
            raise ValueError(
                f"{self._folder} holds a {type(buffer).__name__}, and this run has a {spec.buffer_class.__name__}"
            )

    def state(self) -> ShardState:
        """What it is now."""
        buffer = self._buffer
        size = int(buffer.size())
        weight = buffer.total_priority if self._is_weighted and size else float(size)
        return ShardState(self._life, size, weight, int(buffer._age), self._n_restored, self._damage)

    @property
    def _is_weighted(self) -> bool:
        return self._spec.is_prioritized and self._buffer.alpha > 0

    # ---- writing

    def append(self, *data: Wire, keep_priorities: bool = False, sender: str = "", number: int = 0) -> ShardState:
        """Append the steps of a segment; the newest, if it has more than fit. An error changes nothing.

        :param data: the segment, or its pieces
        :param keep_priorities: also take its priorities; new transitions get the largest one otherwise
        :param sender: who sends it. One that got no answer sends the same segment again, which is not appended twice
        :param number: of the segment among those of its sender, which count up
        """
        if sender and number <= self._received.get(sender, -1):
            return self.state()
        run, buffer = steps_from_wire(*data), self._buffer
        count, n_envs, size = run.count, run.n_envs, buffer.buffer_size
        if count == 0:
            return self.state()
        kept = min(count * n_envs, size)
        target = contents_of(buffer, np.arange(0))
        if not keep_priorities:
            target = replace(target, arrays={name: one for name, one in target.arrays.items() if name not in target.changing})
        self._check(run, target)
        # The steps of an env stand one behind the other: its episodes stay whole.
        order = np.arange(count * n_envs).reshape(n_envs, count).T - (count * n_envs - kept)
        to = np.where(order >= 0, (buffer.pos + order) % size, -1)
        with buffer._lock:
            put_run(target, run, to)
            slots: Ints = (buffer.pos + np.arange(kept)) % size
            if isinstance(buffer, NStepReplayBuffer):
                last = to[-1][to[-1] >= 0]
                end_episodes(buffer, last[buffer.dones.reshape(-1)[last] == 0])
            if self._spec.is_prioritized:
                buffer.priorities_written(None if keep_priorities else slots)
            buffer._age += kept
            buffer.full = buffer.full or buffer.pos + kept >= size
            buffer.pos = int(buffer.pos + kept) % size
        if sender:
            self._received.pop(sender, None)
            self._received[sender] = number  # the newest last
            if len(self._received) > _MOST_SENDERS:
                del self._received[next(iter(self._received))]
        return self.state()

    def _check(self, run: StoredRun, target: Any) -> None:
        """Raise CorruptDataError if anything cannot be put: half of a segment must not be."""
        if run.n_envs * run.count > 2**31 or run.segment.header["buffer"]["class"] != target.about["class"]:
            raise CorruptDataError(
                f"A segment holds {run.count} steps of a {run.segment.header['buffer']['class']}; the shard has a "
                f"{target.about['class']}"
            )
        for name, array in target.arrays.items():
            values = run.array(name)
            if values.dtype != array.dtype or values.shape[1:] != (run.n_envs, *array.shape[2:]):
                raise CorruptDataError(
                    f"{name!r} has {values.dtype} of shape {values.shape[1:]} per step; the shard keeps {array.dtype} of "
                    f"{(run.n_envs, *array.shape[2:])}"
                )
            run.changed[name] = values  # it is not read and checked once more when it is put
        if len(target.leaves) > 1:  # what fails at the second key must not have written the first
            for key, leaf in target.leaves.items():
                with run.extract(key) as extract:
                    check_to_the_end(leaf.store, run.count * run.n_envs, extract)

    def update_priorities(self, numbers: Ints, errors: NDArray[np.float32]) -> None:
        """Give transitions the priority of their error; those that are gone are left out.

        :param numbers: of the transitions, as `draw` gave them
        """
        buffer = self._buffer
        newest = self._first_number + buffer._age
        is_there = (numbers < newest) & (numbers >= newest - buffer.size())
        slots = (numbers[is_there] - self._first_number) % buffer.buffer_size
        buffer.update_priorities(slots, errors[is_there])

    def reset(self) -> ShardState:
        """Forget all transitions."""
        self._buffer.reset()
        self._damage = ""
        self._life, self._first_number = secrets.token_hex(6), secrets.randbelow(_LIVES) * self._buffer.buffer_size
        return self.state()

    # ---- reading

    def draw(self, n: int, numbers: Ints | None = None, errors: NDArray[np.float32] | None = None) -> Wire:
        """Transitions drawn with replacement, in random order: all alike, or in proportion to their priorities.

        The header's `shard` is its state at that moment; the array `numbers` says which transitions these are. Empty if the
        shard is. The message is valid until the next one; Ray copies it before.

        :param n: how many
        :param numbers: with `errors`: priorities to be updated before, see `update_priorities`
        """
        buffer = self._buffer
        if numbers is not None and errors is not None:
            self.update_priorities(numbers, errors)
        with buffer._lock:
            state = self.state()
            slots: Ints
            if not state.size:
                slots = np.arange(0)
            elif self._is_weighted:
                # Drawn from equal parts in turn; the answer feeds several batches, so the order must be random.
                slots = self._rng.permutation(buffer.draw_cells(self._rng.random(n)))
            else:
                slots = self._rng.integers(0, state.size, n)
            newest = self._first_number + buffer._age
            drawn = newest - 1 - (buffer.pos - 1 - slots) % buffer.buffer_size
            header = {"shard": vars(state)}
            return steps_to_wire(buffer, self._windows(slots), header, {"numbers": drawn}, self._outbox)

    def _windows(self, slots: Ints) -> Ints:
        """The slots of all steps that these transitions are made of."""
        window = self._spec.window
        return slots if window == 1 else ((slots[:, None] + np.arange(window)) % self._buffer.buffer_size).reshape(-1)

    def dump(self, begin: int) -> tuple[Wire, int]:
        """Some of its transitions, from the oldest on, and how many are left behind them.

        :param begin: how many were read before
        """
        buffer = self._buffer
        with buffer._lock:
            slots = (buffer.pos - buffer.size() + np.arange(buffer.size())) % buffer.buffer_size
            part = slots[begin : begin + _DUMPED_STEPS]
            return steps_to_wire(buffer, part, {"shard": vars(self.state())}), max(len(slots) - begin - len(part), 0)

    def memory_usage(self) -> BufferMemoryUsage:
        """See `CompressedReplayBuffer.memory_usage`."""
        usage: BufferMemoryUsage = self._buffer.memory_usage()
        return usage

    # ---- checkpoints

    def checkpoint(self, *, background: bool = True) -> ShardState:
        """Write what is new to its folder."""
        if self._folder is not None:
            self._buffer.checkpoint(self._folder, background=background, extra={"received": dict(self._received)})
        return self.state()
