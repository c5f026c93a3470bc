"""What the command asks of the machine: memory of this process and of the machine."""

from __future__ import annotations

import os

from sb3_extra_buffers._optional import require
from sb3_extra_buffers.bench.memory import resident_bytes

__all__ = ["ram_bytes", "resident_bytes"]


def ram_bytes() -> int:
    """RAM of this machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        psutil = require("psutil", extra="extra", what="Reading the size of RAM")
        return int(psutil.virtual_memory().total)
