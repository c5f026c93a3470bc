"""What every codec promises, as checks that take a codec; test_codecs.py calls them for all that are installed."""

from __future__ import annotations

import contextlib
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from sb3_extra_buffers.codecs import Codec
from sb3_extra_buffers.codecs.base import HEADER_BYTES
from sb3_extra_buffers.errors import CorruptDataError

GUARD = 64


def moving_frames(n: int, size: int, seed: int = 0) -> np.ndarray:
    """A still background with one small thing that moves, as games look."""
    rng = np.random.default_rng(seed)
    frames = np.repeat(rng.integers(0, 4, (1, size), dtype=np.uint8).repeat(max(1, size // 40), 1)[:, :size], n, 0)
    for i in range(n):
        frames[i, (7 * i) % size : (7 * i) % size + 5] = 200 + i % 50
    return np.ascontiguousarray(frames)


def noise(n: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, size), dtype=np.uint8)


BLOCKS: dict[str, np.ndarray] = {
    "one-byte": np.array([[7]], np.uint8),
    "one-zero": np.zeros((1, 1), np.uint8),
    "one-frame": moving_frames(1, 400),
    "many-frames": moving_frames(64, 300),
    "odd-sizes": moving_frames(13, 97),
    "tiny-frames": noise(33, 3),
    "all-zero": np.zeros((16, 1000), np.uint8),
    "all-255": np.full((2, 256 * 256), 255, np.uint8),
    "noise": noise(5, 777),
    "half-noise": np.concatenate((noise(1, 900), np.repeat(noise(1, 900), 7, 0))),
    "game": moving_frames(16, 84 * 84),
}


def check_round_trip(codec: Codec, frames: np.ndarray, base: np.ndarray | None = None) -> bytes:
    """`decode` inverts `encode`, the input stays as it is, and a block never grows by more than its header."""
    before = frames.copy()
    data = codec.encode(frames, base)
    assert type(data) is bytes
    assert len(data) <= frames.nbytes + HEADER_BYTES
    out = np.full_like(frames, 0xAA)
    codec.decode(data, out, base)
    assert out.tobytes() == before.tobytes()
    assert frames.tobytes() == before.tobytes()
    out[:] = 0x55
    codec.decode(np.frombuffer(data, np.uint8), out, base, verify=False)  # as the store reads from its arena
    assert out.tobytes() == before.tobytes()
    return data


def check_prefix(codec: Codec, frames: np.ndarray) -> None:
    """An `out` with fewer rows gets the first frames, and nothing outside of it is touched."""
    data = codec.encode(frames)
    size = frames.shape[1]
    for rows in sorted({1, len(frames) // 2, len(frames) - 1, len(frames)} - {0}):
        memory = np.full(rows * size + 2 * GUARD, 0xC3, np.uint8)
        codec.decode(data, memory[GUARD:-GUARD].reshape(rows, size))
        assert memory[GUARD:-GUARD].tobytes() == frames[:rows].tobytes()
        assert (memory[:GUARD] == 0xC3).all()
        assert (memory[-GUARD:] == 0xC3).all()


def check_refuses(codec: Codec, data: bytes, frames: np.ndarray) -> None:
    """Damaged bytes raise CorruptDataError, for a whole block and for a part of it."""
    for rows in {1, len(frames)}:
        out = np.zeros((rows, frames.shape[1]), np.uint8)
        try:
            codec.decode(data, out)
        except CorruptDataError:
            continue
        raise AssertionError(f"{codec.spec} decoded damaged bytes {data[:20]!r}...")


def check_damage(codec: Codec, frames: np.ndarray, flips: int = 60) -> None:
    """Every flipped bit and every truncation is noticed."""
    data = codec.encode(frames)
    rng = np.random.default_rng(0)
    bits = [*range(8 * HEADER_BYTES), *rng.integers(8 * HEADER_BYTES, 8 * len(data), flips).tolist()]
    for bit in bits:
        if bit < 8 * len(data):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            check_refuses(codec, bytes(damaged), frames)
    for length in {0, 1, 4, HEADER_BYTES, HEADER_BYTES + 1, len(data) // 2, len(data) - 1}:
        if length < len(data):
            check_refuses(codec, data[:length], frames)
    check_refuses(codec, data + b"\0", frames)


def check_unverified_damage(codec: Codec, frames: np.ndarray, flips: int = 60) -> None:
    """Without the checksum a damaged block may decode to something else, but never outside, and to no other error."""
    data = codec.encode(frames)
    rng = np.random.default_rng(1)
    memory = np.full(frames.nbytes + 2 * GUARD, 0xC3, np.uint8)
    for bit in rng.integers(8 * HEADER_BYTES, 8 * len(data), flips).tolist():
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(CorruptDataError):
            codec.decode(bytes(damaged), memory[GUARD:-GUARD].reshape(frames.shape), verify=False)
        assert (memory[:GUARD] == 0xC3).all()
        assert (memory[-GUARD:] == 0xC3).all()


def check_is_a_value(codec: Codec) -> None:
    """Comparable, hashable, picklable, frozen."""
    again = pickle.loads(pickle.dumps(codec))
    assert again == codec
    assert hash(again) == hash(codec)
    assert again is not codec
    for field in (*codec.options(), "anything"):
        try:
            setattr(codec, field, 1)
        except AttributeError:  # dataclasses.FrozenInstanceError is one
            continue
        raise AssertionError(f"{codec.spec}.{field} can be changed")


def check_threads(codec: Codec) -> None:
    """One codec serves several threads at once."""
    blocks = [moving_frames(8, 500, seed) for seed in range(4)]

    def work(i: int) -> bool:
        frames = blocks[i % 4]
        out = np.empty_like(frames)
        codec.decode(codec.encode(frames), out)
        return out.tobytes() == frames.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(200)))
