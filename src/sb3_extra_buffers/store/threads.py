"""A few threads for large batches: the kernels release the GIL. Used by frame_store when a batch is worth the hand-over."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")

#: Handing work over costs some 50 microseconds: a batch should be several times that, about 10 GB/s.
LARGE_BATCH_BYTES = 4 << 20
_MOST_THREADS = 4

_pool: ThreadPoolExecutor | None = None


def thread_count() -> int:
    """Threads that large batches are read with: ``SB3_EXTRA_BUFFERS_THREADS``, or one per core, at most 4."""
    asked = os.environ.get("SB3_EXTRA_BUFFERS_THREADS", "")
    if asked.isdigit():
        return max(1, int(asked))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def run_in_threads(work: Callable[[Any], Result], parts: Sequence[Any]) -> list[Result]:
    """``work`` on each part, the first of them in this thread."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max(1, thread_count() - 1), thread_name_prefix="sb3-extra-buffers")
    others = [_pool.submit(work, part) for part in parts[1:]]
    return [work(parts[0]), *(other.result() for other in others)]


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child makes its own
    os.register_at_fork(after_in_child=_forget_pool)
