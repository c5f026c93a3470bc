"""One thread for torch: the tests run side by side, and results must not depend on how sums are split.

What a test registers is forgotten after it. Long tests begin first. Ray is started once, for all tests that need it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch as th

from sb3_extra_buffers.codecs import registry

from .ray_actors import ReusedActors, local_ray, uses_ray

th.set_num_threads(1)

#: Modules whose tests run in one process: a site, a wheel, a recording, a browser or a compiled library is made once for all.
TOGETHER = {
    "test_bench.py",
    "test_cli_inspect.py",
    "test_cli_terminal.py",
    "test_docs.py",
    "test_native.py",
    "test_viewer_browser.py",
    "test_wheel.py",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "long: takes ten seconds or more; begins early, so that no worker waits for it at the end"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups of tests begin before single ones anyway: see `--loadscope-reorder` of pytest-xdist."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """A full collection takes half a second with all that is imported by now; what is frozen is not looked at."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def registered_codecs() -> Iterator[None]:
    """The registry belongs to the process: a codec that one test registers must not be seen by the next one."""
    before = dict(registry._entries)
    yield
    if registry._entries != before:
        registry._entries.clear()
        registry._entries.update(before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share something expensive run in one process.

    The mark `xdist_group`, which is made for this, is ignored by pytest-xdist 3.8 with pytest 9.2.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Scheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0].rpartition("/")[2]
            return "ray" if uses_ray(nodeid) else module if module in TOGETHER else super()._split_scope(nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """Ray on this machine, for the tests of `uses_ray`."""
    with local_ray():
        yield


@pytest.fixture(scope="session")
def _actors(ray_here: None) -> ReusedActors:
    return ReusedActors()


@pytest.fixture
def reused_actors(_actors: ReusedActors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards and collectors run in processes of earlier tests. For tests that neither kill shards nor look at processes."""
    _actors.patch(monkeypatch, with_shards=True)


@pytest.fixture
def reused_collectors(_actors: ReusedActors, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for collectors alone, for tests that kill shards."""
    _actors.patch(monkeypatch, with_shards=False)
