"""Warnings and errors that SB3's `model.load_replay_buffer` does not have.

It replaces the model's buffer by the one in the file. If that is SB3's own buffer and the model was made with a compressed
one, it may take a hundred times the memory: then a warning says so. A file of `buffer.save` or a checkpoint folder is not a
pickle: then an error names `load_buffer`. SB3 calls no method of the buffer here, so its own method is wrapped, once, when the
replay buffers are imported. Otherwise it does the same as before.
"""

from __future__ import annotations

import functools
import os
import warnings
from pathlib import Path
from typing import Any

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.errors import UncompressedBufferWarning
from sb3_extra_buffers.segments.folders import is_checkpoint
from sb3_extra_buffers.store.format import MAGIC


def warn_of_uncompressed_files() -> None:
    """Make SB3's `load_replay_buffer` warn. Calling this again has no effect."""
    load = OffPolicyAlgorithm.load_replay_buffer
    if hasattr(load, "_warns_of_uncompressed"):
        return

    @functools.wraps(load)
    def load_replay_buffer(self: Any, *args: Any, **kwargs: Any) -> None:
        _refuse_our_files(args[0] if args else kwargs.get("path"))
        load(self, *args, **kwargs)
        asked, found = self.replay_buffer_class, self.replay_buffer
        was_ours = isinstance(asked, type) and issubclass(asked, CompressedObservations)
        if was_ours and not isinstance(found, CompressedObservations):
            warnings.warn(
                f"The model was made with {asked.__name__}, but the file holds a {type(found).__name__}: from now on "
                "observations are not compressed. To compress them: from sb3_extra_buffers import compress_buffer; "
                "model.replay_buffer = compress_buffer(model.replay_buffer)",
                UncompressedBufferWarning,
                stacklevel=2,
            )

    load_replay_buffer._warns_of_uncompressed = True  # type: ignore[attr-defined]
    OffPolicyAlgorithm.load_replay_buffer = load_replay_buffer  # type: ignore[method-assign]


def _refuse_our_files(path: Any) -> None:
    """ValueError for what `load_buffer` reads and pickle does not."""
    if not isinstance(path, (str, os.PathLike)):
        return
    what = "a checkpoint folder" if is_checkpoint(path) else None
    if Path(path).is_file():
        with open(path, "rb") as file:
            what = "a file of buffer.save" if file.read(len(MAGIC)) == MAGIC else None
    if what is not None:
        raise ValueError(
            f"{path} is {what}, not a pickle: from sb3_extra_buffers import load_buffer; "
            f"model.replay_buffer = load_buffer({os.fspath(path)!r}, device=model.device)"
        )
