"""ArrayView answers SB3 as an ndarray would, rearranged or not."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.errors import ObservationError
from sb3_extra_buffers.store import ArrayView, LeafStore, StorePlan
from sb3_extra_buffers.store.array_view import Reader
from tests.indices import LEADING, OBS, indices

SHAPE = (*LEADING, *OBS)
PROFILE = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


def leaf_for(dtype: str = "int16", n_columns: int = 2) -> LeafStore:
    plan = StorePlan(OBS, np.dtype(dtype), 12, LEADING[1], n_columns, codec=make_codec("none"), frame_stack=1)
    return LeafStore(plan)


def view_and_array(dtype: str = "int16") -> tuple[ArrayView, np.ndarray]:
    view = ArrayView(leaf_for(dtype), 1, LEADING, OBS, dtype)
    plain = np.random.default_rng(0).integers(0, 50, SHAPE).astype(dtype)
    for i in range(LEADING[0]):
        view[i] = plain[i]  # as SB3's add
    return view, plain


def same(ours: Any, plain: Any) -> None:
    assert (ours.dtype, ours.shape, ours.tobytes()) == (plain.dtype, plain.shape, plain.tobytes())


@PROFILE
@given(index=indices())
def test_any_index_of_a_flattened_view(index: Any) -> None:
    """After `swap_and_flatten` the cells are out of order; reads and writes find them all the same."""
    view, plain = view_and_array()
    swapped, array = view.swapaxes(0, 1), plain.swapaxes(0, 1)
    try:
        expected = array[index]
    except (IndexError, DeprecationWarning):  # NumPy before 2.3 only warns where nothing would be read
        with pytest.raises((IndexError, DeprecationWarning)):
            swapped[index]
        return
    same(swapped[index], expected)
    swapped[index] = 77
    array[index] = 77  # writes through to `plain`
    same(np.asarray(view), plain)


def test_swap_and_flatten_as_sb3_does() -> None:
    view, plain = view_and_array()
    flat = view.swapaxes(0, 1).reshape(12, *OBS)
    expected = plain.swapaxes(0, 1).reshape(12, *OBS)
    assert isinstance(flat, ArrayView)
    assert flat.shape == expected.shape
    batch = np.random.default_rng(0).permutation(12)[:7]
    same(flat[batch], expected[batch])
    same(view.reshape((12, *OBS))[batch], plain.reshape(12, *OBS)[batch])
    same(np.asarray(view.reshape(-1, *OBS)), plain.reshape(-1, *OBS))
    same(np.asarray(view.reshape(2, 2, 3, *OBS)), plain.reshape(2, 2, 3, *OBS))


def test_axes_of_an_observation_cannot_be_rearranged() -> None:
    view, _ = view_and_array()
    with pytest.raises(ValueError, match=r"use np\.asarray"):
        view.swapaxes(1, 2)
    with pytest.raises(ValueError, match=r"use np\.asarray"):
        view.reshape(12, 10)


def test_the_ways_sb3_reads() -> None:
    view, plain = view_and_array()
    slots, envs = np.array([3, 0, 0, 2, -1]), np.array([2, 1, 1, 0, 0])
    same(view[slots, envs, :], plain[slots, envs, :])
    same(view[slots, envs], plain[slots, envs])
    same(view[np.array([1, 3])], plain[np.array([1, 3])])
    for index in (
        (np.array([4]), np.array([0])),
        (np.array([0]), np.array([3]), slice(None)),
        (np.array([-5]), np.array([0])),
    ):
        with pytest.raises(IndexError):
            view[index]


def test_empty_index() -> None:
    view, plain = view_and_array()
    none = np.zeros(0, np.int64)
    same(view[none, none], plain[none, none])
    same(view[2:2], plain[2:2])
    view[none] = 5
    view[1:1] = 5
    same(np.asarray(view), plain)


def test_columns_read_together_are_what_they_are_alone() -> None:
    store = leaf_for()
    fresh: list[np.ndarray] = []
    reader = Reader(2, fresh)
    views = [ArrayView(store, column, LEADING, OBS, "int16", reader=reader) for column in (0, 1)]
    rng = np.random.default_rng(0)
    for view in views:
        view[...] = rng.integers(0, 99, SHAPE).astype(np.int16)
    plain = [np.asarray(view) for view in views]
    slots, envs = np.array([0, 3, 3, 1]), np.array([1, 1, 2, 0])
    others = np.array([2, 2, 0, 0])
    reader.begin()
    first = views[1][slots, envs, :]
    assert fresh[0] is first  # nobody else holds it
    same(first, plain[1][slots, envs])
    same(views[0][slots, envs, :], plain[0][slots, envs])
    same(views[0][others, envs, :], plain[0][others, envs])  # another index: nothing stale
    same(views[1][slots, envs, :], plain[1][slots, envs])
    same(views[1][slots, envs, :], plain[1][slots, envs])
    reader.end()
    assert fresh == []
    views[0][0] = 1  # after the batch nothing is remembered
    reader.begin()
    assert (views[0][np.array([0]), np.array([0])] == 1).all()


def test_pickle_and_deepcopy() -> None:
    view, plain = view_and_array("float32")
    for other in (pickle.loads(pickle.dumps(view)), copy.deepcopy(view)):
        same(np.asarray(other), plain)
        other[0] = 5
    same(np.asarray(view), plain)


def test_it_cannot_be_read_without_a_copy() -> None:
    view, plain = view_and_array()
    with pytest.raises(ValueError, match="as a copy"):
        np.asarray(view, copy=False)
    same(np.asarray(view, np.float32), plain.astype(np.float32))


def test_values_that_do_not_fit_are_refused() -> None:
    view, plain = view_and_array("uint8")
    for value in (np.full(OBS, 300), np.full(OBS, -1), np.full(OBS, 0.5), np.full(OBS, np.nan)):
        with pytest.raises(ObservationError, match="uint8 cannot hold"):
            view[0, 0] = value
    with pytest.raises(ObservationError, match="shape"):
        view[0] = np.zeros((5, 2, 5), np.uint8)
    same(np.asarray(view), plain)
    view[0, 0] = np.full(OBS, 7.0)  # fits
    assert (view[0, 0] == 7).all()


def test_iteration_and_length() -> None:
    view, plain = view_and_array()
    assert len(view) == 4
    assert view.ndim == 4
    assert view.size == plain.size
    for ours, theirs in zip(view, plain, strict=True):
        same(ours, theirs)
    assert repr(view) == "<ArrayView (4, 3, 2, 5) int16>"
