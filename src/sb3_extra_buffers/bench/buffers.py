"""What is measured: a name like ``sb3``, ``zstd9@64`` or ``cpprb`` -> something to add to and to sample from.

``auto``, ``delta``, ``zstd9@64`` ...   CompressedReplayBuffer with this compression_method (and block_frames, after the @)
``gpu-tiles``, ``gpu-zstd3`` ...        GpuReplayBuffer with this compression_method, on CPU tensors
``sb3``                                 SB3's ReplayBuffer with optimize_memory_usage, the unit of all ratios
``sb3-default``                         SB3's ReplayBuffer
``0.5.0:zstd-3`` ...                    sb3-extra-buffers 0.5.0, in an environment of its own
``cpprb``, ``torchrl``, ``torchrl-compressed``   the same for these libraries

Everything is imported when it is made: each kind lives in its own process, some in their own virtual environment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from .frames import Step, Workload

PEERS = ("0.5.0:zstd-3", "0.5.0:lz4-frame/1", "0.5.0:rle-jit", "cpprb", "torchrl", "torchrl-compressed")


@dataclass(frozen=True)
class Subject:
    """A buffer in the two operations that are timed.

    :param add: takes the parts of a step
    :param sample: takes a batch size, gives a batch
    :param buffer: the object itself
    :param comparable: whether the same seed must give the same batches as SB3's own buffer
    """

    add: Callable[..., Any]
    sample: Callable[[int], Any]
    buffer: Any
    comparable: bool = False

    def digest(self) -> str | None:
        """SHA-256 of a few batches under fixed seeds; None where batches cannot be compared."""
        if not self.comparable:
            return None
        digest = hashlib.sha256()
        for seed in range(4):
            np.random.seed(seed)
            for tensor in self.sample(64):
                if tensor is not None:
                    digest.update(np.ascontiguousarray(tensor.numpy()).tobytes())
        return digest.hexdigest()

    def observation_bytes(self) -> int | None:
        """What the observations take by the buffer's own count."""
        if hasattr(self.buffer, "memory_usage"):
            return int(self.buffer.memory_usage().stored_bytes)
        arrays = [getattr(self.buffer, name, None) for name in ("observations", "next_observations")]
        dense = [array.nbytes for array in arrays if isinstance(array, np.ndarray) and array.dtype != object]
        return sum(dense) or None


def check_name(name: str) -> None:
    """Refuse a name that nothing could be made of, before anything is measured."""
    from sb3_extra_buffers.codecs import AUTO, make_codec

    if name in ("sb3", "sb3-default") or name.startswith(("gpu-", "0.5.0:", "cpprb", "torchrl")):
        return
    method, at, block_frames = name.partition("@")
    if at and not block_frames.isdecimal():
        raise ValueError(f"{name!r}: behind the @ stands block_frames, a number, such as zstd9@64")
    if method not in AUTO:
        make_codec(method)


def make_subject(name: str, transitions: int, workload: Workload) -> Subject:
    """The buffer that a name stands for, empty."""
    if name.startswith("cpprb"):
        return _cpprb(transitions, workload)
    if name.startswith("torchrl"):
        return _torchrl(transitions, workload, compressed=name.endswith("compressed"))
    buffer = _sb3_like(name, transitions, workload)
    # With optimize_memory_usage the terminal observation is lost, so batches differ for that reason alone.
    return Subject(buffer.add, buffer.sample, buffer, comparable=name != "sb3" and not name.startswith("0.5.0"))


def _sb3_like(name: str, transitions: int, workload: Workload) -> Any:
    options: dict[str, Any] = {"device": "cpu", "n_envs": workload.n_envs, "handle_timeout_termination": False}
    if name.startswith("sb3"):
        from stable_baselines3.common.buffers import ReplayBuffer as Kind

        options["optimize_memory_usage"] = name == "sb3"
    elif name.startswith("0.5.0:"):
        from sb3_extra_buffers.compressed import CompressedReplayBuffer as Kind

        options.update(compression_method=name.partition(":")[2], optimize_memory_usage=True)  # its smallest
        options["dtypes"] = {"elem_type": workload.observation_space.dtype.type, "runs_type": np.uint16}
    elif name.startswith("gpu-"):
        from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer as Kind

        # A heap that begins with nothing: what it grows to is what observations need, and not what was estimated.
        options.update(compression_method=name.removeprefix("gpu-"), buffer_device="cpu", heap_bytes=1)
    else:
        from sb3_extra_buffers.compressed import CompressedReplayBuffer as Kind

        method, _, block_frames = name.partition("@")
        options.update(compression_method=method, block_frames=int(block_frames) if block_frames else None)
    return Kind(transitions, workload.observation_space, workload.action_space, **options)


def _cpprb(transitions: int, workload: Workload) -> Subject:
    """Dense: its ways to share frames want a single env, and trust that stacks overlap."""
    cpprb = import_module("cpprb")
    space = workload.observation_space
    field = {"shape": space.shape, "dtype": space.dtype}
    action = {"shape": workload.action_space.shape or 1, "dtype": workload.action_space.dtype}
    fields = {"obs": field, "next_obs": field, "act": action, "rew": {}, "done": {}}
    buffer = cpprb.ReplayBuffer(transitions, fields)

    def add(obs: Any, after: Any, actions: Any, rewards: Any, dones: Any, infos: Any) -> None:
        buffer.add(obs=obs, next_obs=after, act=actions, rew=rewards, done=dones)

    return Subject(add, buffer.sample, buffer)


def _torchrl(transitions: int, workload: Workload, *, compressed: bool) -> Subject:
    import torch as th

    data, tensordict = import_module("torchrl.data"), import_module("tensordict")
    storage = (data.CompressedListStorage if compressed else data.LazyTensorStorage)(transitions)
    buffer = data.ReplayBuffer(storage=storage)

    def add(obs: Any, after: Any, actions: Any, rewards: Any, dones: Any, infos: Any) -> None:
        values = {"obs": obs, "next_obs": after, "act": actions, "rew": rewards, "done": dones}
        buffer.extend(
            tensordict.TensorDict({key: th.as_tensor(value) for key, value in values.items()}, batch_size=[len(obs)])
        )

    return Subject(add, buffer.sample, buffer)


def fill(subject: Subject, steps: list[Step]) -> None:
    """Add steps, untimed."""
    for step in steps:
        subject.add(*step)
