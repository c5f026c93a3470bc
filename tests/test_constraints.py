"""The pins of `constraints.txt` fit `pyproject.toml`, for every supported Python and system. pip and uv are not asked."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
SYSTEMS = {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def name_of(requirement: Requirement) -> str:
    return re.sub(r"[-_.]+", "-", requirement.name).lower()


def requirements() -> list[Requirement]:
    """All that the package and its extras ask for, but for its own extras."""
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    return [one for one in map(Requirement, listed) if one.name != "sb3-extra-buffers"]


def pins(environment: dict[str, str]) -> dict[str, list[str]]:
    """Versions by name, of the lines that hold in an environment."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            if pin.marker is None or pin.marker.evaluate(environment):
                [exact] = pin.specifier
                assert exact.operator == "=="
                found.setdefault(name_of(pin), []).append(exact.version)
    return found


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_everything_is_pinned_once_to_a_version_that_fits(python: str, system: str) -> None:
    environment = {
        "python_version": python, "python_full_version": f"{python}.5", "sys_platform": system,
        "platform_system": SYSTEMS[system], "platform_machine": "x86_64", "os_name": "nt" if system == "win32" else "posix",
    }  # fmt: skip
    found = pins(environment)
    assert {name: versions for name, versions in found.items() if len(versions) > 1} == {}
    for requirement in requirements():
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        assert name_of(requirement) in found, f"{requirement} is not pinned: make constraints"
        [version] = found[name_of(requirement)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {version}"


def test_supported_pythons_are_named_everywhere() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    page = (ROOT / "docs" / "supported_versions.md").read_text()
    for python in PYTHONS:
        assert f"Programming Language :: Python :: {python}" in text
        assert f'"{python}"' in workflow
    assert f"| Python | {', '.join(PYTHONS)} |" in page
    assert f'requires-python = ">={PYTHONS[0]}"' in text
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in PYTHONS
