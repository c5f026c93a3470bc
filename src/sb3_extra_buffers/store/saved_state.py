"""A frame store as it is pickled: plain values and the live bytes only, about as large as the store itself.

Open blocks are encoded too. A checksum over all of it makes sure that damage never becomes a wrong observation.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.errors import CorruptDataError

if TYPE_CHECKING:
    from sb3_extra_buffers.store.frame_store import FrameStore

FORMAT = 1

#: What a store knows about each of its blocks: arrays with an entry per slot.
TABLES = ("_references", "_previous", "_place", "_length", "_base")
_GIVEN = ("layout", "codec", "block_frames", "n_cells", "n_streams", "n_columns")
_NUMBERS = ("_unhelpful", "_current_base", "_base_age")
_FILL = 0  # column of `_streams`


def save(store: FrameStore) -> dict[str, Any]:
    """The state of a store that nobody is writing to."""
    n = store._n_slots
    sealed = np.flatnonzero((store._references[:n] > 0) & (store._length[:n] > 0))
    state: dict[str, Any] = {
        "format": FORMAT,
        "given": {name: getattr(store, name) for name in _GIVEN},
        "numbers": {name: int(getattr(store, name)) for name in _NUMBERS},
        "tables": {name: getattr(store, name)[:n].copy() for name in TABLES},
        "heads": store._heads.copy(),
        "streams": store._streams.copy(),
        "free_slots": list(store._free_slots),
        "tails": [store.codec.encode(rows) for rows in _open_rows(store)],
        "sealed": sealed,
        "payload": b"".join(store._arena.get(int(store._place[i]), int(store._length[i])).tobytes() for i in sealed),
    }
    return {**state, "checksum": _checksum(state)}


def check(state: dict[str, Any]) -> None:
    """Refuse a state of another format or one that is damaged."""
    if state.get("format") != FORMAT:
        raise CorruptDataError(
            f"A frame store of format {state.get('format')!r} cannot be read; this version reads format {FORMAT}"
        )
    if state["checksum"] != _checksum(state):
        raise CorruptDataError("A saved frame store is damaged: its checksum does not match")


def restore(store: FrameStore, state: dict[str, Any]) -> None:
    """Fill an empty store from a state that was checked."""
    for name, value in state["given"].items():
        setattr(store, name, value)
    # Made anew: a backend may be missing here, which is said now, or a stand-in reads the same bytes.
    store.codec = make_codec(store.codec.name, dataclasses.asdict(store.codec))
    store._load_kernels()
    store._allocate()
    store._heads, store._streams, store._free_slots = state["heads"], state["streams"], state["free_slots"]
    for name, value in (*state["numbers"].items(), *state["tables"].items()):
        setattr(store, name, value)
    store._n_slots = len(store._references)
    for rows, data in zip(_open_rows(store), state["tails"], strict=True):
        store.codec.decode(data, rows)
    view, offset = memoryview(state["payload"]), 0
    for slot in state["sealed"].tolist():
        data = view[offset : offset + int(store._length[slot])]
        store._place[slot] = store._arena.put(data)
        offset += len(data)


def _open_rows(store: FrameStore) -> list[Any]:
    """The rows of each stream that hold something: context and open block."""
    return [
        rows[: store.layout.stack + int(fill)] for rows, fill in zip(store._staging, store._streams[:, _FILL], strict=True)
    ]


def _checksum(state: dict[str, Any]) -> int:
    given, tables = dict(state["given"]), state["tables"]
    layout = given.pop("layout")
    shape = tuple(map(int, layout.shape))
    said = (
        shape,
        layout.dtype.str,
        int(layout.stack),
        layout.axis,
        given,
        state["numbers"],
        state["free_slots"],
        list(tables),
    )
    crc = zlib.crc32(repr(said).encode())
    for part in (state["heads"], state["streams"], state["sealed"], *tables.values(), *state["tails"], state["payload"]):
        crc = zlib.crc32(part, crc)
    return crc
