"""SB3 as the oracle: the same transitions into SB3's buffer and ours, then batches must be equal to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces

from tests.transitions import Step, copied


def each_once(some: Sequence[str], others: Sequence[str], shift: int = 0) -> list[tuple[str, str]]:
    """Pairs in which each of both occurs: for a class that has nothing to do with how the two work together."""
    return [(some[i % len(some)], others[(i + shift) % len(others)]) for i in range(max(len(some), len(others)))]


def assert_same(ours: Any, theirs: Any, path: str = "batch") -> None:
    """Equal in kind, shape, dtype and bits, through tuples and dicts."""
    assert type(ours) is type(theirs), path
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), path
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{path}[{key!r}]")
    elif isinstance(theirs, tuple):
        assert len(ours) == len(theirs), path
        for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(one, other, f"{path}.{getattr(theirs, '_fields', range(99))[i]}")
    elif isinstance(theirs, th.Tensor):
        assert (ours.dtype, ours.shape, ours.device) == (theirs.dtype, theirs.shape, theirs.device), path
        assert ours.numpy().tobytes() == theirs.numpy().tobytes(), path  # bits, so that NaN equals itself
    elif isinstance(theirs, np.ndarray):
        assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes()), path
    else:
        assert ours == theirs, path


def add_to_replay(buffers: list[Any], step: Step) -> None:
    for buffer in buffers:
        buffer.add(
            copied(step.obs), copied(step.next_obs), step.action.copy(), step.reward.copy(), step.done.copy(), step.infos
        )


def assert_same_samples(ours: Any, theirs: Any, batch_size: int = 17, seed: int = 0, env: Any = None) -> None:
    batches = []
    for buffer in (ours, theirs):
        np.random.seed(seed)
        batches.append(buffer.sample(batch_size, env=env))
    assert_same(*batches)


def add_to_rollout(buffers: list[Any], step: Step, **more: Any) -> None:
    value, log_prob = th.as_tensor(step.reward) * 2, th.as_tensor(step.reward) - 1
    for buffer in buffers:
        buffer.add(copied(step.obs), step.action.copy(), step.reward.copy(), step.done.copy(), value, log_prob, **more)


def assert_same_minibatches(ours: Any, theirs: Any, batch_size: int | None, seed: int = 0) -> None:
    batches = []
    for buffer in (ours, theirs):
        np.random.seed(seed)
        batches.append(list(buffer.get(batch_size)))
    assert len(batches[0]) == len(batches[1])
    for mine, other in zip(*batches, strict=True):
        assert_same(mine, other)


IMAGE = spaces.Box(0, 255, (4, 12, 12), np.uint8)
SPACES: dict[str, spaces.Space[Any]] = {
    "stack": IMAGE,
    "stack-last": spaces.Box(0, 255, (12, 12, 4), np.uint8),
    "rgb-stack": spaces.Box(0, 255, (12, 10, 10), np.uint8),
    "image": spaces.Box(0, 255, (3, 20, 20), np.uint8),
    "odd-image": spaces.Box(0, 255, (1, 7, 9), np.uint8),
    "float32": spaces.Box(-1, 1, (17,), np.float32),
    "float64": spaces.Box(-np.inf, np.inf, (3, 40), np.float64),
    "float16": spaces.Box(-1, 1, (300,), np.float16),
    "int64": spaces.Box(-(2**40), 2**40, (5, 8), np.int64),
    "int8": spaces.Box(-128, 127, (2, 200), np.int8),
    "bool": spaces.Box(0, 1, (300,), np.bool_),
    "discrete": spaces.Discrete(7),
    "multi-discrete": spaces.MultiDiscrete([3, 5, 2]),
    "multi-binary": spaces.MultiBinary(12),
}
DICT_SPACE = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 12, 12), np.uint8),
        "speed": spaces.Box(-10, 10, (5,), np.float32),
        "far": spaces.Box(-10, 10, (2, 64), np.float64),
        "gear": spaces.Discrete(6),
        "lights": spaces.MultiBinary(3),
        "switches": spaces.MultiDiscrete([3, 4]),
    }
)
