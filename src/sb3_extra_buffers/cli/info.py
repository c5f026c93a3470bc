"""Versions, the device, the native library, and the codecs that are installed or what to install for them."""

from __future__ import annotations

import argparse
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from sb3_extra_buffers._text import human_bytes
from sb3_extra_buffers.cli.output import Table, say, show, show_json
from sb3_extra_buffers.errors import MissingBackendError, NativeLibraryError

if TYPE_CHECKING:
    from sb3_extra_buffers.codecs.registry import Entry

HELP = "versions, device, native library, codecs installed and missing"
EXAMPLES = """\
  sb3-extra-buffers info
  sb3-extra-buffers info --json"""

PACKAGES = ("stable-baselines3", "sb3-contrib", "gymnasium", "torch", "numpy", "ale-py", "vizdoom")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""


def run(args: argparse.Namespace) -> int:
    """Collect and print."""
    facts = collect()
    if args.json:
        show_json(facts)
        return 0
    versions = [[name, found or "not installed"] for name, found in facts["versions"].items()]
    show(Table(["package", "version"], versions, "ll"))
    say()
    show(Table(["machine", ""], [[name, str(value)] for name, value in facts["machine"].items()], "ll"))
    say()
    rows = [[codec["name"], codec["levels"], codec["status"], codec["install"]] for codec in facts["codecs"]]
    show(Table(["codec", "levels", "status", "to install"], rows, "llll"))
    return 0


def collect() -> dict[str, Any]:
    """All that `info` knows, ready for JSON."""
    import torch as th

    from sb3_extra_buffers import __version__
    from sb3_extra_buffers._machine import ram_bytes

    cuda = [th.cuda.get_device_name(i) for i in range(th.cuda.device_count())] if th.cuda.is_available() else []
    return {
        "versions": {"sb3-extra-buffers": __version__, "python": platform.python_version(), **_versions()},
        "machine": {
            "system": platform.platform(terse=True),
            "cores": os.cpu_count(),
            "RAM": human_bytes(ram_bytes()),
            "device": ", ".join(cuda) or "cpu",
            "native library": _library(),
        },
        "codecs": _codecs(),
    }


def _library() -> str:
    """Where the compiled library is, or why it cannot be used and what helps."""
    from sb3_extra_buffers.native.library import library_path, load

    try:
        load()
    except NativeLibraryError as error:
        return str(error)
    return str(library_path())


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _codecs() -> list[dict[str, str]]:
    from sb3_extra_buffers.codecs import CODECS

    return [_describe(entry) for entry in CODECS.values()]


def _describe(entry: Entry) -> dict[str, str]:
    from sb3_extra_buffers.codecs.base import level_ranges

    status = "installed"
    if not entry.is_installed:
        status = f"missing, {entry.stand_in} stands in" if entry.stand_in else "missing"
    try:
        codec = entry.load()
        levels = level_ranges(codec) if codec.levels else ""
    except MissingBackendError as error:  # a codec of others, whose module needs the backend to be imported
        levels = ""
        if entry.is_installed:
            status = str(error)
    return {
        "name": entry.name,
        "levels": levels,
        "status": status,
        "install": "" if entry.is_installed else entry.install_command or "",
    }
