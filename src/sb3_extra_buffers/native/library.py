"""Finds and loads the compiled library, for the binding in this package."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path

from sb3_extra_buffers.errors import NativeLibraryError

VERSION = 10
"""SB3X_VERSION of the header that the binding was written for."""

LIBRARY_VARIABLE = "SB3_EXTRA_BUFFERS_LIBRARY"
"""The environment variable that may name another library, for example one with sanitizers."""

FOLDER = Path(__file__).parent
NAMES = {"win32": "sb3x.dll", "darwin": "libsb3x.dylib"}


def load() -> ctypes.CDLL:
    """Load the library and check its version.

    :raises NativeLibraryError: it is missing, cannot be loaded on this machine, or is of another version
    """
    path = library_path()
    if not path.is_file():
        raise NativeLibraryError(f"The compiled library {path} does not exist; {_advice()}", path=str(path))
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        machine = f"{platform.system()} on {platform.machine()}"
        sentence = (
            f"The compiled library {path} exists, but cannot be loaded by this Python ({machine}): it is damaged, or made for "
            f"another processor or system (the loader says: {error}); {_advice()}"
        )
        raise NativeLibraryError(sentence, path=str(path)) from error
    found = _version_of(library)
    if found != VERSION:
        has = "no version" if found is None else f"version {found}"
        sentence = f"The compiled library {path} has {has}, but this package needs version {VERSION}; {_advice()}"
        raise NativeLibraryError(sentence, path=str(path))
    return library


def library_path() -> Path:
    """The file that `load` loads: the one next to this module, unless SB3_EXTRA_BUFFERS_LIBRARY names another."""
    other = os.environ.get(LIBRARY_VARIABLE)
    return Path(other).absolute() if other else FOLDER / NAMES.get(sys.platform, "libsb3x.so")


def _version_of(library: ctypes.CDLL) -> int | None:
    """The result of `sb3x_version`; None if the library has no such function."""
    try:
        function = library.sb3x_version
    except AttributeError:
        return None
    function.argtypes = []
    function.restype = ctypes.c_int32
    return int(function())


def _advice() -> str:
    """The command that helps."""
    if os.environ.get(LIBRARY_VARIABLE):
        return f"correct or unset the environment variable {LIBRARY_VARIABLE}."
    if any(FOLDER.glob("*.c")):  # a checkout: wheels have no C sources
        return f"compile it in {FOLDER.parents[2]} with: make native (or pip install -e .)"
    return "install it again with: pip install --force-reinstall --no-deps sb3-extra-buffers"
