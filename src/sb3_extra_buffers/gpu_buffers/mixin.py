"""The mixins of the GPU buffers: those of the compressed buffers over the device store. Above: buffers.py.

Observations are on `buffer_device` from `add` to `sample` and `get`; actions, rewards and dones stay NumPy arrays, as in SB3.
Random numbers are drawn by SB3's code, so training ends in the weights that SB3's own buffers give.
"""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecNormalize

from sb3_extra_buffers.compressed.former import Former
from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.compressed.options import CompressionOptions
from sb3_extra_buffers.compressed.replay import ReplayObservations
from sb3_extra_buffers.compressed.rollout import RolloutObservations
from sb3_extra_buffers.compressed.stored_leaf import StoredLeaf
from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.gpu_buffers.former import former_heap
from sb3_extra_buffers.gpu_buffers.options import GpuOptions, GpuReplayOptions
from sb3_extra_buffers.store.device.store import DeviceStore
from sb3_extra_buffers.store.device.view import DeviceArrayView

#: What is asked for beyond what a full buffer would need by its first steps.
_MARGIN = 1.25
#: Part of the transitions that is evicted at once.
_EVICT = 32


class DeviceLeaf(StoredLeaf):
    """A leaf whose observations are on a device."""

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

    _options_class: ClassVar[type[CompressionOptions]] = GpuOptions
    _leaf_class = DeviceLeaf
    _options: GpuOptions
    shared_heap = Former(former_heap)

    def _set_up(self, arguments: dict[str, Any]) -> None:
        """See `CompressedObservations`."""
        if arguments.get("buffer_device") is None:
            arguments["buffer_device"] = get_device(arguments.get("device", "auto"))
        super()._set_up(arguments)

    @property
    def buffer_device(self) -> th.device:
        """Where observations live."""
        return th.device(self._options.buffer_device)

    def compact(self) -> None:
        """Pack what the device holds of the observations."""
        with self._lock:
            for store in self._device_stores():
                store.compact()

    def _compact_after_add(self) -> None:
        """Pack, if there is memory for it. The transition is accepted in any case, and all are as they were."""
        with contextlib.suppress(MemoryError, th.OutOfMemoryError):
            self.compact()

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
        """The stores of the leaves whose frame layout is known."""
        stores = [leaf.store for leaf in self._leaves.values()]
        return [store for store in stores if isinstance(store, DeviceStore)]

    def _reserve(self) -> None:
        """Ensure that the observations of a step fit; HeapFullError, with nothing changed, if they do not."""
        try:
            self._reserve_in_stores()
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

    def _reserve_in_stores(self) -> None:
        n_observations = self.n_envs * len(self._column_names)
        try:
            for store in self._device_stores():
                store.reserve(n_observations)
        except HeapFullError:
            if self.pos > 0 or self.full:
                raise
            for store in self._device_stores():  # the buffer is empty; its stores are not if a reset was interrupted
                store.clear()
                store.reserve(n_observations)

    def _stores_limit(self) -> int:
        return max((store.budget.limit for store in self._device_stores()), default=0)


class GpuReplayObservations(GpuObservations, ReplayObservations):
    """What is particular to replay buffers: the oldest transitions may be evicted."""

    _options_class = GpuReplayOptions

    def add(self, obs: Any, next_obs: Any, *args: Any, **kwargs: Any) -> None:
        """SB3's `add`. Evicts or raises first where the observations may not fit, as `on_full` has it."""
        with self._lock:
            self._stored.checked((obs, next_obs))  # nothing is evicted for what is refused
            if self._n_evicted() == 0:
                self._eviction = None
            self._make_room()
            super().add(obs, next_obs, *args, **kwargs)
            if self.pos == 0:
                self._compact_after_add()

    def reset(self) -> None:
        """SB3's `reset`. What the device holds is let go."""
        with self._lock:
            super().reset()
            for leaf in self._leaves.values():
                leaf.clear()

    def _make_room(self) -> None:
        """Evict until the observations of a step fit, if that was asked for; else raise HeapFullError."""
        while True:
            self._erase_evicted()
            try:
                self._reserve()
                return
            except HeapFullError:
                n = max(self.size() // _EVICT, 1)
                if self._options.on_full != "evict" or n >= self.size():
                    raise
            self._evict(n)


class GpuRolloutObservations(GpuObservations, RolloutObservations):
    """What is particular to rollout buffers: all of it is needed."""

    def _set_up(self, arguments: dict[str, Any]) -> None:
        """See `CompressedObservations`."""
        if arguments.get("on_full") == "evict":
            raise ValueError("A rollout needs all of its steps: on_full must be 'grow' or 'raise', got 'evict'")
        super()._set_up(arguments)

    def add(self, *args: Any, **kwargs: Any) -> None:
        """SB3's `add`. With `on_full="raise"`, HeapFullError leaves the buffer as it was."""
        with self._lock:
            self._reserve()
            super().add(*args, **kwargs)
            if self.full:
                self._compact_after_add()
