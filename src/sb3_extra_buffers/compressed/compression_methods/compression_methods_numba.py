"""`init_jit` at the place where `sb3-extra-buffers` 0.5 had it."""

from __future__ import annotations

from sb3_extra_buffers.compressed.dtypes import init_jit

__all__ = ["init_jit"]
