"""Codecs by name: the literal table, the shorthand, and the rule behind `auto`."""

from __future__ import annotations

import difflib
import importlib
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from sb3_extra_buffers._optional import installed
from sb3_extra_buffers.codecs.base import Codec, check_level
from sb3_extra_buffers.errors import CodecError, FallbackWarning

#: `igzip3`, `igzip/3`, `zstd-5` (level -5), `lz4-frame/5`
SHORTHAND = re.compile(r"^((?:[A-Za-z]+)|(?:[\w\-]+/))(\-?[0-9]+)$")

#: Below this many bytes a frame costs more to encode than it saves; measured on vectors and small grids.
SMALLEST_FRAME = 256


@dataclass(frozen=True)
class Entry:
    """Where a codec lives and what it needs. ``stand_in`` is used, with a warning, when the backend is missing."""

    where: str
    backend: str | None = None
    stand_in: str | None = None

    def load(self) -> type[Codec]:
        module, _, name = self.where.partition(":")
        codec: type[Codec] = getattr(importlib.import_module(f"sb3_extra_buffers.codecs.{module}"), name)
        return codec

    @property
    def is_installed(self) -> bool:
        return self.backend is None or installed(self.backend)


CODECS: dict[str, Entry] = {
    "none": Entry("plain:NoCodec"),
    "rle": Entry("rle:Rle"),
    "rle-jit": Entry("rle:RleJit", backend="numba", stand_in="rle"),
    "gzip": Entry("plain:Gzip"),
    "igzip": Entry("isal:Igzip", backend="isal", stand_in="gzip"),
    "zstd": Entry("zstd:Zstd", backend="zstandard"),
    "lz4-frame": Entry("lz4:Lz4Frame", backend="lz4"),
    "lz4-block": Entry("lz4:Lz4Block", backend="lz4"),
    "delta": Entry("delta:Delta"),
}


def available_codecs() -> list[str]:
    """Names of the codecs whose backend is installed, none of them by a stand-in."""
    return [name for name, entry in CODECS.items() if entry.is_installed]


def make_codec(spec: str, options: Mapping[str, Any] | None = None, **defaults: Any) -> Codec:
    """The codec that a shorthand names.

    :param spec: ``"zstd"``, ``"zstd3"``, ``"lz4-frame/5"``, ...; not ``"auto"``, which `auto_codec` resolves
    :param options: the user's ``compression_kwargs``; an unknown name is an error
    :param defaults: values for options that the codec may or may not have
    """
    if not isinstance(spec, str):
        raise CodecError(f"compression_method must be a codec's name, got {spec!r}. {_installed_names()}")
    name, level = _split(spec)
    entry = CODECS.get(name)
    if entry is None:
        close = _close_names(name)
        suggestion = f" Did you mean {close[0]!r}?" if close else ""
        raise CodecError(f"No codec named {spec!r}.{suggestion} {_installed_names()}")
    codec = entry.load()
    arguments = {key: value for key, value in defaults.items() if key in codec.options()}
    for key, value in (options or {}).items():
        if key not in codec.options():
            allowed = ", ".join(codec.options()) or "none at all"
            raise CodecError(f"Codec {name!r} has no option {key!r}. Its options: {allowed}")
        arguments[key] = value
    if level is not None:
        if codec.levels is None:
            raise CodecError(f"Codec {name!r} has no levels, got {spec!r}. Write {name!r}")
        if "level" in (options or {}) and options["level"] != level:  # type: ignore[index]
            raise CodecError(f"{spec!r} says level {level}, compression_kwargs says {options['level']}")  # type: ignore[index]
        arguments["level"] = level
    if entry.is_installed or entry.stand_in is None:
        return codec(**arguments)
    return _make_stand_in(name, entry.stand_in, codec, arguments)


def auto_codec(frame_shape: tuple[int, ...], dtype: DTypeLike) -> str:
    """The name that `auto` stands for: the best installed choice for frames of this shape and dtype.

    1. ``none`` for small frames and for vectors of floats: sharing alone is about as small, and faster.
    2. ``delta`` for other frames of integers or bools with one channel (grayscale, palette, masks), if numba is installed.
    3. Otherwise (RGB, float images) ``zstd``; where that is not installed ``igzip``, else ``gzip``.

    :param frame_shape: shape of one frame
    :param dtype: dtype of the observation
    """
    kind, itemsize = np.dtype(dtype).kind, np.dtype(dtype).itemsize
    if math.prod(frame_shape) * itemsize < SMALLEST_FRAME or (kind == "f" and len(frame_shape) <= 1):
        return "none"
    channels = min(frame_shape[0], frame_shape[-1]) if len(frame_shape) == 3 else 1
    if kind in "uib" and channels == 1 and _numba_works():
        return "delta"
    return next(name for name in ("zstd", "igzip", "gzip") if CODECS[name].is_installed)


def _numba_works() -> bool:
    """Whether kernels would really be compiled: numba may be installed and yet broken or switched off."""
    if not installed("numba"):
        return False
    from sb3_extra_buffers.codecs.compiling import COMPILED  # imports numba, which `auto` is about to use

    return COMPILED


def _split(spec: str) -> tuple[str, int | None]:
    if spec in CODECS:
        return spec, None
    match = SHORTHAND.fullmatch(spec)
    if match is None:
        return spec, None
    return match[1].removesuffix("/"), int(match[2])


def _make_stand_in(name: str, stand_in: str, wanted: type[Codec], arguments: dict[str, Any]) -> Codec:
    if "level" in arguments and wanted.levels is not None:
        check_level(name, arguments["level"], *wanted.levels)
        arguments["level"] = max(1, arguments["level"])  # igzip's 0 compresses, gzip's 0 does not
    entry = CODECS[name]
    warnings.warn(
        f"Codec {name!r} needs the {entry.backend} package, using {stand_in!r} instead. "
        f'To get it: pip install "sb3-extra-buffers[{entry.backend}]"',
        FallbackWarning,
        stacklevel=3,
    )
    return CODECS[stand_in].load()(**arguments)


def _close_names(name: str) -> list[str]:
    """Codecs that a misspelled name may have meant: those that begin so, or look alike."""
    begun = [codec for codec in CODECS if codec.startswith(name.lower())]
    return begun or difflib.get_close_matches(name.lower().rstrip("-0123456789/"), CODECS, n=1)


def _installed_names() -> str:
    return f"Installed: {', '.join(['auto', *available_codecs()])}."
