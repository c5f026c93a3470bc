"""Replay buffers that let go of their oldest transitions early: on a device that is full, or at `max_memory`.

Between `pos` and the oldest transition that is left there is a gap then. It closes when `pos` has passed it.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecNormalize

from sb3_extra_buffers.compressed.mixin import CompressedObservations


class Eviction(NamedTuple):
    """What was evicted from a replay buffer. Replaced as a whole, so that an interrupt leaves the old or the new one.

    :param first: slot of the oldest transitions that are left
    :param unfinished: slots whose observations have yet to be erased
    """

    first: int
    unfinished: NDArray[np.int64] | None


class EvictingObservations(CompressedObservations):
    """Compressed observations of a replay buffer whose oldest transitions may be gone."""

    _eviction: Eviction | None = None
    #: True where a class behind this one chooses what to draw: `_forget` tells it what is gone.
    _draws_itself: ClassVar[bool] = False

    def size(self) -> int:
        """Steps that can be sampled."""
        with self._lock:
            return super().size() - self._n_evicted()

    def _n_evicted(self) -> int:
        """Of the oldest steps, how many are gone. 0 as soon as the last of them has been overwritten, and after a reset."""
        if self._eviction is None:
            return 0
        size = super().size()  # puts pos in order, if an `add` was interrupted
        evicted = (self._eviction.first - (self.pos if self.full else 0)) % self.buffer_size
        return evicted if evicted < size else 0

    def _oldest(self) -> int:
        """Slot of the oldest transitions that can be sampled."""
        return ((self.pos if self.full else 0) + self._n_evicted()) % self.buffer_size

    def is_whole_ring(self) -> bool:
        """Whether all slots that were ever written still hold their step, and the arrays have no other slots."""
        return self._n_evicted() == 0

    def _kept_slots(self) -> NDArray[np.int64]:
        """See `CompressedObservations`."""
        return (np.arange(self.size()) + self._oldest()) % self.buffer_size

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """SB3's `sample`, of the transitions that are there."""
        return self._reading(lambda: self._drawn(batch_size, env))

    def _drawn(self, batch_size: int, env: VecNormalize | None) -> Any:
        """A batch, drawn under the lock: what its indices name must still be there when it is read."""
        if self._draws_itself or self._n_evicted() == 0:
            return super().sample(batch_size, env=env)
        slots = (self._oldest() + np.random.randint(0, self.size(), size=batch_size)) % self.buffer_size
        return self._get_samples(slots, env=env)

    def reset(self) -> None:
        """SB3's `reset`."""
        with self._lock:
            super().reset()
            self._eviction = None

    # ---- evicting

    def _evict(self, n: int) -> None:
        """Let go of the oldest steps. Can be interrupted, and is finished by the next `_erase_evicted`."""
        self._erase_evicted()
        slots = (self._oldest() + np.arange(n + 1)) % self.buffer_size
        self._eviction = Eviction(int(slots[-1]), slots[:-1])  # from here on nobody samples them
        self._erase_evicted()

    def _erase_evicted(self) -> None:
        if self._eviction is not None and self._eviction.unfinished is not None:
            slots = self._eviction.unfinished
            self._forget(slots)
            cells = (slots[:, None] * self.n_envs + np.arange(self.n_envs)).reshape(-1)
            for leaf in self._leaves.values():
                leaf.store.erase(cells)
            self._eviction = Eviction(self._eviction.first, None)

    def _forget(self, slots: NDArray[np.int64]) -> None:
        """Let what a class behind this one keeps of these slots go."""
