"""Built-in functions of Python made from functions of the library, for the calls of an `add`. Above: store.

To find two arrays and to call a function with them takes 1.6 us by ctypes, 0.2 us by these. A built-in function is an address,
a name and flags (`PyMethodDef`), which Python's stable ABI fixes. The library gets the addresses of the functions of Python
that it needs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, addressof, byref, c_char_p, c_int, c_int64, c_void_p, cast, py_object
from typing import Any

import numpy as np

#: The signature `f(self, arguments, number of them)`.
_METH_FASTCALL = 0x0080
#: What `StepCalls.plan` returns if these are not C-contiguous arrays of its shape and dtype.
DOES_NOT_FIT = -1

_PYTHON = (
    "PyObject_GetBuffer",
    "PyBuffer_Release",
    "PyLong_FromLongLong",
    "PyLong_AsLongLong",
    "PyLong_AsVoidPtr",
    "PyErr_Clear",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)


class _Python(ctypes.Structure):
    """`sb3x_python`."""

    _fields_ = tuple((name, c_void_p) for name in _PYTHON)


class _MethodDef(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = (("name", c_char_p), ("function", c_void_p), ("flags", c_int), ("doc", c_char_p))


class _Arrays(ctypes.Structure):
    """`sb3x_arrays`."""

    _fields_ = (("store", c_void_p), ("format", c_char_p), ("n_axes", c_int64), ("axes", POINTER(c_int64)))


#: By address. They are kept, because they must outlive the functions that were made of them.
_definitions: dict[int, _MethodDef] = {}


def start_with(library: ctypes.CDLL) -> None:
    """Set up a library that was just loaded."""
    library.sb3x_use_python(byref(_Python(*(_address_of(getattr(ctypes.pythonapi, name)) for name in _PYTHON))))


class StepCalls:
    """Plan and commit of a store, as built-in functions. Not to be called after the store is gone.

    :raises ValueError: the buffer protocol does not know the dtype

    :param library: it belongs to
    :param handle: of the store
    :param shape: of the observations of all streams
    :param dtype: of these
    """

    #: ``(slot, first, second)``, two ndarrays -> a status, or `DOES_NOT_FIT`. With a fourth argument it resumes
    plan: Callable[..., int]
    commit: Callable[[], int]

    def __init__(self, library: ctypes.CDLL, handle: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._axes = (c_int64 * len(shape))(*shape)
        self._arrays = _Arrays(handle, memoryview(np.empty(1, dtype)).format.encode(), len(shape), self._axes)
        self.plan = _built_in(library.sb3x_call_plan, b"plan", addressof(self._arrays))
        self.commit = _built_in(library.sb3x_call_commit, b"commit", addressof(self._arrays))


def _built_in(function: Any, name: bytes, bound_to: int) -> Any:
    """A built-in function with this number as its `self`."""
    address = _address_of(function)
    definition = _definitions.setdefault(address, _MethodDef(name, address, _METH_FASTCALL, None))
    new = ctypes.pythonapi["PyCFunction_NewEx"]  # not the attribute, whose signature others may set
    new.restype, new.argtypes = py_object, (c_void_p, py_object, c_void_p)
    return new(addressof(definition), bound_to, None)


def _address_of(function: Any) -> int:
    return cast(function, c_void_p).value or 0  # never 0, which mypy cannot know
