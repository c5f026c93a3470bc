"""Versions and the logger, as 0.5 had them. Above: nothing but code of 0.5."""

from __future__ import annotations

import logging
import re
from itertools import zip_longest

from stable_baselines3 import __version__ as sb3_ver

from sb3_extra_buffers import __version__ as package_version

__all__ = ["LEGACY_BEHAVIOR", "logger", "package_version", "sb3_ver", "sb3_version"]

#: The library's logger, without a handler of its own.
logger = logging.getLogger("sb3_extra_buffers")


def sb3_version() -> tuple[int, int, int]:
    """Major, minor and patch number of the installed SB3; 0 where it does not say one."""
    numbers = [re.match(r"\d*", part) for part in sb3_ver.split(".")[:3]]
    major, minor, patch = (int((found and found[0]) or 0) for found, _ in zip_longest(numbers, range(3)))
    return major, minor, patch


#: Whether SB3's rollout buffers keep observations as float32, whatever the space says.
LEGACY_BEHAVIOR = sb3_version() < (2, 7, 1)
