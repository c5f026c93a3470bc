"""Conversion to and from SB3's own buffers: the same experience in another class.

Below: contents, which knows a buffer's arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer

from sb3_extra_buffers.compressed.contents import CLASSES, class_named, constructor_arguments, contents_of, stand_at
from sb3_extra_buffers.compressed.eviction import EvictingObservations
from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.segments.runs import Ints
from sb3_extra_buffers.store.extract import on_host


def compress_buffer(buffer: BaseBuffer, **options: Any) -> Any:
    """The same experience in a buffer of this library. Used for files that SB3's own buffers have written.

    :param buffer: one of SB3's or sb3-contrib's buffers; one of this library is given back as it is
    :param options: storage keywords of the new buffer, e.g. ``compression_method``
    """
    if isinstance(buffer, CompressedObservations):
        if options:
            raise ValueError(
                f"A {type(buffer).__name__} is compressed already, and stays as it is: {', '.join(options)} cannot be given. "
                "To encode it anew: buffer.save(path), load_buffer(path, compression_method=...)"
            )
        return buffer
    compressed_class = _compressed_class(type(buffer))
    made = _other_class(buffer, compressed_class, options)
    slots = to = _slots_of(buffer)
    is_shared = isinstance(buffer, ReplayBuffer) and buffer.optimize_memory_usage
    if (
        is_shared and buffer.full
    ):  # the slot that SB3 writes next holds no transition: its observation is the next_obs of the newest one
        slots = (buffer.pos + 1 + np.arange(buffer.buffer_size - 1)) % buffer.buffer_size
        to = np.arange(len(slots))
    names = made._column_names
    for key, leaf in made._leaves.items():
        columns = [_column(buffer, name, key, made._is_dict) for name in names if getattr(buffer, name, None) is not None]
        for slot, place in zip(slots.tolist(), to.tolist(), strict=True):
            values = [column[slot] for column in columns]
            if is_shared:  # the next observation is that of the next step
                values.append(columns[0][(slot + 1) % buffer.buffer_size])
            leaf.write_step(place, tuple(np.ascontiguousarray(one) for one in values))
    _copy_arrays(buffer, made)
    if is_shared and buffer.full:
        for array in contents_of(made, to).arrays.values():
            array[: len(to)] = array[slots]
            array[len(to) :] = 0
        made._stand_after(len(to))
    return made


def decompress_buffer(buffer: Any) -> Any:
    """The same experience in SB3's own buffer, with plain arrays.

    :param buffer: a buffer of this library
    """
    if not isinstance(buffer, CompressedObservations):
        raise TypeError(f"decompress_buffer takes a buffer of this library, got {type(buffer).__name__}")
    plain_class = _plain_class(type(buffer))
    if isinstance(buffer, EvictingObservations) and not buffer.is_whole_ring():
        buffer = buffer.slice(0, buffer.size())
    with buffer._at_rest():
        made = _other_class(buffer, plain_class, {})
        for name in buffer._column_names:
            columns, plain = getattr(buffer, name), getattr(made, name)
            for key in columns if isinstance(columns, dict) else (None,):
                target, source = (plain, columns) if key is None else (plain[key], columns[key])
                for slot in _slots_of(buffer).tolist():
                    target[slot] = on_host(source[slot])
        _copy_arrays(buffer, made)
    return made


def _column(buffer: Any, name: str, key: str, is_dict: bool) -> Any:
    column = getattr(buffer, name)
    return column[key] if is_dict else column


def _slots_of(buffer: Any) -> Ints:
    return np.arange(buffer.buffer_size if buffer.full else buffer.pos)


def _plain_class(compressed_class: type) -> type:
    """The class of SB3 or sb3-contrib that a class of this library is derived from."""
    for one in compressed_class.__mro__:
        if one.__module__.partition(".")[0] in ("stable_baselines3", "sb3_contrib"):
            return one
    raise TypeError(f"{compressed_class.__name__} is no buffer of SB3's kind")


def _compressed_class(plain: type) -> Any:
    for name, module in CLASSES.items():
        if not name.startswith("Compressed") or name == "CompressedArray":
            continue
        if module.endswith("contrib") and not plain.__module__.startswith("sb3_contrib"):
            continue
        candidate = class_named(name)
        if _plain_class(candidate) is plain:
            return candidate
    raise TypeError(f"compress_buffer knows SB3's and sb3-contrib's buffers, got a {plain.__name__}")


def _other_class(buffer: Any, made_class: Any, options: dict[str, Any]) -> Any:
    """An empty buffer of another class with the same sizes, spaces and arguments."""
    if getattr(buffer, "generator_ready", False):
        raise ValueError(
            f"The minibatches of this {type(buffer).__name__} were read, which rearranges it. Convert it before that"
        )
    storage = made_class._storage_keywords() if hasattr(made_class, "_storage_keywords") else ()
    arguments = {name: value for name, value in constructor_arguments(buffer, made_class).items() if name not in storage}
    if hasattr(buffer, "env"):  # of hindsight replay
        arguments["env"] = buffer.env
    per_env = buffer.n_envs if isinstance(buffer, ReplayBuffer) else 1
    return made_class(
        buffer.buffer_size * per_env, buffer.observation_space, buffer.action_space, device=buffer.device,
        n_envs=buffer.n_envs, **arguments, **options,
    )  # fmt: skip


def _copy_arrays(source: Any, target: Any) -> None:
    observations = {"observations", "next_observations"}
    for name, value in vars(target).items():
        if isinstance(value, np.ndarray) and name not in observations:
            value[...] = getattr(source, name)
    stand_at(target, source.pos, source.full)


__all__ = ["compress_buffer", "decompress_buffer"]
