"""The codecs under the names that `sb3-extra-buffers` 0.5 gave them. A view of `sb3_extra_buffers.codecs`, nothing more."""

from __future__ import annotations

from sb3_extra_buffers._optional import installed
from sb3_extra_buffers.codecs import CODECS, Codec
from sb3_extra_buffers.compressed.dtypes import has_igzip, has_numba

__all__ = ["COMPRESSION_METHOD_MAP", "HAS_NUMBA", "has_igzip", "has_lz4", "has_numba", "has_zstd"]

HAS_NUMBA = has_numba()


def has_zstd() -> bool:
    """Whether the `zstd` codec is installed."""
    return installed("zstandard")


def has_lz4() -> bool:
    """Whether the `lz4-frame` and `lz4-block` codecs are installed."""
    return installed("lz4")


#: Name -> codec class, for every codec that is installed.
COMPRESSION_METHOD_MAP: dict[str, type[Codec]] = {name: entry.load() for name, entry in CODECS.items() if entry.is_installed}
