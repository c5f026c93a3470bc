"""Gzipped `.npy` files, read from front to back. Above: dqn_replay.

ISA-L (the extras ``isal`` and ``datasets``) inflates them where it is installed, which is faster, otherwise Python's gzip.
"""

from __future__ import annotations

import gzip
import tokenize
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers._optional import installed, require
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store.host.batches import new_batch

Item = TypeVar("Item")
#: What NumPy raises, besides ValueError, where the header of an array is no Python literal.
_BAD_HEADER = (SyntaxError, TypeError, tokenize.TokenError)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A gzipped file; CorruptDataError if it is damaged."""
    errors: tuple[type[Exception], ...] = (EOFError, ValueError, zlib.error, gzip.BadGzipFile, *_BAD_HEADER)
    reader: Any = gzip
    if installed("isal"):
        reader = require("isal.igzip", extra="isal", what="igzip")
        errors = (*errors, require("isal.isal_zlib", extra="isal", what="igzip").error)
    try:
        with reader.open(path) as file:
            yield file
    except CorruptDataError:
        raise
    except errors as error:
        raise CorruptDataError(f"{path} is damaged, or not a gzipped .npy file: {error}") from error


def read_array(path: Path) -> NDArray[Any]:
    """The whole of a small array. Pickled objects are refused."""
    with _opened(path) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        _check_end(file)
        return array


def read_header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an array."""
    with _opened(path) as file:
        return _header(file)


def _header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    if is_fortran or dtype.hasobject:
        raise ValueError(f"its dtype is {dtype}, Fortran order {is_fortran}; it must be plain numbers in C order")
    return shape, dtype


def read_rows(path: Path, at_once: int, *, kept: int) -> Iterator[NDArray[Any]]:
    """All rows of an array, in chunks. Each chunk begins with the last rows of the chunk before.

    :param at_once: new rows per chunk
    :param kept: how many rows are repeated
    """
    with _opened(path) as file:
        (n, *shape), dtype = _header(file)
        before = np.empty((0, *shape), dtype)
        for first in range(0, n, at_once):
            rows = new_batch((len(before) + min(at_once, n - first), *shape), dtype)
            rows[: len(before)] = before
            _fill(file, memoryview(rows[len(before) :].reshape(-1).view(np.uint8)))
            yield rows
            before = rows[max(len(rows) - kept, 0) :]
        _check_end(file)


def _check_end(file: BinaryIO) -> None:
    """ValueError unless the file ends here. Reading the end also verifies the checksum."""
    if file.read(1):
        raise ValueError("there are bytes behind the array")


def _fill(file: Any, room: memoryview) -> None:
    filled = 0
    while filled < len(room):
        n = file.readinto(room[filled:])
        if not n:
            raise EOFError("it is truncated")
        filled += n


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items. A thread makes the next one while the caller uses one."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
