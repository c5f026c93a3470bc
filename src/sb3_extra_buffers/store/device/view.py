"""Device views: SB3 uses them as arrays, with observations on a device. Reading returns tensors, `np.asarray` an ndarray."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from numpy.typing import DTypeLike, NDArray

from sb3_extra_buffers.store.array_view import ArrayView, is_pair_of_arrays
from sb3_extra_buffers.store.base import Cells
from sb3_extra_buffers.store.device.observations import torch_dtype
from sb3_extra_buffers.store.device.store import DevicePlan


class DeviceArrayView(ArrayView):
    """An array-like over cells of a leaf on a device."""

    def __getitem__(self, index: Any) -> th.Tensor:  # type: ignore[override]
        if type(index) is tuple and self._is_whole and is_pair_of_arrays(index):
            try:  # the way SB3 samples: array[slots, envs, :]
                return self._on_device(self._reader.read_pairs(self.leaf, self.column, index[0], index[1]))
            except IndexError:
                pass  # negative or out of bounds: handled below, as in NumPy
        leading, rest = self._split(index)
        if leading is None:
            return self._on_device(self._read(self._cells)[index])
        cells = self._cells[leading]
        values = self._tensor(cells)
        if any(not (isinstance(one, slice) and one == slice(None)) for one in rest):
            values = values[(*(slice(None),) * np.ndim(cells), *rest)]
        return values

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("Compressed observations can only be read as a copy")
        return self._read(self._cells).astype(self.dtype if dtype is None else dtype, copy=False)

    def _tensor(self, cells: Any) -> th.Tensor:
        flat: Cells = np.asarray(cells, np.int64).reshape(-1)
        values = self._on_device(self._reader.read(self.leaf, self.column, flat))
        return values if np.ndim(cells) == 1 else values.view(*np.shape(cells), *self.obs_shape)

    def _on_device(self, values: Any) -> th.Tensor:
        """Values as a tensor of the view's dtype. They are an array while the frame layout is unknown."""
        if not isinstance(values, th.Tensor):
            plan = self.leaf.plan
            values = th.as_tensor(values, device=plan.device if isinstance(plan, DevicePlan) else None)
        tensor: th.Tensor = values
        return tensor if self.stored_dtype == self.dtype else tensor.to(torch_dtype(self.dtype))

    def _read(self, cells: Any) -> NDArray[Any]:
        values: NDArray[Any] = self._tensor(cells).cpu().numpy()
        return values
