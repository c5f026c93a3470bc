"""What the command asks of the machine: memory of this process and of the machine."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from sb3_extra_buffers._optional import require


def resident_bytes() -> int:
    """Memory of this process that is in RAM now (RSS), after freed memory was handed back to the system."""
    # glibc keeps some of what torch frees at every step, more or less by chance: tens of MB of noise.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    psutil = require("psutil", extra="extra", what="Reading the memory of a process")
    return int(psutil.Process().memory_info().rss)


def ram_bytes() -> int:
    """RAM of this machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        psutil = require("psutil", extra="extra", what="Reading the size of RAM")
        return int(psutil.virtual_memory().total)
