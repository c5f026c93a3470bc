"""Models with their buffers in checkpoint folders: `save_checkpoint` writes one, `resume` goes on from it.

Above: the callback that saves during a training. Below: persistence, which loads the buffer, and segments.
"""

from __future__ import annotations

import importlib
import os
import pickle
import secrets
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm, maybe_make_env
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed.episodes import end_last_episode
from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.datasets.offline_mix import OfflineMix
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.persistence import check_spaces, load_buffer
from sb3_extra_buffers.random_state import random_state, set_random_state
from sb3_extra_buffers.segments.files import replacing
from sb3_extra_buffers.segments.folders import Checkpoint, is_checkpoint, read_list, write_list

#: Where the classes are that a checkpoint may name.
_PACKAGES = ("stable_baselines3", "sb3_contrib", "sb3_extra_buffers.prioritized")
_SAME_WAY = "Give an env that is made in the same way as that of the run, with VecNormalize where it was"
#: The run that a model of this process belongs to: a folder that names it may be written to.
_runs: WeakKeyDictionary[BaseAlgorithm, Any] = WeakKeyDictionary()


def save_checkpoint(model: BaseAlgorithm, folder: str | os.PathLike[str], *, background: bool = False) -> None:
    """Save a model with its replay buffer, if it has one, and the state of all random numbers.

    :param folder: see `BufferCheckpointCallback`
    :param background: let a thread write the buffer
    """
    folder = Path(folder)
    buffer = getattr(model, "replay_buffer", None)
    if isinstance(buffer, CompressedObservations):
        buffer.wait_for_checkpoint()
    check_folder(model, folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = _write(folder / f"model-{_number(model)}.zip", model.save)
    for one in _normalizers(model.get_env()):
        files |= _write(folder / f"vecnormalize-{_number(model)}.pkl", partial(pickle.dump, one))
    run = _runs.setdefault(model, secrets.token_hex(6))
    extra = {"files": files, "algorithm": type(model).__name__, "run": run, "random": random_state(model)}
    if isinstance(buffer, CompressedObservations):
        buffer.checkpoint(folder, background=background, extra=extra)
    else:
        write_list(folder, extra)


def _number(model: BaseAlgorithm) -> str:
    return f"{model.num_timesteps}-{secrets.token_hex(4)}"  # never the file that the last checkpoint names


def _write(path: Path, write: Callable[[Any], Any]) -> dict[str, int]:
    """Write a file; gives its name, with its checksum."""
    with replacing(path) as file:
        write(file)
    return {path.name: zlib.crc32(path.read_bytes())}


def check_folder(model: BaseAlgorithm, folder: str | os.PathLike[str]) -> None:
    """ValueError if a folder holds a checkpoint that is not of this model's run: saving would replace it."""
    if not is_checkpoint(folder):
        return
    try:
        held = read_list(Path(folder))
        life = getattr(getattr(model, "replay_buffer", None), "_life", "")
        is_own = (model in _runs and _runs[model] == held.extra.get("run")) or (held.life != "" and held.life == life)
    except CorruptDataError:
        is_own = model in _runs
    if not is_own:
        raise ValueError(
            f"{folder} holds a checkpoint of another run, which this model would replace. Go on with that run by "
            f"model = resume({str(folder)!r}, env), or give another folder, or delete this one"
        )


def resume(
    folder: str | os.PathLike[str],
    env: Any,
    algorithm: type[BaseAlgorithm] | None = None,
    *,
    device: Any = "auto",
    **arguments: Any,
) -> Any:
    """The model of the newest checkpoint in a folder, with its buffer; go on with
    ``model.learn(total - model.num_timesteps, reset_num_timesteps=False)``.

    The model is read by SB3's `load`, which can run code of the file: only for folders that you trust.

    :param folder: what `BufferCheckpointCallback` was given
    :param env: as for ``DQN(policy, env)``; begins a new episode. If VecNormalize was used, its statistics are loaded into
        the env's, or it is put around an env without it
    :param algorithm: class of the model; found by its name if it is one of SB3's, sb3-contrib's or this library's
    :param device: torch device of the model
    :param arguments: more for the algorithm's `load`; with another ``buffer_size``, the newest steps that fit are kept
    """
    folder = Path(folder)
    if not is_checkpoint(folder):
        raise FileNotFoundError(f"{folder} holds no checkpoint: BufferCheckpointCallback(save_freq, folder) writes one")
    if env is None:
        raise ValueError('resume needs an env to go on in, got None. Give an env, or its id: resume(folder, "CartPole-v1")')
    if "replay_buffer_class" in arguments:
        raise ValueError("The buffer of a checkpoint has the class that it was saved with: leave replay_buffer_class out")
    checkpoint = read_list(folder)
    model_file, *normalizer_files = _checked_files(folder, checkpoint)
    algorithm = _algorithm(folder, str(checkpoint.extra.get("algorithm")), algorithm)
    normalized = _normalized(algorithm, maybe_make_env(env, 0), normalizer_files)
    model: Any = algorithm.load(model_file, env=normalized, device=device, **arguments)
    if checkpoint.entries:
        model.replay_buffer = _load_replay_buffer(folder, model, arguments)
    _begin_episode(model)
    set_random_state(model, checkpoint.extra.get("random"))
    _runs[model] = checkpoint.extra.get("run")
    return model


def _algorithm(folder: Path, name: str, given: Any) -> type[BaseAlgorithm]:
    """The class that a checkpoint names, or the one that is given, if it can be that."""
    known = _known_algorithm(name)
    if given is None and known is None:
        raise ValueError(
            f"The checkpoint is of a {name}, which is no class of SB3, sb3-contrib or this library: give algorithm={name}"
        )
    given = given or known
    is_algorithm = isinstance(given, type) and issubclass(given, BaseAlgorithm)
    if not is_algorithm or (known is not None and given.__name__ != name and not issubclass(given, known)):
        raise ValueError(
            f"{folder} is a checkpoint of a {name}: algorithm={getattr(given, '__name__', given)} cannot go on with it. "
            + (f"Give the class {name}" if known is None else "Leave algorithm out")
        )
    algorithm: type[BaseAlgorithm] = given
    return algorithm


def _known_algorithm(name: str) -> type[BaseAlgorithm] | None:
    for package in _PACKAGES:
        try:
            found = getattr(importlib.import_module(package), name, None)
        except ImportError:
            continue
        if isinstance(found, type) and issubclass(found, BaseAlgorithm):
            return found
    return None


def _checked_files(folder: Path, checkpoint: Checkpoint) -> list[Path]:
    """What was saved beside the buffer, the model first. CorruptDataError if it is not what was written."""
    files = checkpoint.extra.get("files")
    if not files:
        raise ValueError(f"{folder} is a checkpoint of a buffer alone, without a model: load_buffer(folder) reads it")
    if not isinstance(files, dict) or any(Path(one).name != one for one in files):
        raise CorruptDataError(f"{folder} names files elsewhere: {files}")
    instead = "load_buffer(folder) reads its buffer" if checkpoint.entries else "There is no older one"
    for name, checksum in files.items():
        if not (folder / name).is_file():
            raise CorruptDataError(f"{folder} lacks {name}: the model cannot be resumed. {instead}")
        if zlib.crc32((folder / name).read_bytes()) != checksum:
            raise CorruptDataError(f"{folder / name} is damaged: the model cannot be resumed. Take it from a copy. {instead}")
    return [folder / name for name in files]


def _load_replay_buffer(folder: Path, model: Any, arguments: dict[str, Any]) -> Any:
    asked: dict[str, Any] = model.replay_buffer_kwargs or {}
    where = {name: asked[name] for name in ("directory", "keep") if name in asked}
    buffer = load_buffer(folder, buffer_size=arguments.get("buffer_size"), n_envs=model.n_envs, device=model.device, **where)
    check_spaces(buffer, model.get_env())
    if isinstance(buffer, HerReplayBuffer):
        buffer.set_env(model.get_env())
    end_last_episode(buffer)
    if isinstance(model.replay_buffer, OfflineMix):
        model.replay_buffer.take_over(buffer)
        return model.replay_buffer
    return buffer


# ---- VecNormalize


def _normalizers(env: Any) -> list[VecNormalize]:
    """All of an env, the outermost first."""
    found = []
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, VecNormalize):
            found.append(env)
        env = env.venv
    return found


def _normalized(algorithm: type[BaseAlgorithm], env: Any, files: list[Path]) -> Any:
    """The env with the statistics of VecNormalize that were saved."""
    given, saved = _normalizers(env), [pickle.loads(path.read_bytes()) for path in files]
    if not given and len(saved) == 1:
        venv = env if isinstance(env, VecEnv) else algorithm._wrap_env(env)
        try:
            saved[0].set_venv(venv)
        except AssertionError as error:
            raise ValueError(
                f"VecNormalize was used with {saved[0].observation_space}; the env has {venv.observation_space}. {_SAME_WAY}"
            ) from error
        return saved[0]
    if len(given) != len(saved):
        raise ValueError(
            f"The run was trained with {len(saved) or 'no'} VecNormalize; the env has {len(given) or 'none'}. {_SAME_WAY}"
        )
    for one, other in zip(given, saved, strict=True):
        if _shapes(one) != _shapes(other):
            raise ValueError(
                f"The statistics of VecNormalize are of observations {_shapes(other)}; the env has {_shapes(one)}. {_SAME_WAY}"
            )
        if other.norm_obs:
            one.obs_rms = other.obs_rms
        one.ret_rms = other.ret_rms
    return env


def _shapes(one: VecNormalize) -> Any:
    """The shapes of the observations that are normalized."""
    if not one.norm_obs:
        return "none that are normalized"
    return (
        {key: rms.mean.shape for key, rms in one.obs_rms.items()} if isinstance(one.obs_rms, dict) else one.obs_rms.mean.shape
    )


def _begin_episode(model: Any) -> None:
    """Reset the env, as `learn` would. VecNormalize does not count the observation that it gets.

    At the end of an episode it has counted it: the env was reset at once. So a run that is resumed there has the same
    statistics as one that went on.
    """
    normalizers = _normalizers(model.get_env())
    were_training = [one.training for one in normalizers]
    for one in normalizers:
        one.training = False
    model._last_obs = model.get_env().reset()
    for one, was_training in zip(normalizers, were_training, strict=True):
        one.training = was_training
    model._last_episode_starts = np.ones((model.n_envs,), dtype=bool)
    if model.get_vec_normalize_env() is not None:
        model._last_original_obs = model.get_vec_normalize_env().get_original_obs()


__all__ = ["resume", "save_checkpoint"]
