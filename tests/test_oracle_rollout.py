"""Rollout buffers give the minibatches that SB3's and sb3-contrib's give, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from sb3_extra_buffers.codecs import available_codecs
from sb3_extra_buffers.compressed import CompressedDictRolloutBuffer, CompressedRolloutBuffer
from sb3_extra_buffers.contrib import (
    CompressedMaskableDictRolloutBuffer,
    CompressedMaskableRolloutBuffer,
    CompressedRecurrentDictRolloutBuffer,
    CompressedRecurrentRolloutBuffer,
)
from tests.oracle import DICT_SPACE, IMAGE, SPACES, add_to_rollout, assert_same_minibatches, each_once
from tests.transitions import play

METHODS = ["auto", *available_codecs()]
ACTIONS = spaces.Discrete(4)
STEPS = 24
HIDDEN = (STEPS, 1, 0, 6)  # n_steps, layers, envs, size

CLASSES: dict[str, tuple[Any, Any]] = {
    "plain": (CompressedRolloutBuffer, RolloutBuffer),
    "dict": (CompressedDictRolloutBuffer, DictRolloutBuffer),
    "maskable": (CompressedMaskableRolloutBuffer, MaskableRolloutBuffer),
    "maskable-dict": (CompressedMaskableDictRolloutBuffer, MaskableDictRolloutBuffer),
    "recurrent": (CompressedRecurrentRolloutBuffer, RecurrentRolloutBuffer),
    "recurrent-dict": (CompressedRecurrentDictRolloutBuffer, RecurrentDictRolloutBuffer),
}


def buffers(kind: str, space: spaces.Space[Any], n_envs: int, **options: Any) -> tuple[Any, Any]:
    ours, theirs = CLASSES[kind]
    args: tuple[Any, ...] = (STEPS, space, ACTIONS)
    if kind.startswith("recurrent"):
        args = (*args, (STEPS, 1, n_envs, 6))
    more = {"device": "cpu", "n_envs": n_envs, "gamma": 0.9, "gae_lambda": 0.8}
    return ours(*args, **more, **options), theirs(*args, **more)


def extras(kind: str, n_envs: int, rng: np.random.Generator) -> dict[str, Any]:
    if kind.startswith("maskable"):
        return {"action_masks": rng.random((n_envs, 4)) < 0.5}
    if kind.startswith("recurrent"):
        state = [tuple(th.as_tensor(rng.normal(size=(1, n_envs, 6)), dtype=th.float32) for _ in range(2)) for _ in range(2)]
        return {"lstm_states": RNNStates(*state)}
    return {}


def check(kind: str, space: spaces.Space[Any], n_envs: int, *, rollouts: int = 3, **options: Any) -> None:
    """Several rollouts with a reset before each, several epochs of minibatches, with sizes that do not divide the rollout."""
    pair = buffers(kind, space, n_envs, **options)
    rng = np.random.default_rng(0)
    for rollout in range(rollouts):
        for buffer in pair:
            buffer.reset()
        for step in play(space, ACTIONS, n_envs, STEPS, seed=rollout):
            add_to_rollout(list(pair), step, **extras(kind, n_envs, rng))
        last = th.as_tensor(rng.normal(size=n_envs), dtype=th.float32)
        for buffer in pair:
            buffer.compute_returns_and_advantage(last, np.zeros(n_envs, bool))
        for epoch, batch_size in enumerate((None, 7, 7, STEPS * n_envs)):
            assert_same_minibatches(*pair, batch_size, seed=epoch)


#: How codecs and spaces work together is the same for all classes: only one has every pair.
PAIRS = [
    *(("plain", name, method) for name in SPACES for method in METHODS),
    *(("maskable", *pair) for pair in each_once(list(SPACES), METHODS)),
    *(("recurrent", *pair) for pair in each_once(list(SPACES), METHODS, shift=3)),
]


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize(("kind", "name", "method"), PAIRS)
def test_every_class_space_and_codec_equals_its_original(kind: str, name: str, n_envs: int, method: str) -> None:
    check(kind, SPACES[name], n_envs, rollouts=2, compression_method=method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("kind", [kind for kind in CLASSES if "dict" in kind])
def test_every_dict_class_and_codec_equals_its_original(kind: str, n_envs: int, method: str) -> None:
    check(kind, DICT_SPACE, n_envs, rollouts=3, compression_method=method)


def test_reset_gives_the_blocks_back() -> None:
    ours, theirs = buffers("plain", IMAGE, 3, compression_method="none")
    sizes = []
    for rollout in range(4):
        for buffer in (ours, theirs):
            buffer.reset()
        empty = ours.memory_usage()
        assert empty.raw_bytes == 0
        for step in play(IMAGE, ACTIONS, 3, STEPS, seed=0):
            add_to_rollout([ours, theirs], step)
        assert ours.full
        assert ours.memory_usage().raw_bytes == theirs.observations.nbytes
        if rollout:
            sizes.append(ours.memory_usage().stored_bytes)
    assert len(set(sizes)) == 1


def test_minibatches_do_not_share_memory() -> None:
    ours, theirs = buffers("plain", IMAGE, 3)
    for step in play(IMAGE, ACTIONS, 3, STEPS):
        add_to_rollout([ours, theirs], step)
    for batch in ours.get(9):
        batch.observations.fill_(99)
    np.random.seed(0)
    first = next(iter(ours.get(None)))
    np.random.seed(0)
    assert th.equal(first.observations, next(iter(theirs.get(None))).observations)
