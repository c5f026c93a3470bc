"""Things by name: a class or function of a module or of a file, as a user would import it. Above: envs."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_FILE = re.compile(r"(?P<file>.*\.py)(?::(?P<name>.*))?", re.DOTALL)


def split_file(text: str) -> tuple[Path, str] | None:
    """``path/to/file.py:Name`` as a path and a name, which may be empty; None if no file is meant."""
    match = _FILE.fullmatch(text)
    return (Path(match["file"]).expanduser(), match["name"] or "") if match else None


def import_named(name: str) -> ModuleType:
    """A module, also one of the current folder, as Python itself would find it there."""
    _put_on_path(Path.cwd())
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{name!r} is no name of a module")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _not_imported(name, error) from error
        raise ValueError(f"No module {error.name!r}: install its package, or start in the folder that it is in") from error
    except Exception as error:
        raise _not_imported(name, error) from error


def import_file(path: Path) -> ModuleType:
    """A Python file as a module of its name; it may import what lies beside it."""
    if not path.is_file():
        raise ValueError(f"No file {path}")
    _put_on_path(path.resolve().parent)
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _not_imported(str(path), error) from error
    return module


def _not_imported(where: str, error: Exception) -> ValueError:
    return ValueError(f"{where} was not imported: {type(error).__name__}: {error}. --debug shows where")


def find(text: str, *, default: str) -> Any:
    """What ``module:Name``, ``module.Name`` or ``file.py:Name`` names.

    :param default: module of a name that stands alone
    """
    if (in_file := split_file(text)) is not None:
        path, name = in_file
        return attribute(import_file(path), name, str(path))
    module, _, name = text.partition(":") if ":" in text else text.rpartition(".")
    return attribute(import_named(module or default), name, module or default)


def attribute(module: ModuleType, name: str, where: str) -> Any:
    """Something that a module has, or an error that says what else it has."""
    if not name or not hasattr(module, name):
        close = difflib.get_close_matches(name, dir(module), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{where} has no {name!r}.{hint}" if name else f"Say what to take from {where}: {where}:NAME")
    return getattr(module, name)


def split_call(text: str) -> tuple[str, dict[str, Any]]:
    """``name(size=(84, 84))`` as the name and the arguments, which must be named and plain values."""
    name, bracket, _ = text.partition("(")
    if not bracket:
        return text.strip(), {}
    try:
        call = ast.parse(f"f{text[len(name) :].strip()}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(one.arg is None for one in call.keywords):
            raise ValueError
        return name.strip(), {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    except (SyntaxError, ValueError):
        raise ValueError(f"Arguments must be named and plain values, as in {name}(size=(84, 84)), got {text!r}") from None


def _put_on_path(folder: Path) -> None:
    if os.fspath(folder) not in sys.path:
        sys.path.insert(0, os.fspath(folder))
