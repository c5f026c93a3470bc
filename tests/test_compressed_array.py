"""CompressedArray reads and writes what a plain ndarray would."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.compressed import CompressedArray
from sb3_extra_buffers.errors import CodecError, LossyStorageWarning
from tests.indices import LEADING, OBS, indices

SHAPE = (*LEADING, *OBS)
PROFILE = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def pair(method: str = "none", dtype: str = "int16", seed: int = 0) -> tuple[CompressedArray, np.ndarray]:
    plain = np.random.default_rng(seed).integers(-50, 50, SHAPE).astype(dtype)
    ours = CompressedArray(LEADING, dtype, OBS, compression_method=method)
    ours[...] = plain
    return ours, plain


#: NumPy before 2.3 only warns where nothing would be read or written. Warnings are errors here.
OUT_OF_BOUNDS = (IndexError, DeprecationWarning)


def same(ours: Any, plain: Any) -> None:
    assert isinstance(ours, (np.ndarray, np.generic))
    assert ours.dtype == plain.dtype
    assert ours.shape == plain.shape
    assert ours.tobytes() == plain.tobytes()


@PROFILE
@given(index=indices())
@example(index=(np.array([0, 1]), np.array([0, 0])))
def test_any_index_reads_as_an_ndarray(index: Any) -> None:
    ours, plain = pair()
    try:
        expected = plain[index]
    except OUT_OF_BOUNDS:
        with pytest.raises(OUT_OF_BOUNDS):
            ours[index]
        return
    same(ours[index], expected)


@PROFILE
@given(index=indices(), seed=st.integers(0, 99), scalar=st.booleans())
def test_any_index_writes_as_an_ndarray(index: Any, seed: int, scalar: bool) -> None:
    ours, plain = pair()
    try:
        shape = plain[index].shape
    except OUT_OF_BOUNDS:
        with pytest.raises(OUT_OF_BOUNDS):
            ours[index] = 1
        same(np.asarray(ours), plain)
        return
    value = seed if scalar else np.random.default_rng(seed).integers(-50, 50, shape).astype(np.int16)
    plain[index] = value
    ours[index] = value
    same(np.asarray(ours), plain)


@pytest.mark.parametrize("method", ["none", "rle", "gzip", "delta", "zstd3", "lz4-block", "auto"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "bool", "int64"])
def test_every_codec_and_dtype(method: str, dtype: str) -> None:
    ours, plain = pair(method, dtype)
    same(np.asarray(ours), plain)
    ours[1, [0, 2]] = plain[2, 1]
    plain[1, [0, 2]] = plain[2, 1]
    same(ours[1:3, ::-1], plain[1:3, ::-1])
    same(ours[[0, 1], [2, 0], :], plain[[0, 1], [2, 0], :])


def test_starts_as_zeros() -> None:
    array = CompressedArray((2, 3), np.float32, (4, 5))
    assert array.shape == (2, 3, 4, 5)
    assert (array.ndim, array.size, len(array), array.dtype) == (4, 120, 2, np.float32)
    same(np.asarray(array), np.zeros((2, 3, 4, 5), np.float32))


def test_a_number_of_cells_is_a_shape() -> None:
    array = CompressedArray(5, np.uint8, (3,))
    array[-1] = [1, 2, 3]
    assert np.asarray(array)[4].tolist() == [1, 2, 3]


def test_the_arguments_of_0_5_are_taken_by_name_and_by_position() -> None:
    dtypes, options = {"elem_type": np.uint8, "runs_type": np.uint16}, {"compresslevel": 5}
    array = CompressedArray((3,), np.uint8, (20, 20), None, 0, None, "C", dtypes, "gzip", options, options)
    assert array.leaf.plan.codec.spec == "gzip/5"  # type: ignore[union-attr]
    named = CompressedArray(
        shape=3, dtype=np.uint8, obs_shape=400, dtypes=dtypes, compression_method="rle-old", decompression_kwargs=dtypes
    )
    assert named.shape == (3, 400)
    for one in (array, named):
        one[1] = np.arange(400, dtype=np.uint8).reshape(one.obs_shape)
        assert one[1].ravel().tolist() == (np.arange(400) % 256).tolist()
    for wrong in ({"buffer": b"1"}, {"offset": 4}, {"strides": (1,)}):
        with pytest.raises(ValueError, match=r"has no plain memory.*array\[:\] = values"):
            CompressedArray((3,), np.uint8, (4,), **wrong)  # type: ignore[arg-type]


def test_a_narrower_dtype_is_stored_where_it_was_asked_for(tmp_path: Path) -> None:
    with pytest.warns(LossyStorageWarning):
        array = CompressedArray((3,), np.float32, (40,), dtypes={"elem_type": np.uint8}, compression_method="gzip3")
    array[0] = np.linspace(-5, 300, 40)
    expected = np.clip(np.rint(np.linspace(-5, 300, 40)), 0, 255)
    assert array.dtype == np.float32
    assert array[0].tolist() == expected.tolist()
    array.save(tmp_path / "array.sb3x")
    with pytest.warns(LossyStorageWarning):
        loaded = load_buffer(tmp_path / "array.sb3x")
    assert loaded[0].tolist() == expected.tolist()


def test_scalar_cells() -> None:
    array, plain = CompressedArray((3, 4), np.int64), np.zeros((3, 4), np.int64)
    for target in (array, plain):
        target[1] = [5, 6, 7, 8]
        target[2, 3] = -1
        target[:, 0] = 9
    same(np.asarray(array), plain)
    assert array[2, 3] == -1


def test_a_value_may_be_broadcast_as_in_numpy() -> None:
    ours, plain = pair()
    for value in (plain[0, 0], plain[:, :1], plain[None, :1], plain[0, 0, :1], 7):
        ours[...] = value
        plain[...] = value
        same(np.asarray(ours), plain)
    ours[1] = plain[1] = plain[None, None, 2]
    same(np.asarray(ours), plain)
    with pytest.raises(ValueError, match="shape"):
        ours[0] = np.zeros((7, 7))


def test_conversions() -> None:
    ours, plain = pair()
    same(np.asarray(ours, np.float64), plain.astype(np.float64))
    same(np.array(ours), plain)
    assert ours[...] is not ours[...]
    for mine, other in zip(ours, plain, strict=True):
        same(mine, other)
    assert (ours[:] == plain).all()
    assert np.stack(ours).shape == plain.shape  # type: ignore[call-overload]


def test_reads_are_copies() -> None:
    ours, plain = pair()
    ours[0][:] = 99
    ours[...][:] = 99
    same(np.asarray(ours), plain)


@pytest.mark.parametrize("method", ["none", "gzip", "auto"])
def test_pickle_and_deepcopy(method: str) -> None:
    ours, plain = pair(method)
    for other in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), copy.copy(ours)):
        assert type(other) is CompressedArray
        same(np.asarray(other), plain)
    other = pickle.loads(pickle.dumps(ours))
    other[0] = 1
    same(np.asarray(ours), plain)
    plain[0] = 1
    same(np.asarray(other), plain)


@pytest.mark.parametrize("index", [7, -8, (0, 3), (0, 0, 9), ([0, 7],), (slice(None), [3]), (0, 0, 0, 0, 0), np.ones(9, bool)])
def test_out_of_bounds_raises_index_error(index: Any) -> None:
    array = CompressedArray((7, 3), np.uint8, (2, 4))
    for action in (lambda: array[index], lambda: array.__setitem__(index, 1)):
        with pytest.raises(IndexError):
            action()


def test_memory_shrinks_and_overwritten_cells_are_given_back() -> None:
    array = CompressedArray((50,), np.uint8, (84, 84), compression_method="gzip")
    array[...] = np.random.default_rng(0).integers(0, 256, (50, 84, 84), dtype=np.uint8)
    full = array.memory_usage()
    assert full.raw_bytes == 50 * 84 * 84 <= full.stored_bytes
    array[...] = 3
    usage = array.memory_usage()
    assert usage.raw_bytes == full.raw_bytes
    assert usage.stored_bytes < full.stored_bytes / 10
    assert array.nbytes == usage.stored_bytes


def test_bad_options_are_refused_at_construction() -> None:
    with pytest.raises(CodecError):
        CompressedArray((3,), np.uint8, (4,), compression_method="zsdt")
    with pytest.raises(CodecError):
        CompressedArray((3,), np.uint8, (4,), compression_method="gzip", compression_kwargs={"levle": 1})


def test_numpy_integers_as_shape() -> None:
    assert CompressedArray(np.int64(4), np.uint8, (2,)).shape == (4, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["auto", "none", "zstd"])
@pytest.mark.parametrize(("dtype", "obs_shape"), [(np.float32, (3,)), (np.uint8, (30, 30))])
def test_a_copy_of_a_nearly_empty_array_is_nearly_empty(method: str, dtype: type, obs_shape: tuple[int, ...]) -> None:
    ours = CompressedArray((5000,), dtype, obs_shape, compression_method=method)
    for i in range(40):
        ours[i] = np.full(obs_shape, i, dtype)
    data = pickle.dumps(ours)
    assert len(data) < 60_000
    for other in (pickle.loads(data), copy.deepcopy(ours)):
        assert other.memory_usage().raw_bytes == ours.memory_usage().raw_bytes == 40 * ours[0].nbytes
        assert np.array_equal(np.asarray(other), np.asarray(ours))
        other[4999] = np.full(obs_shape, 7, dtype)
        assert (other[4999] == 7).all()
