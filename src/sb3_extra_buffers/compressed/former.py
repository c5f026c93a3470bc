"""For code and files of sb3-extra-buffers 0.5: attributes that its buffers had, and replay buffers that it has pickled.

Above: mixin. Code reads `buffer.flatten_len`, say, which the buffers have no use for any more. A pickle of 0.5 holds each
observation as bytes of its own, and the function that decodes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer


class Former:
    """An attribute that buffers had in 0.5: computed when it is read, unless the buffer has one of its own.

    `__getattr__` would do the same, and slow down every access to any attribute.
    """

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __get__(self, buffer: Any, owner: type) -> Any:
        return self if buffer is None else self._read(buffer)


class FormerAttributes:
    """What code of 0.5 may read from a buffer."""

    version = Former(lambda buffer: import_module(__name__.partition(".")[0]).__version__)
    dtypes = Former(lambda buffer: buffer._options.dtypes or _dtypes(buffer))
    normalize_images = Former(lambda buffer: buffer._options.normalize_images)
    compression_method = Former(lambda buffer: buffer._options.compression_method)
    compression_kwargs = Former(lambda buffer: buffer._options.compression_kwargs or buffer.dtypes)
    decompression_kwargs = Former(lambda buffer: buffer._options.decompression_kwargs or buffer.dtypes)
    output_dtype = Former(lambda buffer: th.float32 if buffer._options.output_dtype == "float" else None)
    flatten_len = Former(lambda buffer: math.prod(buffer.obs_shape))
    flatten_config = Former(lambda buffer: _flatten_config(buffer.obs_shape, buffer.observation_space))
    flatten_configs = Former(
        lambda buffer: {key: _flatten_config(shape, buffer.observation_space[key]) for key, shape in buffer.obs_shape.items()}
    )
    #: Observations are decoded when they are read, so there is nothing left to decompress.
    _decompress = Former(lambda buffer: lambda data, *args, **kwargs: data)
    reconstruct_obs = Former(lambda buffer: _reader(buffer, "observations"))
    reconstruct_nextobs = Former(lambda buffer: _reader(buffer, "next_observations"))


def _dtypes(buffer: Any) -> dict[str, Any]:
    leaf = next(iter(buffer._leaves.values())).leaf
    return {"elem_type": leaf.dtype.type, "runs_type": np.uint16}


def _flatten_config(shape: tuple[int, ...], space: Any) -> dict[str, Any]:
    return {"shape": math.prod(shape), "dtype": space.dtype}


def _reader(buffer: Any, column: str) -> Callable[..., Any]:
    """A function that gives an observation: of a slot and an env for replay buffers, of a flattened rollout by its number."""
    if isinstance(buffer, ReplayBuffer):
        return lambda idx, env_idx: getattr(buffer, column)[idx, env_idx]
    return lambda idx: buffer.to_torch(getattr(buffer, column)[idx])


# ---- pickles


def is_pickled_by_former(buffer: Any, state: Mapping[str, Any]) -> bool:
    """Whether a pickle holds a replay buffer of 0.5, with its observations on the host."""
    return isinstance(buffer, ReplayBuffer) and callable(state.get("_decompress")) and "obs_store" not in state


def restore_former(buffer: Any, state: Mapping[str, Any]) -> None:
    """Make a buffer as 0.5's was, and add its transitions again, from the oldest on.

    :param buffer: without anything in it yet
    :param state: what 0.5 has pickled
    """
    buffer.__init__(
        state["buffer_size"] * state["n_envs"], state["observation_space"], state["action_space"], state["device"],
        state["n_envs"], handle_timeout_termination=state.get("handle_timeout_termination", True), dtypes=state["dtypes"],
        normalize_images=state["normalize_images"], compression_method=_method(state),
        output_dtype="raw" if state["output_dtype"] is None else "float",
    )  # fmt: skip
    size, pos = state["buffer_size"], state["pos"]
    oldest = pos if state["full"] else 0
    # With optimize_memory_usage the newest `next_obs` has overwritten the oldest `obs`.
    is_shared = bool(state.get("optimize_memory_usage"))
    for i in range(1 if is_shared and state["full"] else 0, size if state["full"] else pos):
        slot = (oldest + i) % size
        following = ("observations", (slot + 1) % size) if is_shared else ("next_observations", slot)
        infos = [{"TimeLimit.truncated": bool(cut)} for cut in state["timeouts"][slot]]
        buffer.add(
            _decoded(buffer, state, "observations", slot), _decoded(buffer, state, *following),
            state["actions"][slot], state["rewards"][slot], state["dones"][slot], infos,
        )  # fmt: skip


def _decoded(buffer: Any, state: Mapping[str, Any], column: str, slot: int) -> Any:
    """The observations of all envs."""
    if isinstance(buffer, DictReplayBuffer):
        return {
            key: _stacked(state, cells[slot], state["obs_shape"][key], arr_configs=state["flatten_configs"][key])
            for key, cells in state[column].items()
        }
    return _stacked(state, state[column][slot], state["obs_shape"])


def _stacked(state: Mapping[str, Any], cells: Any, shape: tuple[int, ...], **options: Any) -> NDArray[Any]:
    return np.stack([state["_decompress"](data, **options).reshape(shape) for data in cells])


def _method(state: Mapping[str, Any]) -> str:
    """The codec of the function that has compressed; its level is among the dtypes."""
    name: str = state["_compress"].func.__name__.removesuffix("_compress")
    return "none" if name == "no" else name.replace("_", "-")
