"""KeyboardInterrupt at a chosen moment of a call, as a signal raises it, but reproducibly."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sb3_extra_buffers.store import locks

_HERE = str(Path(__file__).parent)  # what is in this folder is not interrupted


class Interrupts:
    """Raises KeyboardInterrupt at a chosen moment of a call, as a signal does, but reproducibly.

    Python looks for signals when a function begins, after each call, and when a loop goes round. `at_call` raises there.
    `at_bytecode` is stricter: it raises before any instruction.

    :param error: what to raise instead
    """

    def __init__(self, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.error = error
        #: Whether the last call lasted until its moment.
        self.has_fired = True

    def at_bytecode(
        self, number: int, call: Callable[[], Any], then_at_call: int = 0, begins: Callable[[], bool] = lambda: True
    ) -> None:
        """Raise before the instruction with this number, counted from 1.

        :param then_at_call: if not 0, raise again at this call or return after that, in what is done about it
        :param begins: instructions count as soon as this is so
        """
        left, again, self.has_fired = number, self._profile(then_at_call), False

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename.startswith(_HERE):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode" and (left < number or begins()):
                left -= 1
                if left == 0:
                    self.has_fired = True
                    if then_at_call:
                        sys.setprofile(again)
                    raise self.error
            return trace

        with _quiet_callbacks():
            sys.settrace(trace)
            try:
                call()
            finally:
                sys.settrace(None)
                sys.setprofile(None)
                release_locks()

    def at_call(self, number: int, call: Callable[[], Any]) -> None:
        """Raise at the beginning of a function of Python, or the return of any, with this number, counted from 1."""
        self.has_fired = False
        profile = self._profile(number)  # held: Python 3.11 crashes if one that removes itself in a garbage collection dies
        with _quiet_callbacks():
            sys.setprofile(profile)
            try:
                call()
            finally:
                sys.setprofile(None)

    def _profile(self, number: int) -> Any:
        left = number

        def profile(frame: Any, event: str, arg: Any) -> None:
            nonlocal left
            is_own = arg is sys.settrace or arg is sys.setprofile or frame.f_code.co_filename.startswith(_HERE)
            if event == "c_call" or is_own:  # nothing is looked for before a function of C is called
                return
            left -= 1
            if left == 0:
                self.has_fired = True
                raise self.error

        return profile


@contextlib.contextmanager
def _quiet_callbacks() -> Iterator[None]:
    """An interrupt in a callback, of a weak reference for one, is only reported. Not here."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before


def release_locks() -> None:
    """Release the buffers' locks that this thread still holds: a fork would wait for them for ever.

    Only `at_bytecode` leaves some, between a `with` statement and its block, where Python never looks for signals.
    """
    for lock in [reference() for reference in locks._locks.values()]:
        while lock is not None and lock._is_owned():
            lock.release()


def is_free(lock: Any) -> bool:
    """Whether another thread can take a lock."""
    taken: list[bool] = []

    def take() -> None:
        taken.append(lock.acquire(blocking=False))
        if taken[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]
