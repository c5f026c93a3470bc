"""Compile the C sources of `sb3_extra_buffers/native` into one shared library.

The build backend and the Makefile call this. By hand:

    python build_support/compile.py                 the library of this machine, next to its sources
    python build_support/compile.py OUTPUT          the same library in another place
    python build_support/compile.py --platforms     the platforms that `make wheels` builds for

The compiler is $CC, else the first of cc, gcc and clang that works, else the one in the `ziglang` package. $CFLAGS and
$LDFLAGS are added to the command. With $SB3_EXTRA_BUFFERS_PLATFORM, one of the platforms above, ziglang compiles for that.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

SOURCES = Path(__file__).resolve().parent.parent / "src" / "sb3_extra_buffers" / "native"
ZIG_REQUIREMENT = "ziglang>=0.13"
PLATFORM_VARIABLE = "SB3_EXTRA_BUFFERS_PLATFORM"

# The platform in the tag of a wheel, and what zig calls it: glibc 2.17 and macOS 11 are the oldest that are supported.
ZIG_TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}

FLAGS = ["-std=c11", "-O3", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"]

PREFIX = "sb3-extra-buffers: "
NO_COMPILER = "No C compiler works here to build the native library"
INSTALL_COMPILER = "install gcc or clang (apt install gcc libc6-dev; xcode-select --install)"

# Finds out whether a compiler works, with all the headers: gcc is often installed without those of the C library.
PROBE = "#include <pthread.h>\n#include <stdatomic.h>\n#include <stdlib.h>\nint sb3x_probe(void) { return 0; }\n"


def target_platform() -> str | None:
    """The platform that $SB3_EXTRA_BUFFERS_PLATFORM asks for; None is this machine."""
    name = os.environ.get(PLATFORM_VARIABLE) or None
    if name is not None and name not in ZIG_TARGETS:
        fail(f"{PLATFORM_VARIABLE} is {name!r}, but has to be one of {', '.join(ZIG_TARGETS)}.")
    return name


def library_name(target: str | None = None) -> str:
    """The file name of the library.

    :param target: one of ZIG_TARGETS; None is this machine
    """
    system = target or sys.platform
    if system.startswith("win"):
        return "sb3x.dll"
    return "libsb3x.dylib" if system.startswith(("darwin", "macosx")) else "libsb3x.so"


def build_requirements() -> list[str]:
    """What pip has to install for the build: a compiler, if there is none that works."""
    if target_platform() is not None:
        return [ZIG_REQUIREMENT]
    if find_compiler() is not None:
        return []
    # If that cannot be installed, pip ends the build before `build` can say so.
    sys.stderr.write(
        f"{PREFIX}{NO_COMPILER}; the build asks for {ZIG_REQUIREMENT}. If it cannot be had, {INSTALL_COMPILER}.\n"
    )
    return [ZIG_REQUIREMENT]


def find_compiler() -> list[str] | None:
    """The command of a C compiler that works, or None."""
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        command = shlex.split(chosen, posix=os.name != "nt")
        if not _works(command):
            fail(f"The C compiler in the environment variable CC, {chosen!r}, does not work; set another one, or unset it.")
        return command
    # On Windows, libraries of a gcc in the PATH would need DLLs of that gcc.
    names = [] if sys.platform == "win32" else ["cc", "gcc", "clang"]
    return next(([name] for name in names if shutil.which(name) and _works([name])), None)


def build(output: Path, target: str | None = None) -> None:
    """Compile the library. A library that is there already, and may be in use, is replaced at once.

    :param output: where it goes
    :param target: one of ZIG_TARGETS; None is this machine
    """
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    if not sources:
        fail(f"There are no C sources in {SOURCES}; take a complete checkout or sdist.")
    compiler = _compiler_for(target)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output.parent) as folder:  # zig may leave files beside the library
        new = Path(folder) / output.name
        command = [*compiler, *_flags_for(target), *_from_environment("CFLAGS"), *sources, "-o", str(new)]
        command += _from_environment("LDFLAGS")
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        sys.stderr.write(done.stderr)
        if done.returncode != 0:
            fail(f"The C compiler failed, see above; set CC to another compiler if this one is too old: {shlex.join(command)}")
        try:
            new.replace(output)
        except PermissionError:  # Windows locks a library that is loaded
            fail(f"{output} cannot be replaced; end the Python processes that use it, and check who may write there.")


def fail(sentence: str) -> NoReturn:
    """End the build with a sentence instead of a traceback."""
    raise SystemExit(PREFIX + sentence)


def _compiler_for(target: str | None) -> list[str]:
    command = find_compiler() if target is None else None
    if command is not None:
        return command
    if importlib.util.find_spec("ziglang") is None:
        if target is not None:
            fail(f"A library for {target} is compiled by zig: pip install '{ZIG_REQUIREMENT}'")
        fail(f"{NO_COMPILER}; {INSTALL_COMPILER}, or without administrator rights: pip install '{ZIG_REQUIREMENT}'")
    # With neither of these options, zig compiles for the very processor of this machine.
    triple = ZIG_TARGETS.get(target or _this_platform())
    return [sys.executable, "-m", "ziglang", "cc", "-s", *(["-target", triple] if triple else ["-mcpu=baseline"])]


def _this_platform() -> str:
    """The one of ZIG_TARGETS that runs here, or another name."""
    machine = platform.machine()
    if sys.platform == "win32":
        return f"win_{machine.lower()}"
    if sys.platform == "darwin":
        return f"macosx_11_0_{machine}"
    return f"manylinux_2_17_{machine}" if platform.libc_ver()[0] == "glibc" else f"{sys.platform}_{machine}"


def _flags_for(target: str | None) -> Sequence[str]:
    name = library_name(target)
    if name.endswith(".dll"):
        return FLAGS
    if name.endswith(".so"):
        return [*FLAGS, "-fPIC"]
    return [*FLAGS, "-fPIC", "-mmacosx-version-min=11.0", f"-Wl,-install_name,@rpath/{name}"]


def _from_environment(name: str) -> list[str]:
    return shlex.split(os.environ.get(name, ""), posix=os.name != "nt")


def _works(compiler: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text(PROBE)
        output = Path(folder) / library_name()
        command = [*compiler, *_flags_for(None), str(source), "-o", str(output)]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0 and output.is_file()
        except OSError:
            return False


def main(arguments: Sequence[str]) -> None:
    if list(arguments) == ["--platforms"]:
        print(*ZIG_TARGETS, sep="\n")
        return
    target = target_platform()
    build(Path(arguments[0]) if arguments else SOURCES / library_name(target), target)


if __name__ == "__main__":
    main(sys.argv[1:])
