"""Threads for codecs that are libraries: they release the GIL. The core has its own threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from sb3_extra_buffers.native.threads import thread_count

Work = TypeVar("Work")
Result = TypeVar("Result")

_starting = threading.Lock()
_queue: SimpleQueue[Callable[[], None]] | None = None  # the parts that wait for a thread


def run_in_threads(work: Callable[[Work], Result], pieces: Sequence[Work]) -> list[Result]:
    """Call ``work`` for each piece, in threads. Returns or raises only when all threads have finished.

    Passing work to a thread takes about 50 microseconds, so a piece should take longer than that.
    """
    threads = min(thread_count(), len(pieces))
    if threads < 2:
        return [work(piece) for piece in pieces]
    queue, run = _started(thread_count() - 1), _Run(work)
    results: list[Any] = [None] * len(pieces)
    try:
        for i in range(1, threads):
            queue.put(run.part(i, pieces[i::threads]))
        results[::threads] = [work(piece) for piece in pieces[::threads]]
        for _ in range(1, threads):
            i, finished, error = run.finished.get()
            if error is not None:
                raise error
            results[i::threads] = finished
    except BaseException:
        while not run.is_over:
            try:  # noqa: SIM105  a context manager could be interrupted itself
                run.end()
            except KeyboardInterrupt:  # Ctrl-C again: the first one is raised below
                pass
        raise
    return results


class _Run(Generic[Work, Result]):
    """One call of `run_in_threads`. When it is over, memory that the threads read may be freed, so no thread may still be
    running.

    :param work: called for each piece
    """

    def __init__(self, work: Callable[[Work], Result]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._n_working = 0  # counted by the threads, because signals interrupt only the main thread
        self._is_open = True
        self.is_over = False
        #: The number of a part, and its results or its error.
        self.finished: SimpleQueue[tuple[int, list[Result], BaseException | None]] = SimpleQueue()

    def part(self, number: int, pieces: Sequence[Work]) -> Callable[[], None]:
        """Runs in a thread: work on some pieces, unless the call is already over."""

        def work_on_part() -> None:
            with self._lock:
                if not self._is_open:
                    return
                self._n_working += 1
            try:
                self.finished.put((number, [self._work(piece) for piece in pieces], None))
            except BaseException as error:
                self.finished.put((number, [], error))
            finally:
                with self._lock:
                    self._n_working -= 1

        return work_on_part

    def end(self) -> None:
        """After an interrupt: wait for running threads, and let no other begin."""
        with self._lock:
            self._is_open = False
        while self._n_working > 0:
            time.sleep(0.0005)
        self.is_over = True


def _started(n: int) -> SimpleQueue[Callable[[], None]]:
    """The queue of the threads, which are started on the first call."""
    global _queue
    with _starting:
        if _queue is None:
            queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
            for _ in range(n):
                threading.Thread(target=_serve, args=(queue,), name="sb3-extra-buffers", daemon=True).start()
            _queue = queue
        return _queue


def _serve(queue: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        queue.get()()


def _forget_threads() -> None:
    global _queue, _starting
    _queue, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child makes its own
    os.register_at_fork(after_in_child=_forget_threads)
