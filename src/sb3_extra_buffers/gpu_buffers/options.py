"""The constructor keywords of the GPU buffers, turned into a plan per leaf."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch as th
from stable_baselines3.common.utils import get_device

from sb3_extra_buffers.codecs import Codec
from sb3_extra_buffers.compressed.options import CompressionOptions, level_of_caller
from sb3_extra_buffers.gpu_buffers.dtypes import torch_dtype_to_numpy
from sb3_extra_buffers.gpu_buffers.estimates import estimate_heap_bytes
from sb3_extra_buffers.gpu_buffers.methods import HEAP_METHODS, memory_maker, split_method
from sb3_extra_buffers.spaces import Leaf
from sb3_extra_buffers.store.detect import StorePlan
from sb3_extra_buffers.store.device.budget import ByteBudget, OnFull
from sb3_extra_buffers.store.device.heap import SharedRawHeap
from sb3_extra_buffers.store.device.store import DevicePlan
from sb3_extra_buffers.store.layout import SMALLEST_FRAME


@dataclass
class GpuOptions(CompressionOptions):
    """What a user may say about storage on a device, beside what all compressed buffers know."""

    compression_method: str | Mapping[str, str] = "tiles"
    buffer_device: th.device | str = "auto"
    heap_bytes: int | None = None
    max_slot_bytes: int | None = None
    on_full: OnFull = "grow"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtypes is not None:  # dtypes of torch are as good as those of NumPy
            self.dtypes = {name: _numpy_dtype(dtype) for name, dtype in self.dtypes.items()}
        if self.on_full not in get_args(OnFull):
            raise ValueError(f"on_full must be one of {', '.join(map(repr, get_args(OnFull)))}, got {self.on_full!r}")
        if self.max_slot_bytes is not None:
            warnings.warn(
                "max_slot_bytes is deprecated: observations have no slots of a fixed size any more. Use heap_bytes, the "
                "bytes for all of them",
                DeprecationWarning,
                stacklevel=level_of_caller(),
            )
        for name in ("heap_bytes", "max_slot_bytes"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
                raise ValueError(f"{name} must be a positive number of bytes or None, got {value!r}")
        if self.block_frames is not None:
            raise ValueError(f"GPU buffers keep frames one by one and have no blocks, got block_frames={self.block_frames}")
        self._check_decompression(())
        self.buffer_device = _usable_device(self.buffer_device)

    def plans(self, leaves: list[Leaf], *, n_cells: int, n_streams: int, n_columns: int) -> dict[str, StorePlan]:
        """How each leaf will be stored."""
        plans = super().plans(leaves, n_cells=n_cells, n_streams=n_streams, n_columns=n_columns)
        methods = {leaf.key: self._for_leaf(self.compression_method, leaf, "tiles") for leaf in leaves}
        budget = ByteBudget(self._limit(plans, methods, n_cells), is_hard=self.on_full != "grow")
        # Beside leaves that do not use the heap, it begins with its share and grows within the limit.
        n_heaped = sum(split_method(methods[key])[0] in HEAP_METHODS and not _is_tiny(plan) for key, plan in plans.items())
        heap = SharedRawHeap(budget.limit * n_heaped // max(len(leaves), 1), self.buffer_device, budget)
        return {
            key: DevicePlan(
                **{field.name: getattr(plan, field.name) for field in dataclasses.fields(StorePlan)},
                make_memory=memory_maker(methods[key], self._options_of(key), heap, self._level_in_dtypes),
                device=th.device(self.buffer_device), budget=budget,
            )
            for key, plan in plans.items()
        }  # fmt: skip

    def _limit(self, plans: dict[str, StorePlan], methods: dict[str, str], n_cells: int) -> int:
        """Bytes for the observations of a full buffer: as asked for, or as estimated."""
        if self.heap_bytes is not None:
            return int(self.heap_bytes)
        if self.max_slot_bytes is not None:
            return int(self.max_slot_bytes) * n_cells
        return sum(self._leaf_limit(plan, methods[key], n_cells) for key, plan in plans.items())

    @staticmethod
    def _leaf_limit(plan: StorePlan, method: str, n_cells: int) -> int:
        layouts = plan.layouts()
        whole = layouts[-1]
        if len(layouts) == 1 and whole.stack == 1 and (method == "none" or _is_tiny(plan)):
            return int(1.05 * whole.observation_bytes * n_cells) + 64 * whole.observation_bytes  # dense, and terminal ones
        return estimate_heap_bytes(plan.shape, n_cells, plan.dtype, method)

    def _options_of(self, key: str) -> Mapping[str, Any]:
        options = self.compression_kwargs or {}
        if options and isinstance(self.compression_method, Mapping) and all(isinstance(v, Mapping) for v in options.values()):
            one: Mapping[str, Any] = options.get(key, {})
            return one
        return options

    def _codec(self, leaf: Leaf, dtype: np.dtype[Any]) -> Codec | str:
        return "none"  # the memory has its own


def _is_tiny(plan: StorePlan) -> bool:
    """Whether observations are kept as they are, whatever was asked for."""
    return plan.layouts()[-1].frame_bytes < SMALLEST_FRAME


@dataclass
class GpuReplayOptions(GpuOptions):
    """The keywords of replay buffers on a device."""

    random_shift: int = 0


def _numpy_dtype(dtype: Any) -> Any:
    if not isinstance(dtype, th.dtype):
        return dtype
    try:
        return torch_dtype_to_numpy(dtype)
    except TypeError:
        raise ValueError(f"dtypes asks for {dtype}, which NumPy does not have; observations come as NumPy arrays") from None


def _usable_device(device: th.device | str) -> th.device:
    """SB3's choice of a device, which is the CPU where there is no CUDA; refused if tensors cannot be made there."""
    try:
        usable = get_device(device)
        th.empty(0, device=usable)
    except RuntimeError as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ValueError(f"buffer_device must be a device that torch can use here, got {str(device)!r}: {reason}") from None
    return usable
