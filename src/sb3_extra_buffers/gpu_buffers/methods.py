"""How a GPU buffer may keep frames, by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import partial
from typing import Any

from sb3_extra_buffers._optional import installed
from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.codecs.base import check_level
from sb3_extra_buffers.codecs.former import with_effect
from sb3_extra_buffers.codecs.registry import SHORTHAND
from sb3_extra_buffers.codecs.zstd import Zstd
from sb3_extra_buffers.errors import CodecError
from sb3_extra_buffers.store.device.coded import DeviceRle, HeapMemory, HostCodec
from sb3_extra_buffers.store.device.heap import SharedRawHeap
from sb3_extra_buffers.store.device.memory import DenseMemory, MakeMemory
from sb3_extra_buffers.store.device.tiles import TileMemory
from sb3_extra_buffers.store.device.waiting import BatchingMemory


def has_zstd() -> bool:
    """Whether `zstd` is installed."""
    return installed("zstandard")


_FAMILIES = ("tiles", "none", "rle", "zstd")
#: Methods that keep their payloads in the shared heap.
HEAP_METHODS = ("rle", "zstd")
#: The level of a family without a level in its name.
DEFAULT_LEVEL = {"zstd": -3}


def available_methods() -> list[str]:
    """The methods that are installed."""
    return [name for name in _FAMILIES if name != "zstd" or has_zstd()]


def split_method(method: str) -> tuple[str, int | None]:
    """Family and level of a method, e.g. ``"zstd9"`` -> ``("zstd", 9)``; an error says what there is.

    :param method: ``"tiles"``, ``"none"``, ``"rle"``, ``"zstd"``, ``"zstd<level>"``; ``"auto"`` is ``"tiles"``
    """
    if method == "auto":
        return "tiles", None
    match = SHORTHAND.match(method) if isinstance(method, str) else None
    name, level = (match[1].removesuffix("/"), int(match[2])) if match else (method, None)
    if name not in _FAMILIES:
        close = difflib.get_close_matches(str(name), _FAMILIES, n=1)
        suggestion = f" Did you mean {close[0]!r}?" if close else ""
        raise CodecError(f"No GPU method named {method!r}.{suggestion} Installed: {', '.join(available_methods())}.")
    if level is not None:
        if name != "zstd":
            raise CodecError(f"GPU method {name!r} has no levels, got {method!r}. Write {name!r}")
        check_level(name, level, Zstd)
    return name, level


def memory_maker(method: str, options: Mapping[str, Any], heap: SharedRawHeap, level: int | None = None) -> MakeMemory:
    """What makes the memory of a leaf.

    :param method: see `split_method`
    :param options: the user's ``compression_kwargs``
    :param heap: for `rle` and `zstd`
    :param level: where neither of them says a level
    """
    family, _ = split_method(method)
    if family == "zstd":
        codec = HostCodec(make_codec(method, options, level=DEFAULT_LEVEL[family] if level is None else level))
        return partial(BatchingMemory, make_memory=partial(HeapMemory, heap=heap, codec=codec))
    if with_effect(options, ()):
        raise CodecError(f"GPU method {method!r} has no options, got compression_kwargs={dict(options)}")
    if family == "rle":
        return partial(BatchingMemory, make_memory=partial(HeapMemory, heap=heap, codec=DeviceRle()))
    return partial(BatchingMemory, make_memory=TileMemory) if family == "tiles" else DenseMemory
