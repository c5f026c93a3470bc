"""A frame store as it is pickled: plain values and the live bytes only, about as large as the store itself.

Open blocks are encoded too. A checksum over all of it makes sure that damage never becomes a wrong observation.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store.tables import CHUNK, ENCODED, FILL, LENGTH, N_SLOTS, OFFSET

if TYPE_CHECKING:
    from sb3_extra_buffers.store.frame_store import FrameStore

FORMAT = 2

_GIVEN = ("layout", "codec", "block_frames", "n_cells", "n_streams", "n_columns")
#: Arrays that are saved as they are; of the block table only the rows in use.
_TABLES = ("_heads", "_streams", "_state")


def save(store: FrameStore) -> dict[str, Any]:
    """The state of a store that nobody is writing to."""
    sealed = store._sealed_slots()
    tables = {name: getattr(store, name).copy() for name in _TABLES}
    state: dict[str, Any] = {
        "format": FORMAT,
        "given": {name: getattr(store, name) for name in _GIVEN},
        "tables": {**tables, "_blocks": store._blocks[: store._state[N_SLOTS]].copy()},
        "tails": [store.codec.encode(rows) for rows in _open_rows(store)],
        "sealed": sealed,
        "payload": b"".join(store._bytes_in(slot).tobytes() for slot in sealed.tolist()),
    }
    return {**state, "checksum": _checksum(state)}


def check(kind: str, state: dict[str, Any], known_format: int, checksum: Callable[[dict[str, Any]], int]) -> None:
    """Refuse the state of a store that has another format or is damaged.

    :param kind: what it is a state of
    """
    if state.get("format") != known_format:
        raise CorruptDataError(
            f"A {kind} of format {state.get('format')!r} cannot be read; this version reads format {known_format}"
        )
    if state["checksum"] != checksum(state):
        raise CorruptDataError(f"A saved {kind} is damaged: its checksum does not match")


def restore(store: FrameStore, state: dict[str, Any]) -> None:
    """Fill an empty store from a state, or refuse it."""
    check("frame store", state, FORMAT, _checksum)
    for name, value in state["given"].items():
        setattr(store, name, value)
    # Made anew: a backend may be missing here, which is said now, or a stand-in reads the same bytes.
    store.codec = make_codec(store.codec.name, dataclasses.asdict(store.codec))
    store._load_kernels()
    store._allocate()
    for name, value in state["tables"].items():
        setattr(store, name, value)
    for rows, data in zip(_open_rows(store), state["tails"], strict=True):
        store.codec.decode(data, rows)
    view, offset = memoryview(state["payload"]), 0
    for slot in state["sealed"].tolist():
        data = view[offset : offset + int(store._blocks[slot, LENGTH])]
        store._blocks[slot, [CHUNK, OFFSET]] = store._arena.put(data)
        offset += len(data)
    store._streams[:, ENCODED] = np.minimum(store._streams[:, ENCODED], 0)
    store._encode_open_blocks()


def _open_rows(store: FrameStore) -> list[Any]:
    """The rows of each stream that hold something: context and open block."""
    return [rows[: store.layout.stack + int(fill)] for rows, fill in zip(store._staging, store._streams[:, FILL], strict=True)]


def _checksum(state: dict[str, Any]) -> int:
    given = dict(state["given"])
    layout = given.pop("layout")
    shape = tuple(map(int, layout.shape))
    said = (shape, layout.dtype.str, int(layout.stack), layout.axis, given, list(state["tables"]))
    crc = zlib.crc32(repr(said).encode())
    for part in (*state["tables"].values(), state["sealed"], *state["tails"], state["payload"]):
        crc = zlib.crc32(part, crc)
    return crc
