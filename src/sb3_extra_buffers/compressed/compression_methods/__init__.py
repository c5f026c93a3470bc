"""The codecs under the names that `sb3-extra-buffers` 0.5 gave them. A view of `sb3_extra_buffers.codecs`, nothing more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sb3_extra_buffers._optional import installed
from sb3_extra_buffers.codecs import CODECS, Codec, available_codecs
from sb3_extra_buffers.compressed.dtypes import has_igzip, has_numba

__all__ = ["COMPRESSION_METHOD_MAP", "HAS_NUMBA", "has_igzip", "has_lz4", "has_numba", "has_zstd"]

HAS_NUMBA = has_numba()


def has_zstd() -> bool:
    """Whether the `zstd` codec is installed."""
    return installed("zstandard")


def has_lz4() -> bool:
    """Whether the `lz4-frame` and `lz4-block` codecs are installed."""
    return installed("lz4")


class _InstalledCodecs(Mapping[str, type[Codec]]):
    """Name -> class of every codec that is registered and installed, whenever that was."""

    def __getitem__(self, name: str) -> type[Codec]:
        if name not in available_codecs():
            raise KeyError(name)
        return CODECS[name].load()

    def __iter__(self) -> Iterator[str]:
        return iter(available_codecs())

    def __len__(self) -> int:
        return len(available_codecs())

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: {codec.__name__}' for name, codec in self.items())}}}"


#: Name -> codec class, for every codec that is installed.
COMPRESSION_METHOD_MAP: Mapping[str, type[Codec]] = _InstalledCodecs()
