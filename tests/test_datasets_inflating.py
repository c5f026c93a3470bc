"""Gzip files by our own reader; `gzip.open` is the oracle."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import numpy as np
import pytest

from sb3_extra_buffers.datasets.inflating import InflatedFile

DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)


def contents(n: int) -> bytes:
    rng = np.random.default_rng(n)
    return np.repeat(rng.integers(0, 256, n // 50 + 1, dtype=np.uint8), 50)[:n].tobytes()


def read(path: Path, size: int) -> bytes:
    found = b""
    with InflatedFile(path) as file:
        while n := file.readinto(memoryview(room := bytearray(size))):
            found += room[:n]
        assert file.read(1) == b""
    return found


def member(data: bytes, name: str = "") -> bytes:
    file = io.BytesIO()
    with gzip.GzipFile(name, "wb", fileobj=file, mtime=0) as writer:
        writer.write(data)
    return file.getvalue()


@pytest.mark.parametrize("size", [1, 1000, 70_000, 3 << 20])
def test_what_is_read_is_what_gzip_reads(tmp_path: Path, size: int) -> None:
    path = tmp_path / "some.gz"
    n = min(size * 300, 4 << 20)
    for file in (
        member(contents(n)),
        member(b""),
        b"",
        member(contents(n), "a name") + member(contents(n // 2)) + b"\0" * 100 + member(b"end") + b"\0",
    ):
        path.write_bytes(file)
        with gzip.open(path) as oracle:
            assert read(path, size) == oracle.read()


def test_every_field_of_a_header_is_skipped(tmp_path: Path) -> None:
    data, path = contents(5000), tmp_path / "some.gz"
    deflated = member(data)[10:]
    header = b"\x1f\x8b\x08" + bytes([2 | 4 | 8 | 16]) + bytes(6) + b"\x05\x00extra" + b"name\0" + b"comment\0" + b"\0\0"
    path.write_bytes(header + deflated)
    with gzip.open(path) as oracle:
        assert read(path, 1 << 20) == oracle.read() == data


@pytest.mark.parametrize("n", [3000, 3 << 20])
def test_damage_is_noticed(tmp_path: Path, n: int) -> None:
    path, whole = tmp_path / "some.gz", member(contents(n), "a name")
    rng = np.random.default_rng(0)
    damaged = [whole[: int(at)] for at in rng.integers(1, len(whole), 20)]
    damaged += [
        whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole + b"more",
        b"P" + whole,
    ]
    for at in rng.integers(20, len(whole) - 8, 20).tolist():
        damaged.append(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(DAMAGE):
            read(path, 2 << 20)
