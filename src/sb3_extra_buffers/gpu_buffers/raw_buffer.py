"""The heap behind `rle` and `zstd`, for buffers of your own."""

from __future__ import annotations

from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.store.device.budget import ByteBudget
from sb3_extra_buffers.store.device.heap import SharedRawHeap
from sb3_extra_buffers.store.device.payloads import RawBuffer

__all__ = ["HeapFullError", "RawBuffer", "Room", "SharedRawHeap"]

#: The name that ByteBudget had before.
Room = ByteBudget
