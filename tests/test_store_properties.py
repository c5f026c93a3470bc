"""Every store keeps the contract, and keeps no block that no cell needs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch as th
from hypothesis import given
from hypothesis import strategies as st

from sb3_extra_buffers.codecs import AUTO, Codec, make_codec
from sb3_extra_buffers.store import BlockStore, FrameLayout, LeafStore, RowStore, Store, StorePlan
from sb3_extra_buffers.store.device.budget import ByteBudget
from sb3_extra_buffers.store.device.coded import DeviceRle, HeapMemory, HostCodec
from sb3_extra_buffers.store.device.heap import SharedRawHeap
from sb3_extra_buffers.store.device.memory import DenseMemory, MakeMemory
from sb3_extra_buffers.store.device.store import DevicePlan, DeviceStore
from sb3_extra_buffers.store.device.tiles import TileMemory
from sb3_extra_buffers.store.device.waiting import BatchingMemory
from sb3_extra_buffers.store.host import choosing
from tests.invariants import check_invariants
from tests.store_contract import PROFILE, StoreContract, no_collections
from tests.store_model import KINDS, LAYOUTS, STREAMS, assert_reads_as, play

__all__ = ["no_collections"]  # a fixture of the contract

CHUNK_BYTES = 1 << 19
CODECS = ["none", "delta", "gzip", "rle", "rle-jit", "zstd", "lz4-block"]


# ---- one class for each kind of store


class BlockStoreContract(StoreContract):
    codec: str

    def make(self, layout: FrameLayout, n_cells: int, *, n_streams: int = 1, n_columns: int = 1, extra: int = 0) -> Store:
        options = {"elem_type": layout.dtype.name} if self.codec.startswith("rle") else {}
        return BlockStore(
            layout, n_cells, make_codec(self.codec, options), n_streams=n_streams, n_columns=n_columns,
            block_frames=layout.stack + extra,
        )  # fmt: skip


class TestBlocksOfNone(BlockStoreContract):
    codec = "none"


class TestBlocksOfDelta(BlockStoreContract):
    codec = "delta"


class TestBlocksOfGzip(BlockStoreContract):
    codec = "gzip"


class TestBlocksOfRle(BlockStoreContract):
    codec = "rle"


class TestBlocksOfRleJit(BlockStoreContract):
    codec = "rle-jit"


class TestBlocksOfZstd(BlockStoreContract):
    codec = "zstd"


class TestBlocksOfLz4(BlockStoreContract):
    codec = "lz4-block"


class PieceStoreContract(StoreContract):
    """Blocks in pieces, as where the user has not said how long blocks are."""

    codec: str

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _small_pieces(cls) -> Iterator[None]:
        """Pieces of a few frames, and a new look every few steps that nearly always ends in another choice."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Codec, "piece_bytes", 200)
            patch.setattr(choosing, "_LOOKS", (1,))
            patch.setattr(choosing, "_LATER", 2)
            patch.setattr(choosing, "_REMEMBERED", 1)
            patch.setattr(choosing, "_BETTER", 1.0)
            yield

    def make(self, layout: FrameLayout, n_cells: int, *, n_streams: int = 1, n_columns: int = 1, extra: int = 0) -> Store:
        return BlockStore(
            layout, n_cells, self.codec if self.codec in AUTO else make_codec(self.codec), n_streams=n_streams,
            n_columns=n_columns, block_frames=layout.stack + extra, is_whole=False,
        )  # fmt: skip


class TestPiecesOfZstd(PieceStoreContract):
    codec = "zstd"


class TestPiecesOfLz4(PieceStoreContract):
    codec = "lz4-frame"


class TestPiecesOfDelta(PieceStoreContract):
    codec = "delta"


class TestAuto(PieceStoreContract):
    codec = "auto"


class TestAutoSmall(PieceStoreContract):
    codec = "auto-small"


class TestRows(StoreContract):
    def make(self, layout: FrameLayout, n_cells: int, *, n_streams: int = 1, n_columns: int = 1, extra: int = 0) -> Store:
        return RowStore(layout, n_cells, n_streams=n_streams, n_columns=n_columns)


class DeviceStoreContract(StoreContract):
    def memory(self, budget: ByteBudget) -> MakeMemory:
        """What keeps the frames."""
        raise NotImplementedError

    def make(self, layout: FrameLayout, n_cells: int, *, n_streams: int = 1, n_columns: int = 1, extra: int = 0) -> Store:
        budget = ByteBudget(1000)
        return DeviceStore(
            layout, n_cells, self.memory(budget), th.device("cpu"), budget, n_streams=n_streams, n_columns=n_columns
        )


class TestDeviceDense(DeviceStoreContract):
    def memory(self, budget: ByteBudget) -> MakeMemory:
        return DenseMemory


class TestDeviceTiles(DeviceStoreContract):
    """Without anything that waits, so that every frame is encoded."""

    def memory(self, budget: ByteBudget) -> MakeMemory:
        return TileMemory


class TestDeviceWaitingTiles(DeviceStoreContract):
    def memory(self, budget: ByteBudget) -> MakeMemory:
        return partial(BatchingMemory, make_memory=TileMemory)


class TestDeviceRle(DeviceStoreContract):
    def memory(self, budget: ByteBudget) -> MakeMemory:
        heap = SharedRawHeap(100, "cpu", budget)
        return partial(BatchingMemory, make_memory=partial(HeapMemory, heap=heap, codec=DeviceRle()))


class TestDeviceZstd(DeviceStoreContract):
    def memory(self, budget: ByteBudget) -> MakeMemory:
        return partial(HeapMemory, heap=SharedRawHeap(100, "cpu", budget), codec=HostCodec(make_codec("zstd")))


# ---- the leaf, which waits for the layout


@pytest.mark.parametrize("on_device", [False, True])
@PROFILE
@given(
    layout=LAYOUTS, n_streams=STREAMS, slots=st.integers(1, 9), kinds=st.lists(KINDS, min_size=1, max_size=40),
    seed=st.integers(0, 2**32 - 1), copy_at=st.integers(0, 40),
)  # fmt: skip
def test_a_leaf_reads_as_plain_arrays(
    on_device: bool, layout: FrameLayout, n_streams: int, slots: int, kinds: list[str], seed: int, copy_at: int
) -> None:
    """Before and after the layout was found, and through the change."""
    shape = (*layout.shape, 24) if layout.shape else ()
    make_memory = partial(BatchingMemory, make_memory=TileMemory)
    plan_class = partial(DevicePlan, make_memory=make_memory) if on_device else StorePlan
    plan = plan_class(shape, layout.dtype, slots * n_streams, n_streams, 2)
    leaf = LeafStore(plan)
    # A trailing axis makes frames large enough to be worth looking for.
    wide = FrameLayout(plan.shape, plan.dtype, layout.stack if layout.axis == 0 else 1, 0)
    for t, model in enumerate(play(leaf, wide, plan.n_cells, n_streams, 2, kinds, seed)):
        check_invariants(leaf.store)
        if t % 5 == 0:
            assert_reads_as(leaf.store, model, t)
        if t == copy_at:
            other, then = pickle.loads(pickle.dumps(leaf)), model.copy()
            assert_reads_as(other.store, then)
            for cell in range(plan.n_cells):
                other.write(1, np.array([cell]), model[0, cell][None])
            then[1] = then[0]
            assert_reads_as(other.store, then)
    assert_reads_as(leaf.store, model)


def test_a_zero_and_a_negative_zero_are_not_the_same_picture() -> None:
    """While the layout is open, observations that stand still wait only once; equal values are not yet equal bits."""
    store = LeafStore(StorePlan((2, 64), np.dtype(np.float64), 4, 1, 1))
    zeros = np.zeros((1, 2, 64))
    store.write(0, np.array([0]), zeros)
    store.write(0, np.array([1]), -zeros)
    assert store.layout is None
    assert store.read(0, np.array([0, 1])).tobytes() == np.concatenate((zeros, -zeros)).tobytes()


# ---- blocks and rows


def filled_store(codec: str = "gzip", n_cells: int = 64) -> tuple[BlockStore, np.ndarray]:
    layout = FrameLayout((4, 30), np.dtype(np.uint8), 4, 0)
    store = BlockStore(layout, n_cells, make_codec(codec), n_streams=2, n_columns=2, block_frames=8)
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
    assert usage.blocks <= 2 * 5 + 1  # of each stream: open, two reserved, the one before, the one of the frames; a base
    assert usage.raw_bytes == 2 * 64 * 120


def test_memory_does_not_grow_with_the_laps() -> None:
    """A replay buffer overwrites in order: the arena stays within a chunk of what the first laps took."""
    layout = FrameLayout((4, 40, 40), np.dtype(np.uint8), 4, 0)
    store = BlockStore(layout, 400, make_codec("none"), n_streams=2, n_columns=2)
    rng = np.random.default_rng(0)
    frames, held = np.zeros((2, 5, 40, 40), np.uint8), []
    for step in range(200 * 10):
        frames = np.concatenate((frames[:, 1:], rng.integers(0, 256, (2, 1, 40, 40), dtype=np.uint8)), axis=1)
        cells = np.arange(2) + step % 200 * 2
        store.write(0, cells, frames[:, :4])
        store.write(1, cells, frames[:, 1:])
        if step % 200 == 199:
            held.append(store._native.usage().held_bytes)
            assert store._native.token_end // store.block_frames < 40
    check_invariants(store)
    assert max(held) <= held[0] + CHUNK_BYTES


def test_a_chunk_that_is_nearly_empty_is_emptied() -> None:
    """A few cells that are never overwritten must not keep whole chunks alive."""
    size = 100_000
    layout = FrameLayout((size,), np.dtype(np.uint8))
    store = BlockStore(layout, 120, make_codec("none"), block_frames=1)
    rng = np.random.default_rng(0)
    model = rng.integers(0, 256, (120, size), dtype=np.uint8)
    store.write(0, np.arange(120), model)
    most = store._native.usage().held_bytes
    for _ in range(4):
        for cell in range(120):
            if cell % 12:
                model[cell] = cell % 3
                store.write(0, np.array([cell]), model[cell][None])
    for cell in range(2, 120):  # now only a few large blocks are left: all cells share what is equal to the one before
        model[cell] = model[1]
        store.write(0, np.array([cell]), model[cell][None])
    check_invariants(store)
    assert store._native.usage().held_bytes < most / 1.5
    assert_reads_as(store, model[None])


def test_blocks_larger_than_a_chunk() -> None:
    layout = FrameLayout((3 << 19,), np.dtype(np.uint8))
    store = BlockStore(layout, 6, make_codec("none"), block_frames=2)
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


def test_a_block_must_hold_an_observation() -> None:
    with pytest.raises(ValueError, match="block_frames must be at least the 4 frames"):
        BlockStore(FrameLayout((4, 9), np.dtype(np.uint8), 4), 10, make_codec("none"), block_frames=3)


def test_a_shorter_stack_is_found_where_the_long_one_is_none() -> None:
    """(12, ...) that shifts by three channels is four RGB frames, and is found at the first observation that shows it."""
    rng = np.random.default_rng(0)
    store = LeafStore(StorePlan((12, 8, 8), np.dtype(np.uint8), 50, 1, 2))
    frames = rng.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
    for t in range(50):
        store.write(0, np.array([t]), frames[t : t + 4].reshape(1, 12, 8, 8))
    assert store.layout == FrameLayout((12, 8, 8), np.dtype(np.uint8), 4, 0)
    assert store.store.memory_usage().raw_bytes == 50 * 768


def test_a_write_that_shows_the_layout_leaves_the_prepared_step_alone() -> None:
    """A subclass may write a column inside of `add`, when the step is prepared and not yet committed."""
    rng = np.random.default_rng(0)
    frames = rng.integers(256, size=(8, 20, 20), dtype=np.uint8)
    obs = [frames[t : t + 4][None] for t in range(5)]  # one env, stacks of four
    leaf = LeafStore(StorePlan((4, 20, 20), np.dtype(np.uint8), 6, 1, 2))
    leaf.write(0, np.array([0]), obs[0])
    assert leaf.layout is None
    unrelated = rng.integers(256, size=(1, 4, 20, 20), dtype=np.uint8)
    leaf.prepare_step(1, (unrelated, unrelated))
    leaf.write(0, np.array([2]), obs[1])
    leaf.write(0, np.array([3]), obs[2])  # follows the one before
    leaf.commit_step()
    for cell, wanted in ((0, obs[0]), (1, unrelated), (2, obs[1]), (3, obs[2])):
        np.testing.assert_array_equal(leaf.read(0, np.array([cell])), wanted)
    np.testing.assert_array_equal(leaf.read(1, np.array([1])), unrelated)
