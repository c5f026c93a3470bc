"""Stores as the bytes of a segment, which is how they are copied, pickled and saved; and ways to damage such bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import numpy as np

from sb3_extra_buffers.native.store import BASE, CODED, LENGTH
from sb3_extra_buffers.store import BlockStore, Store
from sb3_extra_buffers.store.extract import Extract, extract_of, put_extract
from sb3_extra_buffers.store.format import Section, segments_in, write_segment

#: What stands in a table of blocks for one that is kept as it is.
RAW = CODED + 2


def segment_of(store: Store) -> bytes:
    """All cells of a store."""
    file = BytesIO()
    with extract_of(store, np.arange(store.n_cells)) as extract:
        write_segment(file, {"leaf": extract.about()}, extract.sections("leaf"))
    return file.getvalue()


def put_segment(store: Store, data: bytes) -> None:
    """Put what `segment_of` gave into all cells of a store."""
    [segment] = segments_in(BytesIO(data))
    put_extract(store, np.arange(store.n_cells), Extract.of_segment(segment, "leaf", segment.header["leaf"]))


# ---- damage


def places_in(data: bytes) -> tuple[list[range], set[int]]:
    """Where the parts of segments lie (prefix, header, sections, checksums), and the bytes between them that mean nothing."""
    parts, between = [], set[int]()
    for segment in segments_in(BytesIO(data)):
        sections = [(at, about["bytes"]) for about, at, _ in segment._sections.values()]
        header_at, checks_at = segment.begin + 64, segment.end - 4 * (len(sections) + 2)
        header_end = sections[0][0] if sections else checks_at
        parts += [range(segment.begin, header_at), range(header_at, header_end), range(checks_at, segment.end)]
        parts += [range(at, at + n) for at, n in sections if n]
        between |= {place for at, n in sections for place in range(at + n, at + n + -n % 64)}
    return parts, between


def flipped(data: bytes, place: int, bit: int) -> bytes:
    """The same bytes, but for one bit."""
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


def flips(data: bytes, rng: np.random.Generator, n: int) -> Iterator[tuple[bytes, bool]]:
    """Segments with a flipped bit, `n` in each part and `n` between them, and whether that bit means something."""
    parts, between = places_in(data)
    for part in [*parts, sorted(between)]:
        for index in rng.integers(0, len(part), n if part else 0).tolist():
            yield flipped(data, part[index], int(rng.integers(8))), part[index] not in between


def rewritten(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A segment whose header was changed, with checksums that are right."""
    [segment] = segments_in(BytesIO(data))
    parts = {name: list(segment.parts(name)) for name in segment.names}
    header = copy.deepcopy(segment.header)
    change(header)
    sections = [
        Section(name, sum(map(len, one)), one, {key: about[key] for key in about.keys() - {"name", "bytes"}})
        for (name, one), about in zip(parts.items(), header["sections"], strict=True)
    ]
    file = BytesIO()
    write_segment(file, header, sections)
    return file.getvalue()


def header_changes(data: bytes) -> Iterator[tuple[tuple[Any, ...], bytes]]:
    """Segments in which one number of the header is another, with checksums that are right; and which number it is."""
    [segment] = segments_in(BytesIO(data))
    for path in _numbers_in(segment.header):
        for other in (-1, 0, 1, 3, 1 << 20, 1 << 40, 1 << 70):

            def change(header: dict[str, Any], path: tuple[Any, ...] = path, other: int = other) -> None:
                for key in path[:-1]:
                    header = header[key]
                header[path[-1]] = header[path[-1]] + other if other in (-1, 1) else other

            yield (*path, other), rewritten(data, change)


def _numbers_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all numbers in a header, but for the lengths of sections, which are as long as they are."""
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers_in(one, (*path, key))
    elif isinstance(value, int) and path[-1] != "bytes":
        yield path


def damage_last_block(store: BlockStore, end: bytes) -> None:
    """Let the last encoded block of a store end with other bytes. The core does not look into blocks before they are read."""
    cells = np.arange(store.n_cells)
    with store.taken(cells) as taken:
        is_long = (taken.table[:, BASE] != RAW) & (taken.table[:, LENGTH] > len(end))
        last = int(np.flatnonzero(is_long)[-1])
        at = int(taken.table[: last + 1, LENGTH].sum())
        data = bytearray(b"".join(map(bytes, taken.parts())))
        data[at - len(end) : at] = end
        store._native.receive(taken.table, cells, taken.heads, [data])
