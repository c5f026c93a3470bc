"""Others' codecs: what `register_codec` takes, what it refuses, and that a registered codec works wherever a name is taken."""

from __future__ import annotations

import ast
import copy
import lzma
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_extra_buffers.cli import main
from sb3_extra_buffers.cli.measuring import candidates
from sb3_extra_buffers.codecs import (
    CODECS,
    Codec,
    Frames,
    available_codecs,
    builtin,
    make_codec,
    register_codec,
    registry,
)
from sb3_extra_buffers.codecs.base import Bytes, Readable, fill
from sb3_extra_buffers.codecs.plain import Gzip
from sb3_extra_buffers.compressed import (
    CompressedArray,
    CompressedDictReplayBuffer,
    CompressedReplayBuffer,
    find_buffer_dtypes,
)
from sb3_extra_buffers.errors import CodecError, CorruptDataError, FallbackWarning, MissingBackendError
from sb3_extra_buffers.recording import RecordBuffer
from sb3_extra_buffers.store import BlockStore, FrameLayout
from sb3_extra_buffers.store.host.coding import Coding
from tests.contracts import (
    BLOCKS,
    check_damage,
    check_is_a_value,
    check_prefix,
    check_round_trip,
    check_threads,
    check_unverified_damage,
)
from tests.oracle import IMAGE, add_to_replay, assert_same_samples
from tests.test_snippets import blocks
from tests.transitions import play

ACTIONS = spaces.Discrete(3)
DOCS = Path(__file__).parents[1] / "docs" / "choosing_a_codec.md"
HEADER = Path(registry.__file__).parents[1] / "native" / "sb3x.h"


@dataclass(frozen=True)
class Mine(Codec):
    """A codec as others may write one."""

    name: ClassVar[str] = "mine"
    levels: ClassVar[tuple[int, int] | None] = (0, 9)
    level: int = 1

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable:
        return lzma.compress(frames, preset=self.level)

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        try:
            fill(out, lzma.LZMADecompressor().decompress(payload, out.nbytes), self.name)
        except lzma.LZMAError as error:
            raise CorruptDataError(f"mine: {error}") from error


def codec_class(class_name: str = "Other", parent: type[Codec] = Mine, **attributes: Any) -> type[Codec]:
    """A class with other attributes, made a dataclass."""
    annotations = dict.fromkeys(attributes, ClassVar[Any])
    made: type[Codec] = dataclass(frozen=True)(type(class_name, (parent,), {"__annotations__": annotations, **attributes}))
    return made


@pytest.fixture
def mine() -> None:
    register_codec("mine", Mine)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write a module `their_codecs` that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str) -> None:
        (tmp_path / "their_codecs.py").write_text(source)

    yield write
    sys.modules.pop("their_codecs", None)


THEIRS = """
from tests.test_registry import Mine, dataclass, ClassVar

@dataclass(frozen=True)
class Theirs(Mine):
    name: ClassVar[str] = "theirs"
"""

# ---- a registered codec keeps the contract, and works wherever a name is taken


@pytest.mark.usefixtures("mine")
def test_a_registered_codec_keeps_the_contract() -> None:
    for spec in ("mine", "mine0", "mine/9"):
        codec = make_codec(spec)
        assert make_codec(codec.spec) == codec
        check_is_a_value(codec)
    codec = make_codec("mine")
    for frames in BLOCKS.values():
        check_round_trip(codec, frames)
        check_prefix(codec, frames)
    check_damage(codec, BLOCKS["odd-sizes"])
    check_unverified_damage(codec, BLOCKS["odd-sizes"])
    check_threads(codec)


@dataclass(frozen=True)
class Inverted(Gzip):
    """A codec of the library, with something of its own before and after it."""

    name: ClassVar[str] = "inverted"

    def compress(self, frames: Bytes, base: Bytes | None) -> Readable:
        return super().compress(~frames, base)

    def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
        super().decompress(payload, out, base)
        np.invert(out, out)


@pytest.mark.parametrize(
    ("codec", "is_read_by_core"),
    [(Gzip(), True), (Inverted(), False), (codec_class(parent=Gzip)(), True)],
)
def test_buffers_decode_by_what_a_subclass_has_overridden(codec: Codec, is_read_by_core: bool) -> None:
    store = BlockStore(FrameLayout((60, 60), np.dtype(np.uint8)), 32, codec, block_frames=8)
    frames = np.arange(32, dtype=np.uint8)[:, None, None] + np.zeros((60, 60), np.uint8)
    store.write(0, np.arange(32), frames)
    assert np.array_equal(store.read(0, np.arange(32)), frames)
    assert Coding(codec).is_decoded_here != is_read_by_core


def test_the_codec_that_the_docs_show_keeps_the_contract() -> None:
    [code] = [block.code for block in blocks(DOCS.read_text()) if "class Lzma(Codec)" in block.code]
    exec(compile(code, str(DOCS), "exec", dont_inherit=True), {"__name__": "docs", "np": np, "spaces": spaces})
    for frames in BLOCKS.values():
        check_round_trip(make_codec("lzma0"), frames)
        check_prefix(make_codec("lzma0"), frames)
    check_damage(make_codec("lzma"), BLOCKS["odd-sizes"])
    check_unverified_damage(make_codec("lzma"), BLOCKS["odd-sizes"])


@pytest.mark.usefixtures("mine")
def test_shorthand_levels_and_options_are_checked_as_for_any_codec() -> None:
    assert make_codec("mine3") == make_codec("mine/3") == make_codec("mine", {"level": 3}) == Mine(3)
    with pytest.raises(CodecError, match=r"mine level must be in 0\.\.9, got 10"):
        make_codec("mine10")
    with pytest.raises(CodecError, match=r"'mine' has no option 'speed'\. Its options: level"):
        make_codec("mine", {"speed": 1})
    with pytest.raises(CodecError, match=r"No codec named 'mien'\. Did you mean 'mine'\?"):
        make_codec("mien")


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("lz4-frame5", "'lz4-frame/5'"),
        ("lz4-frame-5", "'lz4-frame/-5'"),
        ("lz4_frame/5", "'lz4-frame/5'"),
        ("lz4frame", "'lz4-frame'"),
        ("lz4", "'lz4-frame' or 'lz4-block'"),
        ("zsdt3", "'zstd3'"),
        ("ZSTD3", "'zstd3'"),
        ("zstd 3", "'zstd3'"),
        ("zstd:3", "'zstd3'"),
        ("zst", "'zstd'"),
        ("rle_jit3", "'rle-jit'"),  # which has no levels
        ("Auto", "'auto'"),
        ("auto-smal", "'auto-small'"),
        ("auto3", "'auto'"),
    ],
)
def test_a_misspelled_codec_is_answered_with_the_right_spelling(spec: str, meant: str) -> None:
    with pytest.raises(CodecError, match=rf"No codec named '{spec}'\. Did you mean {meant}\?"):
        make_codec(spec)


@pytest.mark.parametrize("spec", ["", "-", "///", "5", "blosc", "snappy9"])
def test_nothing_is_suggested_for_what_resembles_nothing(spec: str) -> None:
    with pytest.raises(CodecError, match=rf"No codec named '{spec}'\. Installed: auto"):
        make_codec(spec)


@pytest.mark.usefixtures("mine")
def test_buffers_take_a_registered_codec() -> None:
    args = (40, IMAGE, ACTIONS, "cpu", 2)
    ours, theirs = CompressedReplayBuffer(*args, compression_method="mine3", block_frames=8), ReplayBuffer(*args)
    for step in play(IMAGE, ACTIONS, 2, 50):
        add_to_replay([ours, theirs], step)
    assert_same_samples(ours, theirs)
    assert_same_samples(pickle.loads(pickle.dumps(ours)), theirs)
    assert_same_samples(copy.deepcopy(ours), theirs)


@pytest.mark.usefixtures("mine")
def test_a_key_may_have_a_registered_codec() -> None:
    space = spaces.Dict({"camera": IMAGE, "joints": spaces.Box(-1, 1, (5,), np.float32)})
    args = (30, space, ACTIONS, "cpu", 2)
    ours = CompressedDictReplayBuffer(
        *args, compression_method={"camera": "mine"}, compression_kwargs={"camera": {"level": 4}}, block_frames=8
    )
    theirs = DictReplayBuffer(*args)
    for step in play(space, ACTIONS, 2, 30):
        add_to_replay([ours, theirs], step)
    assert_same_samples(ours, theirs)
    assert ours.observations["camera"].leaf.method == Mine(4).spec == "mine/4"


@pytest.mark.usefixtures("mine")
def test_arrays_and_records_take_a_registered_codec() -> None:
    array = CompressedArray((4,), np.uint8, (30, 30), compression_method="mine")
    array[...] = 7
    assert np.array_equal(np.asarray(pickle.loads(pickle.dumps(array))), np.full((4, 30, 30), 7))
    record = RecordBuffer((8, 8), 1, 10, compression_method="mine0")
    frame = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    record.add(frame, 0.0, 0)
    assert np.array_equal(record[0].frame, frame.transpose(2, 0, 1))
    assert find_buffer_dtypes((4, 84, 84), np.uint8, "mine3") == {"elem_type": np.uint8, "runs_type": np.uint16}


@pytest.mark.usefixtures("mine")
def test_a_registered_codec_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert available_codecs()[-1] == candidates()[-1] == "mine"
    assert main(["info"]) == 0
    [line] = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("mine")]
    assert line == ["mine", "0..9", "installed"]


def test_nothing_is_left_of_a_test_that_registered() -> None:
    assert "mine" not in CODECS


# ---- preparing


def test_a_codec_that_compiles_is_prepared_ahead() -> None:
    prepared: list[Codec] = []
    register_codec("ready", codec_class(name="ready", prepare=lambda codec: prepared.append(codec)))
    find_buffer_dtypes((4, 84, 84), np.uint8, "ready5")
    assert prepared == [make_codec("ready5")]


# ---- how the native core keeps blocks


def test_frames_are_numbered_as_in_the_header_of_the_core() -> None:
    for kind in Frames:
        assert f"SB3X_FRAMES_{kind.name} = {kind.value}," in HEADER.read_text()


def test_every_codec_says_how_its_blocks_are_kept() -> None:
    kinds = {name: entry.load().frames for name, entry in CODECS.items()}
    assert {kinds.pop("none"), kinds.pop("delta")} == {Frames.RAW, Frames.DELTA}
    assert set(kinds.values()) == {Frames.CODEC}
    assert Mine.frames is Frames.CODEC


# ---- lazy codecs and backends


def test_a_lazy_codec_is_imported_when_it_is_used(package: Callable[[str], None]) -> None:
    package(THEIRS)
    register_codec("theirs", "their_codecs:Theirs")
    assert "theirs" in available_codecs()
    assert "their_codecs" not in sys.modules
    codec = make_codec("theirs3")
    assert type(codec) is sys.modules["their_codecs"].Theirs
    check_round_trip(codec, BLOCKS["game"])
    check_is_a_value(codec)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("Theirs = 3", CodecError, r"'theirs' must be a subclass of sb3_extra_buffers\.codecs\.Codec, got 3"),
        ("", CodecError, "'theirs' is registered as 'their_codecs:Theirs', but their_codecs has no 'Theirs'"),
        (f"{THEIRS}\nTheirs.name = 'x'", CodecError, "set `name: ClassVar"),
        ("import their_own_backend", MissingBackendError, r"cannot import their_codecs \(No module named 'their_own_"),
        ("1 / 0", ZeroDivisionError, "division"),
    ],
)
def test_a_lazy_codec_is_checked_when_it_is_used(
    package: Callable[[str], None], source: str, error: type[Exception], message: str
) -> None:
    package(source)
    register_codec("theirs", "their_codecs:Theirs")
    with pytest.raises(error, match=message):
        make_codec("theirs")


def test_a_lazy_codec_needs_its_own_module(capsys: pytest.CaptureFixture[str]) -> None:
    register_codec("theirs", "no_such_package.codecs:Theirs", install="no-such-package[fast]")
    assert "theirs" not in available_codecs()
    with pytest.raises(MissingBackendError, match=r'needs the no_such_package package: pip install "no-such-package\[fast\]"'):
        make_codec("theirs")
    assert main(["info"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("theirs")]
    assert line.split(maxsplit=2) == ["theirs", "missing", 'pip install "no-such-package[fast]"']


def test_a_missing_backend_is_named_with_what_installs_it() -> None:
    register_codec("mine", Mine, backend="no_such_backend.sub", install="their-package")
    assert "mine" not in available_codecs()
    with pytest.raises(
        MissingBackendError, match="Codec 'mine' needs the no_such_backend package: pip install \"their-package\""
    ):
        make_codec("mine")
    register_codec("mine", Mine, backend="no_such_backend", replace=True)
    with pytest.raises(MissingBackendError, match=r"^Codec 'mine' needs the no_such_backend package$"):
        make_codec("mine")


def test_a_backend_that_is_installed_but_broken_is_missing(package: Callable[[str], None]) -> None:
    package("raise ImportError('needs another NumPy')")
    register_codec("mine", Mine, backend="their_codecs", install="their-codecs")
    with pytest.raises(MissingBackendError, match=r"cannot import their_codecs \(needs another NumPy\): pip install"):
        make_codec("mine")


@pytest.mark.parametrize(
    ("spec", "used"), [("mine", "gzip/1"), ("mine0", "gzip/1"), ("mine9", "gzip/9"), ("mine12", "gzip/9")]
)
def test_a_stand_in_takes_over_with_a_level_that_it_has(spec: str, used: str) -> None:
    register_codec("mine", codec_class(name="mine", levels=(0, 20)), backend="no_such_backend", stand_in="gzip")
    with pytest.warns(
        FallbackWarning, match="'mine' needs the no_such_backend package. Until then 'gzip' stands in"
    ) as caught:
        codec = make_codec(spec)
    assert codec == make_codec(used)
    assert caught[0].filename == __file__


def test_a_stand_in_takes_over_for_a_module_that_cannot_be_imported(package: Callable[[str], None]) -> None:
    package("import no_such_backend")
    register_codec("theirs", "their_codecs:Theirs", backend="no_such_backend", stand_in="zstd")
    with pytest.warns(FallbackWarning, match="'theirs' needs the no_such_backend package"):
        assert make_codec("theirs-5") == make_codec("zstd-5")
    with pytest.raises(CodecError, match="'theirs' has no option 'speed'"):
        make_codec("theirs", {"speed": 3})


# ---- what is refused


@pytest.mark.parametrize("name", ["", "3x", "a b", "a/b", "-a", "zstd/3", "naïve", "a.b", None, 3, b"mine"])
def test_a_name_that_cannot_be_followed_by_a_level_is_refused(name: Any) -> None:
    with pytest.raises(CodecError, match="must be letters, digits, '-' and '_', beginning with a letter, got"):
        register_codec(name, Mine)


@pytest.mark.parametrize(("name", "read_as", "level"), [("mine3", "mine", 3), ("zstd-5", "zstd", -5), ("lz4", "lz", 4)])
def test_a_name_that_reads_as_a_level_is_refused(name: str, read_as: str, level: int) -> None:
    with pytest.raises(CodecError, match=f"cannot be named '{name}': that is codec '{read_as}' with level {level}"):
        register_codec(name, Mine)


def test_the_name_auto_is_refused() -> None:
    with pytest.raises(CodecError, match="'auto'"):
        register_codec("auto", codec_class(name="auto"))


def test_every_name_that_is_taken_can_be_followed_by_a_level() -> None:
    for name in ("m", "M", "mine", "mine-two", "mine_2", "m1ne", "lz4-mine"):
        register_codec(name, codec_class(name=name))
        assert make_codec(name).spec == f"{name}/1"
        assert make_codec(f"{name}/5").spec == f"{name}/5"


@pytest.mark.usefixtures("mine")
def test_a_taken_name_is_refused_unless_it_is_to_be_replaced() -> None:
    other = codec_class(name="mine")
    for name in ("mine", "zstd"):
        with pytest.raises(CodecError, match=f"'{name}' is registered already. Take another name, or pass replace=True"):
            register_codec(name, other)
    assert type(make_codec("mine")) is Mine
    register_codec("mine", other, replace=True)
    assert type(make_codec("mine")) is other


class NoDecompress(Codec):
    name = "mine"

    def compress(self, frames: Bytes, base: Bytes | None) -> None:
        return None


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        (int, "must be a subclass of"),
        (None, "must be a subclass of"),
        (Mine(), "must be a subclass of"),
        ("Mine", "'module:Class'"),
        ("a module:Mine", "'module:Class'"),
        (Codec, "does not define compress and decompress"),
        (NoDecompress, "class NoDecompress does not define decompress"),
        (codec_class(name="other"), "class Other must have the name it is registered under: set `name: .* = 'mine'`"),
        (codec_class(levels=None), "must have both `levels`"),
    ],
)
def test_a_class_that_is_no_codec_is_refused(codec: Any, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        register_codec("mine", codec)
    assert "mine" not in CODECS


def test_levels_without_a_field_and_options_without_a_default_are_refused() -> None:
    with pytest.raises(CodecError, match="must have both `levels`"):
        register_codec("bare", codec_class(parent=NoDecompress, name="bare", levels=(1, 2), decompress=lambda *args: None))

    @dataclass(frozen=True)
    class Needy(NoDecompress):
        strength: int
        name: ClassVar[str] = "needy"

        def decompress(self, payload: memoryview, out: Bytes, base: Bytes | None) -> None:
            """Never called."""

    with pytest.raises(CodecError, match=r"class .*Needy must have a default for its option 'strength'"):
        register_codec("needy", Needy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stand_in": "nothing"}, "stand_in must be another registered codec, got 'nothing'. Registered: none, rle"),
        ({"stand_in": "mine"}, "stand_in must be another registered codec"),
        ({"backend": ""}, "backend must be a non-empty string or None, got ''"),
        ({"install": 3}, "install must be a non-empty string or None, got 3"),
    ],
)
def test_other_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CodecError, match=message):
        register_codec("mine", Mine, **options)
    assert "mine" not in CODECS


def test_the_table_is_changed_by_registering_only() -> None:
    with pytest.raises(TypeError):
        CODECS["mine"] = CODECS["zstd"]  # type: ignore[index]


# ---- pickling


@pytest.mark.usefixtures("mine")
def test_a_pickled_codec_is_a_name_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(Mine(7))
    assert b"test_registry" not in data
    assert pickle.loads(data) == Mine(7)
    monkeypatch.delitem(registry._entries, "mine")
    with pytest.raises(CodecError, match=r"written by codec 'mine', .* Call register_codec\('mine', \.\.\.\) before"):
        pickle.loads(data)


def test_a_codec_that_is_not_registered_is_pickled_as_its_class() -> None:
    assert pickle.loads(pickle.dumps(Mine(7))) == copy.deepcopy(Mine(7)) == Mine(7)
    register_codec("mine", codec_class(name="mine"))
    assert type(copy.deepcopy(Mine(7))) is Mine


def test_a_pickled_codec_is_its_stand_in_where_the_backend_is_missing() -> None:
    register_codec("mine", Mine, stand_in="gzip")
    data = pickle.dumps(Mine(7))
    register_codec("mine", Mine, backend="no_such_backend", stand_in="gzip", replace=True)
    with pytest.warns(FallbackWarning, match="'gzip' stands in"):
        assert pickle.loads(data) == make_codec("gzip7")


DEFINE = """
import pickle, sys, zlib
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from gymnasium import spaces
from sb3_extra_buffers.codecs import Codec, register_codec
from sb3_extra_buffers.codecs.base import fill
from sb3_extra_buffers.compressed import CompressedReplayBuffer

if "register" in sys.argv:
    @dataclass(frozen=True)
    class Script(Codec):
        name: ClassVar[str] = "script"
        def compress(self, frames, base):
            return zlib.compress(frames)
        def decompress(self, payload, out, base):
            fill(out, zlib.decompress(payload), self.name)
    register_codec("script", Script)

obs = np.arange(50 * 300).reshape(50, 1, 300).astype(np.uint8)
if "save" in sys.argv:
    buffer = CompressedReplayBuffer(49, spaces.Box(0, 255, (300,), np.uint8), spaces.Discrete(2), "cpu",
                                    compression_method="script")
    for t in range(49):
        buffer.add(obs[t], obs[t + 1], np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    pickle.dump(buffer, open(sys.argv[1], "wb"))
else:
    buffer = pickle.load(open(sys.argv[1], "rb"))
    assert np.array_equal(np.asarray(buffer.observations), obs[:49])
"""


@pytest.mark.long
def test_another_process_reads_what_was_saved_once_the_codec_is_registered_there(tmp_path: Path) -> None:
    """The class is one of a script: only its name is in the file."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        path = str(tmp_path / "buffer.pkl")
        return subprocess.run([sys.executable, "-c", DEFINE, path, *words], capture_output=True, text=True)

    for done in (run("register", "save"), run("register", "load")):
        assert done.returncode == 0, done.stderr
    refused = run("load")
    assert refused.returncode == 1
    assert "Call register_codec('script', ...) before you load it" in refused.stderr


def test_the_codecs_of_this_library_are_registered_by_the_same_function() -> None:
    source = Path(builtin.__file__).read_text()
    for name, entry in CODECS.items():
        assert f'"{name}",' in source
        assert entry.load().name == name


def test_nothing_depends_on_the_name_of_a_codec() -> None:
    """But on what it declares, so that others' codecs can do all that ours can. Names are for making, saving and messages."""
    package = Path(registry.__file__).parents[1]
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            looked_up = node.args[:1] if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".get") else []
            decided_by = [node.left, *node.comparators] if isinstance(node, ast.Compare) else looked_up
            for part in decided_by:
                assert not re.fullmatch(r"(\w+\.)*_?codec\.(name|spec)", ast.unparse(part)), f"{path}:{part.lineno}"
