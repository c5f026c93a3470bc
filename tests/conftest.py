"""One thread for torch: the tests run side by side, and results must not depend on how sums are split.

What a test registers is forgotten after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch as th

from sb3_extra_buffers.codecs import registry

th.set_num_threads(1)


@pytest.fixture(autouse=True)
def registered_codecs() -> Iterator[None]:
    """The registry belongs to the process: a codec that one test registers must not be seen by the next one."""
    before = dict(registry._entries)
    yield
    if registry._entries != before:
        registry._entries.clear()
        registry._entries.update(before)
