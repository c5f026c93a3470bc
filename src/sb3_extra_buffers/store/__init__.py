"""The store: streams of frames, kept in encoded blocks. Above: the buffers. Below: codecs and native. Never imports SB3."""

from __future__ import annotations

from sb3_extra_buffers.store.array_view import ArrayView
from sb3_extra_buffers.store.base import MemoryUsage, Store
from sb3_extra_buffers.store.detect import StorePlan
from sb3_extra_buffers.store.host.blocks import BlockStore
from sb3_extra_buffers.store.host.rows import RowStore
from sb3_extra_buffers.store.layout import FrameLayout
from sb3_extra_buffers.store.leaf import LeafStore

__all__ = ["ArrayView", "BlockStore", "FrameLayout", "LeafStore", "MemoryUsage", "RowStore", "Store", "StorePlan"]
