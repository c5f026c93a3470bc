"""The functions of the library as ctypes sees them: names, argument types, structs and codes, as `sb3x.h` has them."""

from __future__ import annotations

import ctypes
import errno
from ctypes import POINTER, c_char, c_char_p, c_double, c_int32, c_int64, c_uint64, c_void_p
from typing import Any, NamedTuple

from numpy.typing import NDArray

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.native.library import load

OK, NO_MEMORY, ENCODE, BAD_CELL, CORRUPT, TOO_LARGE, BAD_ARGUMENT, NO_SPACE, FORKED, UNREADABLE = range(10)


class Neighbours(NamedTuple):
    """Where similar values of a frame are, in bytes.

    :param row: from a value to the one below it; 0 if there are no rows
    :param channel: from a value to the same place in the next channel; 0 if channels are not separate
    :param item: of a value, if it is 2 or 4; all others count as single bytes
    """

    row: int = 0
    channel: int = 0
    item: int = 1


#: For bytes without known structure.
NO_NEIGHBOURS = Neighbours()


class Config(ctypes.Structure):
    """`sb3x_config`."""

    _names = (
        "n_cells n_streams n_columns stack frame_bytes block_frames frames piece_frames row_bytes channel_bytes item_bytes"
    )
    _fields_ = tuple((name, c_int64) for name in _names.split())


class Shape(ctypes.Structure):
    """`sb3x_shape`."""

    _fields_ = tuple((name, c_int64) for name in ("bytes", "row", "channel", "item"))


class ChangesStruct(ctypes.Structure):
    """`sb3x_changes`."""

    _fields_ = (
        ("n_new", c_int64),
        ("tokens", c_void_p),
        ("frames", c_void_p),
        ("n_freed", c_int64),
        ("freed", c_void_p),
    )


class Decoded(ctypes.Structure):
    """`sb3x_decoded`."""

    _fields_ = (
        ("n", c_int64),
        *((name, c_void_p) for name in ("pieces", "codecs", "begins", "lengths", "n_frames", "frames")),
    )


class UsageStruct(ctypes.Structure):
    """`sb3x_usage`."""

    _fields_ = tuple((name, c_int64) for name in ("n_written", "n_blocks", "stored_bytes", "held_bytes", "live_bytes"))


class TakenStruct(ctypes.Structure):
    """`sb3x_taken`."""

    _fields_ = (("heads", c_void_p), ("n_blocks", c_int64), ("table", c_void_p), ("n_bytes", c_int64))


_int64s = POINTER(c_int64)
#: Function -> result, arguments. Addresses are passed as numbers, because wrapping them takes longer than most calls.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sb3x_set_threads": (None, (c_int32,)),
    "sb3x_after_fork": (None, ()),
    "sb3x_fail_allocation": (None, (c_int64, c_int32)),
    "sb3x_create": (c_void_p, (POINTER(Config), POINTER(c_int32))),
    "sb3x_destroy": (None, (c_void_p,)),
    "sb3x_clear": (c_int32, (c_void_p,)),
    "sb3x_write": (c_int32, (c_void_p, c_int64, c_void_p, c_int64, c_void_p, _int64s)),
    "sb3x_write_steps": (c_int32, (c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_int64, _int64s)),
    "sb3x_keep_as": (c_int32, (c_void_p, c_int64, c_int64, c_int64)),
    "sb3x_full_piece": (c_void_p, (c_void_p, _int64s, _int64s, _int64s)),
    "sb3x_codec_of": (c_int64, (c_void_p, c_int64, c_int64)),
    "sb3x_give_encoded": (c_int32, (c_void_p, c_int64, c_int64, c_void_p, c_int64)),
    "sb3x_plan": (c_int32, (c_void_p, c_int64, c_void_p, c_void_p, c_int32, c_void_p)),
    "sb3x_plan_cells": (c_int32, (c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_void_p)),
    "sb3x_commit": (c_int32, (c_void_p, c_void_p)),
    "sb3x_use_python": (None, (c_void_p,)),
    "sb3x_erase": (c_int32, (c_void_p, c_void_p, c_int64, c_void_p)),
    "sb3x_freed": (None, (c_void_p, c_void_p)),
    "sb3x_let_go": (None, (c_void_p,)),
    "sb3x_tokens": (c_int32, (c_void_p, c_void_p, c_void_p, c_int64, c_int32, c_void_p, c_void_p, _int64s)),
    "sb3x_token_end": (c_int64, (c_void_p,)),
    "sb3x_gather": (c_int32, (c_void_p, c_void_p, c_void_p, c_int64, c_int32, POINTER(Decoded), c_void_p)),
    "sb3x_expect_gather": (None, (c_void_p,)),
    "sb3x_most_pieces": (c_int64, (c_void_p, c_int64, c_int32)),
    "sb3x_coded_pieces": (c_int32, (c_void_p, c_void_p, c_void_p, c_int64, c_int32, POINTER(Decoded), _int64s)),
    "sb3x_coded_bytes": (c_int32, (c_void_p, POINTER(Decoded), c_void_p)),
    "sb3x_measure": (None, (c_void_p, POINTER(UsageStruct))),
    "sb3x_check": (c_int32, (c_void_p,)),
    "sb3x_use_file": (c_int32, (c_void_p, c_char_p)),
    "sb3x_take": (c_void_p, (c_void_p, c_void_p, c_int64, POINTER(c_int32))),
    "sb3x_look_at_segment": (None, (c_void_p, POINTER(TakenStruct))),
    "sb3x_read_segment": (c_int64, (c_void_p, c_void_p, c_int64)),
    "sb3x_free_segment": (None, (c_void_p,)),
    "sb3x_receive": (c_void_p, (c_void_p, c_void_p, c_int64, POINTER(c_int32))),
    "sb3x_receive_bytes": (c_int32, (c_void_p, c_void_p, c_int64)),
    "sb3x_receive_cells": (c_int32, (c_void_p, c_void_p, c_int64, c_void_p)),
    "sb3x_end_receiving": (None, (c_void_p,)),
    "sb3x_read_as": (c_int32, (c_void_p, c_int64, c_int64, c_int64)),
    "sb3x_decode": (c_int32, (c_int64, c_void_p, c_int64, c_void_p, c_int64)),
    "sb3x_delta_encode": (c_int64, (POINTER(Shape), c_void_p, c_int64, c_void_p, c_void_p, c_int64)),
    "sb3x_delta_decode": (c_int32, (POINTER(Shape), c_void_p, c_int64, c_void_p, c_int64, c_void_p)),
    "sb3x_best_piece": (c_int64, (c_int64, c_int64, c_int64)),
    "sb3x_find_runs": (c_int64, (c_void_p, c_int64, c_int32, c_uint64, c_int64, c_int32, c_void_p, c_void_p)),
    "sb3x_write_runs": (c_int64, (c_void_p, c_void_p, c_int64, c_int32, c_int32, c_void_p, c_int64)),
    "sb3x_split": (None, (c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p)),
    "sb3x_join": (None, (c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p)),
    "sb3x_cells": (c_int32, (c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p)),
    "sb3x_select_rows": (c_int32, (c_void_p, c_int64, c_int64, c_void_p, c_int64, c_void_p)),
    "sb3x_tree_create": (c_void_p, (c_void_p, c_int64, POINTER(c_int32))),
    "sb3x_tree_destroy": (None, (c_void_p,)),
    "sb3x_tree_total": (c_double, (c_void_p,)),
    "sb3x_tree_set": (c_int32, (c_void_p, c_void_p, c_void_p, c_int64)),
    "sb3x_tree_update": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p)),
    "sb3x_tree_draw": (c_int32, (c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_void_p)),
}

_core: ctypes.CDLL | None = None


def core() -> ctypes.CDLL:
    """The library, loaded on the first call."""
    global _core
    if _core is None:
        library = load()
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        from sb3_extra_buffers.native import direct, threads

        direct.start_with(library)
        threads.start_with(library)
        _core = library  # last: after an interrupt, the next call begins anew
    return _core


def address_of(array: NDArray[Any]) -> int:
    """The address of a C-contiguous array. The caller must keep the array alive."""
    try:
        return ctypes.addressof(c_char.from_buffer(array))  # a third of the time that `array.ctypes` takes
    except (TypeError, ValueError):  # read-only, or without bytes
        if not array.flags.c_contiguous:
            raise
        address: int = array.ctypes.data
        return address


def check(status: int, what: str) -> None:
    """Raise the error for a status code.

    :param status: returned by a function of the core
    :param what: the attempted action, for the message
    """
    if status == OK:
        return
    if status == NO_MEMORY:
        raise MemoryError(f"No memory left to {what}; nothing has changed")
    if status == BAD_CELL:
        raise IndexError(f"Could not {what}: a cell does not exist")
    if status == CORRUPT:
        raise CorruptDataError(f"Could not {what}: the encoded bytes are damaged")
    if status == TOO_LARGE:
        raise ValueError(f"Could not {what}: more than the store can count")
    if status == NO_SPACE:
        raise OSError(errno.ENOSPC, f"No room to {what}: the disk is full, or the directory is gone. Nothing has changed")
    if status == FORKED:
        raise RuntimeError(
            f"Could not {what}: the blocks lie in a file of the process that this one was forked from. Make a buffer here"
        )
    if status == UNREADABLE:
        raise OSError(errno.EIO, f"Could not {what}: the file that the blocks lie in cannot be read")
    raise RuntimeError(f"Could not {what}: a call that this store does not take (code {status})")
