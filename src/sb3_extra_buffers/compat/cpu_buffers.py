"""The base class of 0.5's buffers, for buffers of one's own that derive from it, and a class that takes a buffer's place."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from sb3_extra_buffers import __version__
from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.codecs.former import with_current_names
from sb3_extra_buffers.compat.cpu_methods import COMPRESSION_METHOD_MAP
from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.errors import CodecError

Methods = TypeVar("Methods")


class DummyCls:
    """Takes the place of a buffer's class: accepts everything and keeps nothing.

    ``DQN.load(path, custom_objects=dict(replay_buffer_class=DummyCls))`` loads a model to play with, without its buffer.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class BaseCompressedBuffer(ABC):  # noqa: B024  (so that other classes can be registered)
    """Gives a buffer ``_compress`` (array -> bytes) and ``_decompress`` (bytes -> array). All compressed buffers count as one.

    :param compression_method: one of `COMPRESSION_METHOD_MAP`, maybe with a level, e.g. ``"zstd3"``; None for neither
    :param compression_kwargs: options of the compressing function
    :param decompression_kwargs: options of the decompressing function
    :param flatten_config: ``dict(shape=..., dtype=...)`` of what is decompressed
    """

    def __init__(
        self,
        compression_method: str | None = None,
        compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None,
        flatten_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.version = __version__
        if compression_method is None:
            return
        _, methods, options = find_methods(COMPRESSION_METHOD_MAP, compression_method, compression_kwargs)
        self._compress = partial(methods.compress, **options)
        self._decompress = partial(methods.decompress, arr_configs=flatten_config, **(decompression_kwargs or {}))


BaseCompressedBuffer.register(CompressedObservations)  # type: ignore[type-abstract]


def find_methods(
    known: Mapping[str, Methods], spec: str, options: Mapping[str, Any] | None, levels: Mapping[str, int] | None = None
) -> tuple[str, Methods, dict[str, Any]]:
    """Name, functions and options of a compression method; bad names and levels are refused as they are by the buffers.

    :param known: name -> functions
    :param spec: ``"zstd"``, ``"zstd3"``, ...
    :param levels: name -> level that a bare name stands for, if it is not the codec's default
    """
    defaults = {"level": levels[spec]} if levels and spec in levels else {}
    level = {option: value for option, value in with_current_names(options).items() if option == "level"}
    codec = make_codec(spec, level, **defaults)
    name = codec.name
    if name not in known:
        raise CodecError(f"Single observations cannot be compressed by {name!r}. Known: {', '.join(known)}")
    given = {option: value for option, value in (options or {}).items() if option not in ("level", "compresslevel")}
    if codec.levels is not None:
        given["compresslevel"] = vars(codec)["level"]
    return name, known[name], given
