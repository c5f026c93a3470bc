"""Columns and entries of the integer tables that a frame store and its kernels share. They import nothing, so both can."""

from __future__ import annotations

# `blocks`, a row per slot. A free slot has no references, and in PREVIOUS the free slot behind it. An open block has no
# length, and -1 - stream for a chunk.
REFERENCES, PREVIOUS, BASE, LENGTH, CHUNK, OFFSET = 0, 1, 2, 3, 4, 5
BLOCK_COLUMNS = 8  # half a cache line, so that a row never lies in two

# `streams`, a row per stream. ENCODED is what the scratch holds, -1 for a block that stays as it is; FIRST how much of it is
# the first frame.
FILL, HEAD, OPEN, RESERVE, ENCODED, FIRST = 0, 1, 2, 3, 4, 5
STREAM_COLUMNS = 6

# `state`, one for the store: slots that were ever used; the first free one; the base for new blocks, and for how many blocks
# it has been; blocks in a row that the codec did not shrink.
N_SLOTS, FREE, CURRENT_BASE, BASE_AGE, UNHELPFUL = 0, 1, 2, 3, 4
STATE_ENTRIES = 5

# Arena: `table`, a row per chunk: where it is, and how many of its bytes are in use.
ADDRESS, LIVE = 0, 1
# `cursor`: the current chunk, the end of what it holds, its size; bytes in use in all chunks; chunks that have become empty
# and wait to be given back.
CURRENT, END, CAPACITY, LIVE_BYTES, EMPTIED = 0, 1, 2, 3, 4

# Who encodes the blocks of a store.
NOBODY, DELTA, LIBRARY = 0, 1, 2
#: `append` asks for a block to be encoded; any other request is a number of bytes.
ENCODE = -1
