"""The observation columns of a buffer, SB3's or ours, by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stable_baselines3.common.buffers import BaseBuffer


def columns_of(buffer: BaseBuffer, name: str = "observations") -> dict[str, Any]:
    """Columns by key; ``""`` is the key of a space that is no Dict.

    :param name: ``"observations"`` or ``"next_observations"``, which rollouts and SB3's `optimize_memory_usage` do without
    """
    found: Any = getattr(buffer, name, None)
    if found is None:
        return {}
    return found if isinstance(found, dict) else {"": found}


def codecs_of(buffer: BaseBuffer) -> dict[str, str]:
    """Codec by key, as its shorthand; nothing for buffers that are not compressed."""
    leaves = {key: getattr(column, "leaf", None) for key, column in columns_of(buffer).items()}
    return {
        key: leaf.method or "undecided yet"  # `auto` waits until it has seen frames
        for key, leaf in leaves.items()
        if leaf is not None
    }
