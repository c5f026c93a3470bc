"""`max_memory`: a replay buffer that holds as many transitions as fit into so many bytes. Below: eviction.

growing   slots are used one after the other, as in a buffer that is not full yet
limit     the ring ends at `pos`: from now on the oldest transitions are overwritten, and memory stays about the same
above it  if frames compress worse than before, the oldest transitions go early
below it  if they compress better, the ring grows on when `pos` comes to its end
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_obs_shape

from sb3_extra_buffers._machine import ram_bytes
from sb3_extra_buffers._text import bytes_in, counted, human_bytes, number_in
from sb3_extra_buffers.compressed.eviction import EvictingObservations
from sb3_extra_buffers.spaces import leaves_of
from sb3_extra_buffers.store import BlockStore

#: Memory is looked at when steps may have added so many bytes, or after so many steps.
_LOOK_BYTES, _LOOK_STEPS = 1 << 20, 256
#: So many observations must fit, however badly they compress: a batch.
_LEAST_BATCH = 32
#: One in so many steps is evicted at a time.
_EVICT = 256


def bytes_of(said: int | str) -> int:
    """Bytes of ``"4GB"``, ``"512MiB"``, ``"25%"`` of RAM, or a number of bytes."""
    if isinstance(said, (int, np.integer)) and not isinstance(said, bool):
        amount = int(said)
    elif isinstance(said, str) and said.strip().endswith("%"):
        share = number_in(said.strip()[:-1])
        if share is None or not 0 < share <= 100:
            raise ValueError(f"max_memory must be between 0% and 100% of RAM, got {said!r}")
        amount = int(share / 100 * ram_bytes())
    else:
        found = bytes_in(said) if isinstance(said, str) else None
        if found is None:
            raise ValueError(f"max_memory must be bytes, or such as '4GB', '512MiB' or '25%' of RAM, got {said!r}")
        amount = found[0]
    if amount < 1:
        raise ValueError(f"max_memory must be a positive number of bytes, got {said!r}")
    return amount


def _observation_bytes(space: spaces.Space[Any]) -> int:
    shape = get_obs_shape(space)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves_of(space, shape))


def least_step_bytes(action_space: spaces.Space[Any], n_envs: int) -> int:
    """Bytes that a step takes at least: rewards, dones, timeouts, actions, and where its observations are."""
    shape = action_space.shape or (1,)
    return n_envs * (4 + 4 + 4 + math.prod(shape) * 4 + 2 * 4)


class LimitedObservations(EvictingObservations):
    """Compressed observations of a replay buffer that keeps to `max_memory`."""

    _max_bytes: int | None = None
    #: Slots that there are; `buffer_size` is how many of them the ring has now.
    _capacity = 0
    _looks_in = 0
    #: `pos`, `full` and `buffer_size` that are about to be set: together, also if an interrupt comes in between.
    _next_ring: tuple[int, bool, int] | None = None

    def _set_up(self, arguments: dict[str, Any]) -> None:
        """See `CompressedObservations`. No more slots than could ever be filled: SB3 makes its arrays for all of them."""
        said = arguments.get("max_memory")
        if said is not None:
            n_envs, size = int(arguments.get("n_envs", 1)), arguments["buffer_size"]
            self._max_bytes = bytes_of(said)
            least = _LEAST_BATCH * _observation_bytes(arguments["observation_space"]) * n_envs
            if self._max_bytes < least:
                raise ValueError(
                    f"max_memory={said!r} is too little: {_LEAST_BATCH} observations of "
                    f"{counted(n_envs, 'env')}, not compressed, take {human_bytes(least)}. Give more"
                )
            most = self._max_bytes // least_step_bytes(arguments["action_space"], n_envs) * n_envs
            arguments = {**arguments, "buffer_size": max(min(size, most), n_envs)}
        super()._set_up(arguments)
        self._capacity = self.buffer_size

    def is_whole_ring(self) -> bool:
        """See `EvictingObservations`."""
        return super().is_whole_ring() and self.buffer_size == self._capacity

    def held_bytes(self) -> int:
        """Bytes that observations and arrays take now, as the process has them."""
        slots = self.buffer_size if self.full else self.pos
        arrays = [one for one in vars(self).values() if isinstance(one, np.ndarray) and len(one) == self._capacity]
        by_step = sum(one[:1].nbytes for one in arrays) * slots
        return by_step + sum(leaf.store.held_bytes() for leaf in self._leaves.values())

    def _evictable_bytes(self) -> int:
        """Bytes that eviction could free: encoded blocks. Rows of small observations are only used again."""
        stores = [leaf.store for leaf in self._leaves.values()]
        return sum(store.memory_usage().stored_bytes for store in stores if isinstance(store, BlockStore))

    def _keep_limit(self) -> None:
        """Before an `add`: see to it that what is held stays below the limit."""
        if self._max_bytes is None:
            return
        if self._next_ring is not None:
            self._set_ring(*self._next_ring)
        self._erase_evicted()
        if self._n_evicted() == 0:
            self._eviction = None  # now, before `pos` passes it
        self._looks_in -= 1
        if self._looks_in > 0:
            return
        held = self.held_bytes()
        if held > self._max_bytes:
            if not self.full and self.pos > 0:
                self._set_ring(0, True, self.pos)
            while 0 < held - self._max_bytes < self._evictable_bytes() and self.size() > 1:
                self._evict(max(self.size() // _EVICT, 1))
                held = self.held_bytes()
        elif self.full and self.pos == 0 and self.buffer_size < self._capacity and self._n_evicted() == 0:
            self._set_ring(self.buffer_size, False, self._capacity)
        raw = sum(math.prod(leaf.plan.shape) * leaf.plan.dtype.itemsize for leaf in self._leaves.values()) * self.n_envs
        self._looks_in = max(min(_LOOK_BYTES // max(raw, 1), _LOOK_STEPS), 1)
        if self.full and self.buffer_size < self._capacity:  # be there when `pos` is at the end of the ring
            self._looks_in = min(self._looks_in, self.buffer_size - self.pos)

    def _set_ring(self, pos: int, full: bool, size: int) -> None:
        self._next_ring = pos, full, size
        self._eviction = None
        self.buffer_size, self.pos, self.full = size, pos, full
        self._next_ring = None

    def reset(self) -> None:
        """SB3's `reset`."""
        with self._lock:
            if self._max_bytes is not None:
                self.buffer_size, self._looks_in, self._next_ring = self._capacity, 0, None
            super().reset()
            if self._max_bytes is not None:
                for leaf in self._leaves.values():
                    leaf.clear()
