"""Array views: SB3 uses them as ndarrays `(buffer_size, n_envs, *obs_shape)`, but they are backed by cells of a leaf.

Reading returns real arrays; writing goes to the store; `swapaxes` and `reshape` of the leading axes only rearrange cell
numbers. Above: the buffers and CompressedArray.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Iterator
from types import EllipsisType
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sb3_extra_buffers.errors import ObservationError
from sb3_extra_buffers.store.base import Cells
from sb3_extra_buffers.store.leaf import LeafStore

#: dtype of the placeholder that SB3's `add` copies and assigns instead of observations, which are already in the store.
#: No space has this dtype, and NumPy copies it quickly.
PLACEHOLDER: np.dtype[Any] = np.dtype("V1")


_ALL = slice(None)


class Reader:
    """How the views of a leaf read it. Between `begin` and `end`, they read for one batch.

    The leaf is not kept here but given to each call: a leaf that refers to its reader would otherwise be freed late.

    SB3 reads `next_observations` and `observations` with the same index arrays, and they share most blocks. So a read of
    one column also fetches the same cells of the other, for the read that follows. Arrays that were read for a batch are
    remembered until `end`: nobody else holds them, so they can become the batch without another copy.

    :param n_columns: columns that are read together; 1 for none
    :param handed_out: list of the arrays that were read for a batch, shared by the readers of a buffer
    """

    def __init__(self, n_columns: int = 1, handed_out: list[Any] | None = None) -> None:
        self._columns = tuple(range(n_columns))
        self._batch_thread = 0  # the thread that makes a batch; 0 for none
        self._is_pairs = True
        self._ahead_cells: tuple[bytes, bytes] = (b"", b"")  # compared as bytes, which is quick
        self._ahead: dict[int, Any] = {}
        self._handed_out = [] if handed_out is None else handed_out

    def begin(self, *, is_pairs: bool = True) -> None:
        """Begin a batch, which this thread makes.

        :param is_pairs: all columns will be read with the same index arrays
        """
        self._batch_thread = threading.get_ident()
        self._is_pairs = is_pairs

    def end(self) -> None:
        """End the batch."""
        self._batch_thread = 0
        self._ahead.clear()
        self._handed_out.clear()

    def read(self, leaf: LeafStore, column: int, cells: Cells) -> Any:
        """The observations in cells of a column."""
        values = leaf.read(column, cells)
        if self._batch_thread == threading.get_ident():
            self._handed_out.append(values)
        return values

    def read_pairs(self, leaf: LeafStore, column: int, slots: Cells, envs: Cells) -> Any:
        """The observations in slots of envs. Also fetches the other columns, which SB3 reads next."""
        if self._batch_thread != threading.get_ident():
            with leaf.lock:
                return leaf.store.read_columns((column,), slots, envs)[0]
        if len(self._columns) == 1 or not self._is_pairs:
            values = leaf.store.read_columns((column,), slots, envs)[0]
        else:
            asked = slots.tobytes(), envs.tobytes()
            if column not in self._ahead or asked != self._ahead_cells:
                arrays = leaf.store.read_columns(self._columns, slots, envs)
                self._ahead_cells, self._ahead = asked, dict(zip(self._columns, arrays, strict=True))
            values = self._ahead.pop(column)
        self._handed_out.append(values)
        return values


class ArrayView:
    """An array-like over cells of a leaf: the leading axes number the cells, the others belong to an observation.

    :param leaf: where the cells are
    :param column: column of the leaf
    :param shape: leading axes
    :param obs_shape: shape of one observation
    :param dtype: dtype of the arrays that are read
    :param stored_dtype: dtype in the store, if it is another
    :param cells: cell numbers, an array of ``shape``; by default 0, 1, 2, ...
    :param reader: shared by the columns of a leaf
    """

    def __init__(
        self,
        leaf: LeafStore,
        column: int,
        shape: tuple[int, ...],
        obs_shape: tuple[int, ...],
        dtype: DTypeLike,
        *,
        stored_dtype: DTypeLike | None = None,
        cells: Cells | None = None,
        reader: Reader | None = None,
    ) -> None:
        self.leaf, self.column, self.obs_shape = leaf, column, tuple(obs_shape)
        self.dtype = np.dtype(dtype)
        self.stored_dtype = self.dtype if stored_dtype is None else np.dtype(stored_dtype)
        self._shape, self._given_cells = tuple(shape), cells
        # (buffer_size, n_envs, ...), as SB3 samples it. CompressedArray has one stream, whatever its axes are.
        self._is_whole = cells is None and len(self._shape) == 2 and self._shape[1] == leaf.plan.n_streams
        self._reader = Reader() if reader is None else reader

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self._shape, *self.obs_shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Stored bytes of all columns."""
        with self.leaf.lock:
            return self.leaf.store.memory_usage().stored_bytes

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("Compressed observations can only be read as a copy")
        values = self[...]
        return values if dtype is None else values.astype(dtype, copy=False)

    def __eq__(self, other: object) -> Any:  # as an array: element by element
        return self[...] == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shape} {self.dtype}>"

    @property
    def rearranged_cells(self) -> Cells | None:
        """The cells of a rearranged view; None for all cells in order."""
        return self._given_cells

    # ---- rearranging, as SB3's swap_and_flatten does

    def swapaxes(self, axis1: int, axis2: int) -> ArrayView:
        """A view with two of the leading axes swapped."""
        if not (0 <= axis1 < len(self._shape) and 0 <= axis2 < len(self._shape)):
            raise ValueError(
                f"Only the {len(self._shape)} leading axes of {self!r} can be swapped; use np.asarray for the others"
            )
        return self.rearranged(self._cells.swapaxes(axis1, axis2))

    def reshape(self, *shape: int | tuple[int, ...]) -> ArrayView:
        """A view with other leading axes and the same axes of an observation."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        n_leading = len(wanted) - len(self.obs_shape)
        if n_leading < 0 or tuple(wanted[n_leading:]) != self.obs_shape:
            raise ValueError(
                f"{self!r} cannot become {wanted}: the axes of an observation must stay {self.obs_shape}; use np.asarray"
            )
        return self.rearranged(self._cells.reshape(wanted[:n_leading]))  # type: ignore[arg-type]

    def rearranged(self, cells: Cells) -> ArrayView:
        """A view of these cells of the same leaf."""
        return type(self)(
            self.leaf, self.column, cells.shape, self.obs_shape, self.dtype,
            stored_dtype=self.stored_dtype, cells=cells, reader=self._reader,
        )  # fmt: skip

    @property
    def _cells(self) -> Cells:
        if self._given_cells is not None:
            return self._given_cells
        return np.arange(math.prod(self._shape), dtype=np.int64).reshape(self._shape)

    # ---- reading

    def __getitem__(self, index: Any) -> NDArray[Any]:
        values: NDArray[Any]
        if type(index) is tuple and self._is_whole and is_pair_of_arrays(index):
            try:  # the way SB3 samples: array[slots, envs, :]
                values = self._reader.read_pairs(self.leaf, self.column, index[0], index[1])
            except IndexError:
                pass  # negative or out of bounds: handled below, as in NumPy
            else:
                return values.astype(self.dtype, copy=False)
        leading, rest = self._split(index)
        if leading is None:
            values = self._read(self._cells)[index]
            return values
        cells = self._cells[leading]
        values = self._read(cells)
        return values[(*(slice(None),) * np.ndim(cells), *rest)] if rest else values

    def _read(self, cells: Any) -> NDArray[Any]:
        flat = np.asarray(cells, np.int64).reshape(-1)
        values: NDArray[Any] = self._reader.read(self.leaf, self.column, flat).astype(self.dtype, copy=False)
        return values if np.ndim(cells) == 1 else values.reshape((*np.shape(cells), *self.obs_shape))[()]

    # ---- writing

    def __setitem__(self, index: Any, value: ArrayLike) -> None:
        if type(value) is ndarray:
            dtype = value.dtype
            if dtype is PLACEHOLDER:  # the observations are in the store already
                return
            if dtype == PLACEHOLDER:  # of an unpickled buffer: an equal dtype, but another object
                return
        leading, rest = self._split(index)
        if leading is None or rest:
            # Part of an observation: read whole observations, change them and write them back, under the lock.
            with self.leaf.lock:
                cells = self._cells if leading is None else np.asarray(self._cells[leading])
                whole = np.asarray(self._read(cells))
                part = cast(np.asarray(value), self.dtype, saturate=False)
                whole[index if leading is None else (*(slice(None),) * cells.ndim, *rest)] = part
                self.write_cells(cells.reshape(-1), whole.reshape(cells.size, *self.obs_shape))
        else:
            cells = np.asarray(self._cells[leading])
            given = np.asarray(value)
            while given.ndim > cells.ndim + len(self.obs_shape) and len(given) == 1:
                given = given[0]  # as in NumPy, which drops leading axes of length one
            try:
                whole = np.broadcast_to(given, (*cells.shape, *self.obs_shape))
            except ValueError as error:
                raise ObservationError(
                    f"Got values of shape {np.shape(value)} for a place of shape {(*cells.shape, *self.obs_shape)}"
                ) from error
            self.write_cells(cells.reshape(-1), whole.reshape(cells.size, *self.obs_shape))

    def write_cells(self, cells: Cells, observations: NDArray[Any]) -> None:
        """Write whole observations ``(n, *obs_shape)`` into cells ``(n,)``."""
        self.leaf.write(self.column, cells, cast(observations, self.stored_dtype, saturate=self.stored_dtype != self.dtype))

    def _split(self, index: Any) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
        """Split an index into (leading axes, axes of an observation). The first is None if it cannot be split."""
        items = [_as_item(item) for item in (index if type(index) is tuple else (index,))]
        if any(item is None or isinstance(item, bool) for item in items) or sum(item is Ellipsis for item in items) > 1:
            return None, ()
        if any(item is Ellipsis for item in items):
            at = next(i for i, item in enumerate(items) if item is Ellipsis)
            items[at : at + 1] = [slice(None)] * (self.ndim - sum(map(_axes_of, items)))
        leading: list[Any] = []
        axes = 0
        while items and axes < len(self._shape):
            axes += _axes_of(items[0])
            leading.append(items.pop(0))
        # NumPy pairs index arrays, treats an integer beside an array as one, and puts the paired axis first if slices separate
        # them. Indexing in two steps does the same only if all arrays are among the leading items, without slices there.
        has_array = any(isinstance(item, np.ndarray) for item in leading)
        has_slice = any(isinstance(item, slice) for item in leading)
        only_slices = all(isinstance(item, slice) for item in items)
        paired = any(isinstance(item, np.ndarray) for item in items) or (has_array and has_slice and not only_slices)
        if axes > len(self._shape) or paired:
            return None, ()
        return tuple(leading), tuple(items)


def cast(values: NDArray[Any], dtype: np.dtype[Any], *, saturate: bool) -> NDArray[Any]:
    """Values in the stored dtype. Values that it cannot hold are refused, or clipped if `saturate` is set."""
    if values.dtype == dtype:
        return values
    if saturate and dtype.kind in "uif" and values.dtype.kind in "uif":
        return _clipped(values, dtype)
    if dtype.kind in "ui" and values.dtype.kind in "uif":
        with np.errstate(invalid="ignore"):
            stored = values.astype(dtype)
        if values.size and not np.array_equal(stored, values):
            raise ObservationError(
                f"Got {values.dtype} observations between {values.min()} and {values.max()}, "
                f"which {dtype} cannot hold. Give the observation space the dtype of the observations"
                " (VecNormalize makes floats: give it an env with a float space, or norm_obs=False)"
            )
        return stored
    return values.astype(dtype)


def _clipped(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values rounded and clipped to the range of another dtype. NaN becomes 0 in integer dtypes."""
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        return np.where(np.isinf(values), values, np.clip(values, *_both(values.dtype, limits))).astype(dtype)
    info = np.iinfo(dtype)
    if values.dtype.kind in "ui":
        clipped: NDArray[Any] = np.clip(values, *_both(values.dtype, info)).astype(dtype)
        return clipped
    high = float(info.max)
    if high > info.max:  # no float equals 2**63 - 1: take the next one below
        high = float(np.nextafter(high, 0))
    return np.rint(np.clip(np.nan_to_num(values.astype(np.float64), nan=0.0), info.min, high)).astype(dtype)


def _both(dtype: np.dtype[Any], limits: Any) -> tuple[Any, Any]:
    """The common range of a dtype and these limits, as Python numbers, because no dtype may hold both ends."""
    own = np.iinfo(dtype) if dtype.kind in "ui" else np.finfo(dtype)
    number = int if dtype.kind in "ui" else float
    return max(number(own.min), number(limits.min)), min(number(own.max), number(limits.max))


def _as_item(item: Any) -> Any:
    """An item of an index in one of a few forms: None, bool, Ellipsis, slice, int, array."""
    if isinstance(item, np.bool_):
        return bool(item)
    if item is None or isinstance(item, (bool, slice, EllipsisType)):
        return item
    array = np.asarray(item)
    if array.size == 0 and not isinstance(item, np.ndarray):
        array = array.astype(np.intp)  # an empty list is a list of indices
    if array.ndim == 0 and array.dtype != bool:
        return operator.index(item)
    return array


def _axes_of(item: Any) -> int:
    """How many axes an item of an index uses."""
    if isinstance(item, EllipsisType):
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == bool else 1


def is_pair_of_arrays(index: tuple[Any, ...]) -> bool:
    """Whether an index is that of SB3's samples: slots and envs ``(n,)``, and perhaps a colon."""
    if not 2 <= len(index) <= 3 or (len(index) == 3 and not (isinstance(index[2], slice) and index[2] == _ALL)):
        return False
    slots, envs = index[0], index[1]
    return (
        type(slots) is ndarray and type(envs) is ndarray and slots.ndim == 1 and slots.shape == envs.shape
        and slots.dtype.kind in "ui" and envs.dtype.kind in "ui"
    )  # fmt: skip
