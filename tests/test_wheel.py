"""What `pip install` puts on a machine: the package, its type marker, its figures and its command; nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "demo_output", "debug_obs", "_build")
    shutil.copytree(ROOT, source, ignore=ignored)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_only_the_package_is_installed(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"sb3_extra_buffers"}


def test_every_module_and_the_type_marker_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "sb3_extra_buffers").rglob("*.py")}
    assert modules | {"sb3_extra_buffers/py.typed"} <= set(wheel.namelist())


def test_figures_for_estimates_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    assert json.loads(wheel.read("sb3_extra_buffers/bench/sizes.json"))["sizes"]


def test_the_wheel_has_the_licence_and_the_command(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    entry = next(name for name in names if name.endswith("entry_points.txt"))
    assert "sb3-extra-buffers = sb3_extra_buffers.cli:main" in wheel.read(entry).decode()
