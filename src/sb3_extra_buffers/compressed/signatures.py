"""Constructors that are declared by their signature alone, and helpful errors for wrong arguments.

    class CompressedReplayBuffer(ReplayObservations, ReplayBuffer):
        @constructor
        def __init__(self, buffer_size: int, ..., *, block_frames: int | None = None) -> None: ...

`help()`, IDEs, type checkers and the API reference show the signature. The work is the same for all buffers and is written
once, in `_set_up` of the mixins. It gets the arguments by name, and only those that were given, so that SB3's own defaults
are used for the others.

A keyword that is not in the signature is passed on if a class behind the mixins accepts it, e.g. a keyword of MyReplayBuffer
in `class Mine(CompressedReplayBuffer, MyReplayBuffer)`. All other unknown keywords are refused.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar, cast

Declaration = TypeVar("Declaration", bound=Callable[..., None])

#: Packages whose classes accept nothing but what some constructor of theirs names.
_STRICT = ("stable_baselines3", "sb3_contrib", "sb3_extra_buffers")
#: How similar a name must be to be suggested: 0.6 would take 'n_steps' for a misspelled 'n_envs'.
_ALIKE = 0.7
#: Other names that users may try, without underscores.
_ALIASES = {
    alias: name
    for name, aliases in {
        "compression_method": "algorithm codec compress compression compressor method",
        "compression_kwargs": "codeckwargs codecoptions compressionlevel compressionoptions level",
        "frame_stack": "frames framesperobservation nframes nstack numstack stack stacksize",
        "block_frames": "block blocklength blocksize framesperblock",
        "dtypes": "dtype elemdtype elemtype runstype storagedtype",
        "output_dtype": "output outdtype",
        "normalize_images": "normalise normaliseimages normalize",
        "buffer_device": "devicebuffer gpu storagedevice storedevice",
        "heap_bytes": "bytes heap heapsize maxbytes memorylimit",
        "on_full": "full iffull whenfull",
        "buffer_size": "capacity maxsize size",
        "n_envs": "envs numenvs",
        "observation_space": "obsspace space",
    }.items()
    for alias in aliases.split()
}
_GPU_KEYWORDS = ("buffer_device", "heap_bytes", "max_slot_bytes", "on_full")


class _Constructed(Protocol):
    """The methods of a buffer class that `constructor` uses."""

    def _set_up(self, arguments: dict[str, Any]) -> None: ...

    @classmethod
    def _storage_keywords(cls) -> list[str]: ...

    @classmethod
    def _classes_behind(cls) -> tuple[type, ...]: ...


def constructor(declaration: Declaration) -> Declaration:
    """Turn a signature into a buffer's `__init__`: it checks the arguments and passes them to `_set_up` by name.

    :param declaration: an `__init__` without a body
    """
    parameters = list(inspect.signature(declaration).parameters.values())[1:]
    names = {one.name for one in parameters if one.kind is not one.VAR_KEYWORD}
    positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    required = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]

    @functools.wraps(declaration)
    def __init__(self: _Constructed, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        buffer_class = type(self)
        if unknown := kwargs.keys() - names:
            _refuse_unknown(buffer_class, names, unknown)
        given = dict(zip(positional, args, strict=False))
        if len(args) > len(positional):
            raise TypeError(
                f"{buffer_class.__name__} takes {len(positional)} positional arguments ({', '.join(positional)}), "
                f"got {len(args)}. Give the others by name"
            )
        if twice := sorted(given.keys() & kwargs.keys()):
            raise TypeError(f"{buffer_class.__name__} got several values for {', '.join(twice)}")
        given.update(kwargs)
        if missing := [name for name in required if name not in given]:
            raise TypeError(f"{buffer_class.__name__} also needs {', '.join(missing)}")
        self._set_up(given)

    return cast(Declaration, __init__)


def _refuse_unknown(buffer_class: type[_Constructed], declared: set[str], unknown: Iterable[str]) -> None:
    """Raise TypeError for keywords that neither the declaration names nor a class behind the mixins accepts."""
    storage = buffer_class._storage_keywords()
    known = {*declared, *storage}
    for base in buffer_class._classes_behind():
        if base is object or "__init__" not in vars(base):
            continue
        for one in list(inspect.signature(base.__init__).parameters.values())[1:]:  # type: ignore[misc]
            if one.kind is one.VAR_KEYWORD and base.__module__.partition(".")[0] not in _STRICT:
                return  # it may accept any name
            if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                known.add(one.name)
    sentences = [_hint(buffer_class.__name__, name, known, storage) for name in sorted(set(unknown) - known)]
    if sentences:
        raise TypeError(" ".join(sentences))


def _hint(class_name: str, name: str, known: set[str], storage: list[str]) -> str:
    """The error for one unknown keyword, with the right one if there is a similar name."""
    wrong = f"{class_name} has no argument {name!r}."
    bare = _bare(name)
    by_bare_name = {_bare(one): one for one in sorted(known)}
    meant = by_bare_name.get(bare, _ALIASES.get(bare, name))
    if meant not in known:
        if meant in _GPU_KEYWORDS:
            return f"{wrong} {meant!r} belongs to the buffers of sb3_extra_buffers.gpu_buffers."
        close = difflib.get_close_matches(bare, by_bare_name, 1, _ALIKE)
        if not close:
            return f"{wrong} Beside SB3's own there are: {', '.join(storage)}."
        meant = by_bare_name[close[0]]
    return f"{wrong} Did you mean {meant!r}?"


def _bare(name: str) -> str:
    return name.replace("_", "").lower()
