"""Record buffers: a ring of steps that reads oldest to newest, whatever keeps its frames."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections import deque
from typing import Any

import numpy as np
import pytest

from sb3_extra_buffers.codecs import available_codecs
from sb3_extra_buffers.errors import CodecError
from sb3_extra_buffers.recording import DummyRecordBuffer, FramelessRecordBuffer, RecordBuffer
from tests.oracle import IMAGE
from tests.transitions import StackedEnv

METHODS = [None, "auto", *available_codecs()]
MIXED = [np.uint8, np.float32, np.int16, np.float64, np.bool_]


def frames(n: int, seed: int = 0) -> list[np.ndarray]:
    """Frames ``(H, W, C)`` of an env that stacks four."""
    env = StackedEnv(IMAGE, 4, 0, np.random.default_rng(seed))
    chw = [env.step() if i else env.reset() for i in range(n)]
    return [np.moveaxis(frame, 0, -1) for frame in chw]


def filled(n: int, size: int = 20, **kwargs: Any) -> tuple[RecordBuffer, deque[tuple[Any, ...]]]:
    """A record, and what it should hold."""
    record = RecordBuffer(IMAGE.shape[1:], IMAGE.shape[0], size, MIXED, **kwargs)
    expected: deque[tuple[Any, ...]] = deque(maxlen=size)
    for i, frame in enumerate(frames(n)):
        step = (frame, i / 7, i, (i, i * 1e-9, i % 2 == 0))
        record.add(*step)
        expected.append(step)
    return record, expected


def assert_step(step: Any, expected: tuple[Any, ...]) -> None:
    frame, reward, action, features = expected
    assert step.frame.dtype == np.uint8
    assert np.array_equal(step.frame, np.moveaxis(frame, -1, 0))
    assert (step.reward, step.action, step.features.item()) == (np.float32(reward), action, features)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [0, 1, 19, 20, 21, 67])
def test_reads_oldest_to_newest_before_and_after_wrapping(n: int, method: str | None) -> None:
    record, expected = filled(n, compression_method=method)
    assert len(record) == len(expected) == min(n, 20)
    for i, step in enumerate(record):
        assert_step(step, expected[i])
        assert_step(record[i], expected[i])
        assert_step(record[i - len(expected)], expected[i])
    assert len(list(record)) == len(expected)
    for index in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            record[index]


@pytest.mark.parametrize("method", [None, "gzip"])
def test_slices_and_index_arrays_give_arrays(method: str | None) -> None:
    record, expected = filled(33, compression_method=method)
    everything = list(expected)
    mask = np.arange(20) % 3 == 0
    for index, chosen in [
        (slice(None), everything),
        (slice(4, -2, 3), everything[4:-2:3]),
        (slice(None, None, -1), everything[::-1]),
        ([3, 3, -1], [everything[3], everything[3], everything[-1]]),
        (mask, [step for step, keep in zip(everything, mask, strict=True) if keep]),
        (slice(5, 5), []),
    ]:
        several = record[index]
        assert several.frame.shape == (len(chosen), 4, 12, 12)
        assert len(several.reward) == len(several.action) == len(several.features) == len(chosen)
        for i, step in enumerate(chosen):
            assert_step(type(several)(*(values[i] for values in several)), step)


@pytest.mark.parametrize("method", [None, "gzip"])
def test_what_was_read_stays_when_the_ring_goes_on(method: str | None) -> None:
    record, expected = filled(20, compression_method=method)
    step, several = record[0], record[:3]
    for frame in frames(20, seed=1):
        record.add(frame, 0, 0, (0, 0, False))
    assert_step(step, expected[0])
    assert_step(type(several)(*(values[0] for values in several)), expected[0])


def test_frames_are_a_plain_array_unless_a_codec_is_asked_for() -> None:
    plain, compressed = filled(33)[0], filled(33, compression_method="gzip")[0]
    assert isinstance(plain.frames, np.ndarray)
    assert not isinstance(compressed.frames, np.ndarray)
    assert plain.frames.shape == (20, 4, 12, 12)
    assert np.array_equal(plain.frames, np.asarray(compressed.frames))


def test_a_codec_keeps_each_frame_of_a_stack_once_and_small() -> None:
    record = RecordBuffer((84, 84), 4, 2000, compression_method="gzip")
    env = StackedEnv(type(IMAGE)(0, 255, (4, 84, 84), np.uint8), 4, 0, np.random.default_rng(0))
    for _ in range(2000):
        record.add(np.moveaxis(env.step(), 0, -1), 0.0, 0)
    usage = record.memory_usage()
    assert usage.raw_bytes == 2000 * (4 * 84 * 84 + 4 + 8)
    assert usage.ratio == usage.stored_bytes / usage.raw_bytes < 0.05  # noise: one frame of four, once per block


def test_a_real_game_is_kept_small_and_to_the_bit() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    gymnasium.register_envs(pytest.importorskip("ale_py"))
    env = gymnasium.make("ALE/Breakout-v5")
    env.action_space.seed(0)
    plain, compressed = (RecordBuffer((210, 160), 3, 100, compression_method=method) for method in (None, "auto"))
    frame, _ = env.reset(seed=0)
    for _ in range(150):
        action = env.action_space.sample()
        after, reward, *ended, _ = env.step(action)
        for record in (plain, compressed):
            record.add(frame, reward, action)
        frame = env.reset()[0] if any(ended) else after
    env.close()
    assert np.array_equal(plain[:].frame, compressed[:].frame)
    assert np.array_equal(plain[:].action, compressed[:].action)
    assert compressed.memory_usage().ratio < 0.3  # the open block is still raw


def test_memory_usage_of_plain_records_is_what_was_written() -> None:
    record, _ = filled(7)
    assert record.memory_usage().raw_bytes == record.memory_usage().stored_bytes == 7 * (576 + 4 + 8 + 2 + 8 + 1)
    assert record.memory_usage().ratio == 1


@pytest.mark.parametrize("method", [None, "auto", "gzip"])
def test_clear_forgets_everything(method: str | None) -> None:
    record, _ = filled(33, compression_method=method)
    record.clear()
    assert len(record) == 0
    assert list(record) == []
    assert record.memory_usage().raw_bytes == 0
    assert not np.asarray(record.frames).any()
    assert not record.rewards.any()
    step = (frames(1)[0], 2.0, 3, (4, 5.0, True))
    record.add(*step)
    assert len(record) == 1
    assert_step(record[0], step)


@pytest.mark.parametrize("method", [None, "auto", "gzip"])
def test_copies_and_pickles_hold_the_same(method: str | None) -> None:
    record, expected = filled(33, compression_method=method)
    for other in (copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        record.clear()
        assert len(other) == 20
        for step, one in zip(other, expected, strict=True):
            assert_step(step, one)
        record, expected = filled(33, compression_method=method)


def test_features_of_one_dtype_are_rows_and_of_several_are_structured() -> None:
    rows = RecordBuffer((2, 2), 1, 5, [np.uint8, np.float32, np.int16, np.int16])
    rows.add(np.zeros((2, 2, 1), np.uint8), 1, 1, [7, -8])
    assert rows.features is not None
    assert rows.features.shape == (5, 2)
    assert rows.features.dtype == np.int16
    assert rows[0].features.tolist() == [7, -8]
    mixed = filled(1)[0]
    assert mixed.features is not None
    assert mixed.features.dtype.names == ("0", "1", "2")
    assert [mixed.features.dtype[name] for name in "012"] == [np.int16, np.float64, np.bool_]


def test_vector_actions_have_a_shape_in_their_dtype() -> None:
    record = RecordBuffer((2, 2), 1, 5, {"action": np.dtype((np.float32, (3,)))})
    record.add(np.zeros((2, 2, 1), np.uint8), 1, np.array([0.1, 0.2, 0.3]))
    assert record.actions.shape == (5, 3)
    assert record[0].action.tolist() == np.float32([0.1, 0.2, 0.3]).tolist()


FRAME = np.zeros((12, 12, 4), np.uint8)
GOOD: dict[str, Any] = {"frame": FRAME, "reward": 1.0, "action": 3, "features": (1, 2.0, True)}
BAD: dict[str, tuple[str, Any, str]] = {
    "frame channel-first": ("frame", np.zeros((4, 12, 12), np.uint8), r"shape \(4, 12, 12\).*\(12, 12, 4\)"),
    "frame of floats": ("frame", FRAME.astype(np.float32), "frame of float32.*keeps uint8"),
    "frame out of range": ("frame", FRAME.astype(np.int64) - 1, "int64 between -1 and -1.*keeps uint8"),
    "reward of two": ("reward", [1.0, 2.0], r"reward of shape \(2,\)"),
    "reward missing": ("reward", None, "reward of object"),
    "reward too large": ("reward", 1e300, "float64 between 1e\\+300.*keeps float32"),
    "reward that would be rounded": ("reward", 2**24 + 1, "int64 between 16777217 and 16777217.*keeps float32"),
    "feature that would be rounded": ("features", (1, 2**53 + 1, True), "feature 1 of int64.*keeps float64"),
    "feature at the end of integers": ("features", (1, 2**63 - 1, True), "feature 1 of int64.*keeps float64"),
    "action of floats": ("action", 0.5, "action of float64.*keeps int64"),
    "action of text": ("action", "left", "action of <U4"),
    "features missing": ("features", None, "Got 0 features.*keeps 3"),
    "features too few": ("features", (1, 2.0), "Got 2 features"),
    "feature out of range": ("features", (1 << 20, 2.0, True), "feature 0 of int64 between 1048576.*keeps int16"),
    "feature of ints": ("features", (1, 2.0, 7), "feature 2 of int64.*keeps bool"),
}


@pytest.mark.parametrize("method", [None, "gzip"])
@pytest.mark.parametrize(("name", "value", "message"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused_and_nothing_is_written(name: str, value: Any, message: str, method: str | None) -> None:
    record, expected = filled(25, compression_method=method)
    with pytest.raises(ValueError, match=message):
        record.add(**{**GOOD, name: value})
    assert len(record) == 20
    for step, one in zip(record, expected, strict=True):
        assert_step(step, one)


def test_features_without_dtypes_are_refused() -> None:
    record = RecordBuffer((12, 12), 4, 5)
    with pytest.raises(ValueError, match="Got 1 features; this record keeps 0"):
        record.add(FRAME, 0, 0, [1])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"res": (84, 84, 3)}, "res must be"),
        ({"res": 84}, "res must be .* got res=84,"),
        ({"res": None}, "res must be"),
        ({"res": "ab"}, "res must be"),
        ({"res": (84.0, 84)}, "res must be"),
        ({"ch_num": True}, "integers of at least 1.*ch_num=True"),
        ({"size": 0}, "size=0"),
        ({"size": 1.5}, "integers of at least 1.*size=1.5"),
        ({"size": None}, "size=None"),
        ({"dtypes": 5}, r"dtypes must be \[frame, reward"),
        ({"dtypes": {"features": 5}}, "must be a list with a dtype per feature, got 5"),
        ({"dtypes": {"features": {"speed": np.int8}}}, "must be a list with a dtype per feature"),
        ({"dtypes": [np.uint8]}, r"\[frame, reward, \*features\]"),
        ({"dtypes": {"frames": np.uint8}}, r"may hold .*'frame'.* got \['frames'\]"),
        ({"dtypes": [np.uint8, "float23"]}, "dtype of reward must be a NumPy dtype, got 'float23'"),
        ({"dtypes": [object, np.float32]}, "dtype of frame must be a bool, integer or float"),
        ({"compression_method": "zsdt"}, "Did you mean 'zstd'"),
        ({"compression_method": "gzip99"}, "0..9"),
    ],
)
def test_constructor_says_what_it_needs(kwargs: dict[str, Any], message: str) -> None:
    for buffer_class in (RecordBuffer, FramelessRecordBuffer, DummyRecordBuffer):
        with pytest.raises(ValueError, match=message):
            buffer_class(**kwargs)


@pytest.mark.parametrize("method", [None, "auto"])
def test_options_without_a_codec_are_refused(method: str | None) -> None:
    with pytest.raises(CodecError, match="level"):
        RecordBuffer(compression_method=method, compression_kwargs={"level": 3})


def test_iterating_over_a_record_that_changes_is_an_error() -> None:
    record, _ = filled(5)
    steps = iter(record)
    next(steps)
    record.add(**GOOD)
    with pytest.raises(RuntimeError, match="changed while it was iterated"):
        next(steps)


def test_frameless_keeps_everything_but_frames() -> None:
    record = FramelessRecordBuffer((12, 12), 4, 20, MIXED, compression_method="auto")
    for i in range(33):
        record.add(None, i / 7, i, (i, i * 1e-9, i % 2 == 0))
    assert len(record) == 20
    assert record.frames is None
    for i, step in enumerate(record, start=13):
        assert (step.frame, step.reward, step.action, step.features.item()) == (
            None, np.float32(i / 7), i, (i, i * 1e-9, i % 2 == 0),
        )  # fmt: skip
    assert record.memory_usage().stored_bytes == 20 * (4 + 8 + 2 + 8 + 1)
    with pytest.raises(ValueError, match="FramelessRecordBuffer keeps none"):
        record.save_video("x.gif")
    with pytest.raises(ValueError, match="FramelessRecordBuffer keeps none"):
        record.to_minari("x-v0")


def test_dummy_takes_the_same_calls_and_keeps_nothing() -> None:
    record = DummyRecordBuffer((12, 12), 4, 20, MIXED, compression_method="auto")
    for _ in range(33):
        record.add(**GOOD)
    assert len(record) == 0
    assert list(record) == []
    assert record.memory_usage().stored_bytes == 0
    assert record.frames is None
    assert record.rewards.nbytes == record.actions.nbytes == 0
    record.clear()
    with pytest.raises(IndexError):
        record[0]


@pytest.mark.parametrize("buffer_class", [RecordBuffer, FramelessRecordBuffer, DummyRecordBuffer])
def test_all_kinds_are_records(buffer_class: type[RecordBuffer]) -> None:
    record = buffer_class((12, 12), 4, 20)
    assert isinstance(record, RecordBuffer)
    assert repr(record).startswith(f"<{buffer_class.__name__} ")
    assert repr(record).endswith(", 0 of 20 steps>")


def test_importing_needs_numpy_only() -> None:
    code = (
        "import sys, numpy as np, sb3_extra_buffers.recording as r\n"
        "record = r.RecordBuffer((84, 84), 1, 9, compression_method='gzip')\n"
        "record.add(np.zeros((84, 84, 1), np.uint8), 0, 0)\n"
        "heavy = {'torch', 'gymnasium', 'stable_baselines3', 'PIL', 'imageio', 'minari'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtypes": np.uint8}, r"dtypes must be \[frame, reward"),
        ({"dtypes": "uint8"}, r"dtypes must be \[frame, reward"),
        ({"dtypes": [np.uint8, np.float32, None]}, "dtype of feature 0 must be"),
        ({"dtypes": {"features": np.int8}}, "must be a list with a dtype per feature"),
    ],
)
def test_dtypes_that_are_none_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecordBuffer(**arguments)


@pytest.mark.parametrize("features", [5, np.array(1)])
def test_features_that_are_no_sequence_are_refused(features: Any) -> None:
    record = RecordBuffer(res=(2, 2), ch_num=1, size=3)
    with pytest.raises(ValueError, match="features must be a sequence of 0 values"):
        record.add(np.zeros((2, 2, 1), np.uint8), 0, 0, features)
    with pytest.raises(ValueError, match=r"keeps one of shape \(2, 2, 1\) and dtype uint8"):
        record.add([[1, 2], [3]], 0, 0)
    assert len(record) == 0
