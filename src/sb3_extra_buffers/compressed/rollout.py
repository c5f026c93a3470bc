"""Rollout buffers: SB3's classes over columns."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from sb3_extra_buffers.compressed.mixin import CompressedObservations


class RolloutObservations(CompressedObservations):
    """What is particular to rollout buffers: one column, emptied at every rollout."""

    _column_names = ("observations",)

    def reset(self) -> None:
        """SB3's `reset`, without allocating observations."""
        if not self._leaves:  # called by SB3's constructor, on a hollow space
            super().reset()
            return
        with self._lock:
            real = self.obs_shape
            self.obs_shape = dict.fromkeys(self._leaves, (0,)) if self._is_dict else (0,)  # type: ignore[assignment]
            try:
                super().reset()
            finally:
                self.obs_shape = real
            for leaf in self._leaves.values():
                leaf.store.clear()
            self._install_columns()

    def add(self, obs: Any, *args: Any, **kwargs: Any) -> None:
        """SB3's `add`. What is refused, an observation of a wrong shape or range for one, changes nothing."""
        with self._lock:
            stored, step = self._stored, self.pos
            checked = stored.checked((obs,))
            super().add(stored.written, *args, **kwargs)
            stored.write_step(step, checked)

    def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
        """SB3's minibatch."""
        return self._reading(lambda: super(RolloutObservations, self)._get_samples(*args, **kwargs))  # type: ignore[safe-super]


class CompressedRolloutBuffer(RolloutObservations, RolloutBuffer):
    """SB3's RolloutBuffer, with observations kept compressed."""


class CompressedDictRolloutBuffer(RolloutObservations, DictRolloutBuffer):
    """SB3's DictRolloutBuffer, with observations kept compressed."""
