"""Every installed codec keeps the contract; names, levels and options are checked at construction."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sb3_extra_buffers
from sb3_extra_buffers import _optional
from sb3_extra_buffers.codecs import CODECS, available_codecs, make_codec, registry
from sb3_extra_buffers.codecs.base import HEADER_BYTES
from sb3_extra_buffers.errors import CodecError, CorruptDataError, FallbackWarning, MissingBackendError
from tests.contracts import (
    BLOCKS,
    check_damage,
    check_is_a_value,
    check_prefix,
    check_refuses,
    check_round_trip,
    check_threads,
    check_unverified_damage,
    moving_frames,
)

NAMES = available_codecs()
LEVELS = {"gzip": [0, 6, 9], "igzip": [0, 3], "zstd": [-100, -5, 1, 19], "lz4-frame": [-5, 5, 16], "lz4-block": [-5, 1, 16]}
SPECS = [*NAMES, *(f"{name}/{level}" for name, levels in LEVELS.items() if name in NAMES for level in levels)]
blocks = pytest.mark.parametrize("frames", BLOCKS.values(), ids=BLOCKS)


def test_all_codecs_are_installed_here() -> None:
    assert list(CODECS) == NAMES


@blocks
@pytest.mark.parametrize("spec", SPECS)
def test_decode_inverts_encode(spec: str, frames: np.ndarray) -> None:
    check_round_trip(make_codec(spec), frames)


@blocks
@pytest.mark.parametrize("spec", NAMES)
def test_first_frames_can_be_decoded_alone(spec: str, frames: np.ndarray) -> None:
    check_prefix(make_codec(spec), frames)


@pytest.mark.parametrize("block", ["one-byte", "one-frame", "odd-sizes", "all-zero", "noise", "half-noise"])
@pytest.mark.parametrize("spec", NAMES)
def test_damaged_bytes_are_refused(spec: str, block: str) -> None:
    check_damage(make_codec(spec), BLOCKS[block])


@pytest.mark.parametrize("block", ["one-frame", "odd-sizes", "all-zero"])
@pytest.mark.parametrize("spec", NAMES)
def test_unverified_damage_stays_inside(spec: str, block: str) -> None:
    check_unverified_damage(make_codec(spec), BLOCKS[block])


@pytest.mark.parametrize("spec", SPECS)
def test_a_codec_is_a_value(spec: str) -> None:
    check_is_a_value(make_codec(spec))
    assert make_codec(make_codec(spec).spec) == make_codec(spec)


@pytest.mark.parametrize("spec", NAMES)
def test_threads_may_share_a_codec(spec: str) -> None:
    check_threads(make_codec(spec))


@pytest.mark.parametrize("reader", NAMES)
def test_a_block_of_another_codec_is_refused_or_the_same(reader: str) -> None:
    """Some share a format (rle, rle-jit; gzip, igzip); all others must notice."""
    frames = moving_frames(16, 300)
    for writer in NAMES:
        out = np.zeros_like(frames)
        try:
            make_codec(reader).decode(make_codec(writer).encode(frames), out)
        except CorruptDataError:
            continue
        assert out.tobytes() == frames.tobytes(), (writer, reader)


@pytest.mark.parametrize("spec", [name for name in NAMES if name != "none"])
def test_a_codec_saves_on_games_and_keeps_noise_raw(spec: str) -> None:
    assert len(make_codec(spec).encode(BLOCKS["game"])) < BLOCKS["game"].nbytes / 5
    assert len(make_codec(spec).encode(BLOCKS["noise"])) == BLOCKS["noise"].nbytes + 5


# ---- delta and its base


def test_delta_patches_the_base() -> None:
    codec, frames = make_codec("delta"), moving_frames(8, 1000)
    with_base = check_round_trip(codec, frames, base=frames[0].copy())
    assert len(with_base) < len(check_round_trip(codec, frames))


def test_delta_fills_what_one_colour_covers() -> None:
    """Lines that move and screens that flash: thousands of changed bytes, a few of them worth keeping."""
    frames = np.zeros((4, 84, 84), np.uint8)
    for i in range(4):
        frames[i, 20 + 3 * i : 22 + 3 * i] = 90
    frames[3, frames[3] == 0] = 200  # a flash
    frames[3, 5, 5] = 1
    assert len(check_round_trip(make_codec("delta"), frames.reshape(4, -1))) < 80


# ---- rle


@pytest.mark.parametrize("name", [name for name in ("rle", "rle-jit") if name in NAMES])
@pytest.mark.parametrize("runs_type", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("elem_type", ["uint8", "uint16", "float32", "int64", "bool"])
def test_runs_longer_than_their_dtype_are_split(name: str, runs_type: str, elem_type: str) -> None:
    codec = make_codec(name, {"runs_type": runs_type, "elem_type": elem_type})
    for size in (255, 256, 65535, 65536, 65537, 3 * 65535):
        frames = np.full((1, size * np.dtype(elem_type).itemsize), 255, np.uint8)
        frames[0, -1] = 1
        data = check_round_trip(codec, frames)
        assert data[0] == 1 or size < 300


@pytest.mark.parametrize("name", [name for name in ("rle", "rle-jit") if name in NAMES])
def test_rle_reads_part_of_a_block_of_odd_frames(name: str) -> None:
    """A frame of 3 bytes is not a whole number of 2-byte values, though two of them are."""
    check_prefix(make_codec(name, {"elem_type": "uint16"}), np.zeros((40, 3), np.uint8))


def test_short_runs_take_one_byte_each_whatever_their_dtype() -> None:
    """Two bytes per run: value and length. Where many runs are long, splitting them would take more."""
    short, long = np.arange(600, dtype=np.uint8).repeat(5), np.arange(6, dtype=np.uint8).repeat(2000)
    for runs_type in ("uint16", "uint32", "uint64"):
        codec = make_codec("rle", {"runs_type": runs_type})
        assert len(check_round_trip(codec, short[None])) == HEADER_BYTES + 4 + 600 * 2
        assert len(check_round_trip(codec, long[None])) == HEADER_BYTES + 4 + 6 * (1 + np.dtype(runs_type).itemsize)


@pytest.mark.skipif("rle-jit" not in NAMES, reason="needs numba")
@pytest.mark.parametrize("runs_type", ["uint8", "uint16", "uint64"])
@pytest.mark.parametrize("elem_type", ["uint8", "uint16", "float64"])
def test_rle_and_rle_jit_write_the_same_bytes(elem_type: str, runs_type: str) -> None:
    options = {"elem_type": elem_type, "runs_type": runs_type}
    for frames in BLOCKS.values():
        assert make_codec("rle", options).encode(frames) == make_codec("rle-jit", options).encode(frames)


# ---- rle-jit and numba

WRITE_ALL = """
import json
from sb3_extra_buffers.codecs import make_codec
from tests.contracts import BLOCKS
small = {name: frames for name, frames in BLOCKS.items() if frames.nbytes < 30000}
print(json.dumps({name: make_codec("rle-jit").encode(frames).hex() for name, frames in small.items()}))
"""


@pytest.mark.skipif("rle-jit" not in NAMES, reason="needs numba")
def test_with_the_compiler_switched_off_rle_jit_writes_the_same_bytes() -> None:
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", WRITE_ALL], env=env, capture_output=True, text=True, check=True)
    for name, encoded in json.loads(done.stdout).items():
        assert make_codec("rle").encode(BLOCKS[name]).hex() == encoded, name


USE_RLE_JIT = """
import numpy as np
from sb3_extra_buffers.codecs import make_codec, rle_jit
assert rle_jit.__file__.startswith({folder!r}), rle_jit.__file__
codec, out = make_codec("rle-jit"), np.empty((1, 100), np.uint8)
codec.decode(codec.encode(np.full((1, 100), 7, np.uint8)), out)
print(out[0, :3].tolist())
"""


@pytest.mark.skipif("rle-jit" not in NAMES, reason="needs numba")
def test_an_upgrade_in_place_runs_the_new_kernels(tmp_path: Path) -> None:
    """As pip does it: files are replaced and their .pyc removed, but not what else is in __pycache__. Size and time may be the
    same as before."""
    package = Path(sb3_extra_buffers.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))

    def use() -> str:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "PYTHONDONTWRITE"))}
        code = USE_RLE_JIT.format(folder=str(tmp_path))
        env["PYTHONPATH"] = str(tmp_path)
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert use() == use() == "[7, 7, 7]"
    path = tmp_path / "sb3_extra_buffers/codecs/rle_jit.py"
    source, before = path.read_text(), path.stat()
    assert source.count("out[j] = values[i]\n") == 1
    path.write_text(source.replace("out[j] = values[i]\n", "out[j] = j + 3 + i\n"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    for compiled in tmp_path.rglob("__pycache__/*.pyc"):
        compiled.unlink()
    assert use() == "[3, 4, 5]"
    left = [one.name for one in tmp_path.rglob("*") if one.suffix in (".nbi", ".nbc")]
    assert left == []  # machine code that an upgrade could leave behind


@pytest.mark.parametrize(
    "options", [{"elem_type": "nonsense"}, {"runs_type": "int16"}, {"runs_type": "float32"}, {"elem_type": "complex128"}]
)
def test_rle_refuses_dtypes_it_cannot_use(options: dict[str, Any]) -> None:
    with pytest.raises(CodecError, match="must"):
        make_codec("rle", options)


# ---- bytes that old files hold: a change here needs a new format and a reader for the old one

FIXTURE = np.array([[5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5], [5, 5, 5, 9, 5, 5, 5, 5, 5, 5, 5, 5]] * 20, np.uint8)
WRITTEN: dict[str, str] = {
    "rle": (
        "019a14b80e290000800509050905090509050905090509050905090509050905090509050905090509050905090509050905"
        "0f01170117011701170117011701170117011701170117011701170117011701170117011701170108"
    ),
    "rle-jit": (
        "019a14b80e290000800509050905090509050905090509050905090509050905090509050905090509050905090509050905"
        "0f01170117011701170117011701170117011701170117011701170117011701170117011701170108"
    ),
    "delta": (
        "0192d06a4401010c0501c2000901c2000501c2000901c2000501c2000901c2000501c2000901c2000501c2000901c2000501"
        "c2000901c2000501c2000901c2000501c2000901c2000501c2000901c2000501c2000901c2000501c2000901c2000501c200"
        "0901c2000501c2000901c2000501c2000901c2000501c2000901c2000501c2000901c2000501c2000901c2000501c2000901"
        "c2000501c2000901c2000501c20009"
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_bytes_stay_as_they_are(name: str) -> None:
    assert make_codec(name).encode(FIXTURE).hex() == WRITTEN[name]


def many_frames() -> dict[str, np.ndarray]:
    """Frames without a random generator, whose numbers may change between versions of NumPy."""
    noise = (np.arange(24 * 1112, dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(11)).astype(np.uint8).reshape(24, 1112)
    still = np.repeat(noise[:1] // 64, 24, 0)
    for i in range(24):
        still[i, 40 * i : 40 * i + 7 * (i % 5)] = noise[i, : 7 * (i % 5)]  # something that moves
        still[i, 300 + i : 330 + 2 * i] = 9  # a bar that grows
    scenes = np.concatenate((still[:9], noise[:1] // 100, still[9:12], np.zeros((2, 1112), np.uint8), still[:1], noise[3:4]))
    sparse = np.where(noise > 250, noise, 0)
    return {"noise": noise, "still": still, "scenes": scenes, "odd": np.ascontiguousarray(still[:, :1003]), "sparse": sparse}


@pytest.mark.parametrize(
    ("name", "options", "digest"),
    [
        ("delta", {}, "6a79999604a5652e"),
        ("rle", {}, "fc089073eb1156e5"),
        ("rle", {"elem_type": "float32", "runs_type": "uint8"}, "29417d338a628ab0"),
        ("rle", {"elem_type": "int64", "runs_type": "uint16"}, "ace144686ccbe7f3"),
    ],
)  # fmt: skip
def test_the_bytes_of_many_blocks_stay_as_they_are(name: str, options: dict[str, Any], digest: str) -> None:
    codec, written = make_codec(name, options), hashlib.sha256()
    for frames in many_frames().values():
        written.update(check_round_trip(codec, frames))
        written.update(check_round_trip(codec, frames, frames[-1].copy()))
    assert written.hexdigest()[:16] == digest


# Compressors may improve between versions; what was written once must stay readable.
READABLE: dict[str, str] = {
    "rle": (  # lengths of two bytes
        "011208a000290000000509050905090509050905090509050905090509050905090509050905090509050905090509050905"
        "0f00010017000100170001001700010017000100170001001700010017000100170001001700010017000100170001001700"
        "0100170001001700010017000100170001001700010017000100170001000800"
    ),
    "gzip": "012142cb3b7801636545019c283c0467541c1216432e1c001b2709b1",
    "igzip": "01fd4bfae9785e6345059c486c647a547c888a03001b2709b1",
    "zstd": "01bdb7cb8b28b52ffd60e0007d000020050509050300b63b5500147c002c",
    "lz4-frame": "01f78c50cd04224d186840e0010000000000009b160000001a0501001a090f000502000f1800ffa250050505050500000000",
    "lz4-block": "01256b0dbce00100001a0501001a090f000502000f1800ffa2500505050505",
}


@pytest.mark.parametrize("name", READABLE)
def test_old_bytes_stay_readable(name: str) -> None:
    out = np.empty_like(FIXTURE)
    make_codec(name).decode(bytes.fromhex(READABLE[name]), out)
    assert out.tobytes() == FIXTURE.tobytes()


def test_raw_blocks_are_a_tag_a_checksum_and_the_frames() -> None:
    frames = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for name in NAMES:
        assert make_codec(name).encode(frames).hex() == "004acfeb30000102030405"


def test_every_codec_has_a_format_fixture() -> None:
    assert {*WRITTEN, *READABLE, "none"} == set(CODECS)  # none: see the raw blocks above


# ---- names, levels, options


@pytest.mark.parametrize(
    ("spec", "name", "level"),
    [
        ("igzip3", "igzip", 3),
        ("igzip/3", "igzip", 3),
        ("gzip0", "gzip", 0),
        ("zstd-5", "zstd", -5),
        ("zstd/-5", "zstd", -5),
        ("zstd22", "zstd", 22),
        ("lz4-frame/5", "lz4-frame", 5),
        ("lz4-frame/-3", "lz4-frame", -3),
        ("lz4-block/12", "lz4-block", 12),
    ],
)
def test_shorthand(spec: str, name: str, level: int) -> None:
    codec = make_codec(spec)
    assert (codec.name, codec.level) == (name, level)  # type: ignore[attr-defined]
    assert codec == make_codec(name, {"level": level})


@pytest.mark.parametrize(
    "spec", ["gzip10", "gzip-1", "igzip4", "zstd23", "zstd0", "zstd-101", "lz4-frame/17", "lz4-block/17", "lz4-frame/-99999"]
)
def test_a_level_out_of_range_is_refused(spec: str) -> None:
    with pytest.raises(CodecError, match=r"level must be in -?\d+\.\.\d+( or -\d+\.\.-\d+)?, got -?\d+"):
        make_codec(spec)


@pytest.mark.parametrize("level", [2.0, "3", True, None])
@pytest.mark.parametrize("name", list(LEVELS))
def test_a_level_that_is_no_integer_is_refused(name: str, level: Any) -> None:
    with pytest.raises(CodecError, match="level must be in"):
        make_codec(name, {"level": level})


@pytest.mark.parametrize(
    ("spec", "close"),
    [
        ("zsdt", "zstd"), ("gzipp", "gzip"), ("lz4-fram", "lz4-frame"), ("lz4-frame-5", "lz4-frame/-5"), ("rlejit", "rle-jit"),
        ("auto_small", "auto-small"), ("AUTO", "auto"), ("auto-small/3", "auto-small"),
    ],
)  # fmt: skip
def test_an_unknown_name_gets_a_suggestion(spec: str, close: str) -> None:
    with pytest.raises(
        CodecError, match=f"No codec named '{spec}'. Did you mean '{close}'\\? Installed: auto, auto-fast, auto-small, none,"
    ):
        make_codec(spec)


def test_a_level_of_none_changes_nothing() -> None:
    assert make_codec("none1") == make_codec("none", {"level": 7}) == make_codec("none")


@pytest.mark.parametrize("spec", ["rle3", "rle-old/1", "rle-jit/3", "delta/2"])
def test_a_level_for_a_codec_without_levels_is_refused(spec: str) -> None:
    with pytest.raises(CodecError, match="has no levels"):
        make_codec(spec)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_refused(name: str) -> None:
    with pytest.raises(CodecError, match=f"'{name}' has no option 'levle'"):
        make_codec(name, {"levle": 3})


def test_two_different_levels_are_refused() -> None:
    with pytest.raises(CodecError, match="says level 3"):
        make_codec("gzip3", {"level": 5})


@pytest.mark.parametrize("spec", [None, 3, b"zstd"])
def test_a_name_that_is_no_string_is_refused(spec: Any) -> None:
    with pytest.raises(CodecError, match="must be a codec's name"):
        make_codec(spec)


def test_the_callers_options_are_never_changed() -> None:
    for name, options in (("zstd19", {}), ("gzip", {"level": 3}), ("rle", {"elem_type": np.float32, "runs_type": np.uint8})):
        given = copy.deepcopy(options)
        make_codec(name, options, elem_type="uint8", level=1)
        assert options == given


# ---- missing backends


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no optional package were installed."""
    for module in ("numba", "isal", "isal.isal_zlib", "zstandard", "lz4", "lz4.frame", "lz4.block"):
        monkeypatch.setitem(sys.modules, module, None)
    real = _optional.installed
    missing = ("numba", "isal", "zstandard", "lz4")
    monkeypatch.setattr(registry, "installed", lambda module: module not in missing and real(module))


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("spec", "stand_in"), [("igzip", "gzip/1"), ("igzip0", "gzip/1"), ("igzip3", "gzip/3"), ("rle-jit", "rle")]
)
def test_a_stand_in_is_used_with_one_warning(spec: str, stand_in: str) -> None:
    with pytest.warns(FallbackWarning, match="pip install") as caught:
        codec = make_codec(spec)
    assert len(caught) == 1
    assert codec == make_codec(stand_in)
    assert caught[0].filename == __file__
    check_round_trip(codec, BLOCKS["game"])


def test_a_stand_in_is_used_for_a_backend_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba is there, and refuses to work with this NumPy, as it does for some months after each new one."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(registry, "installed", lambda module: True)
    with pytest.warns(FallbackWarning, match=r"cannot import numba \(.*\): pip install .* 'rle' stands in"):
        assert make_codec("rle-jit") == make_codec("rle")


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("level", [4, "3", -1])
def test_a_stand_in_has_the_levels_of_the_codec_it_stands_for(level: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        with pytest.raises(CodecError, match=r"igzip level must be in 0\.\.3"):
            make_codec("igzip", {"level": level})


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(("name", "extra"), [("zstd", "zstd"), ("lz4-frame", "lz4"), ("lz4-block", "lz4")])
def test_a_missing_backend_names_its_extra(name: str, extra: str) -> None:
    with pytest.raises(MissingBackendError, match=rf'pip install "sb3-extra-buffers\[{extra}\]"') as caught:
        make_codec(name)
    assert isinstance(caught.value, ImportError)


@pytest.mark.usefixtures("nothing_installed")
def test_only_installed_codecs_are_available() -> None:
    assert available_codecs() == ["none", "rle", "gzip", "delta"]
    with pytest.raises(CodecError, match=r"Installed: auto, auto-fast, auto-small, none, rle, gzip, delta\."):
        make_codec("nothing")


@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_a_codec_cannot_work_on_are_refused(name: str) -> None:
    """The core is given addresses: an array that lies otherwise in memory would be read or written past its end."""
    codec, frames = make_codec(name), moving_frames(4, 100)
    data = codec.encode(frames)
    read_only = frames.copy()
    read_only.flags.writeable = False
    for wrong in (frames.astype(np.int64), frames[:, ::2], frames.T, frames[0], frames.tobytes(), None):
        with pytest.raises(ValueError, match=r"frames must be a C-contiguous uint8 array \(frames, frame_bytes\), got"):
            codec.encode(wrong)
        with pytest.raises(ValueError, match=r"out must be a C-contiguous uint8 array \(frames, frame_bytes\), got"):
            codec.decode(data, wrong)
    with pytest.raises(ValueError, match="out must be writable"):
        codec.decode(data, read_only)
    assert codec.encode(read_only) == data
    for base in (frames[0, :-1], frames[0, ::2], frames[:1], frames[0].astype(np.int16)):
        with pytest.raises(ValueError, match=r"base must be a C-contiguous uint8 array \(100,\), got"):
            codec.encode(frames, base)
        with pytest.raises(ValueError, match=r"base must be a C-contiguous uint8 array \(100,\), got"):
            codec.decode(data, frames.copy(), base)


def test_a_header_that_is_none_is_refused() -> None:
    for data in (b"", b"\0", b"\7" * 30):
        check_refuses(make_codec("gzip"), data, BLOCKS["one-frame"])
