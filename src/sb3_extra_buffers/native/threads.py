"""The threads of the core: how many there are, and what happens to them at a fork."""

from __future__ import annotations

import ctypes
import os

_MOST_THREADS = 4


def thread_count() -> int:
    """Threads that large batches are read with: ``SB3_EXTRA_BUFFERS_THREADS``, or one per core, at most 4."""
    asked = os.environ.get("SB3_EXTRA_BUFFERS_THREADS", "")
    if asked.isdigit():
        return max(1, int(asked))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def set_threads(n: int) -> None:
    """Read large batches with ``n`` threads, the calling one included."""
    from sb3_extra_buffers.native.binding import core

    core().sb3x_set_threads(n)


def start_with(library: ctypes.CDLL) -> None:
    """Set up a library that was just loaded. Its threads are started when a batch needs them."""
    library.sb3x_set_threads(thread_count())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=library.sb3x_after_fork)
