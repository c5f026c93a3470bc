"""The state of all random numbers that a training draws from, but for those of the env, as JSON. Above: resuming."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_extra_buffers.errors import CorruptDataError


def random_state(model: BaseAlgorithm) -> dict[str, Any]:
    """The state of all random numbers that a training draws from, but for those of the env, as JSON."""
    kind, keys, *rest = np.random.get_state()
    version, numbers, gauss = random.getstate()
    tensors = [th.get_rng_state(), *(th.cuda.get_rng_state_all() if th.cuda.is_available() else ())]
    return {
        "numpy": [kind, np.asarray(keys).tolist(), *rest], "python": [version, list(numbers), gauss],
        "actions": model.action_space.np_random.bit_generator.state,  # of exploration
        "torch": [base64.b64encode(one.numpy().tobytes()).decode() for one in tensors],
    }  # fmt: skip


def set_random_state(model: BaseAlgorithm, state: Any) -> None:
    """Go on with the random numbers where `random_state` stood. CorruptDataError if that is no such state."""
    if state is None:
        return
    try:
        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, np.array(keys, np.uint32), *rest))
        version, numbers, gauss = state["python"]
        random.setstate((version, tuple(numbers), gauss))
        model.action_space.np_random.bit_generator.state = state["actions"]
        tensors = [th.frombuffer(bytearray(base64.b64decode(one)), dtype=th.uint8) for one in state["torch"]]
        th.set_rng_state(tensors[0])
        if th.cuda.is_available() and len(tensors) == 1 + th.cuda.device_count():
            th.cuda.set_rng_state_all(tensors[1:])
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise CorruptDataError(f"The checkpoint holds no state of random numbers: {error}") from error
