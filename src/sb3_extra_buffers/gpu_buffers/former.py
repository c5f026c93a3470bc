"""The attribute that 0.5's GPU buffers had beside those of the others. Above: mixin."""

from __future__ import annotations

from typing import Any, NamedTuple

from sb3_extra_buffers.gpu_buffers.methods import HEAP_METHODS, split_method


class FormerMemory(NamedTuple):
    """How many bytes the observations may take."""

    size: int


class FormerHeap(NamedTuple):
    """How full the heap of a buffer is, by the names of 0.5.

    :param data_end: bytes that the observations take
    :param buffer: bytes that they may take
    """

    data_end: int
    buffer: FormerMemory


def former_heap(buffer: Any) -> FormerHeap | None:
    """What a buffer's heap holds, of this moment; None for methods that keep no payloads."""
    methods = buffer._options.compression_method
    names = [methods] if isinstance(methods, str) else methods.values()
    if not any(split_method(name)[0] in HEAP_METHODS for name in names):
        return None
    used = sum(store.memory.nbytes for store in buffer._device_stores())
    limit = next(iter(buffer._leaves.values())).plan.budget.limit
    return FormerHeap(used, FormerMemory(max(used, limit)))
