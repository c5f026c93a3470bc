"""The constructor keywords of the compressed buffers, checked once and turned into a plan per leaf."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np

from sb3_extra_buffers.codecs import AUTO, Codec, make_codec
from sb3_extra_buffers.codecs.former import with_effect
from sb3_extra_buffers.errors import CodecError, LossyStorageWarning
from sb3_extra_buffers.spaces import PLAIN, Leaf
from sb3_extra_buffers.store.detect import StorePlan

OutputDtype = Literal["raw", "float"]


@dataclass
class CompressionOptions:
    """The storage keywords of the buffers, one field each."""

    dtypes: Mapping[str, Any] | None = None
    normalize_images: bool = False
    compression_method: str | Mapping[str, str] = "auto"
    compression_kwargs: Mapping[str, Any] | None = None
    decompression_kwargs: Mapping[str, Any] | None = None
    output_dtype: OutputDtype = "raw"
    frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto"
    block_frames: int | None = None
    _made: dict[Any, Codec] = field(default_factory=dict, repr=False)
    _directory: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        if self.output_dtype not in ("raw", "float"):
            raise ValueError(f"output_dtype must be 'raw' or 'float', got {self.output_dtype!r}")
        dtypes: Any = self.dtypes
        if dtypes is not None and not isinstance(dtypes, Mapping):  # a dtype alone, as 0.5 took it
            self.dtypes = {"elem_type": dtypes}
        for name in ("compression_kwargs", "decompression_kwargs"):
            if not isinstance(getattr(self, name), (Mapping, type(None))):
                raise ValueError(f"{name} must be a dict or None, got {getattr(self, name)!r}")
        if self.block_frames is not None and not _is_count(self.block_frames):
            raise ValueError(f"block_frames must be a positive number of frames or None, got {self.block_frames!r}")
        unknown = set(self.dtypes or ()) - {"elem_type", "runs_type", "compresslevel"}
        if unknown:
            raise ValueError(f"dtypes may hold 'elem_type' and 'runs_type', got {sorted(unknown)}")

    @classmethod
    def keywords(cls) -> list[str]:
        """Names of the keywords."""
        return [one.name for one in fields(cls) if not one.name.startswith("_")]

    def plans(self, leaves: list[Leaf], *, n_cells: int, n_streams: int, n_columns: int) -> dict[str, StorePlan]:
        """How each leaf will be stored."""
        for name in ("compression_method", "frame_stack"):
            self._check_keys(name, leaves)
        plans = {}
        for leaf in leaves:
            dtype = self._stored_dtype(leaf, alone=len(leaves) == 1 and leaf.key == PLAIN)
            plans[leaf.key] = StorePlan(
                leaf.shape, dtype, n_cells, n_streams, n_columns,
                codec=self._codec(leaf, dtype), frame_stack=self._frame_stack(leaf), block_frames=self.block_frames,
                directory=self._directory,
            )  # fmt: skip
            try:
                plans[leaf.key].layouts()
            except ValueError as error:
                hint = "" if leaf.key == PLAIN else f" (key {leaf.key!r}; frame_stack may be a dict of numbers by key)"
                raise ValueError(f"{error}{hint}") from None
        return plans

    def _stored_dtype(self, leaf: Leaf, *, alone: bool) -> np.dtype[Any]:
        """The space's own dtype, or `elem_type`. For a Dict, `elem_type` is used only for leaves whose values it can hold."""
        asked = (self.dtypes or {}).get("elem_type")
        try:
            dtype: np.dtype[Any] = leaf.dtype if asked is None else np.dtype(asked)
        except TypeError:
            raise ValueError(f"elem_type in dtypes must be a NumPy dtype, got {asked!r}") from None
        if dtype == leaf.dtype:
            return leaf.dtype
        # NumPy calls int64 to float64 safe, but float64 has only 53 bits.
        rounds = leaf.dtype.kind in "ui" and leaf.dtype.itemsize == 8 and dtype.kind == "f"
        lossless = np.can_cast(leaf.dtype, dtype, "safe") and not rounds
        if not alone and not lossless:
            return leaf.dtype
        if not lossless:
            warnings.warn(
                f"dtypes asks to store {leaf.dtype} observations as {dtype}: values that {dtype} cannot hold are rounded "
                f"and clipped. Leave elem_type out to store {leaf.dtype} without loss",
                LossyStorageWarning,
                stacklevel=level_of_caller(),
            )
        return dtype

    def _codec(self, leaf: Leaf, dtype: np.dtype[Any]) -> Codec | str:
        method = self._for_leaf(self.compression_method, leaf, "auto")
        if not isinstance(method, str):
            raise CodecError(f"compression_method must be a codec's name, or a dict of names by key, got {method!r}")
        options = self.compression_kwargs or {}
        if isinstance(self.compression_method, Mapping) and options and all(isinstance(v, Mapping) for v in options.values()):
            options = options.get(leaf.key, {})
        if method in AUTO:
            if with_effect(options, ()):
                raise CodecError(f"compression_kwargs={dict(options)} needs a compression_method; {method!r} has no options")
            self._check_decompression(())
            return method
        runs_type = np.dtype((self.dtypes or {}).get("runs_type") or "uint16")
        defaults: dict[str, Any] = {"elem_type": dtype.name, "runs_type": runs_type.name}
        if self._level_in_dtypes is not None:
            defaults["level"] = self._level_in_dtypes
        key = (method, dtype.name, repr(sorted(options.items())))
        if key not in self._made:  # once for all leaves that share it, so that a fallback warns once
            self._made[key] = make_codec(method, options, **defaults)
        self._check_decompression(self._made[key].options())
        return self._made[key]

    @property
    def _level_in_dtypes(self) -> int | None:
        """The level that 0.5 wrote into the user's ``dtypes`` when it read a shorthand. A level in any other place wins."""
        level: int | None = (self.dtypes or {}).get("compresslevel")
        return level

    def _check_decompression(self, allowed: tuple[str, ...]) -> None:
        for name in with_effect(self.decompression_kwargs or {}, allowed):
            if name not in (*allowed, "compresslevel"):
                raise CodecError(
                    f"decompression_kwargs has no option {name!r}. Allowed: {', '.join(allowed) or 'none at all'}"
                )

    def _frame_stack(self, leaf: Leaf) -> int | None:
        stack = self._for_leaf(self.frame_stack, leaf, "auto")
        if stack == "auto":
            return None
        if not _is_count(stack):
            raise ValueError(f"frame_stack must be 'auto' or a number of frames, got {stack!r}")
        return int(stack)

    def _check_keys(self, name: str, leaves: list[Leaf]) -> None:
        value = getattr(self, name)
        if isinstance(value, Mapping):
            unknown = set(value) - {leaf.key for leaf in leaves}
            if unknown:
                raise ValueError(f"{name} names {sorted(unknown)}; the observation has {[leaf.key for leaf in leaves]}")

    @staticmethod
    def _for_leaf(value: Any, leaf: Leaf, default: Any) -> Any:
        return value.get(leaf.key, default) if isinstance(value, Mapping) else value


@dataclass
class ReplayOptions(CompressionOptions):
    """The keywords of replay buffers, which may be larger than memory, or as large as memory allows."""

    directory: str | os.PathLike[str] | None = None
    keep: bool = False
    max_memory: int | str | None = None
    random_shift: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep and self.directory is None:
            raise ValueError("keep=True keeps the buffer in its directory: it needs directory=")
        if self.directory is not None:
            self.directory = os.path.abspath(os.fspath(self.directory))
            self._directory = self.directory  # type: ignore[misc]


def level_of_caller() -> int:
    """The `stacklevel` that makes a warning point at the user's line, however deep the constructor calls go."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == __package__.partition(".")[0]:
        frame, level = frame.f_back, level + 1
    return level


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1
