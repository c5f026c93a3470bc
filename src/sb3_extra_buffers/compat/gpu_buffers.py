"""The base class of 0.5's GPU buffers, for buffers of one's own that derive from it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from functools import partial
from typing import Any

from sb3_extra_buffers import __version__
from sb3_extra_buffers.compat.cpu_buffers import find_methods
from sb3_extra_buffers.compat.gpu_methods import COMPRESSION_METHOD_MAP
from sb3_extra_buffers.gpu_buffers.methods import DEFAULT_LEVEL
from sb3_extra_buffers.gpu_buffers.mixin import GpuObservations


class BaseGpuBuffer(ABC):  # noqa: B024  (so that other classes can be registered)
    """Gives a buffer ``_compress`` (tensor -> payload) and ``_decompress`` (payload -> tensor). All GPU buffers count as one.

    :param compression_method: one of `COMPRESSION_METHOD_MAP`, maybe with a level, e.g. ``"zstd3"``; None for neither
    :param compression_kwargs: options of the compressing function
    :param decompression_kwargs: options of the decompressing function
    :param flatten_config: ``dict(size=..., dtype=...)`` of what is decompressed
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
        self.compression_method, methods, options = find_methods(
            COMPRESSION_METHOD_MAP, compression_method, compression_kwargs, DEFAULT_LEVEL
        )
        self._compress = partial(methods.compress, **options)
        self._decompress = partial(methods.decompress, arr_configs=flatten_config, **(decompression_kwargs or {}))


BaseGpuBuffer.register(GpuObservations)  # type: ignore[type-abstract]
