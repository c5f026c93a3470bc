"""Batches from shards: transitions that were drawn ahead of time, and which shard each one of a batch is taken from.

    each shard: one answer in use, one asked for            bounded: `prefetch` batches each
    batch:      shards drawn in proportion to the weights in their answers -> the next transitions of these answers

A shard draws in random order and says its weight at that moment, in one answer. So each transition of a batch is drawn in
proportion to its own weight among all that the shards held when they answered, however they change meanwhile.

Encoded transitions are put into a small buffer of the learner, the window, and are read there as in any buffer.
Above: buffer. Below: remote.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.exceptions import ActorDiedError, RayActorError

from sb3_extra_buffers.compressed.contents import contents_of
from sb3_extra_buffers.distributed.remote import PAUSE, RemoteShard
from sb3_extra_buffers.distributed.shard import ShardState
from sb3_extra_buffers.distributed.spec import LEAST_STEPS, BufferSpec
from sb3_extra_buffers.distributed.wire import steps_from_wire
from sb3_extra_buffers.errors import CorruptDataError, EmptyShardsError, ShardLostWarning
from sb3_extra_buffers.segments.runs import Ints, put_run

_NOTHING = np.arange(0)
#: Pools for so many sizes of batches are kept.
_MOST_POOLS = 4


class _Source:
    """One shard as the pool sees it.

    :param first: first row of the window that is this shard's
    :param n_rows: rows of the window that it has
    """

    def __init__(self, shard: RemoteShard, first: int, n_rows: int) -> None:
        self.shard, self._first, self._n_rows = shard, first, n_rows
        self._next_row = 0
        #: The answer that was asked for, and until when it is waited for.
        self.asked: Any = None
        self.deadline = math.inf
        #: When to ask a shard again that was empty or gone.
        self.not_before = 0.0
        #: Its weight in the answer that is in use; rows of the window and numbers that are left of that answer.
        self.weight = 0.0
        self.rows: Ints = _NOTHING
        self.numbers: Ints = _NOTHING
        self.state: ShardState | None = None

    def ask(self, n: int) -> None:
        """Ask for the next transitions, if none are asked for."""
        if self.asked is None and time.monotonic() >= self.not_before:
            self.asked = self.shard.start("draw", n)
            self.deadline = time.monotonic() + self.shard.timeout

    def place(self, window: Any, answer: Any, width: int) -> None:
        """Put an answer into the window. Its rows follow those of the last one, which a batch may still need."""
        run = steps_from_wire(answer)
        numbers = run.segment.array("whole/numbers", np.int64, (None,))
        if len(numbers) * width != run.count or len(numbers) > self._n_rows or run.n_envs != 1:
            raise CorruptDataError(f"Shard {self.shard.number} answered with {run.count} steps, which do not fit")
        try:
            self.state = ShardState(**run.segment.header["shard"])
        except (LookupError, TypeError) as error:
            raise CorruptDataError(f"Shard {self.shard.number} does not say what it is: {error}") from error
        rows = self._first + (self._next_row + np.arange(len(numbers))) % self._n_rows
        if len(rows):
            slots = (rows[:, None] * width + np.arange(width)).reshape(-1)
            with window._lock:
                put_run(contents_of(window, _NOTHING), run, slots[:, None])
        self._next_row = (self._next_row + len(rows)) % self._n_rows
        self.rows, self.numbers, self.weight = rows, numbers, self.state.weight if len(rows) else 0.0

    def take(self, n: int) -> tuple[Ints, Ints]:
        """The next rows, and their numbers."""
        rows, numbers = self.rows[:n], self.numbers[:n]
        self.rows, self.numbers = self.rows[n:], self.numbers[n:]
        return rows, numbers


class Pool:
    """Draws transitions from shards.

    :param prefetch: batches that are asked for ahead of time; with 0 every batch is asked for when it is needed
    :param batch_size: transitions of a batch
    :param device: torch device of the window's batches
    :param lives: what is known of the shards, by their numbers; shared, so that the loss of one is said once
    """

    def __init__(
        self,
        spec: BufferSpec,
        shards: list[RemoteShard],
        *,
        batch_size: int,
        prefetch: int,
        device: Any,
        rng: np.random.Generator,
        lives: dict[int, ShardState] | None = None,
    ) -> None:
        self.batch_size, self._prefetch, self._width = batch_size, prefetch, spec.window
        self._most_asked = batch_size * max(prefetch, 1)
        n_rows = max(2 * self._most_asked, LEAST_STEPS)
        self.window = spec.make(n_rows * len(shards) * self._width, device=device)
        self.window.full = True  # of rows that were never put nothing is ever read
        self._sources = [_Source(shard, i * n_rows, n_rows) for i, shard in enumerate(shards)]
        self._rng = rng
        self._lives = {} if lives is None else lives

    def take(self) -> tuple[Ints, Ints, Ints]:
        """A batch: slots of the window, and the shards and numbers of its transitions."""
        if self._prefetch == 0:
            self.forget()
        n, width = self.batch_size, self._width
        slots, shards, numbers = (np.empty(n, np.int64) for _ in range(3))
        filled = 0
        while filled < n:
            self._refill()
            labels = self._labels(n - filled)
            for i in np.unique(labels).tolist():
                at = filled + np.flatnonzero(labels == i)
                rows, numbers[at] = self._sources[i].take(len(at))
                slots[at], shards[at] = rows * width, i
            filled += len(labels)
        if self._prefetch:
            self._ask()
        return slots, shards, numbers

    def _labels(self, n: int) -> Ints:
        """The shards of the next transitions, up to the one that uses up an answer.

        Not up to one for which nothing is left: that one would be drawn anew, and a shard with short answers miss it.
        """
        weights = np.array([source.weight for source in self._sources])
        left = np.array([len(source.rows) for source in self._sources])
        edges = np.cumsum(weights)
        labels: Ints = np.searchsorted(edges[:-1], self._rng.random(n) * edges[-1], side="right")
        for i in np.flatnonzero(left).tolist():
            at = np.flatnonzero(labels == i)
            labels = labels[: at[left[i] - 1] + 1] if len(at) >= left[i] else labels
        return labels

    def _refill(self) -> None:
        """Let every shard that holds anything have an answer in use. Waits for them."""
        deadline = time.monotonic() + max(source.shard.timeout for source in self._sources)
        while True:
            self._ask()
            for source in self._sources:
                if source.asked is not None and not len(source.rows):
                    self._receive(source)
            if any(len(source.rows) for source in self._sources):
                return
            if all(source.state is not None and source.state.size == 0 for source in self._sources):
                raise EmptyShardsError("The shards are empty: add transitions before you sample")
            if time.monotonic() > deadline:
                raise self._sources[0].shard.too_late()
            time.sleep(PAUSE)

    def _ask(self) -> None:
        """Ask shards for their shares of the next batches."""
        known = sum(source.weight for source in self._sources)
        for source in self._sources:
            share = source.weight / known if known and source.weight and self._prefetch else 1.0
            source.ask(max(math.ceil(self._most_asked * share), 1))

    def _receive(self, source: _Source) -> None:
        """Wait for an answer. A shard that has died has no weight until it answers again."""
        asked, source.asked = source.asked, None
        try:
            answer = source.shard.result(asked, source.deadline - time.monotonic())
        except ActorDiedError:
            raise
        except RayActorError:
            source.weight, source.state = 0.0, None
            source.not_before = time.monotonic() + PAUSE
            self._report(source.shard.number, None)
            return
        source.place(self.window, answer, self._width)
        if source.state is not None:
            self._report(source.shard.number, source.state)
        if not len(source.rows):
            source.not_before = time.monotonic() + PAUSE

    def _report(self, number: int, state: ShardState | None) -> None:
        """Warn when a shard was lost: it says another life than before."""
        known = self._lives.get(number)
        if state is None:
            return
        if known is not None and known.life != state.life:
            back = (
                f"came back with {state.restored:,} of its checkpoint" if state.restored else "was started anew without them"
            )
            advice = "" if state.restored or state.damage else ". checkpoint=folder would keep them"
            warnings.warn(
                f"Shard {number} died with {known.size:,} transitions, and {back}. Training goes on, and the shard is "
                f"refilled{advice}",
                ShardLostWarning,
                stacklevel=2,
            )
        if state.damage and (known is None or known.life != state.life):
            warnings.warn(
                f"Shard {number} begins empty, because its checkpoint is damaged: {state.damage}",
                ShardLostWarning,
                stacklevel=2,
            )
        self._lives[number] = state

    def forget(self) -> None:
        """Drop all that was drawn, as after a reset."""
        for source in self._sources:
            source.asked, source.weight, source.state = None, 0.0, None
            source.rows = source.numbers = _NOTHING
            source.not_before = 0.0

    @property
    def n_known(self) -> int:
        """Transitions that the shards held when they last answered."""
        return sum(source.state.size for source in self._sources if source.state is not None)

    def priorities(self, slots: Ints) -> NDArray[np.float32]:
        """The priorities that transitions in the window were drawn by."""
        drawn: NDArray[np.float32] = self.window.priorities.reshape(-1)[slots]
        return drawn


class Pools:
    """A pool for each size of batches that is asked for. See `Pool` for the parameters."""

    def __init__(
        self, spec: BufferSpec, shards: list[RemoteShard], *, prefetch: int, device: Any, rng: np.random.Generator
    ) -> None:
        self._make = functools.partial(Pool, spec, shards, prefetch=prefetch, device=device, rng=rng, lives={})
        self._pools: dict[int, Pool] = {}  # the one that was used last is the last
        self._used_at: dict[int, int] = {}
        self._n_taken, self._most_between = 0, 2 * prefetch

    def of(self, batch_size: int) -> Pool:
        """The pool for the next batch."""
        pool = self._pools.pop(batch_size, None) or self._make(batch_size=batch_size)
        if self._n_taken - self._used_at.get(batch_size, self._n_taken) > self._most_between:
            pool.forget()  # what it has was drawn too many batches ago
        self._n_taken += 1
        self._pools[batch_size], self._used_at[batch_size] = pool, self._n_taken
        if len(self._pools) > _MOST_POOLS:
            del self._pools[next(iter(self._pools))]
        return pool

    @property
    def n_known(self) -> int:
        """See `Pool.n_known`."""
        return next(reversed(self._pools.values())).n_known if self._pools else 0
