"""The heap behind `rle` and `zstd`, for buffers of your own."""

from __future__ import annotations

from sb3_extra_buffers.errors import HeapFullError
from sb3_extra_buffers.store.device_heap import RawBuffer, SharedRawHeap
from sb3_extra_buffers.store.device_memory import Room

__all__ = ["HeapFullError", "RawBuffer", "Room", "SharedRawHeap"]
