"""RAM: how much the machine has, how much is free, and how much of it a container or a job may take."""

from __future__ import annotations

import os
from pathlib import Path

from sb3_extra_buffers._optional import installed, require

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def ram_bytes() -> int:
    """RAM of this machine, or less where a container or a job of a cluster may not take all of it."""
    return int(min(_physical_bytes(), cgroup_limit()))


def available_bytes() -> int:
    """RAM that is free now, or can be freed at once. All of it where the system does not say."""
    try:
        with Path("/proc/meminfo").open() as lines:
            values = dict(line.split(":", 1) for line in lines)
        return min(ram_bytes(), int(values["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError):
        if not installed("psutil"):
            return ram_bytes()
        psutil = require("psutil", extra="extra", what="Reading the free RAM")
        return min(ram_bytes(), int(psutil.virtual_memory().available))


def cgroup_limit() -> float:
    """The lowest limit of the control groups that this process is in; infinite where there is none."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return float("inf")
    found = [float("inf")]
    for line in lines:  # `0::/user.slice/...` of version 2, `9:memory:/slurm/...` of version 1
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (CGROUPS, "memory.max")
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            found.append(_limit(folder / name))
            if folder == root:
                break
    return min(found)


def _limit(file: Path) -> float:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # none, or `max`
        return float("inf")


def _physical_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        psutil = require("psutil", extra="extra", what="Reading the size of RAM")
        return int(psutil.virtual_memory().total)
