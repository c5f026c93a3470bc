"""The store: streams of frames, kept in encoded blocks. Above: the buffers. Below: codecs. Never imports SB3."""

from __future__ import annotations

from sb3_extra_buffers.store.array_view import ArrayView
from sb3_extra_buffers.store.detect import DetectingStore
from sb3_extra_buffers.store.frame_store import FrameStore, MemoryUsage
from sb3_extra_buffers.store.layout import FrameLayout

__all__ = ["ArrayView", "DetectingStore", "FrameLayout", "FrameStore", "MemoryUsage"]
