"""Gzipped arrays: what is read is what was written, and damage is noticed, with ISA-L and with Python's gzip."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from sb3_extra_buffers.datasets import gzipped
from sb3_extra_buffers.errors import CorruptDataError


@pytest.fixture(params=["isal", "gzip"], autouse=True)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "isal":
        pytest.importorskip("isal")
    else:
        monkeypatch.setattr(gzipped, "installed", lambda module: False)


def some_rows(n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    return np.repeat(rng.integers(0, 256, n // 50 + 1, dtype=np.uint8), 50)[:n].reshape(-1, 10)


def contents(rows: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, rows, allow_pickle=False)
    return file.getvalue()


def member(data: bytes, name: str = "") -> bytes:
    file = io.BytesIO()
    with gzip.GzipFile(name, "wb", fileobj=file, mtime=0) as writer:
        writer.write(data)
    return file.getvalue()


def read(path: Path, at_once: int) -> np.ndarray:
    return np.concatenate([rows.copy() for rows in gzipped.read_rows(path, at_once, kept=0)])


@pytest.mark.parametrize("at_once", [1, 100, 7000, 300_000])
def test_what_is_read_is_what_was_written(tmp_path: Path, at_once: int) -> None:
    path, rows = tmp_path / "some.gz", some_rows(min(at_once * 3000, 4 << 20) // 10 * 10)
    data = contents(rows)
    for file in (
        member(data),
        member(data) + b"\0" * 100,
        member(data[:1000], "a name") + member(b"") + member(data[1000:1500]) + b"\0" * 100 + member(data[1500:]) + b"\0",
    ):
        path.write_bytes(file)
        shape, dtype = gzipped.read_header(path)
        assert (shape, dtype) == (rows.shape, rows.dtype)
        np.testing.assert_array_equal(gzipped.read_array(path), rows)
        np.testing.assert_array_equal(read(path, at_once), rows)


@pytest.mark.parametrize("n", [3000, 3 << 20])
def test_damage_is_noticed(tmp_path: Path, n: int) -> None:
    path, whole = tmp_path / "some.gz", member(contents(some_rows(n // 10 * 10)), "a name")
    rng = np.random.default_rng(0)
    damaged = [whole[: int(at)] for at in rng.integers(1, len(whole), 20)]
    damaged += [
        whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole + b"more",
        whole + whole[:40],
        b"P" + whole,
        b"\0" * 50,
        b"",
    ]
    for at in rng.integers(20, len(whole) - 8, 20).tolist():
        damaged.append(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(CorruptDataError, match=r"some.gz is damaged, or not a gzipped .npy file: ."):
            read(path, 200_000)
        with pytest.raises(CorruptDataError, match=r"some.gz is damaged, or not a gzipped .npy file: ."):
            gzipped.read_array(path)


@pytest.mark.parametrize("header", [b"{'descr': (", b"{'descr': ,u1'", b"{'descr': '|u1',B'fortran_order': False}", b"\xff"])
def test_a_damaged_header_is_noticed(tmp_path: Path, header: bytes) -> None:
    path, data = tmp_path / "some.gz", contents(some_rows(1000))
    path.write_bytes(member(data[:10] + header + data[10 + len(header) :]))
    for used in (gzipped.read_array, gzipped.read_header, lambda path: read(path, 100)):
        with pytest.raises(CorruptDataError, match=r"some.gz is damaged, or not a gzipped .npy file: ."):
            used(path)
