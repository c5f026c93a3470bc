"""Ray for tests: one for all of them, and its processes used again, because each new one imports torch for seconds."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sb3_extra_buffers.compressed.rebinding import Instead


def uses_ray(nodeid: str) -> bool:
    """Whether a test starts Ray, by its name: `test_distributed.py`, and the snippets of `docs/distributed.md`."""
    return "/test_distributed.py::" in nodeid or "docs/distributed.md" in nodeid


@contextmanager
def local_ray() -> Iterator[None]:
    """A Ray of the tests' own."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


class ReusedActors:
    """Actors that outlive their test. One that is to be started is an idle one whose `__init__` runs again.

    Ray starts a process that was killed with the arguments that it first had: tests that kill shards need new ones.
    """

    def __init__(self) -> None:
        self._idle: dict[type, list[Any]] = defaultdict(list)
        self._class_of: dict[Any, type] = {}

    def patch(self, monkeypatch: pytest.MonkeyPatch, *, with_shards: bool) -> None:
        """Let the modules that start and end actors take these."""
        import ray

        from sb3_extra_buffers.distributed import collectors, remote, sessions

        mine = Instead(ray, remote=self._remote, kill=self._kill)
        for module in (collectors, remote, sessions) if with_shards else (collectors,):
            monkeypatch.setattr(module, "ray", mine)

    def _remote(self, made_class: type) -> Any:
        made = SimpleNamespace(remote=lambda *arguments: self._start(made_class, arguments))
        return SimpleNamespace(options=lambda **_: made)

    def _start(self, made_class: type, arguments: tuple[Any, ...]) -> Any:
        import ray

        if self._idle[made_class]:
            handle = self._idle[made_class].pop()
            handle.__ray_call__.remote(lambda actor, given: actor.__init__(*given), arguments)
        else:
            handle = ray.remote(made_class).options(max_restarts=-1, num_cpus=0).remote(*arguments)
            self._class_of[handle] = made_class
        return handle

    def _kill(self, handle: Any, *, no_restart: bool = True) -> None:
        import ray

        if no_restart:
            ray.get(handle.__ray_call__.remote(lambda _: None), timeout=60)  # it has done what it was told
            self._idle[self._class_of[handle]].append(handle)
        else:
            ray.kill(handle, no_restart=False)
