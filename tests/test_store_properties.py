"""Whatever is written in whatever order, a store gives back the same bytes, and keeps no block that no cell needs."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.store import DetectingStore, FrameLayout, FrameStore, RowStore, Store
from sb3_extra_buffers.store.arena import CHUNK_BYTES
from sb3_extra_buffers.store.detect import StorePlan
from sb3_extra_buffers.store.tables import N_SLOTS
from tests.invariants import check_invariants

ROWS = "rows"  # stands for a RowStore, which has no codec
CODECS = ["none", "delta", "gzip", "rle", "rle-jit", "zstd", "lz4-block"]
DTYPES = ["uint8", "bool", "int64", "float32", "float64", "int16"]
PROFILE = settings(
    max_examples=int(os.environ.get("STORE_EXAMPLES", "60")), deadline=None, suppress_health_check=list(HealthCheck)
)

layouts = st.one_of(
    st.builds(
        lambda stack, channels, rest, dtype: FrameLayout((stack * channels, *rest), np.dtype(dtype), stack, 0),
        st.integers(1, 4), st.integers(1, 2), st.sampled_from([(), (3,), (4, 5)]), st.sampled_from(DTYPES),
    ),
    st.builds(
        lambda stack, channels, rest, dtype: FrameLayout((*rest, stack * channels), np.dtype(dtype), stack, -1),
        st.integers(2, 4), st.integers(1, 2), st.sampled_from([(3,), (4, 5)]), st.sampled_from(DTYPES),
    ),
    st.builds(lambda dtype: FrameLayout((), np.dtype(dtype)), st.sampled_from(DTYPES)),
)  # fmt: skip


def random_bytes(layout: FrameLayout, rng: np.random.Generator) -> np.ndarray:
    """An observation of arbitrary bytes: NaN payloads, infinities and -0.0 among them."""
    data = rng.integers(0, 256, layout.observation_bytes, dtype=np.uint8)
    if layout.dtype == bool:
        data &= 1
    elif layout.dtype.kind == "f":
        values = data.view(layout.dtype)
        special = rng.random(values.size) < 0.3
        values[special] = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan], layout.dtype), int(special.sum()))
    return data.view(layout.dtype).reshape(layout.shape)


def next_observation(kind: str, before: np.ndarray, layout: FrameLayout, rng: np.random.Generator) -> np.ndarray:
    """The observation that a stream writes next: as before, shifted by one frame, reset, jumped, or with one byte changed."""
    if kind == "same":
        return before
    if kind == "jump" or not layout.shape:
        return random_bytes(layout, rng)
    if kind == "byte":
        changed = before.copy()
        changed.reshape(-1)[rng.integers(changed.size)] = random_bytes(layout, rng).reshape(-1)[0]
        return changed
    frame = layout.shape[layout.axis] // layout.stack
    new = random_bytes(layout, rng)
    if kind == "reset":
        before = np.zeros_like(before)
    kept = [slice(None)] * before.ndim
    kept[layout.axis] = slice(frame, None)
    last = [slice(None)] * before.ndim
    last[layout.axis] = slice(layout.shape[layout.axis] - frame, None)
    return np.concatenate((before[tuple(kept)], new[tuple(last)]), axis=layout.axis)


def play(store: Any, layout: FrameLayout, n_cells: int, n_streams: int, n_columns: int, kinds: list[str], seed: int) -> Any:
    """Write in arbitrary order; the model is a plain array per column. Yields after every write."""
    rng = np.random.default_rng(seed)
    model = np.zeros((n_columns, n_cells, *layout.shape), layout.dtype)
    last = [np.zeros(layout.shape, layout.dtype) for _ in range(n_streams)]
    ring = 0
    for kind in kinds:
        column = int(rng.integers(n_columns))
        if kind == "clear":
            store.clear()
            model[:] = 0
            continue
        how = rng.random()
        if how < 0.4:  # as a replay buffer does: the next step of all streams, what comes next is as `kind` says
            step = ring % (n_cells // n_streams)
            pair = [np.stack(last)]
            last = [next_observation(kind, before, layout, rng) for before in last]
            pair.append(np.stack(last))
            store.write_step(step, tuple(pair[:n_columns]))
            model[:, step * n_streams : (step + 1) * n_streams] = pair[:n_columns]
            if rng.random() < 0.2:  # an episode ends: the next one begins elsewhere
                stream = int(rng.integers(n_streams))
                last[stream] = next_observation("reset", last[stream], layout, rng)
            ring += 1
            yield model
            continue
        if how < 0.7:
            cells = (np.arange(n_streams) + ring * n_streams) % n_cells
            ring += column == n_columns - 1
        else:  # anywhere, repetitions included
            cells = rng.integers(0, n_cells, int(rng.integers(1, 6)))
        values = []
        for cell in cells.tolist():
            last[cell % n_streams] = next_observation(kind, last[cell % n_streams], layout, rng)
            values.append(last[cell % n_streams])
        store.write(column, cells, np.stack(values))
        for cell, value in zip(cells.tolist(), values, strict=True):
            model[column, cell] = value
        yield model
    yield model


def assert_reads_as(store: Any, model: np.ndarray, seed: int = 0) -> None:
    n_columns, n_cells = model.shape[:2]
    cells = np.random.default_rng(seed).permutation(np.concatenate((np.arange(n_cells), np.arange(n_cells)[::2])))
    for column in range(n_columns):
        assert store.read(column, cells).tobytes() == model[column][cells].tobytes()
    for got, expected in zip(store.read_columns(tuple(range(n_columns)), cells), model, strict=True):
        assert got.dtype == model.dtype
        assert got.tobytes() == expected[cells].tobytes()


KINDS = st.sampled_from(["shift"] * 8 + ["same"] * 3 + ["reset", "jump", "byte"] * 2 + ["clear"])
STREAMS = st.integers(1, 3)


@PROFILE
@given(
    layout=layouts, codec=st.sampled_from([*CODECS, ROWS, ROWS, ROWS]), n_streams=STREAMS, slots=st.integers(1, 9),
    n_columns=st.integers(1, 2), extra=st.sampled_from([0, 1, 3, 12]), kinds=st.lists(KINDS, min_size=1, max_size=60),
    seed=st.integers(0, 2**32 - 1), copy_at=st.integers(0, 60),
)  # fmt: skip
def test_a_store_reads_as_plain_arrays(
    layout: FrameLayout, codec: str, n_streams: int, slots: int, n_columns: int, extra: int, kinds: list[str], seed: int,
    copy_at: int,
) -> None:  # fmt: skip
    n_cells = slots * n_streams
    options = {"elem_type": layout.dtype.name} if codec.startswith("rle") else {}
    store: Store
    if codec == ROWS:
        store = RowStore(layout, n_cells, n_streams=n_streams, n_columns=n_columns)
    else:
        store = FrameStore(
            layout,
            n_cells,
            make_codec(codec, options),
            n_streams=n_streams,
            n_columns=n_columns,
            block_frames=layout.stack + extra,
        )
    copies: list[tuple[Store, np.ndarray]] = []
    for t, model in enumerate(play(store, layout, n_cells, n_streams, n_columns, kinds, seed)):
        check_invariants(store)
        if t % 7 == 0 or t == copy_at:
            assert_reads_as(store, model, t)
        if t == copy_at:  # copies go on by themselves
            copies = [(pickle.loads(pickle.dumps(store)), model.copy()), (copy.deepcopy(store), model.copy())]
    assert_reads_as(store, model)
    for other, then in copies:
        check_invariants(other)
        assert_reads_as(other, then)
        cells = np.arange(n_cells)
        other.write(0, cells, model[0])
        other.write(n_columns - 1, cells[::-1].copy(), model[n_columns - 1][::-1])
        check_invariants(other)
        assert other.read(n_columns - 1, cells).tobytes() == model[n_columns - 1].tobytes()
    store.clear()
    check_invariants(store)
    assert store.memory_usage().raw_bytes == 0
    assert isinstance(store, RowStore) or store._arena.live_bytes == 0
    assert not store.read(0, np.arange(n_cells)).view(np.uint8).any()


@PROFILE
@given(
    layout=layouts, n_streams=STREAMS, slots=st.integers(1, 9), kinds=st.lists(KINDS, min_size=1, max_size=40),
    seed=st.integers(0, 2**32 - 1), copy_at=st.integers(0, 40),
)  # fmt: skip
def test_a_detecting_store_reads_as_plain_arrays(
    layout: FrameLayout, n_streams: int, slots: int, kinds: list[str], seed: int, copy_at: int
) -> None:
    """Before and after the layout was found, and through the change."""
    plan = StorePlan((*layout.shape, 24) if layout.shape else (), layout.dtype, slots * n_streams, n_streams, 2)
    store = DetectingStore(plan)
    # A trailing axis makes frames large enough to be worth looking for.
    wide = FrameLayout(plan.shape, plan.dtype, layout.stack if layout.axis == 0 else 1, 0)
    for t, model in enumerate(play(store, wide, plan.n_cells, n_streams, 2, kinds, seed)):
        if t % 5 == 0:
            assert_reads_as(store, model, t)
        if t == copy_at:
            other, then = pickle.loads(pickle.dumps(store)), model.copy()
            assert_reads_as(other, then)
            for cell in range(plan.n_cells):
                other.write(1, np.array([cell]), model[0, cell][None])
            then[1] = then[0]
            assert_reads_as(other, then)
    assert_reads_as(store, model)


def test_a_zero_and_a_negative_zero_are_not_the_same_picture() -> None:
    """While the layout is open, observations that stand still wait only once; equal values are not yet equal bits."""
    store = DetectingStore(StorePlan((2, 64), np.dtype(np.float64), 4, 1, 1))
    zeros = np.zeros((1, 2, 64))
    store.write(0, np.array([0]), zeros)
    store.write(0, np.array([1]), -zeros)
    assert store.layout is None
    assert store.read(0, np.array([0, 1])).tobytes() == np.concatenate((zeros, -zeros)).tobytes()


def filled_store(codec: str = "gzip", n_cells: int = 64) -> tuple[FrameStore, np.ndarray]:
    layout = FrameLayout((4, 30), np.dtype(np.uint8), 4, 0)
    store = FrameStore(layout, n_cells, make_codec(codec), n_streams=2, n_columns=2, block_frames=8)
    model = list(play(store, layout, n_cells, 2, 2, ["shift", "jump"] * 80, seed=0))[-1]
    return store, model


@pytest.mark.parametrize("codec", CODECS)
def test_overwritten_slot_gives_its_block_back(codec: str) -> None:
    store, _ = filled_store(codec)
    cells = np.arange(64)
    for column in (0, 1):  # one and the same observation everywhere: almost all that was there can go
        store.write(column, cells, np.full((64, 4, 30), 7, np.uint8))
    check_invariants(store)
    usage = store.memory_usage()
    assert usage.blocks <= 2 * 4 + 1  # of each stream: open, reserved, the one before and the one the frames are in; a base
    assert usage.raw_bytes == 2 * 64 * 120


def test_memory_does_not_grow_with_the_laps() -> None:
    """A replay buffer overwrites in order: the arena stays within a chunk of what the first laps took."""
    layout = FrameLayout((4, 40, 40), np.dtype(np.uint8), 4, 0)
    store = FrameStore(layout, 400, make_codec("none"), n_streams=2, n_columns=2)
    rng = np.random.default_rng(0)
    frames, held = np.zeros((2, 5, 40, 40), np.uint8), []
    for step in range(200 * 10):
        frames = np.concatenate((frames[:, 1:], rng.integers(0, 256, (2, 1, 40, 40), dtype=np.uint8)), axis=1)
        cells = np.arange(2) + step % 200 * 2
        store.write(0, cells, frames[:, :4])
        store.write(1, cells, frames[:, 1:])
        if step % 200 == 199:
            held.append(store._arena.held_bytes)
            assert store._state[N_SLOTS] < 40
    check_invariants(store)
    assert max(held) <= held[0] + CHUNK_BYTES


def test_a_chunk_that_is_nearly_empty_is_emptied() -> None:
    """A few cells that are never overwritten must not keep whole chunks alive."""
    size = 100_000
    layout = FrameLayout((size,), np.dtype(np.uint8))
    store = FrameStore(layout, 120, make_codec("none"), block_frames=1)
    rng = np.random.default_rng(0)
    model = rng.integers(0, 256, (120, size), dtype=np.uint8)
    store.write(0, np.arange(120), model)
    most = store._arena.held_bytes
    for _ in range(4):
        for cell in range(120):
            if cell % 12:
                model[cell] = cell % 3
                store.write(0, np.array([cell]), model[cell][None])
    for cell in range(2, 120):  # now only a few large blocks are left: all cells share what is equal to the one before
        model[cell] = model[1]
        store.write(0, np.array([cell]), model[cell][None])
    check_invariants(store)
    assert store._arena.held_bytes < most / 1.5
    assert_reads_as(store, model[None])


def test_blocks_larger_than_a_chunk() -> None:
    layout = FrameLayout((3 << 19,), np.dtype(np.uint8))
    store = FrameStore(layout, 6, make_codec("none"), block_frames=2)
    rng = np.random.default_rng(0)
    model = np.zeros((1, 6, 3 << 19), np.uint8)
    for t in range(20):
        model[0, t % 6] = rng.integers(0, 256, 3 << 19)
        store.write(0, np.array([t % 6]), model[0, t % 6][None])
    check_invariants(store)
    assert_reads_as(store, model)


def test_rows_cost_half_where_steps_follow_each_other_and_no_more_than_plain_arrays_where_not() -> None:
    rng = np.random.default_rng(0)
    layout = FrameLayout((17,), np.dtype(np.float32))
    for follows, most in ((True, 0.55), (False, 1.05)):
        store = RowStore(layout, 4000, n_streams=4, n_columns=2)
        after = np.zeros((4, 17), np.float32)
        for step in range(3000):  # three laps
            new = rng.random((2, 4, 17), np.float32)
            obs, after = after if follows and step % 200 else new[0], new[1]
            store.write_step(step % 1000, (obs, after))
        usage = store.memory_usage()
        assert usage.raw_bytes == 2 * 4000 * 68
        assert usage.ratio < most
        check_invariants(store)


def test_unwritten_cells_read_as_zeros() -> None:
    for codec in CODECS:
        layout = FrameLayout((4, 30), np.dtype(np.float32), 4, 0)
        store = FrameStore(layout, 10, make_codec(codec), n_columns=2)
        store.write(0, np.array([3]), np.ones((1, 4, 30), np.float32))
        assert store.read(0, np.arange(10)).sum() == 120
        assert not store.read(1, np.arange(10)).any()


def test_nothing_can_be_written_and_read() -> None:
    store, model = filled_store()
    none = np.arange(0)
    store.write(0, none, np.zeros((0, 4, 30), np.uint8))
    assert store.read(0, none).shape == (0, 4, 30)
    assert_reads_as(store, model)


def test_a_block_must_hold_an_observation() -> None:
    with pytest.raises(ValueError, match="block_frames must be at least the 4 frames"):
        FrameStore(FrameLayout((4, 9), np.dtype(np.uint8), 4), 10, make_codec("none"), block_frames=3)


def test_a_shorter_stack_is_found_where_the_long_one_is_none() -> None:
    """(12, ...) that shifts by three channels is four RGB frames, and is found at the first observation that shows it."""
    rng = np.random.default_rng(0)
    store = DetectingStore(StorePlan((12, 8, 8), np.dtype(np.uint8), 50, 1, 2))
    frames = rng.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
    for t in range(50):
        store.write(0, np.array([t]), frames[t : t + 4].reshape(1, 12, 8, 8))
    assert store.layout == FrameLayout((12, 8, 8), np.dtype(np.uint8), 4, 0)
    assert store.memory_usage().raw_bytes == 50 * 768


def test_the_store_works_with_plain_kernels() -> None:
    """The same properties without numba's compiler: the kernels are then plain Python."""
    if os.environ.get("NUMBA_DISABLE_JIT"):
        pytest.skip("this is that run")
    chosen = "reads_as_plain_arrays or gives_its_block_back or unwritten"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", __file__, "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "STORE_EXAMPLES": "12"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
