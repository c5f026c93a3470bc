"""Codecs by name: the open registry, and the shorthand that names a codec.

A codec is registered as a class, or as `"module:Class"`, which is imported when the codec is first used. The codecs of this
library are registered the same way, in `builtin.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import re
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sb3_extra_buffers._optional import installed
from sb3_extra_buffers.codecs.base import Codec, Frames, check_level
from sb3_extra_buffers.codecs.former import FORMER_NAMES, with_current_names, with_effect
from sb3_extra_buffers.errors import CodecError, FallbackWarning, MissingBackendError

#: `igzip3`, `igzip/3`, `zstd-5` (level -5), `lz4-frame/5`
SHORTHAND = re.compile(r"^((?:[A-Za-z]+)|(?:[\w\-]+/))(\-?[0-9]+)$")
#: Names that can be followed by a level.
_NAME = re.compile(r"[A-Za-z][\w\-]*", re.ASCII)

#: Not codecs, but preferences, by which a buffer chooses a codec for its observations.
AUTO = ("auto", "auto-fast", "auto-small")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A registered codec; see `register_codec`."""

    name: str
    codec: type[Codec] | str
    backend: str | None = None
    install: str | None = None
    stand_in: str | None = None

    def load(self) -> type[Codec]:
        """The codec's class; imports it if necessary."""
        if not isinstance(self.codec, str):
            return self.codec
        module, _, class_name = self.codec.partition(":")
        try:
            found = getattr(importlib.import_module(module), class_name)
        except ImportError as error:
            raise self._missing(module, error) from error
        except AttributeError as error:
            message = f"Codec {self.name!r} is registered as {self.codec!r}, but {module} has no {class_name!r}"
            raise CodecError(message) from error
        _check_class(self.name, found)
        loaded: type[Codec] = found
        return loaded

    @property
    def is_installed(self) -> bool:
        """Whether the backend is installed; does not import it."""
        return self.backend is None or installed(_package(self.backend))

    @property
    def install_command(self) -> str | None:
        """The command that installs a missing backend."""
        return f'pip install "{self.install}"' if self.install else None

    def import_backend(self) -> None:
        """Import what the codec needs, or raise an error that says how to install it."""
        if self.backend is None:
            return
        if not self.is_installed:
            raise self._missing(self.backend)
        try:
            importlib.import_module(self.backend)
        except ImportError as error:
            raise self._missing(self.backend, error) from error

    def _missing(self, module: str, error: ImportError | None = None) -> MissingBackendError:
        """The error for a module that is not installed, or cannot be imported."""
        needed = self.backend if self.backend and not self.is_installed else module
        package = _package(needed)
        reason = f"cannot import {module} ({error})" if error and installed(package) else f"needs the {package} package"
        return MissingBackendError(f"Codec {self.name!r} {reason}" + (f": {self.install_command}" if self.install else ""))


_entries: dict[str, Entry] = {}
#: Name -> registered codec. Read-only; `register_codec` adds to it.
CODECS: Mapping[str, Entry] = MappingProxyType(_entries)


def register_codec(
    name: str,
    codec: type[Codec] | str,
    *,
    backend: str | None = None,
    install: str | None = None,
    stand_in: str | None = None,
    replace: bool = False,
) -> None:
    """Register a codec under a name, which can then be used wherever this library takes the name of a codec.

    Names belong to a process: a process that loads data of this codec must register it first.

    :param name: letters, digits, ``-`` and ``_``, beginning with a letter. It must not end in a number, which would be a level
    :param codec: a subclass of `Codec` with this ``name``, or ``"module:Class"``, to be imported when it is first used
    :param backend: module that the codec needs; by default that of ``"module:Class"``. If it is not installed, the codec
        is not among `available_codecs`
    :param install: argument of ``pip install`` for a missing backend, e.g. ``"my-codecs[fast]"``
    :param stand_in: registered codec that reads and writes the same format; used, with a warning, if the backend is missing
    :param replace: replace a codec of this name
    """
    _check_name(name)
    if name in _entries and not replace:
        raise CodecError(f"A codec named {name!r} is registered already. Take another name, or pass replace=True")
    if stand_in is not None and (stand_in not in _entries or stand_in == name):
        raise CodecError(f"stand_in must be another registered codec, got {stand_in!r}. Registered: {', '.join(_entries)}")
    for parameter, value in (("backend", backend), ("install", install)):
        if not isinstance(value, (str, type(None))) or value == "":
            raise CodecError(f"{parameter} must be a non-empty string or None, got {value!r}")
    if not isinstance(codec, str):
        _check_class(name, codec)
    elif re.fullmatch(r"[\w.]+:\w+", codec) is None:
        raise CodecError(f"codec must be a subclass of Codec or 'module:Class', got {codec!r}")
    elif backend is None and not codec.startswith(f"{_package(__name__)}."):
        backend = codec.partition(":")[0]
    _entries[name] = Entry(name, codec, backend, install, stand_in)


def available_codecs() -> list[str]:
    """Names of the codecs whose own backend is installed."""
    return [name for name, entry in CODECS.items() if entry.is_installed]


def make_codec(spec: str, options: Mapping[str, Any] | None = None, **defaults: Any) -> Codec:
    """The codec that a shorthand names.

    :param spec: ``"zstd"``, ``"zstd3"``, ``"lz4-frame/5"``, ...; not ``"auto"``, by which a buffer chooses
    :param options: the user's ``compression_kwargs``; an unknown name is an error. ``compresslevel`` is ``level``
    :param defaults: values for options that the codec may or may not have
    """
    entry, level = _find(spec)
    given = with_current_names(options)
    if level is not None and given.setdefault("level", level) != level:
        raise CodecError(f"{spec!r} says level {level}, compression_kwargs says {given['level']!r}")
    try:
        entry.import_backend()
        codec = entry.load()
    except MissingBackendError as error:
        if entry.stand_in is None:
            raise
        return _make_stand_in(entry, CODECS[entry.stand_in], given, defaults, error)
    return codec(**_arguments(entry.name, codec, given, defaults))


def restore_codec(name: str, options: Mapping[str, Any]) -> Codec:
    """The codec that saved bytes were written with, or an error that says how to register it. Pickled codecs call this.

    :param name: its name
    :param options: its options
    """
    if name not in CODECS:
        raise CodecError(
            f"This was written by codec {name!r}, which is not registered in this process. "
            f"Call register_codec({name!r}, ...) before you load it. {_installed_names()}"
        )
    return make_codec(name, options)


def is_registered(codec: type[Codec]) -> bool:
    """Whether this class is registered under its name."""
    entry = CODECS.get(getattr(codec, "name", ""))
    with contextlib.suppress(CodecError, MissingBackendError):
        return entry is not None and entry.load() is codec
    return False


def split_spec(spec: str) -> tuple[str, int | None]:
    """Name and level of a shorthand: ``"zstd-5"`` -> ``("zstd", -5)``. The name need not exist."""
    if spec in CODECS:
        return spec, None
    match = SHORTHAND.fullmatch(spec)
    name, level = (spec, None) if match is None else (match[1].removesuffix("/"), int(match[2]))
    return FORMER_NAMES.get(name, name), level


def shorthand(name: str, level: int | None) -> str:
    """The shorthand for a codec with a level: ``zstd9``, ``lz4-frame/5``."""
    if level is None:
        return name
    return f"{name}{level}" if name.isalpha() else f"{name}/{level}"


def _find(spec: str) -> tuple[Entry, int | None]:
    if not isinstance(spec, str):
        raise CodecError(f"compression_method must be a codec's name, got {spec!r}. {_installed_names()}")
    name, level = split_spec(spec)
    if name not in CODECS:
        close = " or ".join(map(repr, _close_specs(spec)))
        suggestion = f" Did you mean {close}?" if close else ""
        raise CodecError(f"No codec named {spec!r}.{suggestion} {_installed_names()} Others are added by register_codec")
    return CODECS[name], level


def _arguments(name: str, codec: type[Codec], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What the class is called with: the user's options, which it must have, and those defaults that it has."""
    allowed = codec.options()
    given = with_effect(given, allowed)
    if "level" in given and codec.levels is None:
        if codec.frames is not Frames.RAW:
            raise CodecError(f"Codec {name!r} has no levels, got level {given['level']!r}. Write {name!r}")
        del given["level"]  # "none1" of 0.5: where nothing is compressed, no level changes anything
    for option in given:
        if option not in allowed:
            raise CodecError(f"Codec {name!r} has no option {option!r}. Its options: {', '.join(allowed) or 'none at all'}")
    return {option: value for option, value in {**defaults, **given}.items() if option in allowed}


def _make_stand_in(
    entry: Entry, stand_in: Entry, given: Mapping[str, Any], defaults: Mapping[str, Any], reason: MissingBackendError
) -> Codec:
    """The stand-in for a codec, with the options and levels of that codec."""
    stand_in.import_backend()
    codec = wanted = stand_in.load()
    with contextlib.suppress(MissingBackendError):  # its module may not be importable without the backend
        wanted = entry.load()
    arguments = _arguments(entry.name, wanted, given, defaults)
    if "level" in arguments:
        check_level(entry.name, arguments["level"], wanted)
        lowest, highest = codec.levels or (0, 0)
        # Not 0, which means "do not compress" to gzip, but not to igzip.
        arguments["level"] = min(max(arguments["level"], lowest), highest) or 1
    warnings.warn(f"{reason}. Until then {stand_in.name!r} stands in for it", FallbackWarning, stacklevel=3)
    return codec(**{option: value for option, value in arguments.items() if option in codec.options()})


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise CodecError(
            f"A codec's name must be letters, digits, '-' and '_', beginning with a letter, got {name!r}: "
            "anything else could not be followed by a level"
        )
    match = SHORTHAND.fullmatch(name)
    if match is not None:
        raise CodecError(
            f"A codec cannot be named {name!r}: that is codec {match[1]!r} with level {int(match[2])}. "
            f"Take a name that does not end in a number, e.g. {name + '-codec'!r}"
        )
    if name in AUTO:
        raise CodecError(f"A codec cannot be named {name!r}: that lets a buffer choose a codec. Take another name")


def _check_class(name: str, codec: Any) -> None:
    """Refuse a class that `make_codec` could not use."""
    if not isinstance(codec, type) or not issubclass(codec, Codec):
        raise CodecError(f"Codec {name!r} must be a subclass of sb3_extra_buffers.codecs.Codec, got {codec!r}")
    kind = f"Codec {name!r}: class {codec.__qualname__}"
    missing = sorted(codec.__abstractmethods__)
    if missing:
        raise CodecError(f"{kind} does not define {' and '.join(missing)}. See the docstrings of Codec")
    if getattr(codec, "name", None) != name:
        raise CodecError(f"{kind} must have the name it is registered under: set `name: ClassVar[str] = {name!r}`")
    if (codec.levels is not None) != ("level" in codec.options()):
        raise CodecError(f"{kind} must have both `levels` (lowest, highest) and a dataclass field `level: int`, or neither")
    for field in dataclasses.fields(codec):
        if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise CodecError(f"{kind} must have a default for its option {field.name!r}")


def _close_specs(spec: str) -> list[str]:
    """What a misspelled shorthand may have meant, in the right spelling: ``lz4-frame5`` -> ``lz4-frame/5``."""
    names, text = sorted([*CODECS, *AUTO], key=len, reverse=True), spec.strip().lower()
    for name in names:  # case, hyphens and slashes aside
        letters = "[^a-z0-9]*".join(re.sub("[^a-z0-9]", "", name.lower()))
        match = re.fullmatch(rf"{letters}[^a-z0-9-]*(-?[0-9]+)?[^a-z]*", text)
        if match:
            return [_with_level(name, match[1])]
    begun = [name for name in (*CODECS, *AUTO) if text and name.lower().startswith(text)]
    if begun:
        return begun
    before, level = re.fullmatch(r"(.*?)[^a-z0-9-]*(-?[0-9]*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    lower = {name.lower(): name for name in names}
    return [_with_level(lower[close], level) for close in difflib.get_close_matches(before, lower, n=1)]


def _with_level(name: str, level: str | None) -> str:
    """The shorthand; without the level where the codec has none."""
    return shorthand(name, int(level) if level and level != "-" and _has_levels(name) else None)


def _has_levels(name: str) -> bool:
    with contextlib.suppress(MissingBackendError):
        return name in CODECS and CODECS[name].load().levels is not None
    return False


def _installed_names() -> str:
    return f"Installed: {', '.join([*AUTO, *available_codecs()])}."


def _package(module: str) -> str:
    return module.partition(".")[0]
