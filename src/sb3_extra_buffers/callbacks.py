"""Callbacks for SB3: one logs the memory of a model's buffer, one saves model and buffer so that a run can be resumed.

Below: compressed, vec_buf, persistence.
"""

from __future__ import annotations

import base64
import copy
import importlib
import os
import pickle
import random
import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import BaseBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed.episodes import end_last_episode
from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.persistence import check_spaces, load_buffer
from sb3_extra_buffers.segments.files import replacing
from sb3_extra_buffers.segments.folders import is_checkpoint, read_list, write_list
from sb3_extra_buffers.store import MemoryUsage
from sb3_extra_buffers.vec_buf import DummyVecRolloutBuffer


class BufferMemoryCallback(BaseCallback):
    """Log the buffer's memory and sample time to SB3's logger (stdout, CSV, TensorBoard), without changing the training.

    Logged at the end of a rollout, every ``log_freq`` steps or a little later:

    - ``buffer/stored_mb``: memory of the transitions in the buffer, in 10^6 bytes
    - ``buffer/ratio``: that, divided by the memory of plain arrays; 1 for SB3's own buffers
    - ``buffer/bytes_per_transition``: that, divided by the number of transitions
    - ``buffer/sample_ms``: time for one batch of the model's ``batch_size``, once the model samples too

    Works with replay and rollout buffers, compressed or not. For a DummyVecRolloutBuffer each of its buffers is logged, as
    ``buffer_0/...``, ``buffer_1/...``.

    :param log_freq: steps between two measurements, of all envs together
    :param prefix: beginning of the names
    :param verbose: see SB3's BaseCallback
    """

    def __init__(self, log_freq: int = 1000, prefix: str = "buffer", verbose: int = 0) -> None:
        super().__init__(verbose)
        if log_freq < 1:
            raise ValueError(f"log_freq must be at least 1 step, got {log_freq}")
        self.log_freq, self.prefix = log_freq, prefix
        self._measured_at = 0

    def _on_training_start(self) -> None:
        self._measured_at = self.model.num_timesteps
        self._buffers()  # a model without a buffer is refused at once

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps - self._measured_at < self.log_freq:
            return
        self._measured_at = self.num_timesteps
        for prefix, buffer in self._buffers().items():
            usage = transition_memory(buffer)
            self.logger.record(f"{prefix}/stored_mb", usage.stored_bytes / 1e6)
            self.logger.record(f"{prefix}/ratio", usage.ratio)
            self.logger.record(f"{prefix}/bytes_per_transition", usage.stored_bytes / (buffer.size() * buffer.n_envs))
            # Before the model samples, a replay buffer may not be able to: HER needs a finished episode.
            if self.num_timesteps > getattr(self.model, "learning_starts", 0):
                self.logger.record(f"{prefix}/sample_ms", 1e3 * self._sample_seconds(buffer))

    def _buffers(self) -> dict[str, BaseBuffer]:
        """The buffers to measure, by the prefix of their names."""
        for name in ("replay_buffer", "rollout_buffer"):
            buffer = getattr(self.model, name, None)
            if isinstance(buffer, DummyVecRolloutBuffer):
                return {f"{self.prefix}_{i}": one for i, one in enumerate(buffer.buffers)}
            if isinstance(buffer, BaseBuffer):
                return {self.prefix: buffer}
        raise ValueError(f"BufferMemoryCallback needs a model with a replay or rollout buffer, {self.model} has none")

    def _sample_seconds(self, buffer: Any) -> float:
        """Time for one batch. The state of the random numbers is restored, so that the training is not changed."""
        batch_size = getattr(self.model, "batch_size", None)
        state = np.random.get_state()
        try:
            if isinstance(buffer, RolloutBuffer):
                # The first `get` of a rollout rearranges the arrays: do that in a copy, and do not measure it.
                buffer = copy.copy(buffer)
                next(buffer.get(batch_size))
                start = time.perf_counter()
                next(buffer.get(batch_size))
            else:
                start = time.perf_counter()
                buffer.sample(batch_size, env=self.model.get_vec_normalize_env())
            return time.perf_counter() - start
        finally:
            np.random.set_state(state)


class BufferCheckpointCallback(BaseCallback):
    """Save model and buffer to a folder regularly; `resume(folder, env)` continues from there after a crash or a stop.

    Only new steps of the buffer are written. A checkpoint replaces the last one as a whole, so a run that is killed at any
    moment leaves a complete checkpoint. Checkpoints are taken between two rollouts, when all gradient steps are done, and once
    more when `learn` ends.

    :param save_freq: calls of ``env.step()`` between two checkpoints; it may be a few more
    :param folder: a folder for this run alone; created if it does not exist
    :param background: let a thread write the buffer while the training continues
    :param verbose: see SB3's BaseCallback
    """

    def __init__(self, save_freq: int, folder: str | os.PathLike[str], *, background: bool = False, verbose: int = 0) -> None:
        super().__init__(verbose)
        if save_freq < 1:
            raise ValueError(f"save_freq must be at least 1 step, got {save_freq}")
        self.save_freq, self.folder, self.background = save_freq, Path(folder), background
        self._saved_at = 0

    def _init_callback(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        if buffer is not None and not isinstance(buffer, CompressedObservations):
            raise ValueError(
                f"BufferCheckpointCallback saves buffers of this library; the model has a {type(buffer).__name__}. Give it "
                "replay_buffer_class=CompressedReplayBuffer, or use SB3's CheckpointCallback"
            )
        self.folder.mkdir(parents=True, exist_ok=True)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.n_calls - self._saved_at >= self.save_freq:
            save_checkpoint(self.model, self.folder, background=self.background)
            self._saved_at = self.n_calls
            if self.verbose >= 2:
                self.logger.log(f"Saved a checkpoint of {self.num_timesteps} steps to {self.folder}")

    def _on_training_end(self) -> None:
        save_checkpoint(self.model, self.folder)


def save_checkpoint(model: BaseAlgorithm, folder: str | os.PathLike[str], *, background: bool = False) -> None:
    """Save a model with its replay buffer, if it has one, and the state of all random numbers.

    :param folder: see `BufferCheckpointCallback`
    :param background: let a thread write the buffer
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    buffer = getattr(model, "replay_buffer", None)
    if isinstance(buffer, CompressedObservations):
        buffer.wait_for_checkpoint()
    number = f"{model.num_timesteps}-{secrets.token_hex(4)}"  # never the file that the last checkpoint names
    files = [f"model-{number}.zip"]
    with replacing(folder / files[0]) as file:
        model.save(file)  # type: ignore[arg-type]
    normalizing = model.get_vec_normalize_env()
    if normalizing is not None:
        files.append(f"vecnormalize-{number}.pkl")
        with replacing(folder / files[1]) as file:
            pickle.dump(normalizing, file)
    extra = {"files": files, "algorithm": type(model).__name__, "random": _random_state(model)}
    if isinstance(buffer, CompressedObservations):
        buffer.checkpoint(folder, background=background, extra=extra)
    else:
        write_list(folder, extra)


def resume(
    folder: str | os.PathLike[str],
    env: Any,
    algorithm: type[BaseAlgorithm] | None = None,
    *,
    device: Any = "auto",
    **arguments: Any,
) -> Any:
    """The model of the newest checkpoint in a folder, with its buffer. Continue with
    ``model.learn(total - model.num_timesteps, reset_num_timesteps=False)``.

    The model is read by SB3's `load`, which can run code of the file: only for folders that you trust.

    :param folder: the folder of `BufferCheckpointCallback`
    :param env: as for ``DQN.load``; it begins a new episode. If VecNormalize was used, give an env without it: it is added,
        with its statistics
    :param algorithm: class of the model; found by its name if it is one of SB3's or sb3-contrib's
    :param device: torch device of the model
    :param arguments: further arguments of the algorithm's `load`
    """
    folder = Path(folder)
    if not is_checkpoint(folder):
        raise FileNotFoundError(f"{folder} holds no checkpoint: BufferCheckpointCallback(save_freq, folder) writes one")
    checkpoint = read_list(folder)
    files, name = checkpoint.extra.get("files"), checkpoint.extra.get("algorithm")
    if not isinstance(files, list) or not files:
        raise ValueError(f"{folder} is a checkpoint of a buffer alone, without a model: load_buffer(folder) reads it")
    if any(Path(str(one)).name != one for one in files):
        raise CorruptDataError(f"{folder} names files elsewhere: {files}")
    if missing := [one for one in files if not (folder / one).is_file()]:
        raise CorruptDataError(
            f"{folder} lacks {', '.join(missing)}: the model cannot be resumed. load_buffer(folder) reads its buffer"
        )
    algorithm = algorithm or _algorithm(str(name))
    venv = env if isinstance(env, VecEnv) else DummyVecEnv([lambda: env])
    if len(files) > 1 and not isinstance(venv, VecNormalize):
        with open(folder / files[1], "rb") as file:
            normalizing: VecNormalize = pickle.load(file)
        normalizing.set_venv(venv)
        venv = normalizing
    model: Any = algorithm.load(folder / files[0], env=venv, device=device, **arguments)
    if checkpoint.entries:
        asked: dict[str, Any] = model.replay_buffer_kwargs or {}
        where = {name: asked[name] for name in ("directory", "keep") if name in asked}
        buffer = load_buffer(folder, n_envs=venv.num_envs, device=model.device, **where)
        check_spaces(buffer, model.get_env())
        if isinstance(buffer, HerReplayBuffer):
            buffer.set_env(model.get_env())
        end_last_episode(buffer)
        model.replay_buffer = buffer
    _set_random_state(model, checkpoint.extra.get("random"))
    return model


def _algorithm(name: str) -> type[BaseAlgorithm]:
    """One of SB3's or sb3-contrib's classes by its name."""
    for package in ("stable_baselines3", "sb3_contrib"):
        try:
            found = getattr(importlib.import_module(package), name, None)
        except ImportError:
            continue
        if isinstance(found, type) and issubclass(found, BaseAlgorithm):
            return found
    raise ValueError(f"The checkpoint is of a {name}, which is none of SB3's or sb3-contrib's classes: give algorithm={name}")


def _random_state(model: BaseAlgorithm) -> dict[str, Any]:
    """The state of all random number generators of a training, except those of the env, as JSON."""
    kind, keys, *rest = np.random.get_state()
    version, numbers, gauss = random.getstate()
    tensors = [th.get_rng_state(), *(th.cuda.get_rng_state_all() if th.cuda.is_available() else ())]
    return {
        "numpy": [kind, np.asarray(keys).tolist(), *rest], "python": [version, list(numbers), gauss],
        "actions": model.action_space.np_random.bit_generator.state,  # of exploration
        "torch": [base64.b64encode(one.numpy().tobytes()).decode() for one in tensors],
    }  # fmt: skip


def _set_random_state(model: BaseAlgorithm, state: Any) -> None:
    """Restore what `_random_state` returned. CorruptDataError if it is no such state."""
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


def transition_memory(buffer: BaseBuffer) -> MemoryUsage:
    """Memory of the transitions in a buffer: observations, actions, rewards and so on.

    Of plain arrays, only the filled part counts: the system gives no memory to pages that were never written.

    :param buffer: a replay or rollout buffer, of SB3 or of this library; a DummyVecRolloutBuffer counts all of its buffers
    """
    if isinstance(buffer, DummyVecRolloutBuffer):
        usages = [transition_memory(one) for one in buffer.buffers]
        raw, stored, blocks = (
            sum(getattr(usage, name) for usage in usages) for name in ("raw_bytes", "stored_bytes", "blocks")
        )
        return MemoryUsage.of(raw, stored, blocks, "; ".join(usage.codec for usage in usages))
    values = [part for value in vars(buffer).values() for part in (value.values() if isinstance(value, dict) else (value,))]
    rows = (buffer.buffer_size, buffer.buffer_size * buffer.n_envs)  # a rollout is flattened when it is read
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.ndim and len(value) in rows]
    plain = sum(array.nbytes for array in arrays) * buffer.size() // buffer.buffer_size
    if not hasattr(buffer, "memory_usage"):
        return MemoryUsage.of(plain, plain)
    observations = buffer.memory_usage()
    return MemoryUsage.of(
        plain + observations.raw_bytes, plain + observations.stored_bytes, observations.blocks, observations.codec
    )
