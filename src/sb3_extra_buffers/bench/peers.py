"""Other libraries in virtual environments of their own, made when first asked for and kept in the cache."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

#: What a buffer's name begins with -> what to install for it. gymnasium is for the workloads.
PACKAGES = {
    "0.5.0": ("sb3-extra-buffers[fast]==0.5.0", "torch", "gymnasium"),
    "cpprb": ("cpprb", "numpy", "gymnasium"),
    "torchrl": ("torchrl==0.14.1", "torch==2.14.1", "numpy", "gymnasium"),
}
#: Packages of a peer that do not have the version that is installed here. TorchRL's wheels load their compiled part, which its
#: prioritized sampler needs, only beside the torch that they were built with.
OTHER_VERSIONS = {"torchrl": ("torch",)}
OURS = "sb3-extra-buffers"


class PeerUnavailableError(RuntimeError):
    """A peer that could not be installed."""


def peer_of(buffer: str) -> str | None:
    """The peer that a buffer's name belongs to; None for SB3's and ours."""
    return next((peer for peer in PACKAGES if buffer.startswith(peer)), None)


def python_of(peer: str, cache: Path) -> Path:
    """The interpreter of a peer's environment, which is made if there is none.

    :param peer: a key of `PACKAGES`
    """
    home = cache / "peers" / f"{peer}-python{sys.version_info.major}.{sys.version_info.minor}"
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    ready = home / "ready"
    if ready.exists():
        return python
    _run(sys.executable, "-m", "venv", "--clear", str(home))
    constraints = home / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in same_versions(peer)))
    _run(str(python), "-m", "pip", "install", "-q", "-c", str(constraints), *PACKAGES[peer])
    ready.touch()
    return python


def same_versions(peer: str) -> list[str]:
    """Pins to the versions that are installed here: a peer is measured with the same torch and NumPy, wherever it can be."""
    pins = {found.metadata["Name"]: found.version.partition("+")[0] for found in distributions()}
    others = {OURS, *OTHER_VERSIONS.get(peer, ())}
    return sorted(f"{name}=={version}" for name, version in pins.items() if name.replace("_", "-").lower() not in others)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        errors = [line for line in lines if line.startswith("ERROR")]
        raise PeerUnavailableError(f"{' '.join(command[1:4])} failed: {(errors or lines)[-1]}")
