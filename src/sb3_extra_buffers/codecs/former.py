"""What codecs and their options were called in sb3-extra-buffers 0.5. Above: registry, and the options of the buffers."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from sb3_extra_buffers.errors import CodecError

#: Codecs that have another name now.
FORMER_NAMES = {"rle-old": "rle"}
#: Options that 0.5 took with any codec, or that its zstd and lz4-frame had. Codecs that do not have them ignore them.
WITHOUT_EFFECT = ("elem_type", "runs_type", "arr_configs", "threads", "block_size")


def with_current_names(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of a codec, with ``level`` where they say ``compresslevel``."""
    given = dict(options or {})
    if "compresslevel" in given:
        level = given.pop("compresslevel")
        if given.setdefault("level", level) != level:
            raise CodecError(f"The options say level={given['level']!r} and compresslevel={level!r}, which mean the same")
    return given


def with_effect(options: Mapping[str, Any], allowed: Container[str]) -> dict[str, Any]:
    """Options without those that 0.5 took and that this codec does not have. Others that it does not have stay."""
    return {name: value for name, value in options.items() if name in allowed or name not in WITHOUT_EFFECT}
