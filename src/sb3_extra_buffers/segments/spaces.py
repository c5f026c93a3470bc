"""Gymnasium spaces as JSON and back. Only SB3's kinds: Box, Discrete, MultiDiscrete, MultiBinary, and a Dict of them.

Bounds of a Box are written as hexadecimal floats or as integers, so that every bit is kept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store.format import number_dtype

_MOST_KEYS = 10_000


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as plain values. ValueError for kinds that SB3 has no buffers for."""
    if isinstance(space, spaces.Box):
        bounds = {name: _bound_to_json(value) for name, value in (("low", space.low), ("high", space.high))}
        return {"type": "Box", "shape": list(map(int, space.shape)), "dtype": np.dtype(space.dtype).str, **bounds}
    if isinstance(space, spaces.Discrete):
        said = {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": np.dtype(space.dtype).str}
        return said if (names := names_of(space)) is None else {**said, "names": names}
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(getattr(space, "start", np.zeros_like(space.nvec))).tolist()
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": start, "dtype": np.dtype(space.dtype).str}
    if isinstance(space, spaces.MultiBinary):
        return {
            "type": "MultiBinary",
            "shape": list(map(int, space.shape)),
            "is_number": isinstance(space.n, (int, np.integer)),
        }
    if isinstance(space, spaces.Dict):
        if other := [key for key in space.spaces if not isinstance(key, str)]:
            raise ValueError(f"A Dict space with the keys {other} cannot be saved: keys must be strings")
        return {"type": "Dict", "spaces": [[key, space_to_json(sub)] for key, sub in space.spaces.items()]}
    raise ValueError(f"A space of type {type(space).__name__} cannot be saved: {space}. Save with pickle instead")


def names_of(space: spaces.Space[Any]) -> list[str] | None:
    """Names of the values of a Discrete space: its attribute `names`, if it has as many strings as there are values."""
    names = getattr(space, "names", None)
    if not isinstance(space, spaces.Discrete) or not isinstance(names, (list, tuple)) or len(names) != int(space.n):
        return None
    return list(names) if all(isinstance(name, str) for name in names) else None


def space_from_json(said: Any) -> spaces.Space[Any]:
    """The space from what `space_to_json` returned; CorruptDataError if it is something else."""
    try:
        return _parsed(said, 0)
    except CorruptDataError:
        raise
    except (AssertionError, KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as error:
        raise CorruptDataError(f"A file describes a space that cannot be: {type(error).__name__}: {error}") from error


def _parsed(said: Any, depth: int) -> spaces.Space[Any]:
    kind = said["type"]
    if kind == "Box":
        shape, dtype = _shape(said["shape"]), number_dtype(said["dtype"])
        if dtype.kind not in "biuf":
            raise CorruptDataError(f"A file describes a Box of {dtype}; it must hold numbers")
        low, high = (_bound_from_json(said[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        space = _with_dtype(spaces.Discrete(int(said["n"]), start=int(said["start"])), number_dtype(said["dtype"]))
        if isinstance(names := said.get("names"), list):
            space.names = names  # type: ignore[attr-defined]
        return space
    if kind == "MultiDiscrete":
        nvec, start = (np.array(said[name], np.int64) for name in ("nvec", "start"))
        more: dict[str, Any] = {"start": start} if start.any() else {}
        return spaces.MultiDiscrete(nvec, dtype=number_dtype(said["dtype"]).type, **more)
    if kind == "MultiBinary":
        shape = _shape(said["shape"])
        return spaces.MultiBinary(shape[0] if said["is_number"] else shape)
    if kind == "Dict" and depth < 8 and len(said["spaces"]) <= _MOST_KEYS:
        parsed = {}
        for key, sub in said["spaces"]:
            if not isinstance(key, str):
                raise CorruptDataError(f"A file describes a Dict space with the key {key!r}")
            parsed[key] = _parsed(sub, depth + 1)
        return spaces.Dict(parsed)
    raise CorruptDataError(f"A file describes a space of type {kind!r}; this version knows Box, Discrete, MultiDiscrete, "
                           "MultiBinary and Dict")  # fmt: skip


def _with_dtype(space: spaces.Discrete, dtype: np.dtype[Any]) -> spaces.Discrete:
    """Sets the dtype, in versions of Gymnasium where it can differ from int64."""
    if space.dtype == dtype:
        return space
    return spaces.Discrete(int(space.n), start=int(space.start), dtype=dtype.type)


def _shape(said: Any) -> tuple[int, ...]:
    shape = tuple(int(n) for n in said)
    if any(n < 0 for n in shape) or math.prod(max(n, 1) for n in shape) >= 2**27:
        raise CorruptDataError(f"A file describes a space of shape {shape}")
    return shape


def _bound_to_json(bound: NDArray[Any]) -> Any:
    """One number if all are equal, else a flat list."""
    flat = bound.reshape(-1)
    if flat.size and np.array_equal(flat, np.full_like(flat, flat[0])):
        return _number_to_json(flat[0])
    return [_number_to_json(one) for one in flat]


def _number_to_json(value: Any) -> int | str:
    return float(value).hex() if isinstance(value, np.floating) else int(value)


def _bound_from_json(said: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if not isinstance(said, list):
        return np.full(shape, _number_from_json(said), dtype)
    return np.array([_number_from_json(one) for one in said], dtype).reshape(shape)


def _number_from_json(said: Any) -> int | float:
    return float.fromhex(said) if isinstance(said, str) else int(said)
