"""The locks that readers and writers hold. A fork waits for them, so that a child never finds a half-written store."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from typing import Any

_numbers = itertools.count()
#: All locks, in the order in which they were made. Two forks at a time take them in this order.
_locks: dict[int, weakref.ref[Any]] = {}
_forks = threading.local()  # `held`: what this thread has taken


def new_lock() -> threading.RLock:
    """A lock that can be taken again by the thread that holds it, and that is free in a forked child."""
    lock = threading.RLock()
    _remember(lock)
    return lock


def _remember(lock: threading.RLock) -> None:
    number = next(_numbers)
    _locks[number] = weakref.ref(lock, lambda _: _locks.pop(number, None))


_forking = threading.RLock()  # the first one: of threads that fork at the same time, one goes ahead
_remember(_forking)


def _take_all() -> None:
    _forks.held = []
    for lock in [reference() for reference in list(_locks.values())]:
        if lock is None or lock._is_owned():  # by a call further up in this thread, which will release it
            continue
        _forks.held.append(lock)
        while not lock._is_owned():
            try:  # noqa: SIM105  a context manager could be interrupted itself
                lock.acquire()
            except BaseException:  # Ctrl-C: Python would report it and fork nevertheless, without the lock
                pass


def _free_all() -> None:
    while _forks.held:
        lock = _forks.held.pop()
        while lock._is_owned():
            lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take_all, after_in_parent=_free_all, after_in_child=_free_all)
