"""Arbitrary frames through every codec."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sb3_extra_buffers.codecs import available_codecs, kernels, make_codec, patches
from tests.contracts import check_damage, check_prefix, check_round_trip

PROFILE = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
DTYPES = ["uint8", "bool", "int64", "float16", "float32", "float64"]


@st.composite
def frames(draw: st.DrawFn) -> tuple[np.ndarray, str]:
    """Frames of any dtype, as bytes: arbitrary ones, runs, and near-repetitions of the frame before."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    n, items = draw(st.integers(1, 12)), draw(st.integers(1, 150))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(0, 256, (n, items * dtype.itemsize), dtype=np.uint8)
    kind = draw(st.sampled_from(["noise", "runs", "still", "floats"]))
    if kind == "runs":
        values = np.sort(values // draw(st.integers(1, 200)), axis=1)
    elif kind == "still":
        values = np.repeat(values[:1], n, 0)
        for i in range(1, n):
            values[i, rng.integers(0, values.shape[1], 3)] = rng.integers(0, 256, 3)
    elif kind == "floats" and dtype.kind == "f":
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5], dtype)
        values = rng.choice(special, (n, items)).view(np.uint8)
    if dtype.name == "bool":
        values &= 1
    return np.ascontiguousarray(values), dtype.name


@pytest.mark.parametrize("name", available_codecs())
@PROFILE
@given(block=frames(), base=st.booleans())
def test_decode_inverts_encode(name: str, block: tuple[np.ndarray, str], base: bool) -> None:
    values, dtype = block
    codec = make_codec(name, elem_type=dtype)
    check_round_trip(codec, values, values[-1].copy() if base else None)
    check_prefix(codec, values)


@pytest.mark.parametrize("name", available_codecs())
@settings(PROFILE, max_examples=15)
@given(block=frames())
def test_damaged_bytes_are_refused(name: str, block: tuple[np.ndarray, str]) -> None:
    check_damage(make_codec(name, elem_type=block[1]), block[0], flips=10)


@PROFILE
@given(block=frames(), runs_type=st.sampled_from(["uint8", "uint16", "uint32", "uint64"]))
def test_rle_and_rle_jit_write_the_same_bytes(block: tuple[np.ndarray, str], runs_type: str) -> None:
    options = {"elem_type": block[1], "runs_type": runs_type}
    encoded = make_codec("rle", options).encode(block[0])
    assert make_codec("rle-jit", options).encode(block[0]) == encoded
    out = np.empty_like(block[0])
    make_codec("rle-jit", options).decode(encoded, out)
    assert out.tobytes() == block[0].tobytes()


def memory_of(array: np.ndarray) -> Any:
    """What kernels take for an array."""
    return array.ctypes.data if kernels.COMPILED else array


def write_patches(before: np.ndarray, after: np.ndarray, out: np.ndarray, limit: int) -> int:
    """Patches into ``out`` from 3 on."""
    return patches.write_patches(memory_of(before), memory_of(after), before.size, memory_of(out), 3, limit)


@settings(PROFILE, max_examples=400)
@given(
    n=st.integers(1, 200), at=st.integers(0, 5), changed=st.floats(0, 1), values=st.integers(1, 255),
    limit=st.integers(0, 300), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_patches_stay_within_their_limit(n: int, at: int, changed: float, values: int, limit: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = rng.integers(0, values + 1, n + at, np.uint8)
    after = np.where(rng.random(n + at) < changed, rng.integers(0, values + 1, n + at, np.uint8), before)
    out = np.full(400, 77, np.uint8)
    end = write_patches(before[at:], after[at:], out, limit)
    assert end <= limit
    assert (out[:3] == 77).all()
    assert (out[max(limit, 3) :] == 77).all()
    if end >= 0:
        frame = before[at:].copy()
        assert patches.apply_patches(memory_of(out), end, 3, memory_of(frame), n, memory_of(np.zeros(n, np.uint8))) == end
        assert frame.tobytes() == after[at:].tobytes()


def test_a_patch_far_into_a_large_frame_stays_within_its_limit() -> None:
    after = np.zeros((1 << 21) + 20, np.uint8)
    after[-9] = 1  # one byte, behind a skip that takes four
    out = np.full(100, 77, np.uint8)
    assert write_patches(np.zeros_like(after), after, out, 15) == 10
    assert (out[15:] == 77).all()
