"""The C library on its own: its tests in C under sanitizers, the plain-C path, a short run of its fuzzers. See native.mk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "sb3_extra_buffers" / "native"
CORPUS = ROOT / "tests" / "native" / "corpus"
TARGETS = ["fuzz_delta", "fuzz_formats", "fuzz_runs", "fuzz_segment", "fuzz_store"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILER = os.environ.get("CC", "cc")

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the C tests need a POSIX system"),
    pytest.mark.skipif(shutil.which(COMPILER.split()[0]) is None, reason="no C compiler is installed"),
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
]


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    arguments = [str(part) for part in command]
    return subprocess.run(arguments, capture_output=True, text=True, errors="replace", check=False, cwd=cwd, timeout=600)


def succeed(*command: str | Path, cwd: Path = ROOT) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one of the processes that run tests builds at a time."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def has_sanitizers(tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Whether the compiler can link them: some come without their libraries."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text("int main(void) { return 0; }\n")
    return run(*COMPILER.split(), *SANITIZERS, "probe.c", "-o", "probe", cwd=folder).returncode == 0


@pytest.fixture(scope="module")
def programs(has_sanitizers: bool) -> Path:
    """The folder of all builds; what is up to date is not built again."""
    build = ROOT / "build" / ("native" if has_sanitizers else "native-without-sanitizers")
    names = ["asan/tests", "plain/tests", *(f"asan/{target}" for target in TARGETS)]
    options = [f"NATIVE_BUILD={build}", *([] if has_sanitizers else ["SANITIZERS="])]
    with locked(build / "lock"):
        succeed("make", "-s", "-j2", "-f", "native.mk", *options, *(str(build / name) for name in names))
    return build


@pytest.mark.parametrize(("variant", "rounds"), [("asan", 1), ("plain", 1)])
def test_stores_equal_plain_arrays(programs: Path, variant: str, rounds: int) -> None:
    printed = succeed(programs / variant / "tests", "-r", str(rounds))
    assert printed.count("ok") >= 10


def test_plain_c_encodes_the_same_bytes(programs: Path) -> None:
    plain, vectors = (succeed(programs / variant / "tests", "checksum") for variant in ("plain", "asan"))
    assert len(plain.strip()) == 16
    assert plain == vectors


@pytest.mark.parametrize("target", TARGETS)
def test_decoders_survive_damaged_bytes(programs: Path, target: str, tmp_path: Path) -> None:
    printed = succeed(programs / "asan" / target, "-s", "1.5", CORPUS / target, cwd=tmp_path)
    assert f"{len(list((CORPUS / target).iterdir()))} inputs replayed" in printed


def test_the_corpus_is_small() -> None:
    files = [path for target in TARGETS for path in (CORPUS / target).iterdir()]
    assert sum(path.stat().st_size for path in files) < 200_000
    assert len(files) < 1000
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


@pytest.mark.parametrize("compiler", ["cc", "clang"])
@pytest.mark.parametrize("flags", [["-O2"], ["-O3", "-DSB3X_PLAIN_C"]])
def test_no_warnings(compiler: str, flags: list[str], tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    for source in sorted(SOURCES.glob("*.c")):
        strict = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Wvla", "-Werror", "-pthread", *flags]
        succeed(compiler, *strict, "-c", source, "-o", tmp_path / "object.o")


@pytest.mark.parametrize(
    ("target", "missing", "advice"),
    [("fuzz", "CLANG=no-such-clang", "apt-get install clang"), ("qemu", "QEMU=", "apt-get install qemu-user")],
)
def test_missing_tools_are_named(target: str, missing: str, advice: str) -> None:
    done = run("make", "-s", "-f", "native.mk", target, missing)
    assert done.returncode != 0
    assert advice in done.stdout
