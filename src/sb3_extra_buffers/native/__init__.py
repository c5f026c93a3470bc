"""The native core: one small C library with all loops over bytes, and its Python binding. Above: codecs and store.

`sb3x.h` documents every function of the library. `library` finds and loads it when it is first used; `store` wraps its
stores, `codecs` its stateless functions.
"""

from __future__ import annotations

from sb3_extra_buffers.native.binding import Neighbours
from sb3_extra_buffers.native.codecs import (
    best_piece,
    cells_of,
    decode,
    delta_decode,
    delta_encode,
    find_runs,
    join_parts,
    select_rows,
    split_parts,
    write_runs,
)
from sb3_extra_buffers.native.store import Changes, NativeStore, Usage
from sb3_extra_buffers.native.threads import set_threads

__all__ = [
    "Changes",
    "NativeStore",
    "Neighbours",
    "Usage",
    "best_piece",
    "cells_of",
    "decode",
    "delta_decode",
    "delta_encode",
    "find_runs",
    "join_parts",
    "select_rows",
    "set_threads",
    "split_parts",
    "write_runs",
]
