"""The build backend of pyproject.toml: setuptools, plus the compiled library in the package.

A wheel gets the library that was compiled for it, and its tag says that it fits every Python of its platform. An editable
install gets the library next to its sources.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import compile as native
from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # all other hooks are those of setuptools
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PACKAGE = Path("sb3_extra_buffers", "native")


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """ziglang where there is no compiler, besides what setuptools wants."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *native.build_requirements()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """ziglang where there is no compiler, besides what setuptools wants."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *native.build_requirements()]


class BuildPy(build_py):
    """Collects the files of the package and compiles the library among them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            native.build(native.SOURCES / native.library_name())
            return
        target = native.target_platform()
        folder = Path(self.build_lib) / PACKAGE
        for old in [*folder.glob("libsb3x.*"), *folder.glob("sb3x.dll")]:  # of an earlier build for another platform
            old.unlink()
        native.build(folder / native.library_name(target), target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), self._library()]

    def get_output_mapping(self) -> dict[str, str]:
        mapping = super().get_output_mapping()
        if self.editable_mode:
            mapping[self._library()] = str(native.SOURCES / native.library_name())
        return mapping

    def _library(self) -> str:
        target = None if self.editable_mode else native.target_platform()
        return str(Path(self.build_lib) / PACKAGE / native.library_name(target))


class BdistWheel(bdist_wheel):
    """A wheel with the tag py3-none-<platform>."""

    def finalize_options(self) -> None:
        self.distribution.has_ext_modules = lambda: True  # what distutils asks to tell a binary package from a pure one
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        target = native.target_platform()
        if target is None and sys.platform == "darwin":
            target = f"macosx_11_0_{platform.machine()}"  # the library is for one processor, even if this Python is for both
        return "py3", "none", target or super().get_tag()[2]
