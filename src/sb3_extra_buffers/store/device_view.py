"""Device views: what SB3 takes for its arrays, with observations on a device. Reads give tensors, `np.asarray` an ndarray."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from numpy.typing import DTypeLike, NDArray

from sb3_extra_buffers.store.array_view import ArrayView
from sb3_extra_buffers.store.base import Cells
from sb3_extra_buffers.store.detect import DetectingStore
from sb3_extra_buffers.store.device import DevicePlan, DeviceStore, torch_dtype


class DetectingDeviceStore(DetectingStore):
    """A DeviceStore whose frame layout is found from the data. The few observations before that wait on the host."""

    plan: DevicePlan

    @property
    def device_store(self) -> DeviceStore | None:
        """The store; None as long as the layout is open."""
        store: DeviceStore | None = self._store
        return store


class DeviceArrayView(ArrayView):
    """An array-like over cells of a device store."""

    store: DetectingDeviceStore

    def __getitem__(self, index: Any) -> th.Tensor:  # type: ignore[override]
        pair = index[:2] if isinstance(index, tuple) else ()
        if self._given_cells is None and len(pair) == 2 and all(isinstance(one, np.ndarray) for one in pair):
            rest = index[2:]
            if all(isinstance(one, slice) and one == slice(None) for one in rest):
                try:  # the way SB3 samples: array[slots, envs, :]
                    return self._tensor(np.ravel_multi_index(pair, self._shape), other_columns=True)
                except (ValueError, TypeError):
                    pass  # negative, out of bounds, or of bools: below, as NumPy has it
        leading, rest = self._split(index)
        if leading is None:
            return th.as_tensor(self._read(self._cells)[index], device=self.store.plan.device)
        cells = self._cells[leading]
        values = self._tensor(cells)
        if any(not (isinstance(one, slice) and one == slice(None)) for one in rest):
            values = values[(*(slice(None),) * np.ndim(cells), *rest)]
        return values

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("Compressed observations can only be read as a copy")
        return self._read(self._cells).astype(self.dtype if dtype is None else dtype, copy=False)

    def _tensor(self, cells: Any, *, other_columns: bool = False) -> th.Tensor:
        flat: Cells = np.asarray(cells, np.int64).reshape(-1)
        values: Any = self._reader.read(self.column, flat, other_columns=other_columns)
        if not isinstance(values, th.Tensor):  # the frame layout is still open
            values = th.from_numpy(values).to(self.store.plan.device)
        if self.stored_dtype != self.dtype:
            values = values.to(torch_dtype(self.dtype))
        tensor: th.Tensor = values if np.ndim(cells) == 1 else values.view(*np.shape(cells), *self.obs_shape)
        return tensor

    def _read(self, cells: Any) -> NDArray[Any]:
        values: NDArray[Any] = self._tensor(cells).cpu().numpy()
        return values

    def _rearranged(self, cells: Cells) -> DeviceArrayView:
        return DeviceArrayView(
            self.store, self.column, cells.shape, self.obs_shape, self.dtype,
            stored_dtype=self.stored_dtype, cells=cells, reader=self._reader,
        )  # fmt: skip
