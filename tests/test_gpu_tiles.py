"""`tiles`: trees of pieces that are stored once, found again, and freed when no frame needs them."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th

from sb3_extra_buffers.store.device.budget import ByteBudget
from sb3_extra_buffers.store.device.levels import Level
from sb3_extra_buffers.store.device.memory import Expected
from sb3_extra_buffers.store.device.observations import line_bytes_of
from sb3_extra_buffers.store.device.tiles import TileMemory
from sb3_extra_buffers.store.device.tree import Tree, plan_tree
from sb3_extra_buffers.store.layout import FrameLayout
from tests.gpu_memories import CPU, pictures


def test_the_tree_holds_the_frame() -> None:
    for frame_bytes in (*range(1, 2000), 7056, 21168, 57600, 100_003):
        tree = plan_tree(frame_bytes)
        below = tree.n_words // tree.n_top
        assert tree.n_words * 4 >= frame_bytes
        assert tree.n_top <= 12
        assert tree.n_words * 4 <= max(1.3 * frame_bytes, frame_bytes + 4 * below)


@pytest.mark.parametrize("width", [1, 3, 4, 12, 17, 40, 84, 88, 160, 252, 480, 640, 1920])
def test_the_tree_of_a_picture_keeps_blocks_together(width: int) -> None:
    for height in (1, 2, 3, 7, 31, 40, 84, 97, 120, 240):
        tree = plan_tree(height * width, width)
        assert tree.n_words * 4 >= height * width
        assert tree.n_top <= 12
        assert tree.lines % tree.block == 0
        assert tree.across == 1 or tree.across * tree.piece * 4 == width
        assert tree.n_words * 4 <= max(1.3 * height * width, height * width + 4 * tree.n_words // tree.n_top)
        names = th.arange(3 * tree.lines * tree.across)
        blocks = tree.by_block(names)
        assert th.equal(tree.by_line(blocks), names)
        first = blocks[: tree.block] // tree.across  # lines of the first block: one below the other, in one column
        assert th.equal(first, th.arange(tree.block))


def test_frames_of_atari_need_no_padding() -> None:
    assert plan_tree(7056, 84) == Tree(piece=7, across=3, lines=84, block=28, branches=(7, 4))
    assert plan_tree(7056, 84).n_words == 1764


@pytest.mark.parametrize(
    ("shape", "stack", "axis", "line"),
    [
        ((4, 84, 84), 4, 0, 84), ((84, 84, 4), 4, -1, 84), ((12, 84, 84), 4, 0, 84), ((84, 80, 12), 4, -1, 240),
        ((3, 84, 80), 1, 0, 80), ((84, 80, 3), 1, 0, 240), ((84, 80), 1, 0, 80), ((4, 300), 4, 0, 0),
        ((4, 300), 1, 0, 300), ((300,), 1, 0, 0),
        ((1200,), 4, 0, 0), ((), 1, 0, 0),
    ],
)  # fmt: skip
def test_lines_are_found_in_pictures(shape: tuple[int, ...], stack: int, axis: int, line: int) -> None:
    assert line_bytes_of(FrameLayout(shape, np.dtype(np.uint8), stack, axis)) == line
    assert line_bytes_of(FrameLayout(shape, np.dtype(np.float32), stack, axis)) == 4 * line


@pytest.mark.parametrize("shape", [(84, 84), (31, 17), (28, 40), (120, 160)])
def test_pictures_come_back_as_they_were(shape: tuple[int, int]) -> None:
    n_bytes = shape[0] * shape[1]
    memory = TileMemory(Expected(n_bytes, 300, 3, line_bytes=shape[1]), CPU, ByteBudget(0))
    frames = pictures(90, n_bytes)
    for start in range(0, 90, 7):  # batches that are no multiple of the streams
        memory.put(np.arange(start + 1, min(start + 8, 91)), frames[start : start + 7])
    assert th.equal(memory.gather(np.arange(1, 91)), frames)


def test_a_sprite_costs_the_blocks_that_it_covers() -> None:
    """A square that moves over a picture changes few of the blocks, where it would change most of the lines."""
    picture = np.random.default_rng(0).integers(0, 256, (84, 84), dtype=np.uint8)
    frames = np.repeat(picture[None], 70, 0)
    for t in range(70):
        frames[t, t : t + 8, t : t + 8] = 0
    memory = TileMemory(Expected(7056, 100, 1, line_bytes=84), CPU, ByteBudget(0))
    memory.put(np.arange(1, 71), th.from_numpy(frames.reshape(70, -1)))
    assert memory.levels[1].n_used <= 36 + 70 * 3  # two or four blocks of 7 lines and 28 columns, mostly two


def test_what_repeats_is_stored_once() -> None:
    memory = TileMemory(Expected(7056, 1000, 2), CPU, ByteBudget(0))
    frames = pictures(8, 7056).repeat(8, 1)
    memory.put(np.arange(1, 65), frames)
    rows = sum(level.n_used for level in memory.levels)
    assert rows <= 300  # of 64 * 301
    memory.put(np.arange(65, 129), frames)
    assert sum(level.n_used for level in memory.levels) <= 1.1 * rows  # the table may forget


def test_rows_are_found_again_after_the_dead_were_swept() -> None:
    rng = np.random.default_rng(0)
    memory = TileMemory(Expected(784, 500, 2), CPU, ByteBudget(0))
    frames = th.from_numpy(rng.integers(0, 256, (300, 784), dtype=np.uint8))
    memory.put(np.arange(1, 201), frames[:200])
    order = rng.permutation(200)
    dead, live = order[:50], order[50:]
    memory.free(dead + 1)
    memory.compact()
    assert memory.levels[0].n_used == 1 + 28 * 150
    memory.put(np.arange(201, 301), frames[200:])  # they take no place in the table from those that live
    assert memory.levels[0].n_used == 1 + 28 * 250
    memory.put(np.arange(301, 451), frames[live])
    assert memory.levels[0].n_used <= 1.01 * 28 * 250
    assert th.equal(memory.gather(np.arange(301, 451)), memory.gather(live + 1))
    memory.free(np.arange(1, 451))
    memory.compact()
    assert memory.levels[0].n_used == 1
    memory.put(np.arange(1, 301), frames)
    assert th.equal(memory.gather(np.arange(1, 301)), frames)


def test_rows_are_found_again_when_their_numbers_have_grown_longer() -> None:
    memory = TileMemory(Expected(784, 2000, 1), CPU, ByteBudget(0))
    frames = th.from_numpy(np.random.default_rng(0).integers(0, 256, (1000, 784), dtype=np.uint8))
    for start in range(0, 1000, 10):
        some = frames[start : start + 10]
        memory.put(np.arange(start + 1, start + 11), some)
        memory.put(np.arange(start + 1001, start + 1011), some.flip(0))  # in another order: none stands where it stood
    assert memory.levels[0].n_used <= 1.002 * 28 * 1000  # the table may forget


def test_rows_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Level, "_hashes", lambda self, rows: th.full((len(rows),), 7))
    memory = TileMemory(Expected(784, 64, 2), CPU, ByteBudget(0))
    frames = pictures(60, 784)
    for start in range(0, 60, 20):
        memory.put(np.arange(start + 1, start + 21), frames[start : start + 20])
    assert th.equal(memory.gather(np.arange(1, 61)), frames)


def test_rows_that_nobody_needs_are_used_again() -> None:
    memory = TileMemory(Expected(784, 64, 2), CPU, ByteBudget(0))
    slots, sizes = np.arange(1, 33), []
    for seed in range(12):
        memory.put(slots, pictures(32, 784, seed))
        memory.free(slots)
        sizes.append(memory.nbytes)
    assert sizes[-1] <= 1.3 * sizes[2]
