"""Type aliases of 0.5."""

from __future__ import annotations

from typing import Union

import numpy as np
from stable_baselines3.common.buffers import BaseBuffer

from sb3_extra_buffers.recording.record import BaseRecordBuffer

# Not X | Y, which gives another object: `typing.get_args` of both is the same, the rest is not.
ReplayLike = Union[BaseBuffer, BaseRecordBuffer]  # noqa: UP007
NumberType = Union[int, float, np.integer, np.floating]  # noqa: UP007
