"""Buffers from files and from other buffers: `load_buffer`, `merge_buffers`. Below: all buffers, and segments.

Loading makes a new buffer as the file describes it (spaces and arguments: data, never code), then puts the file's steps into
it. With other sizes, the steps go to other slots; the encoded blocks stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import ArgumentError
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed.array import CompressedArray
from sb3_extra_buffers.compressed.contents import (
    CLASSES,
    arguments_from_json,
    cells_for,
    class_named,
    contents_of,
    put_steps,
    restore_state,
)
from sb3_extra_buffers.compressed.episodes import check_episodes, forget_cut_episodes, stand_with_episodes
from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.errors import CodecError, CorruptDataError
from sb3_extra_buffers.recording import RecordBuffer
from sb3_extra_buffers.segments.dealing import deal
from sb3_extra_buffers.segments.folders import is_checkpoint, open_checkpoint
from sb3_extra_buffers.segments.runs import Contents, Ints, StoredBuffer, put_run
from sb3_extra_buffers.segments.spaces import space_from_json


@contextmanager
def open_stored(path: str | os.PathLike[str]) -> Iterator[StoredBuffer]:
    """Open a saved buffer, or the newest complete state of a checkpoint folder, for reading."""
    if is_checkpoint(path):
        with open_checkpoint(Path(path)) as stored:
            yield stored
        return
    if Path(path).is_dir():
        raise FileNotFoundError(f"{path} is a folder without a checkpoint: buffer.checkpoint(folder) writes one")
    if Path(path).exists() and not Path(path).is_file():
        raise CorruptDataError(f"{path} is no file: it cannot hold a buffer")
    with open(path, "rb") as file:
        try:
            yield StoredBuffer.of_file(file)
        except CorruptDataError as error:
            if _looks_like_pickle(Path(path)):
                raise CorruptDataError(
                    f"{path} looks like a pickle, as model.save_replay_buffer writes it. Only if you trust where it comes "
                    "from: read it with model.load_replay_buffer, then buffer.save(...) it"
                ) from None
            raise type(error)(f"{path}: {error}") from error


def _looks_like_pickle(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(1) == b"\x80"


def load_buffer(
    path: str | os.PathLike[str],
    *,
    buffer_size: int | None = None,
    n_envs: int | None = None,
    device: Any = "auto",
    compression_method: Any = None,
    env: VecEnv | None = None,
    directory: str | os.PathLike[str] | None = None,
    keep: bool = False,
) -> Any:
    """Load a buffer that `buffer.save(path)` or `buffer.checkpoint(folder)` has written. No code of the file is run.

    :param path: a file, or a checkpoint folder
    :param buffer_size: another size, as the constructor takes it; the newest steps that fit are kept
    :param n_envs: another number of envs, for replay buffers. Whole episodes are distributed over the new envs. All envs must
        have the same number of steps, so a few episodes are cut, which counts as a timeout
    :param device: torch device of the batches, and of the observations of GPU buffers
    :param compression_method: another codec; all observations are encoded again
    :param directory: for replay buffers: keep compressed observations in files there. A checkpoint that a buffer with
        ``keep=True`` has left in its directory is loaded to files there by default
    :param keep: leave a checkpoint in the directory when the buffer is closed
    :param env: for hindsight replay: the env whose `compute_reward` is called. `buffer.set_env(env)` also sets it
    :return: a buffer of the class that was saved
    """
    get_device(device)  # a device that does not exist is not the file's fault
    with _faults_of(path), open_stored(path) as stored:
        buffer_class = _class_of(stored)
        if buffer_class is CompressedArray or issubclass(buffer_class, RecordBuffer):
            if any(one is not None for one in (buffer_size, n_envs, compression_method, directory)):
                raise ValueError(f"A {buffer_class.__name__} is loaded as it was saved, without other sizes or codecs")
            return buffer_class._from_stored(stored)
        old_envs = stored.about["n_envs"]
        is_replay = issubclass(buffer_class, ReplayBuffer)
        new_envs = _positive("n_envs", n_envs, old_envs)
        if new_envs != old_envs and not is_replay:
            raise ValueError(
                f"A {buffer_class.__name__} of {old_envs} envs cannot be loaded for {new_envs}: the advantages of a rollout "
                "belong to its envs. Leave n_envs out"
            )
        total = stored.about["slots"] * (old_envs if is_replay else 1)
        size = _positive("buffer_size", buffer_size, total)
        changes: dict[str, Any] = {}
        if compression_method is not None:
            changes = {"compression_method": compression_method, "compression_kwargs": None, "decompression_kwargs": None}
        if directory is None and stored.folder is not None and stored.about.get("lives_here"):
            directory = stored.folder  # it may be larger than memory. The checkpoint there stays as it is
        if directory is not None:
            changes |= {"directory": directory, "keep": keep}
        if issubclass(buffer_class, HerReplayBuffer):
            changes["env"] = env
        buffer = _make(buffer_class, stored.about, size, new_envs, device, changes)
        _fill(buffer, stored, encode=compression_method is not None)
        return buffer


@contextmanager
def _faults_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors behind the checks, which only a forged file can cause, become a CorruptDataError too."""
    try:
        yield
    except (TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, ArgumentError) as error:
        raise CorruptDataError(
            f"{path} cannot be read: it holds something that cannot be ({type(error).__name__}: {error})"
        ) from error


def _positive(name: str, given: int | None, default: int) -> int:
    if given is None:
        return max(int(default), 1)
    if not isinstance(given, (int, np.integer)) or isinstance(given, bool) or given < 1:
        raise ValueError(f"{name} must be a positive number, got {given!r}")
    return int(given)


def _class_of(stored: StoredBuffer) -> Any:
    name = stored.about["class"]
    if name not in CLASSES:
        raise CorruptDataError(f"The file holds a {name!r}, which this version does not know. It knows {', '.join(CLASSES)}")
    return class_named(name)


def _make(buffer_class: Any, about: dict[str, Any], size: int, n_envs: int, device: Any, changes: dict[str, Any]) -> Any:
    """An empty buffer as a file describes it, with some arguments replaced."""
    described = arguments_from_json(about.get("arguments"))
    if foreign := described.keys() & {"directory", "keep", "env", "device"}:
        raise CorruptDataError(f"The file gives {sorted(foreign)}, which no file may")
    arguments = described | changes
    if "buffer_device" in arguments:
        arguments["buffer_device"] = None if device == "auto" else device
    if "hidden_state_shape" in arguments:
        arguments["hidden_state_shape"] = (size, *arguments["hidden_state_shape"][1:])
    observation_space, action_space = (space_from_json(about.get(name)) for name in ("observation_space", "action_space"))
    try:
        return buffer_class(size, observation_space, action_space, device=device, n_envs=n_envs, **arguments)
    except MemoryError as error:
        raise MemoryError(
            f"No memory for a {buffer_class.__name__} of {size} transitions. Load it with a smaller buffer_size"
        ) from error
    except ImportError:
        raise
    except Exception as error:
        if "compression_method" in changes and isinstance(error, CodecError):
            raise
        raise CorruptDataError(f"The file describes a {buffer_class.__name__} that cannot be made: {error}") from error


def _fill(buffer: Any, stored: StoredBuffer, *, encode: bool = False) -> None:
    """Put all steps of a file into a new buffer."""
    about, n_steps, n_envs = stored.about, stored.n_steps, stored.about["n_envs"]
    contents = contents_of(buffer, np.arange(0))
    expected, found = {*contents.arrays, *contents.whole}, {*stored.names("array"), *stored.names("whole")}
    if expected != found:
        raise CorruptDataError(f"The file has {sorted(found)}; a {type(buffer).__name__} needs {sorted(expected)}")
    if n_steps > about["slots"]:
        raise CorruptDataError(f"The file has {n_steps} steps in {about['slots']} slots")
    whole = {name: stored.whole(name) for name in stored.names("whole")}
    if isinstance(buffer, HerReplayBuffer):
        check_episodes(stored, whole)
    is_same = (buffer.buffer_size, buffer.n_envs) == (about["slots"], n_envs) and _is_whole_ring(stored)
    if is_same:
        slots = (about["oldest"] + np.arange(n_steps)) % about["slots"]
        _put_all(buffer, stored, cells_for(n_steps, n_envs, slots), encode=encode)
        restore_state(buffer, about, whole)
        if isinstance(buffer, HerReplayBuffer):
            forget_cut_episodes(buffer)
        if stored.folder is not None and not encode:
            buffer._go_on_from(stored.folder, stored.life, stored.age)
        return
    if about.get("generator_ready"):
        raise ValueError(
            f"A {type(buffer).__name__} that was read cannot be loaded with another buffer_size. Save it before its "
            "minibatches are read, or load it as it is"
        )
    if buffer.n_envs == n_envs:
        kept = min(n_steps, buffer.buffer_size)
        _put_all(buffer, stored, cells_for(n_steps, n_envs, np.arange(kept)), encode=encode)
        cut: Ints = np.arange(0)
    else:
        dones = stored.array("dones").astype(bool)
        dealt = deal(dones, buffer.n_envs, buffer.buffer_size)
        if n_steps and not dealt.n_slots:
            raise ValueError(f"n_envs={buffer.n_envs} is more than the {dones.size} transitions that there are to be dealt")
        _put_all(buffer, stored, dealt.to, encode=encode)
        kept, cut = dealt.n_slots, dealt.cut
    stand_with_episodes(buffer, kept, cut)


def _is_whole_ring(stored: StoredBuffer) -> bool:
    """Whether the steps are where `pos` and `full` say, so that they can go to the same slots."""
    about, n = stored.about, stored.n_steps
    oldest, pos, full, slots = (about.get(name) for name in ("oldest", "pos", "full", "slots"))
    if type(oldest) is not int or type(pos) is not int or type(slots) is not int or type(full) is not bool:
        raise CorruptDataError("A file is damaged: it does not say where its steps stand")
    return n == (slots if full else pos) and (n == 0 or oldest == (pos % slots if full else 0))


def _put_all(buffer: Any, stored: StoredBuffer, to: Ints, *, encode: bool = False) -> None:
    to = np.concatenate((np.full((stored.skipped, to.shape[1]), -1, np.int64), to))
    target = contents_of(buffer, np.arange(0))
    by_step = stored.names("array")  # of a rollout that was read, arrays belong to no step
    target = replace(target, arrays={name: array for name, array in target.arrays.items() if name in by_step})
    for run in stored.runs:
        put_run(target, run, to[run.first : run.first + run.count], encode=encode)


def rescue_buffer(stored: StoredBuffer, gaps: Sequence[int], *, device: Any = "auto") -> Any:
    """A buffer from steps with gaps. At a gap, the episode ends with a timeout.

    :param gaps: steps that are followed by a gap
    """
    buffer_class = _class_of(stored)
    if not issubclass(buffer_class, ReplayBuffer):
        raise CorruptDataError(
            f"A {buffer_class.__name__} is of no use with steps missing; only replay buffers can be repaired"
        )
    n_envs = stored.about["n_envs"]
    her = {"env": None} if issubclass(buffer_class, HerReplayBuffer) else {}
    buffer = _make(buffer_class, stored.about, stored.about["slots"] * n_envs, n_envs, device, her)
    n_steps, kept = stored.n_steps, min(stored.n_steps, buffer.buffer_size)
    _put_all(buffer, stored, cells_for(n_steps, n_envs, np.arange(kept)))
    steps = np.array(gaps, np.int64) - (n_steps - kept)
    cells = (steps[steps >= 0, None] * n_envs + np.arange(n_envs)).reshape(-1)
    stand_with_episodes(buffer, kept, cells[buffer.dones.reshape(-1)[cells] == 0])
    return buffer


# ---- several buffers


def merge_buffers(buffers: Sequence[Any], *, buffer_size: int | None = None) -> Any:
    """A new replay buffer with the steps of several buffers, one after the other. It has the class of the first.

    :param buffers: replay buffers of this library with the same spaces. Where the number of envs differs from that of the
        first, episodes are distributed as by `load_buffer`
    :param buffer_size: size of the new buffer; by default all steps fit. If it is smaller, the newest steps of the last
        buffers are kept
    """
    if not buffers or not all(isinstance(one, CompressedObservations) and isinstance(one, ReplayBuffer) for one in buffers):
        raise TypeError(
            f"merge_buffers takes a list of replay buffers of this library, got {[type(one).__name__ for one in buffers]}"
        )
    first = buffers[0]
    for one in buffers[1:]:
        if (one.observation_space, one.action_space) != (first.observation_space, first.action_space):
            raise ValueError(
                f"The buffers have different spaces: {one.observation_space}, {one.action_space} and those of the first"
            )
    lengths = [one.size() * one.n_envs // first.n_envs for one in buffers]
    slots = sum(lengths) if buffer_size is None else max(_positive("buffer_size", buffer_size, 1) // first.n_envs, 1)
    merged = first._like(max(slots, 1))
    skipped, at, cuts = max(sum(lengths) - slots, 0), 0, []
    for one, length in zip(buffers, lengths, strict=True):
        with one._at_rest() as contents:
            dealt = deal(_ends(one, contents), first.n_envs, length) if one.n_envs != first.n_envs else None
            to = cells_for(contents.n_steps, one.n_envs, np.arange(length)) if dealt is None else dealt.to
            # The last step of a buffer is followed by the first step of the next buffer.
            last = to[-1:][~_ends(one, contents)[-1:]] if dealt is None else dealt.cut
            shift = (at - skipped) * first.n_envs
            moved = np.where(to >= 0, to + shift, -1)
            put_steps(merged, contents.run(0, contents.n_steps), np.where(moved >= 0, moved, -1))
            cuts.append(last[last >= 0] + shift)
            at += length
    kept = min(sum(lengths), slots)
    cells = np.concatenate(cuts)
    stand_with_episodes(merged, kept, cells[(cells >= 0) & (cells < (kept - 1) * first.n_envs)])
    return merged


def _ends(buffer: Any, contents: Contents) -> Any:
    return buffer.dones[contents.slots].astype(bool)


def check_spaces(buffer: Any, env: VecEnv) -> None:
    """Raise ValueError unless a buffer was made for the spaces and the number of these envs."""
    for name in ("observation_space", "action_space"):
        saved, given = getattr(buffer, name), getattr(env, name)
        if saved != given:
            raise ValueError(f"The buffer was made for the {name} {saved}; the env has {given}")
    if buffer.n_envs != env.num_envs:
        raise ValueError(
            f"The buffer has {buffer.n_envs} envs, and there are {env.num_envs}: load_buffer(..., n_envs={env.num_envs})"
        )


__all__ = ["load_buffer", "merge_buffers"]
