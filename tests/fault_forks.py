"""Children that are forked while threads work, in a process of its own: `python -m tests.fault_forks fork delta 15 2 1`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import SubprocVecEnv

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from tests.fault_injection import run_function
from tests.marked_buffers import MarkedBuffer

WAYS = ("fork", "multiprocessing", "subproc")


def fork(kinds: str, *numbers: int) -> dict[str, dict[str, int]]:
    """Make children in each of the WAYS, so many, while a thread adds and another one samples."""
    return {kind: _fork_while_used(kind, numbers) for kind in kinds.split(",")}


def _fork_while_used(kind: str, numbers: tuple[int, ...]) -> dict[str, int]:
    marked, stop, counts = MarkedBuffer(kind, steps=40), threading.Event(), {"added": 0, "sampled": 0}
    failures: list[BaseException] = []

    def repeat(name: str, call: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                call()
                counts[name] += 1
                time.sleep(0.001)  # locks are not fair: the fork wants its turn
        except BaseException as error:
            failures.append(error)

    def sample() -> None:
        marked.check_sample(200)

    for _ in range(20):
        marked.add()
    threads = [threading.Thread(target=repeat, args=work) for work in (("added", marked.add), ("sampled", sample))]
    for thread in threads:
        thread.start()
    try:
        for how, n in zip(WAYS, numbers, strict=True):
            for _ in range(n):
                time.sleep(0.01)
                _fork_one(how, marked)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    marked.check_all()
    return counts


def _fork_one(how: str, marked: MarkedBuffer) -> None:
    if how == "fork":
        _wait_for(_forked(marked))
    elif how == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=_use_in_child, args=(marked,))
        process.start()
        process.join(60)
        assert process.exitcode == 0, process.exitcode
    else:
        envs = SubprocVecEnv([lambda: _UsesBuffer(marked)] * 3, start_method="fork")
        envs.reset()
        assert envs.step(np.zeros(3, np.int64))[1].tolist() == [1.0] * 3
        envs.close()


def _forked(marked: MarkedBuffer) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _use_in_child(marked)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def _wait_for(child: int) -> None:
    for _ in range(3000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, status
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("a child hangs")


def _use_in_child(marked: MarkedBuffer) -> None:
    marked.check_all()  # what the parent had
    for _ in range(60):
        marked.add()
    marked.check_all()
    for n in (5, 200, 4000):
        marked.check_sample(n)
    tasks = Path("/proc/self/task")
    if marked.is_read_by_threads and tasks.exists():  # the last batch was
        assert len(list(tasks.iterdir())) > 1


class _UsesBuffer(gymnasium.Env[Any, Any]):
    """An env that uses a buffer of its parent."""

    observation_space = action_space = spaces.Discrete(2)

    def __init__(self, marked: MarkedBuffer) -> None:
        self._marked = marked

    def reset(self, **_: Any) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        _use_in_child(self._marked)
        return 0, 1.0, False, False, {}


class _Mixed(CompressedReplayBuffer):
    """Samples from another buffer too, as demonstrations are mixed with what is learned from."""

    demonstrations: CompressedReplayBuffer

    def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
        own = super()._get_samples(*args, **kwargs)
        self.demonstrations.sample(8)
        return own


def mixed(n: int) -> dict[str, int]:
    """Fork while a thread samples, without a pause, from a buffer that needs an older one for it."""
    older, newer = (
        kind(20, spaces.Box(0, 255, (4, 30, 30), np.uint8), spaces.Discrete(2)) for kind in (CompressedReplayBuffer, _Mixed)
    )
    newer.demonstrations = older
    for buffer in (older, newer):
        obs = np.zeros((1, 4, 30, 30), np.uint8)
        buffer.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    stop = threading.Event()

    def sample() -> None:
        while not stop.is_set():
            newer.sample(4)

    thread = threading.Thread(target=sample)
    thread.start()
    for _ in range(n):
        child = os.fork()
        if child == 0:
            newer.sample(4)
            os._exit(0)
        _wait_for(child)
    stop.set()
    thread.join()
    return {"children": n}


def forks(n_threads: int, n: int) -> dict[str, int]:
    """Several threads fork at the same time."""
    marked = [MarkedBuffer(kind, steps=10) for kind in ("delta", "vectors", "zstd")]
    for one in marked:
        for _ in range(15):
            one.add()
    children: list[int] = []

    def work() -> None:
        for i in range(n):
            child = _forked(marked[i % len(marked)])
            _wait_for(child)
            children.append(child)

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"children": len(children)}


if __name__ == "__main__":
    run_function(fork, forks, mixed)
