"""Extracts: encoded cells of a leaf with everything that is needed to read them. A segment holds one per leaf.

    store -> Extract -> file, network, another store

Blocks of a host store are copied without decoding. Every other store (vectors, devices, a store that waits for its first
frames) first copies its observations into a temporary block store, and reads them from one. So there is one kind of extract.
Above: segments. Below: the stores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.errors import CorruptDataError, MissingBackendError
from sb3_extra_buffers.native.store import BASE, COLUMNS, LENGTH, PREVIOUS
from sb3_extra_buffers.store.base import Cells, Store
from sb3_extra_buffers.store.detect import default_block_frames
from sb3_extra_buffers.store.format import Section, Segment, number_dtype
from sb3_extra_buffers.store.host.blocks import BlockStore
from sb3_extra_buffers.store.host.coding import Coding
from sb3_extra_buffers.store.layout import SMALLEST_FRAME, FrameLayout

#: Bytes of observations that are copied at a time.
_COPIED_BYTES = 1 << 22
#: The most codings in a segment. The core can count 256 for a store, which may get them from several segments.
_MOST_CODINGS = 64


@dataclass
class Extract:
    """Cells of a leaf.

    :param codings: how its blocks are encoded, see `Coding.saved`; a block names one by its number
    :param chosen: the coding of new blocks; None if observations were encoded for this extract
    :param heads: ``(cells, columns)``: the last frame of each observation
    :param table: ``(blocks, 4)``
    :param parts: returns the bytes of the blocks, `n_bytes` in total
    """

    layout: FrameLayout
    block_frames: int
    codings: list[dict[str, Any]]
    chosen: int | None
    heads: NDArray[np.int64]
    table: NDArray[np.int64]
    n_bytes: int
    parts: Callable[[], Iterable[Any]]

    def only(self, rows: Cells) -> Extract:
        """Some of its cells with the blocks that they need, because a small store cannot take the blocks of all cells."""
        tokens, n = self.heads[rows] - 1, len(self.table)
        blocks = tokens // self.block_frames  # -1 where nothing was written
        named = max(blocks.max(initial=-1), self.table[:, [PREVIOUS, BASE]].max(initial=-1))
        if named >= n or tokens.min(initial=-1) < -1:
            raise CorruptDataError("A segment is damaged: it names blocks that it does not have")
        is_needed = np.zeros(n + 1, bool)
        is_needed[blocks] = True
        for link in (PREVIOUS, BASE):  # the blocks that they continue, then the base blocks of all of these
            linked = self.table[is_needed[:n], link]
            is_needed[linked[linked >= 0]] = True
        is_needed[n] = False  # stands for -1
        numbers = np.where(is_needed, np.cumsum(is_needed) - 1, -1)
        table = self.table[is_needed[:n]]
        for link in (PREVIOUS, BASE):
            is_link = table[:, link] >= 0
            table[is_link, link] = numbers[table[is_link, link]]
        return replace(
            self, heads=numbers[blocks] * self.block_frames + tokens % self.block_frames + 1, table=table,
            n_bytes=int(table[:, LENGTH].sum()),
            parts=functools.partial(_parts_of_blocks, self.parts, self.table[:, LENGTH], is_needed[:n]),
        )  # fmt: skip

    # ---- in a segment

    def about(self) -> dict[str, Any]:
        """Its description in the header of a segment."""
        layout = self.layout
        return {
            "shape": list(map(int, layout.shape)), "dtype": layout.dtype.str, "stack": int(layout.stack),
            "axis": int(layout.axis), "block_frames": int(self.block_frames), "codings": self.codings, "chosen": self.chosen,
        }  # fmt: skip

    def sections(self, prefix: str) -> list[Section]:
        """Its sections in a segment. Heads mostly count up, so their differences are small."""
        return [
            Section.of(f"{prefix}/heads", _small(np.diff(self.heads, axis=0, prepend=0))),
            Section.of(f"{prefix}/blocks", _small(self.table)),
            Section(f"{prefix}/frames", self.n_bytes, self.parts()),
        ]

    @classmethod
    def of_segment(cls, segment: Segment, prefix: str, about: Any) -> Extract:
        """The extract that `sections` has written; CorruptDataError if it is not valid."""
        try:
            layout = FrameLayout(
                tuple(map(int, about["shape"])), number_dtype(about["dtype"]), int(about["stack"]), int(about["axis"])
            )
            block_frames, codings, chosen = int(about["block_frames"]), list(about["codings"]), about["chosen"]
            for coding in map(Coding.restored, codings):
                if not 0 <= coding.piece_frames <= block_frames or layout.frame_bytes % coding.channels or coding.channels < 1:
                    raise ValueError(f"{coding=}")
            is_layout = layout.axis in (0, -1) and min(layout.shape, default=1) >= 0 and block_frames >= layout.stack
            is_chosen = len(codings) <= _MOST_CODINGS and (chosen is None or 0 <= chosen < len(codings))
            if not is_layout or not is_chosen:
                raise ValueError(f"{chosen=}, {block_frames=}, {layout=}")
        except (MissingBackendError, CorruptDataError):
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise CorruptDataError(f"A segment describes {prefix!r} wrongly: {type(error).__name__}: {error}") from error
        heads = np.cumsum(segment.array(f"{prefix}/heads", shape=(None, None)), axis=0, dtype=np.int64)
        table = segment.array(f"{prefix}/blocks", shape=(None, COLUMNS)).astype(np.int64)
        if len(table) > 4 * heads.size:  # a block, the previous one, and a base block for each
            raise CorruptDataError(f"A segment is damaged: {heads.size} observations cannot need {len(table)} blocks")
        n_bytes = int(table[:, LENGTH].sum())
        return cls(
            layout, block_frames, codings, chosen, heads, table, n_bytes, functools.partial(segment.parts, f"{prefix}/frames")
        )


def _parts_of_blocks(
    parts: Callable[[], Iterable[Any]], lengths: NDArray[np.int64], is_needed: NDArray[np.bool_]
) -> Iterator[memoryview]:
    """The bytes of some of the blocks. The others are read too, to verify the checksum."""
    ends, changes = np.cumsum(lengths), np.flatnonzero(np.diff(is_needed, prepend=False, append=False))
    ranges = list(zip((ends - lengths)[changes[::2]].tolist(), ends[changes[1::2] - 1].tolist(), strict=True))
    at = 0
    for part in parts():
        view = memoryview(part)
        for begin, end in ranges:
            if begin < at + len(view) and end > at:
                yield view[max(begin - at, 0) : end - at]
        at += len(view)


def _small(numbers: NDArray[np.int64]) -> NDArray[Any]:
    """The same numbers in 32 bits, if they fit."""
    fits = not numbers.size or (numbers.min() >= -(2**31) and numbers.max() < 2**31)
    return numbers.astype(np.int32) if fits else numbers


@contextmanager
def extract_of(store: Store, cells: Cells) -> Iterator[Extract]:
    """Extract cells of a store, whose lock the caller must hold.

    :param cells: cells of whole steps, for each stream in the order in which they were written
    """
    chosen = None
    if isinstance(store, BlockStore):
        chosen = store.chosen
    else:
        store = _copied(store, cells)
        cells = np.arange(len(cells))
    with store.taken(cells) as taken:
        codings = [coding.saved() for coding in store.codings]
        yield Extract(store.layout, store.block_frames, codings, chosen, taken.heads, taken.table, taken.n_bytes, taken.parts)


def put_extract(store: Store, cells: Cells, extract: Extract, *, rows: Cells | None = None, encode: bool = False) -> None:
    """Put an extract into cells of a store. If its blocks can be copied without decoding, an error changes nothing.

    :param rows: which of its cells; all by default
    :param encode: encode again instead of copying blocks
    """
    extract = extract if rows is None else extract.only(rows)
    heads = extract.heads
    check_extract(store, len(cells), extract)
    if _can_copy_blocks(store, extract) and not encode:
        store.receive(
            np.ascontiguousarray(cells, np.int64), np.ascontiguousarray(heads), extract.table, extract.codings,
            extract.parts(), extract.chosen,
        )  # fmt: skip
        return
    written = np.flatnonzero(heads.any(axis=1) | store.is_written(cells))  # all others are zeros in both
    _copy(restored(extract), written, store, cells[written])


def check_to_the_end(store: Store, n_cells: int, extract: Extract) -> None:
    """Raise all that `put_extract` would raise, before anything is put."""
    check_extract(store, n_cells, extract)
    source = restored(extract)
    if not _can_copy_blocks(store, extract):
        for _, _ in _read_in_parts(source, np.arange(n_cells), 1):
            pass


def check_extract(store: Store, n_cells: int, extract: Extract) -> None:
    """Raise CorruptDataError unless an extract has observations of a store's kind, for so many of its cells."""
    heads, layout = extract.heads, extract.layout
    if (layout.shape, layout.dtype) != (store.layout.shape, store.layout.dtype):
        raise CorruptDataError(
            f"A segment holds observations of {layout.dtype} {layout.shape}; those of the buffer are {store.layout.dtype} "
            f"{store.layout.shape}"
        )
    if heads.shape != (n_cells, store.n_columns):
        raise CorruptDataError(
            f"A segment is damaged: {heads.shape[0]} cells of {heads.shape[1]} columns cannot fill {n_cells} of "
            f"{store.n_columns}"
        )


def _can_copy_blocks(store: Store, extract: Extract) -> TypeGuard[BlockStore]:
    return isinstance(store, BlockStore) and store.can_receive(extract.layout, extract.block_frames)


def restored(extract: Extract) -> BlockStore:
    """A temporary store for an extract. It has one stream: reading does not depend on the stream of a cell."""
    heads = np.ascontiguousarray(extract.heads)
    try:
        store = BlockStore(
            extract.layout, len(heads), make_codec("none"), n_columns=heads.shape[1], block_frames=extract.block_frames
        )
    except ValueError as error:
        raise CorruptDataError(f"A segment is damaged: {error}") from error
    store.receive(np.arange(len(heads)), heads, extract.table, extract.codings, extract.parts())
    return store


def _copied(store: Store, cells: Cells) -> BlockStore:
    """A block store with the observations of these cells."""
    layout = store.layout
    codec = make_codec("delta" if layout.frame_bytes >= SMALLEST_FRAME else "none")
    copy = BlockStore(
        layout, len(cells), codec, n_streams=store.n_streams, n_columns=store.n_columns,
        block_frames=default_block_frames(layout, max(len(cells) // store.n_streams, 1)),
    )  # fmt: skip
    written = np.flatnonzero(store.is_written(cells))
    _copy(store, cells[written], copy, written)
    return copy


def _copy(source: Store, cells: Cells, target: Store, to: Cells) -> None:
    """Copy observations in the given order. Whole steps are written as steps, so that columns share frames."""
    n = target.n_streams
    is_steps = len(to) % n == 0 and bool(np.all(to.reshape(-1, n) == to[::n, None] // n * n + np.arange(n)))
    for first, values in _read_in_parts(source, cells, n):
        into = to[first : first + len(values[0])]
        if is_steps:
            for i in range(0, len(into), n):
                target.write_step(int(into[i]) // n, tuple(np.ascontiguousarray(one[i : i + n]) for one in values))
            continue
        for i in range(len(into)):
            for column, one in enumerate(values):
                target.write(column, into[i : i + 1], one[i : i + 1])


def _read_in_parts(source: Store, cells: Cells, multiple: int) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """All columns of cells, some cells at a time, and which is the first of them."""
    columns = tuple(range(source.n_columns))
    at_once = max(_COPIED_BYTES // max(source.layout.observation_bytes * len(columns) * multiple, 1), 1) * multiple
    for first in range(0, len(cells), at_once):
        some = np.ascontiguousarray(cells[first : first + at_once])
        yield first, [on_host(one) for one in source.read_columns(columns, some)]


def on_host(values: Any) -> NDArray[Any]:
    """Observations as an array, wherever they are."""
    array: NDArray[Any] = values if isinstance(values, np.ndarray) else values.cpu().numpy()
    return array
