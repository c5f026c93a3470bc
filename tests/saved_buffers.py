"""Filled buffers of every class that can be saved, beside SB3's with the same steps where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed import (
    CompressedArray,
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.contrib import CompressedMaskableRolloutBuffer, CompressedRecurrentRolloutBuffer
from sb3_extra_buffers.gpu_buffers import GpuDictReplayBuffer, GpuReplayBuffer, GpuRolloutBuffer
from sb3_extra_buffers.prioritized import (
    CompressedPrioritizedDictReplayBuffer,
    CompressedPrioritizedReplayBuffer,
    PrioritizedSampling,
)
from sb3_extra_buffers.recording import FramelessRecordBuffer, RecordBuffer
from tests.oracle import DICT_SPACE, IMAGE, SPACES, add_to_replay, add_to_rollout
from tests.test_oracle_her import goal_env, play_both
from tests.transitions import play


class PrioritizedReplayBuffer(PrioritizedSampling, ReplayBuffer): ...


class PrioritizedDictReplayBuffer(PrioritizedSampling, DictReplayBuffer): ...


ACTIONS = spaces.Discrete(4)
N_ENVS = 2
SLOTS = 30

#: Replay buffers: our class, SB3's, the space, and more arguments of both.
REPLAY: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "replay": (CompressedReplayBuffer, ReplayBuffer, IMAGE, {}),
    "replay-zstd": (CompressedReplayBuffer, ReplayBuffer, IMAGE, {"compression_method": "zstd3"}),
    "replay-none": (CompressedReplayBuffer, ReplayBuffer, IMAGE, {"compression_method": "none"}),
    "replay-last": (CompressedReplayBuffer, ReplayBuffer, SPACES["stack-last"], {}),
    "replay-vector": (CompressedReplayBuffer, ReplayBuffer, SPACES["float32"], {}),
    "replay-discrete": (CompressedReplayBuffer, ReplayBuffer, SPACES["discrete"], {}),
    "replay-no-timeouts": (CompressedReplayBuffer, ReplayBuffer, IMAGE, {"handle_timeout_termination": False}),
    "dict": (CompressedDictReplayBuffer, DictReplayBuffer, DICT_SPACE, {}),
    "n-step": (CompressedNStepReplayBuffer, NStepReplayBuffer, IMAGE, {"n_steps": 3, "gamma": 0.9}),
    "prioritized": (CompressedPrioritizedReplayBuffer, PrioritizedReplayBuffer, IMAGE, {"alpha": 0.7, "beta": 0.5}),
    "prioritized-dict": (CompressedPrioritizedDictReplayBuffer, PrioritizedDictReplayBuffer, DICT_SPACE, {}),
    "gpu": (GpuReplayBuffer, ReplayBuffer, IMAGE, {}),
    "gpu-rle": (GpuReplayBuffer, ReplayBuffer, IMAGE, {"compression_method": "rle"}),
    "gpu-dict": (GpuDictReplayBuffer, DictReplayBuffer, DICT_SPACE, {}),
}
_OURS = {"compression_method"}


def replay(kind: str, n_steps: int, *, slots: int = SLOTS, n_envs: int = N_ENVS, seed: int = 0) -> tuple[Any, Any]:
    """Our buffer and SB3's after the same steps."""
    ours_class, theirs_class, space, options = REPLAY[kind]
    plain = {name: value for name, value in options.items() if name not in _OURS}
    args = (slots * n_envs, space, ACTIONS, "cpu", n_envs)
    ours, theirs = ours_class(*args, **options), theirs_class(*args, **plain)
    for step in play(space, ACTIONS, n_envs, n_steps, seed):
        add_to_replay([ours, theirs], step)
    if isinstance(theirs, PrioritizedSampling):
        errors = np.random.default_rng(seed).random(ours.size() * n_envs)
        for buffer in (ours, theirs):
            buffer.update_priorities(np.arange(len(errors)), errors)
    return ours, theirs


def her(n_steps: int, *, slots: int = SLOTS, copy_info_dict: bool = False) -> tuple[Any, Any, Any]:
    """Hindsight buffers and their env."""
    env = goal_env(N_ENVS)
    made = [
        one(
            slots * N_ENVS, env.observation_space, env.action_space, env=env, device="cpu", n_envs=N_ENVS,
            copy_info_dict=copy_info_dict,
        )
        for one in (CompressedHerReplayBuffer, HerReplayBuffer)
    ]  # fmt: skip
    play_both(env, made, n_steps, check_every=10**9)
    return made[0], made[1], env


def rollout(kind: str, n_steps: int = SLOTS, *, is_read: bool = False) -> tuple[Any, Any]:
    """Our rollout buffer and SB3's."""
    from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
    from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    classes: dict[str, tuple[Any, Any, Any]] = {
        "rollout": (CompressedRolloutBuffer, RolloutBuffer, IMAGE),
        "rollout-vector": (CompressedRolloutBuffer, RolloutBuffer, SPACES["float32"]),
        "dict-rollout": (CompressedDictRolloutBuffer, DictRolloutBuffer, DICT_SPACE),
        "gpu-rollout": (GpuRolloutBuffer, RolloutBuffer, IMAGE),
        "maskable": (CompressedMaskableRolloutBuffer, MaskableRolloutBuffer, IMAGE),
        "recurrent": (CompressedRecurrentRolloutBuffer, RecurrentRolloutBuffer, IMAGE),
    }
    ours_class, theirs_class, space = classes[kind]
    more = ((SLOTS, 1, N_ENVS, 8),) if kind == "recurrent" else ()
    made = [one(SLOTS, space, ACTIONS, *more, device="cpu", n_envs=N_ENVS) for one in (ours_class, theirs_class)]
    rng = np.random.default_rng(5)
    for step in play(space, ACTIONS, N_ENVS, n_steps):
        extra: dict[str, Any] = {}
        if kind == "maskable":
            extra["action_masks"] = rng.integers(0, 2, (N_ENVS, 4))
        if kind == "recurrent":
            states = [th.as_tensor(rng.normal(size=(1, N_ENVS, 8)), dtype=th.float32) for _ in range(4)]
            extra["lstm_states"] = RNNStates((states[0], states[1]), (states[2], states[3]))
        add_to_rollout(made, step, **extra)
    for one in made:
        one.compute_returns_and_advantage(th.zeros(N_ENVS), np.zeros(N_ENVS))
        if is_read:
            np.random.seed(3)
            list(one.get(7))
    return made[0], made[1]


ROLLOUTS = ("rollout", "rollout-vector", "dict-rollout", "gpu-rollout", "maskable", "recurrent")


def array() -> CompressedArray:
    made = CompressedArray((7, 3), obs_shape=(20, 20), compression_method="zstd3")
    made[2, 1], made[5] = 9, np.random.default_rng(0).integers(0, 256, (3, 20, 20))
    return made


def record(kind: type[RecordBuffer] = RecordBuffer, **options: Any) -> RecordBuffer:
    made = kind(
        (8, 9), 3, size=20, dtypes={"features": [np.int8, np.float32], "action": np.dtype((np.float32, (2,)))}, **options
    )
    rng = np.random.default_rng(0)
    for i in range(33):
        made.add(rng.integers(0, 255, (8, 9, 3)).astype(np.uint8), i, [i, -i], [i, i / 2])
    return made


#: Everything that can be saved, for tests that damage files.
EVERYTHING: dict[str, Callable[[], Any]] = {
    **{kind: (lambda kind=kind: replay(kind, 45)[0]) for kind in REPLAY},  # type: ignore[misc]
    **{kind: (lambda kind=kind: rollout(kind)[0]) for kind in ROLLOUTS},  # type: ignore[misc]
    "rollout-read": lambda: rollout("rollout", is_read=True)[0],
    "her": lambda: her(45, copy_info_dict=True)[0],
    "array": array,
    "record": lambda: record(compression_method="auto"),
    "record-plain": record,
    "record-frameless": lambda: record(FramelessRecordBuffer),
}


def contents(buffer: Any) -> list[np.ndarray]:
    """All that a buffer holds, to compare: observations, arrays, where it stands."""
    if isinstance(buffer, CompressedArray):
        return [np.asarray(buffer)]
    if isinstance(buffer, RecordBuffer):
        return [np.asarray(part) for part in buffer[:] if part is not None]
    found = [np.array([buffer.pos, buffer.full])]
    for name in ("observations", "next_observations"):
        column = getattr(buffer, name, None)
        parts = column.values() if isinstance(column, dict) else [] if column is None else [column]
        found += [np.asarray(as_numpy(part[:])) for part in parts]
    found += [
        value
        for name, value in sorted(vars(buffer).items())
        if isinstance(value, np.ndarray) and value.dtype != object and name != "seq_start_indices"
    ]
    return found


def as_numpy(values: Any) -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, th.Tensor) else values


def assert_equal(ours: Any, theirs: Any) -> None:
    """The same contents, to the bit."""
    one, other = contents(ours), contents(theirs)
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()
