"""Values of infos as JSON and back: numbers, strings, lists, dicts, and NumPy's scalars and arrays of numbers.

Values that JSON does not have become a dict with one reserved key: ``{"$array": [dtype, shape, base64]}``.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from typing import Any

import numpy as np

from sb3_extra_buffers.store.format import number_dtype

_ARRAY, _SCALAR, _TUPLE, _DICT, _ORDERED = "$array", "$scalar", "$tuple", "$dict", "$ordered"
_TAGS = {_ARRAY, _SCALAR, _TUPLE, _DICT, _ORDERED}
_DEEPEST = 64


def value_to_json(value: Any, where: str, depth: int = 0) -> Any:
    """A value as JSON.

    :param where: where the value is, for the TypeError if JSON cannot hold it
    """
    if depth > _DEEPEST:
        raise TypeError(f"{where} is nested more than {_DEEPEST} deep; it cannot be saved as JSON")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufc":
        array = np.asarray(value)
        data = base64.b64encode(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()).decode()
        tag = _ARRAY if isinstance(value, np.ndarray) else _SCALAR
        return {tag: [array.dtype.newbyteorder("<").str, list(array.shape), data]}
    if type(value) in (list, tuple):
        items = [value_to_json(one, f"{where}[{i}]", depth + 1) for i, one in enumerate(value)]
        return items if type(value) is list else {_TUPLE: items}
    if type(value) is OrderedDict:
        return {_ORDERED: value_to_json(dict(value), where, depth)}
    if type(value) is dict:
        if all(type(key) is str for key in value) and not _TAGS & value.keys():
            return {key: value_to_json(one, f"{where}[{key!r}]", depth + 1) for key, one in value.items()}
        pairs = [
            [value_to_json(key, where, depth + 1), value_to_json(one, f"{where}[{key!r}]", depth + 1)]
            for key, one in value.items()
        ]
        return {_DICT: pairs}
    of_what = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
    raise TypeError(
        f"{where} is a {type(value).__name__}{of_what}, which JSON cannot hold. Leave it out of the infos, use "
        "copy_info_dict=False, or save the buffer with pickle (model.save_replay_buffer)"
    )


def value_from_json(said: Any) -> Any:
    """The value from what `value_to_json` returned; ValueError if it is something else."""
    if isinstance(said, list):
        return [value_from_json(one) for one in said]
    if not isinstance(said, dict):
        return said
    if len(said) == 1:
        [(tag, inner)] = said.items()
        if tag in (_ARRAY, _SCALAR):
            dtype = number_dtype(inner[0])
            array = np.frombuffer(base64.b64decode(inner[2], validate=True), dtype).astype(dtype.newbyteorder("="))
            array = array.reshape([int(n) for n in inner[1]])
            return array if tag == _ARRAY else array[()]
        if tag == _TUPLE:
            return tuple(value_from_json(one) for one in inner)
        if tag == _ORDERED:
            return OrderedDict(value_from_json(inner))
        if tag == _DICT:
            return {value_from_json(key): value_from_json(one) for key, one in inner}
    return {key: value_from_json(one) for key, one in said.items()}
