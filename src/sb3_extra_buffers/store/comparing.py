"""The one rule of what frames are shared, for the kernels of both stores."""

from __future__ import annotations

from typing import Any

from sb3_extra_buffers.codecs.kernels import jit, same_part


@jit
def count_new_frames(observation: Any, last: Any, stack: int, frame_bytes: int) -> int:
    """How many of an observation's last frames are not yet at the end of the stream: none, one, or all.

    Never trust, always compare: only what is really there already is shared.

    :param observation: a memory, see `codecs.kernels.memory_of`
    :param last: the observation written last
    """
    if same_part(observation, 0, last, 0, stack * frame_bytes):
        return 0
    if stack > 1 and same_part(observation, 0, last, frame_bytes, (stack - 1) * frame_bytes):
        return 1
    return stack
