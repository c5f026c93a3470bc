"""Threads and forks: what is sampled was written, nobody is late, and a child can use what it inherits."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from sb3_extra_buffers.store.host.threads import run_in_threads
from tests.fault_injection import FAULTS, run_in_process
from tests.interrupts import Interrupts
from tests.marked_buffers import DEVICE_KINDS, KINDS, MarkedBuffer

SECONDS = 0.4
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_threads_of_all_kinds_at_once_see_only_what_was_written(kind: str) -> None:
    """One writes, two sample, one asks for sizes, one resets."""
    marked = MarkedBuffer(kind, steps=40)
    marked.add()
    stop, failures = threading.Event(), []
    counts = dict.fromkeys(("write", "sample", "ask", "reset"), 0)

    def ask() -> None:
        assert 0 <= marked.buffer.size() <= 40
        assert marked.buffer.memory_usage().raw_bytes % marked.step_bytes == 0
        assert len(np.asarray(marked.camera[3:5])) == 2

    def reset() -> None:
        time.sleep(0.01)
        marked.buffer.reset()

    def repeat(name: str, call: Any) -> None:
        try:
            while not stop.is_set():
                call()
                counts[name] += 1
        except BaseException as error:
            failures.append(error)

    calls = {"write": [marked.add], "sample": [marked.check_sample] * 2, "ask": [ask], "reset": [reset]}
    threads = [threading.Thread(target=repeat, args=(name, call)) for name, several in calls.items() for call in several]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not failures:
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(usual)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)
    assert min(counts.values()) > 3, counts


@every_kind
def test_every_call_waits_for_the_lock(kind: str) -> None:
    marked = MarkedBuffer(kind, steps=10)
    for _ in range(12):
        marked.add()
    buffer = marked.buffer
    calls = [
        marked.add, marked.check_sample, buffer.size, buffer.memory_usage, lambda: marked.camera[3],
        lambda: marked.camera.nbytes, lambda: marked.camera[np.array([1, 2]), np.array([0, 1])], buffer.reset,
    ]  # fmt: skip
    with buffer._lock:
        threads = [threading.Thread(target=call, daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        assert all(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_no_thread_of_a_codec_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a call is left, nothing is at work behind it: the memory that is read may be gone."""
    monkeypatch.setenv("SB3_EXTRA_BUFFERS_THREADS", "4")
    inside: set[int] = set()

    def work(piece: int) -> int:
        inside.add(piece)
        time.sleep(0.0002)
        inside.discard(piece)
        return piece * piece

    def fails(piece: int) -> int:
        if piece == 13:
            raise ValueError(piece)
        return work(piece)

    pieces = range(40)
    expected = [piece * piece for piece in pieces]
    assert run_in_threads(work, pieces) == expected
    with pytest.raises(ValueError, match="13"):
        run_in_threads(fails, pieces)
    assert not inside
    interrupts, number = Interrupts(), 0
    while interrupts.has_fired:
        number += 1
        try:
            interrupts.at_call(number, lambda: run_in_threads(work, pieces))
        except KeyboardInterrupt:
            inside.discard(max(inside, default=-1) if len(inside) == 1 else -1)  # of this thread, which was interrupted
            started = set(inside)
            time.sleep(0.001)
            assert started == inside
            inside.clear()
        assert run_in_threads(work, pieces) == expected
    assert number > 50


@pytest.mark.parametrize("kind", [*KINDS, *DEVICE_KINDS])
def test_a_buffer_that_is_saved_while_threads_use_it_is_saved_at_one_moment(kind: str) -> None:
    """A checkpoint beside the training: what is saved belongs together, and what goes on is not disturbed."""
    marked, stop, failures, saved = MarkedBuffer(kind, steps=30), threading.Event(), [], []  # type: ignore[var-annotated]

    def repeat(call: Any) -> None:
        try:
            while not stop.is_set():
                call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(call,)) for call in (marked.add, marked.check_sample)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    while (time.monotonic() < end or len(saved) < 5) and not failures:
        saved.append(pickle.dumps(marked.buffer))
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not failures, failures
    marked.check_all()
    for data in saved[:: len(saved) // 5]:
        marked.buffer = pickle.loads(data)
        marked.check_all()
        newest = int(marked.buffer.rewards.max())
        marked.t = newest + 1
        for _ in range(40):
            marked.add()
        marked.check_all()


def test_a_fork_does_not_wait_for_a_buffer_that_waits_for_another() -> None:
    """One that samples from an older one too, in a thread without a pause."""
    assert run_in_process("fault_forks", "mixed", 20, timeout=120) == {"children": 20}


def test_ctrl_c_during_a_fork_leaves_no_lock_behind() -> None:
    result = run_in_process("fork_interrupts", 60, timeout=300)
    assert result["interrupts"] > 10
    assert result["held"] == 0


def test_ctrl_c_in_a_large_batch_and_then_reset() -> None:
    """A batch of 4 MiB and more is read by threads; `reset` frees what they read."""
    n = max(FAULTS // 20, 12)
    result = run_in_process("fault_process", "large", n, "delta", "zstd", "lz4-frame", "rle")
    assert min(result["interrupts"]) > n // 4


@pytest.mark.parametrize(
    ("kinds", "numbers"), [("delta", (15, 2, 1)), ("zstd,lz4,vectors,dict", (max(2, FAULTS // 500), 1, 0))]
)
def test_a_child_that_is_forked_while_threads_work_can_add_and_sample(kinds: str, numbers: tuple[int, ...]) -> None:
    """It has what the parent had at the fork, and threads of its own; also as an env of SubprocVecEnv."""
    result = run_in_process("fault_forks", "fork", kinds, *numbers, timeout=600)
    assert ",".join(result) == kinds
    assert min(counts["added"] for counts in result.values()) > 10
    assert min(counts["sampled"] for counts in result.values()) > 1


def test_threads_that_fork_at_the_same_time_do_not_wait_for_each_other() -> None:
    assert run_in_process("fault_forks", "forks", 3, 3, timeout=300) == {"children": 9}
