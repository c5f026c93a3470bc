"""Every installed codec keeps the contract; names, levels and options are checked at construction."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from sb3_extra_buffers import _optional
from sb3_extra_buffers.codecs import CODECS, auto_codec, available_codecs, make_codec, registry
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
LEVELS = {"gzip": [0, 6, 9], "igzip": [0, 3], "zstd": [-100, -5, 1, 19], "lz4-frame": [-5, 5, 16], "lz4-block": [-5, 1, 12]}
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


@pytest.mark.skipif("rle-jit" not in NAMES, reason="needs numba")
@pytest.mark.parametrize("runs_type", ["uint8", "uint16", "uint64"])
@pytest.mark.parametrize("elem_type", ["uint8", "uint16", "float64"])
def test_rle_and_rle_jit_write_the_same_bytes(elem_type: str, runs_type: str) -> None:
    options = {"elem_type": elem_type, "runs_type": runs_type}
    for frames in BLOCKS.values():
        assert make_codec("rle", options).encode(frames) == make_codec("rle-jit", options).encode(frames)


WRITE_ALL = """
import json, numpy as np
from sb3_extra_buffers.codecs import kernels, make_codec
from tests.contracts import BLOCKS
out = {f"{spec} {name}": make_codec(spec).encode(frames).hex()
       for spec in ("delta", "rle-jit") for name, frames in BLOCKS.items() if frames.nbytes < 30000}
print(json.dumps({"compiled": kernels.COMPILED, "blocks": out}))
"""


@pytest.mark.skipif("rle-jit" not in NAMES, reason="needs numba")
def test_compiled_and_plain_kernels_write_the_same_bytes() -> None:
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", WRITE_ALL], env=env, capture_output=True, text=True, check=True)
    plain = json.loads(done.stdout)
    assert plain["compiled"] is False
    for key, encoded in plain["blocks"].items():
        spec, _, name = key.partition(" ")
        assert make_codec(spec).encode(BLOCKS[name]).hex() == encoded, key
        out = np.empty_like(BLOCKS[name])
        make_codec(spec).decode(bytes.fromhex(encoded), out)
        assert out.tobytes() == BLOCKS[name].tobytes()


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
        "011208a000290000000509050905090509050905090509050905090509050905090509050905090509050905090509050905"
        "0f00010017000100170001001700010017000100170001001700010017000100170001001700010017000100170001001700"
        "0100170001001700010017000100170001001700010017000100170001000800"
    ),
    "rle-jit": (
        "011208a000290000000509050905090509050905090509050905090509050905090509050905090509050905090509050905"
        "0f00010017000100170001001700010017000100170001001700010017000100170001001700010017000100170001001700"
        "0100170001001700010017000100170001001700010017000100170001000800"
    ),
    "delta": (
        "0143e766e4190005000203090002030500020309000203050002030900020305000203090002030500020309000203050002"
        "0309000203050002030900020305000203090002030500020309000203050002030900020305000203090002030500020309"
        "0002030500020309000203050002030900020305000203090002030500020309000203050002030900020305000203090002"
        "030500020309000203050002030900"
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_bytes_stay_as_they_are(name: str) -> None:
    assert make_codec(name).encode(FIXTURE).hex() == WRITTEN[name]


# Compressors may improve between versions; what was written once must stay readable.
READABLE: dict[str, str] = {
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
    "spec", ["gzip10", "gzip-1", "igzip4", "zstd23", "zstd0", "zstd-101", "lz4-frame/17", "lz4-block/13", "lz4-frame/-99999"]
)
def test_a_level_out_of_range_is_refused(spec: str) -> None:
    with pytest.raises(CodecError, match=r"level must be in -?\d+\.\.\d+, got -?\d+"):
        make_codec(spec)


@pytest.mark.parametrize("level", [2.0, "3", True, None])
@pytest.mark.parametrize("name", list(LEVELS))
def test_a_level_that_is_no_integer_is_refused(name: str, level: Any) -> None:
    with pytest.raises(CodecError, match="level must be in"):
        make_codec(name, {"level": level})


@pytest.mark.parametrize(
    ("spec", "close"),
    [("zsdt", "zstd"), ("gzipp", "gzip"), ("lz4-fram", "lz4-frame"), ("lz4-frame-5", "lz4-frame"), ("rlejit", "rle-jit")],
)
def test_an_unknown_name_gets_a_suggestion(spec: str, close: str) -> None:
    with pytest.raises(CodecError, match=f"No codec named '{spec}'. Did you mean '{close}'\\? Installed: auto, none,"):
        make_codec(spec)


@pytest.mark.parametrize("spec", ["none1", "rle3", "rle-jit/3", "delta/2"])
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
    with pytest.raises(CodecError, match=r"Installed: auto, none, rle, gzip, delta\."):
        make_codec("nothing")


def test_auto_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    have = {"numba", "zstandard", "isal"}
    monkeypatch.setattr(registry, "installed", lambda module: module in have)
    assert auto_codec((17,), np.float32) == "none"
    assert auto_codec((255,), np.uint8) == "none"
    assert [auto_codec((1, 84, 84), dtype) for dtype in (np.uint8, np.int64, np.bool_)] == ["delta"] * 3
    assert auto_codec((84, 84), np.float32) == "zstd"
    have.remove("numba")
    assert auto_codec((1, 84, 84), np.uint8) == "zstd"
    have.remove("zstandard")
    assert auto_codec((1, 84, 84), np.uint8) == auto_codec((84, 84), np.float64) == "igzip"
    have.remove("isal")
    assert auto_codec((1, 84, 84), np.uint8) == "gzip"


def test_a_header_that_is_none_is_refused() -> None:
    for data in (b"", b"\0", b"\7" * 30):
        check_refuses(make_codec("gzip"), data, BLOCKS["one-frame"])
