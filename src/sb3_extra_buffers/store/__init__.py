"""The store: streams of frames, kept in encoded blocks. Above: the buffers. Below: codecs. Never imports SB3."""

from __future__ import annotations

from sb3_extra_buffers.store.array_view import ArrayView
from sb3_extra_buffers.store.base import MemoryUsage, Store
from sb3_extra_buffers.store.detect import DetectingStore
from sb3_extra_buffers.store.frame_store import FrameStore
from sb3_extra_buffers.store.layout import FrameLayout
from sb3_extra_buffers.store.row_store import RowStore

__all__ = ["ArrayView", "DetectingStore", "FrameLayout", "FrameStore", "MemoryUsage", "RowStore", "Store"]
