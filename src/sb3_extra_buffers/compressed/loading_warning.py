"""Warn when a file with SB3's own buffer is loaded into a model that was made with a compressed one.

`model.load_replay_buffer(path)` replaces the model's buffer by the one in the file, which may then take a hundred times the
memory. SB3 calls no method of the buffer here, so its own method is wrapped, once, when the replay buffers are imported. It
still does the same, and warns in addition.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.errors import UncompressedBufferWarning


def warn_of_uncompressed_files() -> None:
    """Make SB3's `load_replay_buffer` warn. Calling this again has no effect."""
    load = OffPolicyAlgorithm.load_replay_buffer
    if hasattr(load, "_warns_of_uncompressed"):
        return

    @functools.wraps(load)
    def load_replay_buffer(self: Any, *args: Any, **kwargs: Any) -> None:
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
