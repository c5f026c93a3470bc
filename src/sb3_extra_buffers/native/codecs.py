"""The stateless functions of the core: `delta`, run lengths, interleaved channels, rows by number."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.native.binding import CORRUPT, NO_MEMORY, NO_NEIGHBOURS, OK, Neighbours, Shape, address_of, check, core

Bytes = NDArray[np.uint8]


def delta_encode(frames: Bytes, base: Bytes | None, room: int, neighbours: Neighbours = NO_NEIGHBOURS) -> Bytes | None:
    """Encode frames ``(n, frame_bytes)`` as changes since the previous frame; None if that takes more than ``room`` bytes.

    :param base: the frame before the first one; zeros by default
    :param neighbours: where similar values are
    """
    out = np.empty(room, np.uint8)
    n, frame_bytes = frames.shape
    length = core().sb3x_delta_encode(
        byref(Shape(frame_bytes, *neighbours)), address_of(frames), n, None if base is None else address_of(base),
        address_of(out), room,
    )  # fmt: skip
    return None if length < 0 else out[:length]


def delta_decode(data: Any, base: Bytes | None, out: Bytes, neighbours: Neighbours = NO_NEIGHBOURS) -> bool:
    """Fill ``out`` (frames, frame_bytes) from the beginning of ``data``; False if the bytes are damaged."""
    given = np.frombuffer(data, np.uint8)
    n, frame_bytes = out.shape
    status = core().sb3x_delta_decode(
        byref(Shape(frame_bytes, *neighbours)), address_of(given), given.size, None if base is None else address_of(base), n,
        address_of(out),
    )  # fmt: skip
    if status == NO_MEMORY:
        check(status, "decode frames")
    return bool(status == OK)


def best_piece(change_bytes: int, observation_bytes: int, block_frames: int) -> int:
    """Frames in a piece of `delta`, as stores choose them.

    :param change_bytes: encoded bytes of a frame that follows another
    """
    frames: int = core().sb3x_best_piece(change_bytes, observation_bytes, block_frames)
    return frames


def decode(format: int, data: Any, out: Bytes) -> bool:
    """Fill ``out`` from the beginning of ``data``, in one of the formats that the core reads; False if the bytes are damaged.

    :param format: ``SB3X_READ_...``
    :param out: C-contiguous
    """
    given = np.frombuffer(data, np.uint8)
    status = core().sb3x_decode(format, address_of(given), given.size, address_of(out), out.size)
    if status != CORRUPT:
        check(status, "decode frames")
    return bool(status == OK)


def find_runs(
    items: NDArray[Any], longest: int, most: int, runs_type: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Values and lengths of runs of equal items, none longer than ``longest``; None if there are more than ``most``."""
    values, lengths = np.empty(most, items.dtype), np.empty(most, runs_type)
    count = core().sb3x_find_runs(
        address_of(items), items.size, items.itemsize, longest, most, lengths.itemsize, address_of(values), address_of(lengths)
    )
    return None if count < 0 else (values[:count], lengths[:count])


def write_runs(values: NDArray[Any], lengths: NDArray[Any], out: NDArray[Any]) -> int:
    """Write runs until ``out`` is full. Returns how many items were written."""
    written: int = core().sb3x_write_runs(
        address_of(values), address_of(lengths), len(values), out.itemsize, lengths.itemsize, address_of(out), out.size
    )
    return written


def split_parts(pixels: Bytes, n_pixels: int, parts: int, out: Bytes) -> None:
    """Interleaved parts to planes: ``(n, n_pixels, parts, part_bytes)`` -> ``(n, parts, n_pixels, part_bytes)``.

    :param pixels: ``(n, bytes)``, C-contiguous
    :param out: ``(n, bytes)``
    """
    n, nbytes = pixels.shape
    core().sb3x_split(address_of(pixels), n, n_pixels, parts, nbytes // (n_pixels * parts), address_of(out))


def join_parts(planes: Bytes, n_pixels: int, parts: int, out: Bytes) -> None:
    """The inverse of `split_parts`."""
    n, nbytes = planes.shape
    core().sb3x_join(address_of(planes), n, n_pixels, parts, nbytes // (n_pixels * parts), address_of(out))


def select_rows(rows: int, n_rows: int, row_bytes: int, numbers: int, n: int, out: int) -> None:
    """Copy rows by number; IndexError if one does not exist. Takes addresses of C-contiguous memory, which may be tensors.

    :param rows: ``(n_rows, row_bytes)``
    :param numbers: ``(n,)``, int32
    :param out: ``(n, row_bytes)``
    """
    check(core().sb3x_select_rows(rows, n_rows, row_bytes, numbers, n, out), "select rows")


def cells_of(slots: NDArray[Any], envs: NDArray[Any], n_slots: int, n_streams: int) -> NDArray[np.int64]:
    """The cells of slots and envs ``(n,)``; IndexError if one of them does not exist."""
    slots, envs = np.ascontiguousarray(slots, np.int64), np.ascontiguousarray(envs, np.int64)
    cells = np.empty(len(slots), np.int64)
    status = core().sb3x_cells(address_of(slots), address_of(envs), len(slots), n_slots, n_streams, address_of(cells))
    if status != OK:
        raise IndexError(f"Not all slots are below {n_slots} and all envs below {n_streams}: got {slots} and {envs}")
    return cells
