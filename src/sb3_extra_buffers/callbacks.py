"""Callbacks for SB3: one logs the memory of a model's buffer, one saves model and buffer so that a run can be resumed.

Below: compressed, vec_buf, resuming.
"""

from __future__ import annotations

import copy
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import BaseBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback

from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.resuming import check_folder, save_checkpoint
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
        self.log_freq, self.prefix = _steps("log_freq", log_freq), prefix
        self._measured_at = 0

    def _on_training_start(self) -> None:
        self._measured_at = self.model.num_timesteps
        self._buffers()  # a model without a buffer is refused at once

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps - self._measured_at < self.log_freq:
            return
        if not all(buffer.size() for buffer in self._buffers().values()):
            return  # nothing has travelled to the shards of a RayReplayBuffer yet
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

    :param save_freq: calls of ``env.step()`` from one checkpoint to the next, or a few more
    :param folder: of this run alone; is made if it does not exist. One that holds another run is refused
    :param background: let a thread write the buffer, and go on training meanwhile
    :param verbose: see SB3's BaseCallback
    """

    def __init__(self, save_freq: int, folder: str | os.PathLike[str], *, background: bool = False, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.save_freq, self.folder, self.background = _steps("save_freq", save_freq), Path(folder), background
        self._saved_at = 0

    def _init_callback(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        if buffer is not None and not isinstance(buffer, CompressedObservations):
            raise ValueError(
                f"BufferCheckpointCallback saves buffers of this library; the model has a {type(buffer).__name__}. Give it "
                "replay_buffer_class=CompressedReplayBuffer, or use SB3's CheckpointCallback. Shards on Ray are saved by "
                "distributed.learn(..., checkpoint=folder)"
            )
        check_folder(self.model, self.folder)  # before the training, not at its first checkpoint
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


def _steps(name: str, given: Any) -> int:
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 1:
        raise ValueError(f"{name} must be at least 1 step, as a whole number; got {given!r}")
    return int(given)


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
