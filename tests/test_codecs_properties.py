"""Arbitrary frames through every codec."""

from __future__ import annotations

import contextlib
import zlib

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sb3_extra_buffers import native
from sb3_extra_buffers.codecs import available_codecs, make_codec
from sb3_extra_buffers.codecs.base import CODED, Format, with_header
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store import BlockStore, FrameLayout
from tests.contracts import GUARD, check_damage, check_prefix, check_round_trip
from tests.store_segments import damage_last_block

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


@settings(PROFILE, max_examples=400)
@given(
    n=st.integers(1, 200), changed=st.floats(0, 1), values=st.integers(1, 255), room=st.integers(0, 700),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_patches_stay_within_their_room(n: int, changed: float, values: int, room: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, values + 1, (3, n), np.uint8)
    frames[1:] = np.where(rng.random((2, n)) < changed, frames[1:], frames[0])
    base = frames[0] if seed % 2 else None
    data = native.delta_encode(frames, base, room)
    if data is None:
        return
    assert data.dtype == np.uint8
    assert data.size <= room
    out = np.full_like(frames, 77)
    assert native.delta_decode(data, base, out)
    assert out.tobytes() == frames.tobytes()


def test_a_patch_far_into_a_large_frame_stays_within_its_room() -> None:
    frames = np.zeros((1, (1 << 21) + 20), np.uint8)
    frames[0, -9] = 1  # one byte, behind a skip of two digits and a rest
    data = native.delta_encode(frames, None, 20)
    assert data is not None
    assert data.tobytes().hex() == "03" + "0000" + "0004" + "c202" + "01"
    assert native.delta_encode(frames, None, 6) is None


@settings(PROFILE, max_examples=300)
@given(data=st.binary(max_size=80), n=st.integers(1, 5), size=st.integers(1, 40))
def test_any_bytes_are_decoded_or_refused_as_patches(data: bytes, n: int, size: int) -> None:
    memory = np.full(n * size + 2 * GUARD, 0xC3, np.uint8)
    native.delta_decode(data, None, memory[GUARD:-GUARD].reshape(n, size))
    assert (memory[:GUARD] == 0xC3).all()
    assert (memory[-GUARD:] == 0xC3).all()


@pytest.mark.parametrize("name", ["rle", "rle-jit"])
@settings(PROFILE, max_examples=150)
@given(
    lengths=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 30), max_size=8),
    runs_type=st.sampled_from(["uint8", "uint16", "uint32", "uint64"]), n=st.integers(1, 90),
)  # fmt: skip
def test_runs_of_any_length_stay_inside(name: str, lengths: list[int], runs_type: str, n: int) -> None:
    """Runs that are too long are cut, runs that are too short are refused; nothing outside is touched."""
    shortened = [length % (int(np.iinfo(runs_type).max) + 1) for length in lengths]
    values = np.arange(1, len(lengths) + 1, dtype=np.uint8)
    payload = len(lengths).to_bytes(4, "little") + values.tobytes() + np.array(shortened, runs_type).tobytes()
    memory = np.full(n + 2 * GUARD, 0xC3, np.uint8)
    codec = make_codec(name, {"runs_type": runs_type})
    expected = [value for value, length in zip(values.tolist(), shortened, strict=True) for _ in range(min(length, n))][:n]
    try:
        codec.decode(with_header(CODED, payload), memory[GUARD:-GUARD].reshape(1, n))
    except CorruptDataError:
        assert len(expected) < n
    else:
        assert memory[GUARD:-GUARD].tolist() == expected
    assert (memory[:GUARD] == 0xC3).all()
    assert (memory[-GUARD:] == 0xC3).all()


#: Codecs that the core reads, with levels that write different kinds of blocks.
READ_BY_CORE = {
    "lz4-frame": [-10, 0, 1, 9], "lz4-block": [-10, 0, 1, 9], "gzip": [0, 1, 6, 9], "igzip": [0, 1, 3],
    "zstd": [-100, -5, 1, 3, 19],
}  # fmt: skip
METHODS = [f"{name}/{level}" for name, levels in READ_BY_CORE.items() for level in levels]


@settings(PROFILE, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1), shape=st.sampled_from([(4, 40, 40), (1, 9, 7), (3, 30, 50), (1, 200, 400)]),
    kind=st.sampled_from(["still", "noise", "runs"]), method=st.sampled_from(METHODS),
    block_frames=st.sampled_from([None, 1, 5]),
)  # fmt: skip
def test_the_core_reads_what_libraries_write(
    seed: int, shape: tuple[int, ...], kind: str, method: str, block_frames: int | None
) -> None:
    """Also pieces of several blocks, which look back into the ones before, and channels that are interleaved."""
    rng = np.random.default_rng(seed)
    picture = rng.integers(0, 256, shape, dtype=np.uint8)
    space, actions = spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(2)
    options = {"compression_method": method, "frame_stack": 1, "block_frames": block_frames}
    buffer = CompressedReplayBuffer(30, space, actions, device="cpu", handle_timeout_termination=False, **options)
    plain = np.empty((30, *shape), np.uint8)
    for t in range(30):
        if kind == "noise":
            plain[t] = rng.integers(0, 256, shape)
        elif kind == "still":
            picture[..., t % shape[-1]] += 1
            plain[t] = picture
        else:
            plain[t] = np.sort(rng.integers(0, 8, shape).reshape(-1)).reshape(shape)
        buffer.add(plain[t : t + 1], plain[t : t + 1], np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    for cells in (np.arange(30), rng.integers(0, 30, 12)):
        assert np.array_equal(buffer.observations[cells, np.zeros(len(cells), np.int64)], plain[cells])


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Bytes that libraries compress in different ways: noise, few values, text, repetitions, all of them in turn."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parts = []
    for kind in draw(st.lists(st.sampled_from(["noise", "few", "skewed", "repeated", "same"]), min_size=1, max_size=4)):
        n = draw(st.sampled_from([0, 1, 7, 60, 700, 9000, 70_000]))
        if kind == "repeated":
            part = np.resize(rng.integers(0, 256, 1 + n // 9, dtype=np.uint8), n)
            part[rng.integers(0, max(n, 1), n // 80)] += 1
        elif kind == "skewed":
            part = rng.geometric(0.15, n).astype(np.uint8)
        else:
            part = rng.integers(0, {"noise": 256, "few": draw(st.integers(2, 30)), "same": 1}[kind], n, dtype=np.uint8)
        parts.append(part)
    return np.concatenate(parts).tobytes()


@pytest.mark.parametrize("method", METHODS)
@settings(PROFILE, max_examples=6)
@given(plain=contents(), share=st.floats(0, 1))
def test_every_beginning_of_what_a_library_writes_is_read(method: str, plain: bytes, share: float) -> None:
    codec = make_codec(method)
    payload = codec.compress(np.frombuffer(plain, np.uint8).reshape(1, -1), None)
    for n in {len(plain), int(share * len(plain))}:
        out = np.empty((1, n), np.uint8)
        codec.decompress(memoryview(payload), out, None)
        assert out.tobytes() == plain[:n]
    with pytest.raises(CorruptDataError, match=codec.name):
        codec.decompress(memoryview(payload), np.empty((1, len(plain) + 1), np.uint8), None)


@settings(PROFILE, max_examples=60)
@given(plain=contents(), level=st.integers(0, 9), at=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_the_core_and_zlib_agree_about_damaged_bytes(plain: bytes, level: int, at: float, value: int) -> None:
    """Without their checksum, damaged bytes may still be right. Then both read the same; else both refuse them."""
    assume(plain)
    payload = bytearray(zlib.compress(plain, level))
    payload[2 + int(at * (len(payload) - 6))] = value
    decoder, n, expected = zlib.decompressobj(-15), len(plain), b""
    with contextlib.suppress(zlib.error):
        for i in range(2, len(payload) - 4):  # byte by byte: damage behind the last value is none of the core's
            if len(expected) < n:
                expected += decoder.decompress(payload[i : i + 1], n - len(expected))
    out = np.empty(n, np.uint8)
    is_read = native.decode(Format.ZLIB, bytes(payload[:-4]), out)
    assert is_read == (len(expected) == n)
    assert not is_read or out.tobytes() == expected


def test_damage_behind_the_last_value_is_not_looked_at() -> None:
    payload = bytearray(zlib.compress(b"_", 1))
    payload[4] = 61
    out = np.empty(1, np.uint8)
    assert native.decode(Format.ZLIB, bytes(payload[:-4]), out)
    assert out.tobytes() == b"_"


@settings(PROFILE, max_examples=150)
@given(
    plain=contents(), level=st.sampled_from([-5, 1, 3, 12]), at=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255)
)
def test_what_the_core_and_zstd_read_of_damaged_bytes_is_the_same(plain: bytes, level: int, at: float, value: int) -> None:
    """The core refuses more: streams of literals that do not end where they should."""
    zstandard = pytest.importorskip("zstandard")
    payload = bytearray(zstandard.ZstdCompressor(level=level).compress(plain))
    payload[4 + int(at * (len(payload) - 4))] = value
    try:
        expected = zstandard.ZstdDecompressor().decompress(payload, max_output_size=len(plain))
    except (zstandard.ZstdError, MemoryError):
        return
    out = np.empty(len(expected), np.uint8)
    assert not native.decode(Format.ZSTD, bytes(payload), out) or out.tobytes() == expected


@pytest.mark.parametrize("name", READ_BY_CORE)
def test_damaged_pieces_are_refused_by_the_core(name: str) -> None:
    layout = FrameLayout((60, 60), np.dtype(np.uint8))
    store = BlockStore(layout, 32, make_codec(name), block_frames=8)
    frames = np.arange(32, dtype=np.uint8)[:, None, None] + np.zeros((60, 60), np.uint8)
    store.write(0, np.arange(32), frames)
    damage_last_block(store, b"\xff" * 16)
    with pytest.raises(CorruptDataError, match="damaged"):
        store.read(0, np.arange(32))
