"""GPU buffers: the mixin of the compressed buffers over the device store.

Observations are on `buffer_device` from `add` to `sample` and `get`; actions, rewards and dones stay NumPy arrays, as in SB3.
Random numbers are drawn by SB3's code, so training ends in the weights that SB3's own buffers give.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecNormalize

from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.compressed.replay import ReplayObservations
from sb3_extra_buffers.compressed.rollout import RolloutObservations
from sb3_extra_buffers.compressed.stored_leaf import StoredLeaf
from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.gpu_buffers.options import GpuOptions
from sb3_extra_buffers.store.device import DeviceStore
from sb3_extra_buffers.store.device_view import DetectingDeviceStore, DeviceArrayView

#: What is asked for beyond what a full buffer would need by its first steps.
_MARGIN = 1.25
#: Part of the transitions that is evicted at once.
_EVICT = 32


class DeviceLeaf(StoredLeaf):
    """A leaf whose observations are on a device."""

    store_class = DetectingDeviceStore
    view_class = DeviceArrayView


class GpuObservations(CompressedObservations):
    """Put before the mixin of a kind of buffer, keeps observations on a device.

    :param compression_method: ``"tiles"`` (the default), ``"none"``, ``"rle"``, ``"zstd"`` or ``"zstd<level>"``; for Dict
        observations also one per key
    :param buffer_device: where observations live; the buffer's own device if not given
    :param heap_bytes: bytes for them; estimated if not given
    :param max_slot_bytes: deprecated; bytes per observation
    :param on_full: when they need more: ``"grow"``, ``"evict"`` (replay buffers: the oldest transitions go) or ``"raise"``
    """

    _options_class = GpuOptions
    _leaf_class = DeviceLeaf
    _options: GpuOptions

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("buffer_device") is None:
            kwargs["buffer_device"] = get_device(args[0] if args else kwargs.get("device", "auto"))
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)

    @property
    def buffer_device(self) -> th.device:
        """Where observations live."""
        return th.device(self._options.buffer_device)

    def compact(self) -> None:
        """Pack what the device holds of the observations."""
        with self._lock:
            for store in self._device_stores():
                store.compact()

    def to_torch(self, array: NDArray[Any] | th.Tensor, copy: bool = True) -> th.Tensor:
        """SB3's conversion; observations are tensors already."""
        return array.to(self.device) if isinstance(array, th.Tensor) else super().to_torch(array, copy)

    @staticmethod
    def _normalize_obs(obs: Any, env: VecNormalize | None = None) -> Any:
        """SB3's normalization, which is NumPy's: observations that it changes make a trip to the host."""
        if env is None or not env.norm_obs:
            return obs
        if isinstance(obs, dict):
            return env.normalize_obs({key: one.cpu().numpy() for key, one in obs.items()})
        return env.normalize_obs(obs.cpu().numpy())

    def _device_stores(self) -> list[DeviceStore]:
        stores = [leaf.store.device_store for leaf in self._leaves.values() if isinstance(leaf.store, DetectingDeviceStore)]
        return [store for store in stores if store is not None]

    def _reserve(self) -> None:
        """See that the observations of a step fit; HeapFullError, with nothing changed, if they do not."""
        try:
            for store in self._device_stores():
                store.reserve(self.n_envs * len(self._column_names))
        except HeapFullError as error:
            # As the steps so far have it, but no more than dense frames take.
            dense = sum(store.memory.expected.nbytes for store in self._device_stores())
            likely = min(error.needed_bytes * self.buffer_size // max(self.size(), 1), dense)
            needed = int(_MARGIN * max(likely, error.needed_bytes))
            raise HeapFullError(
                f"The observations of {self.size()} steps of {self.n_envs} envs have filled the "
                f"{self._stores_limit()} bytes that they may take. All {self.buffer_size} steps need about "
                f"heap_bytes={needed}: ask for them, or let on_full be 'grow'",
                needed,
            ) from error

    def _stores_limit(self) -> int:
        return max((store.room.limit for store in self._device_stores()), default=0)


class GpuReplayObservations(GpuObservations, ReplayObservations):
    """What is particular to replay buffers: the oldest transitions may be evicted."""

    _evicted = 0  # of the oldest transitions

    def size(self) -> int:
        """Steps that can be sampled."""
        return super().size() - self._evicted

    def add(self, obs: Any, next_obs: Any, *args: Any, **kwargs: Any) -> None:
        """SB3's `add`. Makes room first, as `on_full` has it."""
        with self._lock:
            self._stored.checked((obs, next_obs))  # nothing is evicted for what is refused
            self._make_room()
            overwrites = self.full
            super().add(obs, next_obs, *args, **kwargs)
            if overwrites and self._evicted:
                self._evicted -= 1
            if self.pos == 0:
                self.compact()

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """SB3's `sample`, of the transitions that are there."""
        if not self._evicted:
            return super().sample(batch_size, env=env)
        slots = (self._oldest() + np.random.randint(0, self.size(), size=batch_size)) % self.buffer_size
        return self._reading(lambda: self._get_samples(slots, env=env))

    def reset(self) -> None:
        """SB3's `reset`. What the device holds is let go."""
        with self._lock:
            super().reset()
            self._evicted = 0
            for leaf in self._leaves.values():
                leaf.store.clear()

    def _oldest(self) -> int:
        """Slot of the oldest transitions that can be sampled."""
        return ((self.pos if self.full else 0) + self._evicted) % self.buffer_size

    def _make_room(self) -> None:
        while True:
            try:
                self._reserve()
                return
            except HeapFullError:
                n = max(self.size() // _EVICT, 1)
                if self._options.on_full != "evict" or n >= self.size():
                    raise
            slots = (self._oldest() + np.arange(n)) % self.buffer_size
            cells = (slots[:, None] * self.n_envs + np.arange(self.n_envs)).reshape(-1)
            for store in self._device_stores():
                store.erase(cells)
            self._evicted += n


class GpuRolloutObservations(GpuObservations, RolloutObservations):
    """What is particular to rollout buffers: all of it is needed."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("on_full") == "evict":
            raise ValueError("A rollout needs all of its steps: on_full must be 'grow' or 'raise', got 'evict'")
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)

    def add(self, *args: Any, **kwargs: Any) -> None:
        """SB3's `add`. With `on_full="raise"`, HeapFullError leaves the buffer as it was."""
        with self._lock:
            self._reserve()
            super().add(*args, **kwargs)
            if self.full:
                self.compact()


class GpuReplayBuffer(GpuReplayObservations, ReplayBuffer):
    """SB3's ReplayBuffer, with observations on a device."""


class GpuDictReplayBuffer(GpuReplayObservations, DictReplayBuffer):
    """SB3's DictReplayBuffer, with observations on a device."""


class GpuRolloutBuffer(GpuRolloutObservations, RolloutBuffer):
    """SB3's RolloutBuffer, with observations on a device."""


class GpuDictRolloutBuffer(GpuRolloutObservations, DictRolloutBuffer):
    """SB3's DictRolloutBuffer, with observations on a device."""
