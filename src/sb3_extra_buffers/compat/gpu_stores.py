"""Observations on a device by slot and env, as 0.5's GPU buffers kept them: dense, or compressed one by one in a heap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

import torch as th

from sb3_extra_buffers.compat.gpu_heap import RawBuffer, SharedRawHeap, SlotMetadata
from sb3_extra_buffers.compat.sizes import estimate_max_slot_bytes


class _ObservationStore(ABC):
    """Flat observations by slot and env.

    :param buffer_size: slots
    :param n_envs: envs
    :param flat_len: values of an observation
    :param elem_type: their dtype
    :param device: where they are
    """

    def __init__(self, buffer_size: int, n_envs: int, flat_len: int, elem_type: th.dtype, device: str | th.device) -> None:
        self.buffer_size, self.n_envs, self.flat_len = buffer_size, n_envs, flat_len
        self.elem_type, self.device = elem_type, th.device(device)

    @abstractmethod
    def write(self, pos: int, env_idx: int, flat_tensor: th.Tensor) -> None:
        """Keep an observation."""

    @abstractmethod
    def read(self, pos: int, env_idx: int) -> th.Tensor:
        """An observation."""

    def read_flat(self, flat_idx: int) -> th.Tensor:
        """An observation by its number in SB3's `swap_and_flatten`: all slots of the first env, then those of the next."""
        return self.read(flat_idx % self.buffer_size, flat_idx // self.buffer_size)

    def flatten(self) -> None:  # noqa: B027
        """Do nothing: `read_flat` finds its way without."""


class DenseObservationStore(_ObservationStore):
    """Observations as they are."""

    def __init__(self, buffer_size: int, n_envs: int, flat_len: int, elem_type: th.dtype, device: str | th.device) -> None:
        super().__init__(buffer_size, n_envs, flat_len, elem_type, device)
        self.observations = th.zeros((buffer_size, n_envs, flat_len), dtype=elem_type, device=device)

    def write(self, pos: int, env_idx: int, flat_tensor: th.Tensor) -> None:
        """See `_ObservationStore`."""
        self.observations[pos, env_idx] = flat_tensor.to(self.device, self.elem_type)

    def read(self, pos: int, env_idx: int) -> th.Tensor:
        """See `_ObservationStore`."""
        return self.observations[pos, env_idx]


class RawObservationStore(_ObservationStore):
    """Observations as payloads in a heap.

    :param field_offset: which of several stores in the heap this is: 0, 1, ...
    :param compress: ``(tensor, RawBuffer, byte_start) -> SlotMetadata``
    :param decompress: ``(RawBuffer, SlotMetadata) -> tensor``
    :param compression_method: their name, for an estimate of the largest payload
    :param runs_type: dtype of run lengths, for the same
    :param shared_heap: the heap, which has cells for all stores in it
    :param n_fields: without effect
    """

    def __init__(
        self, buffer_size: int, n_envs: int, flat_len: int, elem_type: th.dtype, device: str | th.device, field_offset: int,
        compress: Callable[..., SlotMetadata], decompress: Callable[..., th.Tensor], compression_method: str = "rle",
        runs_type: th.dtype = th.uint16, shared_heap: SharedRawHeap | None = None, n_fields: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(buffer_size, n_envs, flat_len, elem_type, device)
        if shared_heap is None:
            raise ValueError("A store of payloads needs a heap: shared_heap=SharedRawHeap(n_cells, heap_bytes, device)")
        self.heap, self.field_offset = shared_heap, field_offset
        self._compress, self._decompress = compress, decompress
        largest = max(
            estimate_max_slot_bytes(flat_len, elem_type, runs_type, compression_method),
            flat_len * (elem_type.itemsize + runs_type.itemsize) + 64,
        )
        self._scratch = RawBuffer(largest, device)
        self._written: dict[int, SlotMetadata] = {}

    def cell_id(self, pos: int, env_idx: int) -> int:
        """The cell of an observation in the heap."""
        return (self.field_offset * self.buffer_size + pos) * self.n_envs + env_idx

    def write(self, pos: int, env_idx: int, flat_tensor: th.Tensor) -> None:
        """See `_ObservationStore`. ValueError, with nothing changed, if the heap is full."""
        cell, heap = self.cell_id(pos, env_idx), self.heap
        meta = self._compress(flat_tensor, self._scratch, 0)
        if meta.payload_bytes > int(heap.lengths[cell]):  # else it fits where the old one is
            heap.ensure_space(meta.payload_bytes)
            heap.start_idx[cell] = heap.data_end
            heap.data_end += meta.payload_bytes
        heap.lengths[cell] = meta.payload_bytes
        payload = self._scratch.read_bytes((0, meta.payload_bytes), th.uint8)
        heap.buffer.write_bytes((int(heap.start_idx[cell]), meta.payload_bytes), payload)
        self._written[cell] = meta

    def read(self, pos: int, env_idx: int) -> th.Tensor:
        """See `_ObservationStore`."""
        cell = self.cell_id(pos, env_idx)
        if cell not in self._written:
            raise IndexError(f"Nothing was written to slot {pos} of env {env_idx}")
        return self._decompress(self.heap.buffer, replace(self._written[cell], byte_start=int(self.heap.start_idx[cell])))

    def compact(self) -> None:
        """Pack the heap."""
        self.heap.compact()


def create_observation_store(
    compression_method: str, buffer_size: int, n_envs: int, flat_len: int, elem_type: th.dtype, device: str | th.device,
    field_offset: int = 0, compress: Callable[..., SlotMetadata] | None = None,
    decompress: Callable[..., th.Tensor] | None = None, runs_type: th.dtype = th.uint16,
    shared_heap: SharedRawHeap | None = None, n_fields: int = 1,
) -> DenseObservationStore | RawObservationStore:  # fmt: skip
    """A store of observations: dense for ``"none"``, else one of payloads. See there for the parameters."""
    if compression_method == "none":
        return DenseObservationStore(buffer_size, n_envs, flat_len, elem_type, device)
    if compress is None or decompress is None:
        raise ValueError(f"A store of payloads by {compression_method!r} needs compress= and decompress=")
    return RawObservationStore(
        buffer_size, n_envs, flat_len, elem_type, device, field_offset, compress, decompress, compression_method, runs_type,
        shared_heap, n_fields,
    )  # fmt: skip
