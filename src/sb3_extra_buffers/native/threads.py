"""The threads of the core: how many there are, and what happens to them at a fork."""

from __future__ import annotations

import ctypes
import os
import warnings

THREADS_VARIABLE = "SB3_EXTRA_BUFFERS_THREADS"
#: The default maximum of threads, and the largest number that can be set, MOST_THREADS in threads.c.
_MOST_THREADS, _LIMIT = 4, 16


def thread_count() -> int:
    """Number of threads for large batches: ``SB3_EXTRA_BUFFERS_THREADS``, at most 16; by default one per core, at most 4."""
    asked = os.environ.get(THREADS_VARIABLE, "").strip()
    if asked.isdecimal() and int(asked) >= 1:
        return min(int(asked), _LIMIT)
    if asked:
        warnings.warn(f"{THREADS_VARIABLE} must be a number from 1 to {_LIMIT}, got {asked!r}: it is ignored", stacklevel=2)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def set_threads(n: int) -> None:
    """Read large batches with ``n`` threads, including the calling one."""
    from sb3_extra_buffers.native.binding import core

    core().sb3x_set_threads(n)


def start_with(library: ctypes.CDLL) -> None:
    """Set up a library that was just loaded. Its threads are started when a batch needs them."""
    library.sb3x_set_threads(thread_count())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=library.sb3x_after_fork)
