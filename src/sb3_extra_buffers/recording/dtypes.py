"""The dtype of each part of a record, and whether a value fits it. Above: record.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sb3_extra_buffers.store.format import number_dtype


class RecordDtypes(NamedTuple):
    """One dtype per part of a record; `action` may have a shape, as in ``np.dtype((np.float32, (6,)))``."""

    frame: np.dtype[Any] = np.dtype(np.uint8)
    reward: np.dtype[Any] = np.dtype(np.float32)
    action: np.dtype[Any] = np.dtype(np.int64)
    features: tuple[np.dtype[Any], ...] = ()

    @property
    def feature_row(self) -> np.dtype[Any]:
        """The dtype of all features: a plain row if they have one dtype, else structured, with fields "0", "1", ..."""
        if len(set(self.features)) == 1:
            return np.dtype((self.features[0], (len(self.features),)))
        return np.dtype([(str(i), dtype) for i, dtype in enumerate(self.features)])

    def to_json(self) -> dict[str, Any]:
        """Plain values that `dtypes_from_json` reads."""
        action = [self.action.base.str, list(self.action.shape)]
        return {
            "frame": self.frame.str,
            "reward": self.reward.str,
            "action": action,
            "features": [one.str for one in self.features],
        }


def dtypes_from_json(said: Any) -> dict[str, Any]:
    """``dtypes=`` from what `RecordDtypes.to_json` has written. KeyError, TypeError or ValueError if it is something else."""
    base, shape = said["action"]
    numbers = {name: str(number_dtype(said[name])) for name in ("frame", "reward")}
    features = [str(number_dtype(one)) for one in said["features"]]
    return {**numbers, "features": features, "action": np.dtype((number_dtype(base), tuple(int(n) for n in shape)))}


def parse_dtypes(dtypes: Sequence[DTypeLike] | Mapping[str, Any] | None) -> RecordDtypes:
    """The user's ``dtypes=``, checked.

    :param dtypes: ``[frame, reward, *features]``, or a dict with any of frame, reward, action and features
    """
    if dtypes is None:
        return RecordDtypes()
    if not isinstance(dtypes, (list, tuple, Mapping)):
        raise ValueError(
            f"dtypes must be [frame, reward, *features] or a dict of {list(RecordDtypes._fields)}, got {dtypes!r}"
        )
    if isinstance(dtypes, Mapping):
        unknown = set(dtypes) - set(RecordDtypes._fields)
        if unknown:
            raise ValueError(f"dtypes may hold {list(RecordDtypes._fields)}, got {sorted(unknown)}")
        given = dict(dtypes)
    else:
        given = dict(zip(("frame", "reward"), dtypes, strict=False), features=dtypes[2:])
        if len(dtypes) < 2:
            raise ValueError(f"dtypes as a list must be [frame, reward, *features], got {list(dtypes)}")
    parts = {name: _dtype(name, value) for name, value in given.items() if name != "features"}
    listed = given.get("features") or ()
    if not isinstance(listed, (list, tuple)):
        raise ValueError(f"dtypes['features'] must be a list with a dtype per feature, got {listed!r}")
    features = tuple(_dtype(f"feature {i}", value) for i, value in enumerate(listed))
    return RecordDtypes(**parts, features=features)


def _dtype(name: str, value: DTypeLike) -> np.dtype[Any]:
    try:
        if value is None:  # NumPy reads None as float64
            raise TypeError
        dtype = np.dtype(value)
    except TypeError:
        raise ValueError(f"The dtype of {name} must be a NumPy dtype, got {value!r}") from None
    if dtype.base.kind not in "biuf" or (dtype.shape and name != "action"):
        raise ValueError(f"The dtype of {name} must be a bool, integer or float dtype, got {dtype}")
    return dtype


def fitted(name: str, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> NDArray[Any]:
    """``value`` in the stored dtype, or a ValueError. Floats may be rounded to floats; nothing else may change.

    :param name: what the value is, for the error
    :param shape: the shape it must have
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"The {name} is no array; this record keeps one of shape {shape} and dtype {dtype}") from None
    if array.shape != shape:
        raise ValueError(f"Got a {name} of shape {array.shape}; this record keeps {name}s of shape {shape}")
    if array.dtype == dtype:
        return array
    fits = (array.dtype.kind in "biu" and dtype.kind in "iu") or np.can_cast(array.dtype, dtype, "same_kind")
    if fits:
        with np.errstate(over="ignore", invalid="ignore"):
            stored = array.astype(dtype)
            if dtype.kind != "f":
                same = stored == array
            elif array.dtype.kind == "f":
                same = np.isfinite(stored) == np.isfinite(array)
            else:  # exact if it survives the way back, and was not rounded up beyond the range of the integer dtype
                end = 2.0 ** (8 * array.itemsize - (array.dtype.kind == "i"))
                same = (stored < end) & (stored.astype(array.dtype) == array)
        if np.all(same):
            return stored
    held = f"{array.dtype} between {array.min()} and {array.max()}" if fits else str(array.dtype)
    raise ValueError(f"Got a {name} of {held}; this record keeps {dtype}. Choose another dtype by dtypes=")
