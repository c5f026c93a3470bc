"""What `add` hands to the core without looking at it: the core takes what fits, and everything else goes the long way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.compressed import CompressedReplayBuffer, CompressedRolloutBuffer
from sb3_extra_buffers.native import NativeStore
from sb3_extra_buffers.native.binding import core
from sb3_extra_buffers.native.direct import DOES_NOT_FIT, StepCalls
from sb3_extra_buffers.store import BlockStore, FrameLayout

ENVS = 2
IMAGES = spaces.Box(0, 255, (4, 24, 24), np.uint8)
ACTIONS = spaces.Discrete(3)
SHAPE = (ENVS, *IMAGES.shape)


def images(seed: int, shape: tuple[int, ...] = SHAPE, dtype: Any = np.uint8) -> Any:
    return np.random.default_rng(seed).integers(0, 200, shape).astype(dtype)


def add(buffer: Any, obs: Any, next_obs: Any) -> None:
    buffer.add(obs, next_obs, np.zeros((ENVS, 1), np.int64), np.ones(ENVS), np.zeros(ENVS), [{}] * ENVS)


def store_of(dtype: Any = np.uint8, codec: str = "delta") -> BlockStore:
    return BlockStore(FrameLayout(IMAGES.shape, np.dtype(dtype)), 40, make_codec(codec), n_streams=ENVS, n_columns=2)


@pytest.mark.parametrize("codec", ["delta", "none", "gzip", "auto"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64, np.bool_])
def test_arrays_go_to_the_core_as_they_are(monkeypatch: pytest.MonkeyPatch, codec: str, dtype: Any) -> None:
    space = spaces.Box(0, 1, IMAGES.shape, dtype) if dtype is not np.bool_ else spaces.MultiBinary(IMAGES.shape)
    if dtype is np.bool_:
        space.dtype = np.dtype(np.bool_)  # type: ignore[misc]
    ours = CompressedReplayBuffer(40, space, ACTIONS, "cpu", ENVS, compression_method=codec, frame_stack=4)
    theirs = ReplayBuffer(40, space, ACTIONS, "cpu", ENVS)
    if codec != "auto":  # which looks at a step now and then
        monkeypatch.setattr(NativeStore, "plan", None)
    for i in range(30):
        obs, next_obs = images(i, dtype=dtype), images(i + 1, dtype=dtype)
        next_obs.flags.writeable = i % 2 == 0  # to read is enough
        for buffer in (ours, theirs):
            add(buffer, obs, next_obs)
    assert np.array_equal(ours.observations[:], theirs.observations)
    assert np.array_equal(ours.next_observations[:], theirs.next_observations)


def test_rollouts_go_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch as th

    buffer = CompressedRolloutBuffer(8, IMAGES, ACTIONS, "cpu", n_envs=ENVS, compression_method="delta", frame_stack=4)
    monkeypatch.setattr(NativeStore, "plan", None)
    for i in range(8):
        buffer.add(images(i), np.zeros((ENVS, 1)), np.ones(ENVS), np.zeros(ENVS), th.zeros(ENVS), th.zeros(ENVS))
    assert np.array_equal(buffer.observations[:], np.stack([images(i) for i in range(8)]))


def odd_arrays() -> dict[str, Any]:
    plain = images(7)
    wide = np.zeros((ENVS, 4, 24, 48), np.uint8)
    wide[..., ::2] = plain
    padded = np.zeros(plain.nbytes + 1, np.uint8)
    padded[1:] = plain.reshape(-1)
    return {
        "every other column": wide[..., ::2],
        "Fortran order": np.asfortranarray(plain),
        "reversed twice": plain[::-1][::-1],
        "an odd address": padded[1:].reshape(SHAPE),
        "a leading axis": plain[None],
        "a subclass": plain.view(np.ma.MaskedArray),
        "a list": plain.tolist(),
        "another dtype": plain.astype(np.int32),
        "the other byte order": plain.astype(">i2"),
        "whole floats": plain.astype(np.float64),
        "one that repeats": np.broadcast_to(plain[:1], SHAPE),
    }


@pytest.mark.parametrize("name", sorted(odd_arrays()))
def test_other_arrays_are_stored_as_before(name: str) -> None:
    given = odd_arrays()[name]
    buffer = CompressedReplayBuffer(40, IMAGES, ACTIONS, "cpu", ENVS, compression_method="delta", frame_stack=4)
    for obs, next_obs in ((images(1), images(2)), (images(2), given), (given, images(3))):
        add(buffer, obs, next_obs)
    expected = np.asarray(given, np.uint8).reshape(SHAPE)
    assert np.array_equal(buffer.next_observations[1], expected)
    assert np.array_equal(buffer.observations[2], expected)
    assert np.array_equal(buffer.next_observations[2], images(3))


@pytest.mark.parametrize(
    "given",
    [
        images(0, (ENVS, 24, 24, 4)),
        images(0, (ENVS, 4 * 24 * 24)),
        images(0, (3, 4, 24, 24)),
        np.full(SHAPE, 256),
        None,
        "text",
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_what_does_not_fit_is_refused_and_changes_nothing(given: Any, place: int) -> None:
    buffer = CompressedReplayBuffer(40, IMAGES, ACTIONS, "cpu", ENVS, compression_method="delta", frame_stack=4)
    add(buffer, images(1), images(2))
    step = [images(2), images(3)]
    step[place] = given
    with pytest.raises((TypeError, ValueError)):
        add(buffer, *step)
    assert buffer.size() == 1
    add(buffer, images(2), images(3))
    assert np.array_equal(buffer.next_observations[1], images(3))


def test_the_calls_leave_no_references() -> None:
    store = store_of()
    obs, next_obs, other = images(1), images(2), images(3, (ENVS, 4, 24, 25))
    before = [sys.getrefcount(one) for one in (obs, next_obs, other)]
    for i in range(100):
        assert store.prepare_given(i % 10, (obs, next_obs))
        store.commit_step()
        assert not store.prepare_given(i % 10, (obs, other))
        assert not store.prepare_given(i % 10, (object(), obs))
    assert [sys.getrefcount(one) for one in (obs, next_obs, other)] == before


def test_slots_that_do_not_exist_are_refused() -> None:
    store = store_of()
    for slot in (-1, 20, 2**40, 2**70):
        with pytest.raises(IndexError):
            store.prepare_given(slot, (images(1), images(2)))
    store.commit_step()
    assert store.memory_usage().raw_bytes == 0


def test_calls_outlive_what_made_them() -> None:
    store = store_of()
    calls = StepCalls(core(), store._native.handle, SHAPE, np.dtype(np.uint8))  # type: ignore[arg-type]
    first = [StepCalls(core(), store._native.handle, SHAPE, np.dtype(np.uint8)) for _ in range(50)]  # type: ignore[arg-type]
    del first
    assert calls.plan(0, images(1), images(2)) == 0
    assert calls.plan(0, images(1), images(2, (1, 4, 24, 24))) == DOES_NOT_FIT
    assert calls.plan(0, images(1)) == 6  # SB3X_BAD_ARGUMENT
    assert calls.plan() == 6
    assert calls.commit() == 0


def test_refused_memory_is_said_and_leaves_nothing_planned() -> None:
    store, refused = store_of(codec="none"), 0
    for i in range(19):
        step = images(i), images(i + 1)
        core().sb3x_fail_allocation(0, 1)
        try:
            store.prepare_given(i, step)
        except MemoryError:
            refused += 1
            assert store._native._planned is None
        finally:
            core().sb3x_fail_allocation(-1, 0)
        assert store.prepare_given(i, step)
        store.commit_step()
    assert refused > 0
    assert np.array_equal(store.read(1, np.arange(38)).reshape(19, *SHAPE), [images(i + 1) for i in range(19)])


class Answer(dict[str, Any]):
    """An info that runs code in the midst of an `add`, when SB3 asks for a key."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run = run

    def get(self, *_: Any) -> bool:  # type: ignore[override]
        self.run()
        return False


@pytest.mark.parametrize("codec", ["delta", "none", "gzip"])
def test_a_refused_add_within_an_add_leaves_the_outer_one_its_arrays(codec: str) -> None:
    buffer = CompressedReplayBuffer(40, IMAGES, ACTIONS, "cpu", ENVS, compression_method=codec, frame_stack=4)
    add(buffer, images(0), images(1))
    others = []

    def refused() -> None:
        with pytest.raises(ValueError, match="shape"):
            add(buffer, images(0, (3, 4, 24, 24)), images(1))
        others.extend(np.full(SHAPE, 77, np.uint8) for _ in range(40))  # would get the memory of arrays that are gone

    buffer.add(images(1), images(2), np.zeros((ENVS, 1), np.int64), np.ones(ENVS), np.zeros(ENVS), [Answer(refused), {}])
    assert np.array_equal(buffer.observations[1], images(1))
    assert np.array_equal(buffer.next_observations[1], images(2))


@pytest.mark.parametrize("codec", ["delta", "none"])
def test_memory_of_other_objects_may_go_in_the_midst_of_an_add(codec: str) -> None:
    """A memoryview, unlike an array, can let go of its memory while it lives; so the core gets a copy or an array."""
    buffer = CompressedReplayBuffer(40, IMAGES, ACTIONS, "cpu", ENVS, compression_method=codec, frame_stack=4)
    add(buffer, images(0), images(1))
    memory = bytearray(images(1).tobytes())
    view: Any = memoryview(memory).cast("B", SHAPE)

    def let_go() -> None:
        view.release()
        with pytest.raises(BufferError):
            memory.clear()

    buffer.add(view, images(2), np.zeros((ENVS, 1), np.int64), np.ones(ENVS), np.zeros(ENVS), [Answer(let_go), {}])
    assert np.array_equal(buffer.observations[1], images(1))


def test_a_write_within_an_add_plans_the_step_again() -> None:
    buffer = CompressedReplayBuffer(40, IMAGES, ACTIONS, "cpu", ENVS, compression_method="delta", frame_stack=4)
    add(buffer, images(0), images(1))

    def write() -> None:
        buffer.observations[0] = images(9)

    for obs in (images(1), memoryview(images(2).tobytes()).cast("B", SHAPE)):
        buffer.add(obs, images(3), np.zeros((ENVS, 1), np.int64), np.ones(ENVS), np.zeros(ENVS), [Answer(write), {}])
    assert np.array_equal(buffer.observations[:3], [images(9), images(1), images(2)])
    assert np.array_equal(buffer.next_observations[:3], [images(1), images(3), images(3)])


def test_dtypes_that_the_buffer_protocol_does_not_know_go_the_long_way() -> None:
    store = store_of("M8[s]")
    days = images(5).astype("M8[s]")
    assert not store.prepare_given(0, (days, days))
    store.write_step(0, (days, days))
    assert np.array_equal(store.read(0, np.arange(ENVS)), days)


def test_an_interrupt_while_the_library_is_loaded_is_made_up_for() -> None:
    script = """
import numpy as np
from sb3_extra_buffers.native import binding, threads
start_with = threads.start_with
def interrupted(library):
    threads.start_with = start_with
    raise KeyboardInterrupt
threads.start_with = interrupted
try:
    binding.core()
except KeyboardInterrupt:
    from tests.test_native_direct import images, store_of
    store = store_of()
    assert store.prepare_given(0, (images(1), images(2)))
    store.commit_step()
    print("went on")
"""
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=root)
    assert done.stdout == "went on\n", done.stderr


def test_blocks_go_into_a_file_by_the_same_calls(tmp_path: Path) -> None:
    layout = FrameLayout(IMAGES.shape, np.dtype(np.uint8))
    store = BlockStore(
        layout, 400, make_codec("none"), n_streams=ENVS, n_columns=2, block_frames=8, directory=str(tmp_path / "blocks")
    )
    for i in range(100):
        assert store.prepare_given(i, (images(i), images(i + 1)))
        store.commit_step()
    assert np.array_equal(store.read(1, np.arange(200)).reshape(100, *SHAPE), [images(i + 1) for i in range(100)])
