"""Compiling and loading the library: with every compiler, for every platform, and what is said if it does not work."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pickle
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from sb3_extra_buffers.errors import NativeLibraryError, SB3ExtraBuffersError
from sb3_extra_buffers.native import library

ROOT = Path(__file__).parent.parent
SUPPORT = ROOT / "build_support"

needs_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed: make wheels")
needs_elf = pytest.mark.skipif(sys.platform != "linux", reason="changes the header of an ELF file")


def load_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SUPPORT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiling = load_module("compile")


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a changed environment, in which no variable of ours or of compilers is set."""
    removed = ("CC", "CFLAGS", "LDFLAGS", "SB3_EXTRA_BUFFERS_PLATFORM")
    clean = {key: value for key, value in os.environ.items() if key not in removed}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=clean | env)


def compile_to(output: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run(str(SUPPORT / "compile.py"), str(output), **env)


def version_of(path: Path) -> int:
    return ctypes.CDLL(str(path)).sb3x_version()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what a build reads."""
    folder = tmp_path / "project"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "libsb3x.*")
    for name in ("src", "build_support"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder / name)
    return folder


class TestCompiling:
    def test_a_build_makes_a_library_of_our_version_and_nothing_else(self, tmp_path: Path) -> None:
        output = tmp_path / "new" / compiling.library_name()
        done = compile_to(output, CFLAGS="-Werror -O1")
        assert done.returncode == 0, done.stderr
        assert version_of(output) == library.VERSION
        assert list(output.parent.iterdir()) == [output]

    def test_a_failed_build_says_so_and_leaves_the_old_library(self, tmp_path: Path) -> None:
        output = tmp_path / "libsb3x.so"
        output.write_text("old")
        done = compile_to(output, CFLAGS="-include no_such_header.h")
        assert done.returncode == 1
        assert "The C compiler failed, see above" in done.stderr
        assert "Traceback" not in done.stderr
        assert output.read_text() == "old"
        assert list(tmp_path.iterdir()) == [output]

    def test_a_compiler_in_cc_is_used(self, tmp_path: Path) -> None:
        fake = tmp_path / "fake-cc"
        fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\nexec {shutil.which("cc")} "$@"\n')
        fake.chmod(0o755)
        assert compile_to(tmp_path / "lib.so", CC=f"{fake} -DFAKE=1", CFLAGS="-O0").returncode == 0
        last = (tmp_path / "log").read_text().splitlines()[-1]
        assert last.startswith("-DFAKE=1 -std=c11 -O3")
        assert "-O0" in last
        assert "-march" not in last
        assert "-Werror" not in last

    def test_a_compiler_in_cc_that_does_not_work_is_refused(self, tmp_path: Path) -> None:
        for broken in ("no-such-compiler", f"{sys.executable} -c 1"):
            done = compile_to(tmp_path / "lib.so", CC=broken)
            assert done.returncode == 1
            assert f"environment variable CC, {broken!r}, does not work" in done.stderr

    @pytest.mark.skipif(importlib.util.find_spec("ziglang") is not None, reason="ziglang is installed")
    def test_without_any_compiler_the_error_says_what_to_install(self, tmp_path: Path) -> None:
        done = compile_to(tmp_path / "lib.so", PATH=str(tmp_path))
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert "No C compiler works here" in done.stderr
        assert "pip install 'ziglang>=" in done.stderr

    def test_an_unknown_platform_is_refused(self, tmp_path: Path) -> None:
        done = compile_to(tmp_path / "lib.so", SB3_EXTRA_BUFFERS_PLATFORM="solaris")
        assert done.returncode == 1
        assert "'solaris'" in done.stderr
        assert "manylinux_2_17_aarch64" in done.stderr

    def test_compiler_without_headers_does_not_count(self, tmp_path: Path) -> None:
        for name in ("cc", "gcc", "clang"):
            (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
            (tmp_path / name).chmod(0o755)
        script = f"import sys; sys.path.insert(0, {str(SUPPORT)!r}); import compile; print(compile.find_compiler())"
        assert run("-c", script, PATH=f"{tmp_path}{os.pathsep}/usr/bin").stdout.strip() == "None"


class TestBackend:
    def requirements(self, project: Path, hook: str, **env: str) -> list[str]:
        """What a hook of the backend asks for, called as pip calls it."""
        script = (
            "import pyproject_hooks, sys\n"
            f"caller = pyproject_hooks.BuildBackendHookCaller({str(project)!r}, 'backend', ['build_support'])\n"
            f"print('asks for', caller.{hook}())\n"
        )
        done = run("-c", script, **env)
        assert done.returncode == 0, done.stderr
        line = next(line for line in done.stdout.splitlines() if line.startswith("asks for"))
        return [name for name in (compiling.ZIG_REQUIREMENT,) if name in line]

    @pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"])
    def test_zig_is_asked_for_only_where_there_is_no_compiler(self, project: Path, tmp_path: Path, hook: str) -> None:
        assert self.requirements(project, hook) == []
        assert self.requirements(project, hook, PATH=str(tmp_path)) == ["ziglang>=0.13"]

    def test_an_sdist_needs_no_compiler(self, project: Path, tmp_path: Path) -> None:
        assert self.requirements(project, "get_requires_for_build_sdist", PATH=str(tmp_path)) == []

    def test_an_editable_install_puts_the_library_next_to_its_sources(self, project: Path, tmp_path: Path) -> None:
        script = (
            "import pyproject_hooks\n"
            f"caller = pyproject_hooks.BuildBackendHookCaller({str(project)!r}, 'backend', ['build_support'])\n"
            f"print(caller.build_editable({str(tmp_path)!r}))\n"
        )
        done = run("-c", script)
        assert done.returncode == 0, done.stderr
        native = project / "src" / "sb3_extra_buffers" / "native"
        assert version_of(native / compiling.library_name()) == library.VERSION
        assert "-py3-none-" in done.stdout.splitlines()[-1]


@needs_zig
class TestZig:
    def test_zig_compiles_where_there_is_no_compiler(self, tmp_path: Path) -> None:
        output = tmp_path / compiling.library_name()
        done = compile_to(output, PATH=str(tmp_path), CFLAGS="-Werror")
        assert done.returncode == 0, done.stderr
        assert version_of(output) == library.VERSION

    # Linking for Windows makes zig compile a C library first, which takes minutes. `make wheels` does that.
    @pytest.mark.parametrize("target", [target for target in compiling.ZIG_TARGETS if target != "win_amd64"])
    def test_zig_compiles_for_other_platforms(self, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        output = tmp_path / compiling.library_name(target)
        done = compile_to(output, PATH=str(tmp_path), CFLAGS="-Werror", SB3_EXTRA_BUFFERS_PLATFORM=target)
        assert done.returncode == 0, done.stderr
        monkeypatch.syspath_prepend(SUPPORT)
        checking = load_module("check_wheels")
        assert checking.binary_kind(output.read_bytes()) == checking.BINARIES[target]

    @pytest.mark.parametrize("source", sorted(compiling.SOURCES.glob("*.c")), ids=lambda path: path.name)
    def test_each_source_compiles_for_windows(self, source: Path, tmp_path: Path) -> None:
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-target", compiling.ZIG_TARGETS["win_amd64"]]
        done = run("-m", "ziglang", "cc", *flags, "-c", str(source), "-o", str(tmp_path / "object.o"))
        assert done.returncode == 0, done.stderr


class TestLoading:
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An installed package with a copy of the library."""
        shutil.copy(library.FOLDER / compiling.library_name(), tmp_path)
        monkeypatch.delenv("SB3_EXTRA_BUFFERS_LIBRARY", raising=False)
        monkeypatch.setattr(library, "FOLDER", tmp_path)

    def test_the_library_next_to_the_module_is_loaded(self, tmp_path: Path) -> None:
        assert Path(library.load()._name) == tmp_path / compiling.library_name()

    def test_version_is_that_of_the_header(self) -> None:
        assert f"#define SB3X_VERSION {library.VERSION}\n" in (compiling.SOURCES / "sb3x.h").read_text()

    def test_a_missing_library_in_an_installed_package_names_pip(self, tmp_path: Path) -> None:
        library.library_path().unlink()
        with pytest.raises(NativeLibraryError, match=r"does not exist; install it again with: pip install --force-reinstall"):
            library.load()

    def test_a_missing_library_in_a_checkout_names_make(self, tmp_path: Path) -> None:
        library.library_path().unlink()
        (tmp_path / "store.c").touch()
        with pytest.raises(NativeLibraryError, match=r"does not exist; compile it in .* with: make native \(or"):
            library.load()

    def test_a_file_that_is_no_library_is_refused(self) -> None:
        library.library_path().write_bytes(b"not a library")
        with pytest.raises(NativeLibraryError, match=r"exists, but cannot be loaded .* damaged, .*; install it again"):
            library.load()

    @needs_elf
    def test_a_library_for_another_processor_is_refused(self) -> None:
        data = bytearray(library.library_path().read_bytes())
        struct.pack_into("<H", data, 18, 0x3E if data[18] == 0xB7 else 0xB7)
        library.library_path().unlink()  # not written in place: an earlier test has it loaded
        library.library_path().write_bytes(data)
        with pytest.raises(NativeLibraryError, match=r"\(Linux on .*\): .* another processor .*; install it again"):
            library.load()

    def test_a_stale_library_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stale = library.VERSION
        monkeypatch.setattr(library, "VERSION", stale + 1)
        expected = f"has version {stale}, but this package needs version {stale + 1}; install it again"
        with pytest.raises(NativeLibraryError, match=expected):
            library.load()

    def test_another_library_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SB3_EXTRA_BUFFERS_LIBRARY", np._core._multiarray_umath.__file__)
        with pytest.raises(NativeLibraryError, match=r"has no version, .* unset the environment variable SB3_EXTRA_BUFFERS_"):
            library.load()

    def test_the_environment_may_name_another_library(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = tmp_path / "other" / "with_sanitizers.so"
        other.parent.mkdir()
        library.library_path().rename(other)
        monkeypatch.setenv("SB3_EXTRA_BUFFERS_LIBRARY", str(other))
        assert Path(library.load()._name) == other

    def test_the_error_is_an_import_error_that_can_be_pickled(self) -> None:
        library.library_path().unlink()
        with pytest.raises(ImportError) as caught:
            library.load()
        assert isinstance(caught.value, SB3ExtraBuffersError)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
