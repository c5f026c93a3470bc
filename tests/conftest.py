"""One thread for torch: the tests run side by side, and results must not depend on how sums are split.

What a test registers is forgotten after it. Long tests begin first.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch as th

from sb3_extra_buffers.codecs import registry

th.set_num_threads(1)


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
