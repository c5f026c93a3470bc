"""The locks that readers and writers hold. A fork waits for them, so that a child never finds a half-written store."""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from typing import Any

_numbers = itertools.count()
#: All locks, in the order in which they were made.
_locks: dict[int, weakref.ref[Any]] = {}
_forks = threading.local()  # `held`: the locks that this thread has taken for a fork
#: Seconds that a fork waits for one lock while it holds others; and seconds for which it then releases them.
_PATIENCE = 0.01
#: The most seconds that others wait for a fork.
_COURTESY = 0.2
#: How often each hook is registered. Ctrl-C may end a hook before its first line; then Python calls the next one.
_RUNS = 4


def new_lock() -> threading.RLock:
    """A lock that can be taken again by the thread that holds it, and that is free in a forked child."""
    lock = threading.RLock()
    number = next(_numbers)
    _locks[number] = weakref.ref(lock, lambda _: _locks.pop(number, None))
    return lock


_forking = new_lock()  # the first lock: if several threads fork at the same time, one goes first


#: Threads that wait for locks to fork. Locks are not fair, so a thread that takes one in a loop must give way to these.
waiting_forks: set[int] = set()


def give_way() -> None:
    """Let forks go ahead. To be called before a lock is taken, if there are `waiting_forks`."""
    end = time.monotonic() + _COURTESY
    while waiting_forks - {threading.get_ident()} and time.monotonic() < end:
        time.sleep(_PATIENCE / 10)


def _take_all() -> None:
    """Take all locks. After an interrupt it can be called again, and continues."""
    if not hasattr(_forks, "held"):
        _forks.held = []
    waiting_forks.add(threading.get_ident())
    while True:
        try:
            if _took_all():
                waiting_forks.discard(threading.get_ident())
                return
            # Another thread holds one lock and waits for another, e.g. a buffer that samples from a second buffer.
            _free_all()
            time.sleep(_PATIENCE)
        except BaseException:  # Ctrl-C: Python would report it and still fork, without the locks
            continue


def _took_all() -> bool:
    for lock in [reference() for reference in list(_locks.values())]:
        if lock is None or lock._is_owned():  # taken by a caller in this thread, which will release it, or for this fork
            continue
        _forks.held.append(lock)
        if not lock.acquire(timeout=-1 if lock is _forking else _PATIENCE):
            return False
    return True


def _free_all() -> None:
    """Release the locks that were taken for a fork. After an interrupt it can be called again, and continues."""
    held = getattr(_forks, "held", [])
    while held:
        try:
            while held[-1]._is_owned():
                held[-1].release()
            held.pop()
        except BaseException:  # Ctrl-C: other threads would wait for these locks for ever
            continue


def _free_all_in_child() -> None:
    waiting_forks.clear()  # threads of the parent
    _free_all()


if hasattr(os, "register_at_fork"):
    for _ in range(_RUNS):
        os.register_at_fork(before=_take_all, after_in_parent=_free_all, after_in_child=_free_all_in_child)
