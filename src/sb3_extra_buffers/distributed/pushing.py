"""Steps of the learner's own env on their way to the shards: a small buffer, then segments, each to the next shard.

Above: buffer. Below: remote and wire.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ray.exceptions import ActorDiedError, RayActorError

from sb3_extra_buffers.distributed.remote import RemoteShard
from sb3_extra_buffers.distributed.spec import LEAST_STEPS, BufferSpec
from sb3_extra_buffers.distributed.wire import Wire, steps_to_wire

#: Segments that are under way, for each shard.
_MOST_UNDER_WAY = 2


class Pushing:
    """Adds steps to shards.

    :param push_steps: steps that travel together
    """

    def __init__(self, spec: BufferSpec, shards: list[RemoteShard], n_envs: int, push_steps: int) -> None:
        self._spec, self._shards, self._n_envs, self._steps = spec, shards, n_envs, push_steps
        self._staging: Any = None  # made when something is added
        self._under_way: deque[tuple[RemoteShard, Any]] = deque()
        self._n_pushed = 0

    def add(self, *transition: Any) -> None:
        """The arguments of SB3's `add`. Every so many steps they travel to a shard."""
        if self._staging is None:
            self._staging = self._spec.make(max(self._steps, LEAST_STEPS), self._n_envs)
        self._staging.add(*transition)
        if self._staging.size() >= self._steps:
            self.flush()

    def flush(self) -> None:
        """Send what has not travelled yet."""
        if self._staging is None or self._staging.size() == 0:
            return
        with self._staging._at_rest() as contents:
            data = steps_to_wire(self._staging, contents.slots, {})
        self._staging.reset()
        self.push(data)

    def flush_first(self) -> None:
        """Send it if nothing has travelled yet: there may be nothing else to sample."""
        if self._n_pushed == 0:
            self.flush()

    def push(self, data: Wire) -> None:
        """Append the steps of a segment to the next shard."""
        shard = self._shards[self._n_pushed % len(self._shards)]
        self._n_pushed += 1
        self._under_way.append((shard, shard.start("append", data)))
        self.wait(_MOST_UNDER_WAY * len(self._shards))

    def wait(self, most: int = 0) -> None:
        """Wait until at most so many segments are under way."""
        while len(self._under_way) > most:
            shard, ref = self._under_way.popleft()
            try:
                shard.result(ref)
            except ActorDiedError:
                raise
            except RayActorError:  # gone with the shard; the pool warns of that
                pass

    def drop(self) -> None:
        """Forget what has not travelled yet, and wait for what has."""
        self.wait()
        if self._staging is not None:
            self._staging.reset()
