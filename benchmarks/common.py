"""What the benchmarks share: memory of the process, recorded frames. It also runs beside cpprb, which brings no torch."""

from __future__ import annotations

import threading
import time
from itertools import islice
from typing import Any


def rss() -> float:
    """Resident memory of this process, in MB (of 1,000,000 bytes)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024 / 1e6


class Peak:
    """The largest resident memory while a block runs."""

    def __enter__(self) -> Peak:
        self.peak, self._runs = rss(), True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._runs:
            self.peak = max(self.peak, rss())
            time.sleep(0.003)

    def __exit__(self, *error: object) -> None:
        self._runs = False
        self._thread.join()


def mspacman(made_class: Any, n: int) -> tuple[Any, Any]:
    """A buffer full of transitions of MsPacman, from a recording of 40,000, and the recording."""
    from sb3_extra_buffers.bench.frames import default_cache, load_workload
    from sb3_extra_buffers.bench.recording import ensure_recording

    ensure_recording(default_cache(), "MsPacman", 10_000, lambda *_: None)
    workload = load_workload("MsPacman", 10_000, default_cache())
    buffer = made_class(n, workload.observation_space, workload.action_space, "cpu", 4)
    while not buffer.full:
        for step in islice(workload.steps(), buffer.buffer_size - buffer.pos):
            buffer.add(*step)
    return buffer, workload
