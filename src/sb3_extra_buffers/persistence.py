"""Buffers from files: `load_buffer`. Below: all buffers, and segments. Beside: merging, which makes one buffer of several.

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
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
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
    restore_state,
)
from sb3_extra_buffers.compressed.episodes import check_episodes, end_last_episode, forget_cut_episodes, stand_with_episodes
from sb3_extra_buffers.errors import CodecError, CorruptDataError, SegmentVersionError
from sb3_extra_buffers.recording import RecordBuffer
from sb3_extra_buffers.segments.dealing import deal
from sb3_extra_buffers.segments.folders import segment_files
from sb3_extra_buffers.segments.opening import open_stored
from sb3_extra_buffers.segments.runs import Ints, StoredBuffer, put_run
from sb3_extra_buffers.segments.spaces import space_from_json
from sb3_extra_buffers.store.format import MAGIC


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
    truncate_last_traj: bool = True,
) -> Any:
    """Load a buffer that `buffer.save(path)` or `buffer.checkpoint(folder)` has written. No code of the file is run.

    :param path: a file, or a checkpoint folder
    :param buffer_size: another size, as the constructor takes it; the newest steps that fit are kept
    :param n_envs: another number of envs, for replay buffers. Whole episodes are distributed over the new envs. All envs must
        have the same number of steps, so a few episodes are cut, which counts as a timeout
    :param device: torch device of the batches, and of the observations of GPU buffers
    :param compression_method: another codec; observations are encoded anew
    :param directory: of replay buffers on the host: where compressed observations are kept in files. What a buffer with
        ``keep=True`` has left in its directory is loaded to files there without being asked
    :param keep: leave a checkpoint in the directory when the buffer is closed
    :param env: for hindsight replay: the env whose `compute_reward` is called; `buffer.set_env(env)` does the same
    :param truncate_last_traj: of hindsight and n-step replay: end the episodes that were running, by a timeout. What is added
        next begins new ones then. False leaves the buffer exactly as it was: what is added next continues them
    :return: a buffer of the class that was saved
    """
    get_device(device)  # a device that does not exist is not the file's fault
    with _faults_of(path), open_stored(path) as stored:
        buffer_class = _class_of(stored)
        if env is not None and not issubclass(buffer_class, HerReplayBuffer):
            raise ValueError(
                f"env= is for hindsight replay, which computes rewards by it; {path} holds a {buffer_class.__name__}"
            )
        if _is_plain(buffer_class):
            if any(one is not None for one in (buffer_size, n_envs, compression_method, directory)) or keep:
                raise ValueError(f"A {buffer_class.__name__} is loaded as it was saved, without other sizes or codecs")
            return buffer_class._from_stored(stored)
        old_envs = stored.about["n_envs"]
        is_replay = issubclass(buffer_class, ReplayBuffer)
        new_envs = positive("n_envs", n_envs, old_envs)
        if new_envs != old_envs and not is_replay:
            raise ValueError(
                f"A {buffer_class.__name__} of {old_envs} envs cannot be loaded for {new_envs}: the advantages of a rollout "
                "belong to its envs. Leave n_envs out"
            )
        total = stored.about["slots"] * (old_envs if is_replay else 1)
        size = positive("buffer_size", buffer_size, total)
        changes: dict[str, Any] = {}
        if compression_method is not None:
            changes = {"compression_method": compression_method, "compression_kwargs": None, "decompression_kwargs": None}
        if directory is None and stored.folder is not None and stored.about.get("lives_here"):
            directory = stored.folder  # it may be larger than memory. What is kept there stays as it is
        if (directory is not None or keep) and "directory" not in buffer_class._storage_keywords():
            raise ValueError(
                f"{path} holds a {buffer_class.__name__}: only replay buffers on the host have a directory. Leave directory= "
                "and keep= out"
            )
        if keep and directory is None:
            raise ValueError("keep=True keeps the buffer in its directory: it needs directory=")
        if directory is not None:
            changes |= {"directory": directory, "keep": keep}
        if issubclass(buffer_class, HerReplayBuffer):
            changes["env"] = env
        buffer = _make(buffer_class, stored.about, size, new_envs, device, changes)
        _fill(buffer, stored, encode=compression_method is not None)
        if truncate_last_traj and isinstance(buffer, HerReplayBuffer | NStepReplayBuffer):
            end_last_episode(buffer)
        return buffer


@contextmanager
def _faults_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever a forged file gets past the checks of its parts is still said to be the file's fault. And what to do then."""
    try:
        yield
    except CorruptDataError as error:
        if isinstance(error, SegmentVersionError) or not _has_segments(Path(path)):
            raise
        raise CorruptDataError(
            f"{error}. `sb3-extra-buffers verify {path}` says what is damaged, `sb3-extra-buffers repair {path} OUT` keeps "
            "what is not"
        ) from error
    except (TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, ArgumentError) as error:
        raise CorruptDataError(
            f"{path} cannot be read: it holds something that cannot be ({type(error).__name__}: {error})"
        ) from error


def _has_segments(path: Path) -> bool:
    """Whether it is a checkpoint folder with files of ours, or begins as such a file does."""
    if path.is_dir():
        return bool(segment_files(path))
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _is_plain(buffer_class: Any) -> bool:
    """Whether it is no buffer of SB3's kind."""
    return buffer_class is CompressedArray or issubclass(buffer_class, RecordBuffer)


def positive(name: str, given: int | None, default: int) -> int:
    """A size that was given, or the default; ValueError if it is none."""
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
        slots = (about["oldest"] + np.arange(n_steps)) % about.get("ring", about["slots"])
        _put_all(buffer, stored, cells_for(n_steps, n_envs, slots), encode=encode)
        restore_state(buffer, about, whole)
        if isinstance(buffer, HerReplayBuffer) and buffer.full:
            forget_cut_episodes(buffer, buffer.pos)  # a checkpoint may not know yet
        if stored.folder is not None and not encode:
            buffer._go_on_from(stored)
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
    ring = about.get("ring", slots)
    if type(oldest) is not int or type(pos) is not int or type(slots) is not int or type(full) is not bool:
        raise CorruptDataError("A file is damaged: it does not say where its steps stand")
    if type(ring) is not int or not 0 < ring <= max(slots, 1):
        raise CorruptDataError(f"A file is damaged: it says that {ring!r} of {slots} slots are in use")
    return n == (ring if full else pos) and (n == 0 or oldest == (pos % ring if full else 0))


def _put_all(buffer: Any, stored: StoredBuffer, to: Ints, *, encode: bool = False) -> None:
    to = np.concatenate((np.full((stored.skipped, to.shape[1]), -1, np.int64), to))
    target = contents_of(buffer, np.arange(0))
    by_step = stored.names("array")  # of a rollout that was read, arrays belong to no step
    target = replace(target, arrays={name: array for name, array in target.arrays.items() if name in by_step})
    for run in stored.runs:
        put_run(target, run, to[run.first : run.first + run.count], encode=encode)


def rescue_buffer(stored: StoredBuffer, gaps: Sequence[int], *, device: Any = "auto") -> Any:
    """A buffer of steps some of which may be missing; where they are, an episode ends by a timeout.

    :param gaps: steps that are followed by a gap
    """
    check_rescue(stored, gaps)
    buffer_class, n_envs = _class_of(stored), stored.about["n_envs"]
    if _is_plain(buffer_class):
        return buffer_class._from_stored(stored)
    if not issubclass(buffer_class, ReplayBuffer):
        rollout = _make(buffer_class, stored.about, stored.about["slots"], n_envs, device, {})
        _fill(rollout, stored)
        return rollout
    her = {"env": None} if issubclass(buffer_class, HerReplayBuffer) else {}
    buffer = _make(buffer_class, stored.about, stored.about["slots"] * n_envs, n_envs, device, her)
    expected, found = set(contents_of(buffer, np.arange(0)).arrays), set(stored.names("array"))
    if expected != found:
        raise CorruptDataError(f"The segments have {sorted(found)}; a {buffer_class.__name__} needs {sorted(expected)}")
    n_steps, kept = stored.n_steps, min(stored.n_steps, buffer.buffer_size)
    _put_all(buffer, stored, cells_for(n_steps, n_envs, np.arange(kept)))
    steps = np.array(gaps, np.int64) - (n_steps - kept)
    cells = (steps[steps >= 0, None] * n_envs + np.arange(n_envs)).reshape(-1)
    stand_with_episodes(buffer, kept, cells[buffer.dones.reshape(-1)[cells] == 0])
    return buffer


def check_rescue(stored: StoredBuffer, gaps: Sequence[int]) -> None:
    """CorruptDataError where steps are missing and what is left is of no use."""
    buffer_class = _class_of(stored)
    if issubclass(buffer_class, ReplayBuffer):
        return
    slots, added = stored.about["slots"], stored.about.get("added")  # of records: how many steps they ever got
    n_steps = min(added, slots) if type(added) is int else slots
    if gaps or not (stored.n_steps == n_steps if _is_plain(buffer_class) else _is_whole_ring(stored)):
        raise CorruptDataError(
            f"A {buffer_class.__name__} is of no use with steps missing; only replay buffers can be repaired then"
        )


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


__all__ = ["load_buffer"]
