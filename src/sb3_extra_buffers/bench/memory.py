"""The memory of this process. Imports nothing of ours: it also runs beside other libraries, in environments of their own."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path


def resident_bytes() -> int:
    """Memory of this process that is in RAM now (RSS), after freed memory was handed back to the system."""
    # glibc keeps some of what torch frees at every step, more or less by chance: tens of MB of noise.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return int(psutil.Process().memory_info().rss)
