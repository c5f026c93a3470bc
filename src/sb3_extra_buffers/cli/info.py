"""Versions, the device, and the codecs that are installed or what to install for them."""

from __future__ import annotations

import argparse
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sb3_extra_buffers.cli.output import Table, human_bytes, say, show, show_json

HELP = "versions, device, codecs installed and missing"
EXAMPLES = """\
  sb3-extra-buffers info
  sb3-extra-buffers info --json"""

PACKAGES = ("stable-baselines3", "sb3-contrib", "gymnasium", "torch", "numpy", "ale-py", "vizdoom")
#: Backend of a codec -> the extra that installs it.
EXTRAS = {"isal": "isal", "numba": "numba", "zstandard": "zstd", "lz4": "lz4"}


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
    from sb3_extra_buffers.cli.machine import ram_bytes

    cuda = [th.cuda.get_device_name(i) for i in range(th.cuda.device_count())] if th.cuda.is_available() else []
    return {
        "versions": {"sb3-extra-buffers": __version__, "python": platform.python_version(), **_versions()},
        "machine": {
            "system": platform.platform(terse=True),
            "cores": os.cpu_count(),
            "RAM": human_bytes(ram_bytes()),
            "device": ", ".join(cuda) or "cpu",
        },
        "codecs": [_describe(name) for name in _codec_names()],
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _codec_names() -> list[str]:
    from sb3_extra_buffers.codecs import CODECS

    return list(CODECS)


def _describe(name: str) -> dict[str, str]:
    from sb3_extra_buffers._optional import installed
    from sb3_extra_buffers.codecs import CODECS

    entry = CODECS[name]
    levels = entry.load().levels
    backend, status = entry.backend, "installed"
    if name == "delta" and not installed("numba"):
        backend, status = "numba", "installed, slow without numba"
    elif not entry.is_installed:
        status = f"missing, {entry.stand_in} stands in" if entry.stand_in else "missing"
    return {
        "name": name,
        "levels": f"{levels[0]}..{levels[1]}" if levels else "",
        "status": status,
        "install": "" if status == "installed" else f'pip install "sb3-extra-buffers[{EXTRAS[str(backend)]}]"',
    }
