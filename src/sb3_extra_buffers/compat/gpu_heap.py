"""Bytes on a device by hand, as 0.5 had it: a flat memory, a heap with one payload per cell, and what is known of a payload.

The GPU buffers do not come here: they have a heap that packs itself (`store/device/heap.py`). In this one the caller says
where payloads go, and keeps `start_idx`, `lengths` and `data_end`. Above: gpu_methods, gpu_stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch as th


@dataclass(frozen=True)
class SlotMetadata:
    """Where a payload is and how it is made.

    :param byte_start: where it begins in the memory
    :param pos_runs: where its run lengths begin, from there
    :param pos_elem: where its values begin, from there
    :param run_length: how many runs or values it has
    :param payload_bytes: its size
    """

    byte_start: int
    pos_runs: int
    pos_elem: int
    run_length: int
    payload_bytes: int


def arr_config_length(arr_configs: Mapping[str, Any]) -> int:
    """The number of values that ``size``, or else ``shape``, says."""
    return int(arr_configs["size"] if "size" in arr_configs else arr_configs["shape"])


class RawBuffer:
    """Flat memory on a device. A place in it is ``(start, length)``, in bytes.

    :param size: bytes
    :param device: where they are
    """

    def __init__(self, size: int, device: str | th.device = "cpu") -> None:
        self.data = th.zeros(size, dtype=th.uint8, device=device)
        self.size, self.device = size, self.data.device

    @property
    def buffer(self) -> th.UntypedStorage:
        """The memory itself."""
        return self.data.untyped_storage()

    def write_bytes(self, malloc: tuple[int, int], tensor: th.Tensor) -> None:
        """Copy the bytes of a tensor to a place of their length."""
        self._at(malloc)[:] = tensor.contiguous().to(self.device).view(th.uint8).reshape(-1)

    def read_bytes(self, malloc: tuple[int, int], dtype: th.dtype) -> th.Tensor:
        """The bytes of a place as values of a dtype; for uint8 a view, else a copy."""
        held = self._at(malloc)
        return held if dtype == th.uint8 else held.clone().view(dtype)

    def read_into(self, malloc: tuple[int, int], tensor: th.Tensor) -> None:
        """Copy the values of a place to the beginning of a tensor."""
        values = self.read_bytes(malloc, tensor.dtype)
        tensor[: len(values)] = values

    def copy_region(self, src_start: int, length: int, dst_start: int) -> None:
        """Copy bytes from one place to another. They may overlap."""
        self.write_bytes((dst_start, length), self._at((src_start, length)).clone())

    def _at(self, place: tuple[int, int]) -> th.Tensor:
        start, length = place
        if start < 0 or length < 0 or start + length > self.size:
            raise ValueError(f"Bytes {start} to {start + length} are outside of a RawBuffer of {self.size} bytes")
        return self.data[start : start + length]


def write_at(buffer: RawBuffer, byte_start: int, rel_byte_offset: int, tensor: th.Tensor) -> None:
    """Write a tensor to ``byte_start + rel_byte_offset``."""
    buffer.write_bytes((byte_start + rel_byte_offset, tensor.numel() * tensor.element_size()), tensor)


def read_at(buffer: RawBuffer, byte_start: int, rel_byte_offset: int, elem_count: int, dtype: th.dtype) -> th.Tensor:
    """A copy of ``elem_count`` values at ``byte_start + rel_byte_offset``."""
    return buffer.read_bytes((byte_start + rel_byte_offset, elem_count * dtype.itemsize), dtype).clone()


class SharedRawHeap:
    """Memory with one payload per cell. Whoever writes a payload sets ``start_idx``, ``lengths`` and ``data_end``.

    :param n_cells: cells
    :param heap_bytes: bytes for their payloads
    :param device: where they are
    """

    def __init__(self, n_cells: int, heap_bytes: int, device: str | th.device = "cpu") -> None:
        self.n_cells, self.buffer = n_cells, RawBuffer(heap_bytes, device)
        self.device = self.buffer.device
        self.start_idx = th.zeros(n_cells, dtype=th.int64, device=device)
        self.lengths = th.zeros(n_cells, dtype=th.int64, device=device)
        self.data_end = 0

    def compact(self) -> None:
        """Pack all payloads to the front, in the order of their cells."""
        places = zip(self.start_idx.tolist(), self.lengths.tolist(), strict=True)
        payloads = [self.buffer.read_bytes(place, th.uint8) for place in places]
        packed = th.cat([*payloads, self.buffer.data[:0]])
        self.buffer.write_bytes((0, len(packed)), packed)
        self.start_idx = self.lengths.cumsum(0) - self.lengths
        self.data_end = len(packed)

    def ensure_space(self, needed: int) -> None:
        """Have ``needed`` bytes free at ``data_end``: packs if there are not; ValueError if there are not then either."""
        if self.data_end + needed > self.buffer.size:
            self.compact()
        if self.data_end + needed > self.buffer.size:
            raise ValueError(
                f"The heap is full: {needed} bytes are needed behind the {self.data_end} in use, and it has "
                f"{self.buffer.size}. Make it with more heap_bytes"
            )
