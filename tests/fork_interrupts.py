"""A signal in the midst of each of many forks: `python -m tests.fork_interrupts 60`.

Imports little: of all that is to be done after a fork, the first function in Python gets the signal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_extra_buffers.compressed import CompressedReplayBuffer


def interrupt_forks(n: int) -> dict[str, int]:
    """How many signals came in time, and how many locks were held after a fork."""
    space = spaces.Box(0, 255, (4, 30, 30), np.uint8)
    buffers = [CompressedReplayBuffer(20, space, spaces.Discrete(2), "cpu") for _ in range(3)]
    ballast = np.ones(1 << 28, np.uint8)  # so that a fork takes a while
    counts, rng = {"interrupts": 0, "held": 0}, np.random.default_rng(0)
    sys.unraisablehook = lambda _: counts.update(interrupts=counts["interrupts"] + 1)  # Python reports it, and goes on

    def raise_error(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, raise_error)
    for _ in range(n):
        try:
            signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-6, 6e-3)))
            if os.fork() == 0:
                os._exit(0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            time.sleep(0)
        except KeyboardInterrupt:
            pass
        for buffer in buffers:
            counts["held"] += buffer._lock._is_owned()
            while buffer._lock._is_owned():
                buffer._lock.release()
    assert ballast.all()
    return counts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(interrupt_forks(int(sys.argv[1]))) + "\n")
