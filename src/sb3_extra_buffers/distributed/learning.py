"""`learn`: SB3's training with collectors and shards on Ray. Below: rollouts, collectors, buffer.

    collectors -> segments -> shards -> batches -> the model's own `train` -> weights -> collectors

After so many transitions as `train_freq` says come `gradient_steps` gradient steps, neither more nor fewer: the learner waits
for transitions, and collectors for the learner.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
import ray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.converting import compress_buffer
from sb3_extra_buffers.distributed import sessions
from sb3_extra_buffers.distributed.buffer import RayReplayBuffer
from sb3_extra_buffers.distributed.collector import Setup, vec_normalize_refused
from sb3_extra_buffers.distributed.collectors import Collectors
from sb3_extra_buffers.distributed.prioritized_buffer import RayPrioritizedReplayBuffer
from sb3_extra_buffers.distributed.rollouts import Rollouts
from sb3_extra_buffers.distributed.spec import LEAST_STEPS
from sb3_extra_buffers.distributed.wire import steps_to_wire
from sb3_extra_buffers.errors import EmptyShardsError
from sb3_extra_buffers.prioritized.sampling import PrioritizedSampling
from sb3_extra_buffers.resuming import check_folder, save_checkpoint

Model = TypeVar("Model", bound=OffPolicyAlgorithm)


def learn(
    model: Model,
    env_fn: Callable[[], Any],
    total_timesteps: int,
    n_collectors: int = 1,
    n_shards: int = 1,
    callback: Any = None,
    *,
    log_interval: int | None = 4,
    tb_log_name: str = "run",
    reset_num_timesteps: bool = True,
    progress_bar: bool = False,
    push_steps: int = LEAST_STEPS,
    prefetch: int = 16,
    exploration: Sequence[float | Callable[[float], float] | ActionNoise] | None = None,
    max_versions_behind: int = 4,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_freq: int = 10_000,
    timeout: float = 300.0,
    cpus_per_collector: float | None = None,
    address: str | None = None,
) -> Model:
    """Train a model as its own `learn` does, with the env steps taken by collectors and the replay buffer held by shards.

    Afterwards `model.replay_buffer` is the `RayReplayBuffer` with what was collected, for `save_replay_buffer` or another
    `learn`; `close()` ends its shards. After an error or Ctrl-C everything that was started here is stopped.

    :param model: any off-policy algorithm of SB3, sb3-contrib or this library
    :param env_fn: makes the env, or a VecEnv, of a collector
    :param total_timesteps: transitions to collect, as for `model.learn`
    :param n_collectors: processes that step envs
    :param n_shards: processes that hold transitions; if the model has a RayReplayBuffer, its shards are used
    :param callback: as for `model.learn`; its `locals` have `rewards`, `dones` and `infos` of a step, these with `episode` and
        `is_success` only, but no observations
    :param log_interval: episodes from one line of the log to the next
    :param tb_log_name: name of the run for TensorBoard
    :param reset_num_timesteps: begin to count steps anew
    :param progress_bar: show SB3's progress bar
    :param push_steps: steps of each env that a collector sends together; it gets new weights as often
    :param prefetch: batches that are asked for ahead of time, see `RayReplayBuffer`
    :param exploration: for each collector an epsilon or its schedule (DQN, QR-DQN), or an ActionNoise; else the model's own
    :param max_versions_behind: the learner waits rather than let a collector act by weights that are older
    :param checkpoint: folder that model and shards are saved to. Go on by ``model = resume(folder, env)`` and
        ``learn(model, ..., checkpoint=folder, reset_num_timesteps=False)``. All nodes must see it
    :param checkpoint_freq: transitions from one checkpoint to the next
    :param timeout: seconds that a remote call, or an order of a collector, may take
    :param cpus_per_collector: that Ray reserves; 1, or an equal share if there are fewer CPUs
    :param address: of a cluster, for `ray.init`; without it Ray on this machine is used or started
    :return: the model
    """
    _check(
        model,
        env_fn,
        n_collectors,
        exploration,
        push_steps=push_steps,
        max_versions_behind=max_versions_behind,
        checkpoint_freq=checkpoint_freq,
    )
    if checkpoint is not None:
        check_folder(model, checkpoint)
    sessions.join(address)
    replaced, collectors = model.replay_buffer, None
    try:
        buffer = _buffer_of(model, n_shards, push_steps, prefetch, checkpoint, timeout, address)
        if buffer is not replaced:
            model.replay_buffer = buffer
            _hand_over(replaced, buffer)
        setups = _setups(model, env_fn, buffer, push_steps, n_collectors, exploration)
        collectors = Collectors(
            setups, buffer._remotes, model, cpus=_cpus(cpus_per_collector, n_collectors),
            max_versions_behind=max_versions_behind, timeout=timeout,
        )  # fmt: skip
        collectors.begin()
        total, callback = model._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)
        rollouts = Rollouts(model, collectors, n_steps=push_steps, total_timesteps=total, log_interval=log_interval)
        saver = None if checkpoint is None else _Saver(model, buffer, checkpoint, checkpoint_freq)
        _train(model, rollouts, collectors, callback, total, saver)
        return model
    except BaseException:
        if isinstance(model.replay_buffer, RayReplayBuffer) and model.replay_buffer is not replaced:
            model.replay_buffer.close()
            model.replay_buffer = replaced
        raise
    finally:
        if collectors is not None:
            collectors.close()
        sessions.leave()


def _train(
    model: Any, rollouts: Rollouts, collectors: Collectors, callback: BaseCallback, total: int, saver: _Saver | None
) -> None:
    """SB3's loop of rollouts and gradient steps."""
    callback.on_training_start({"self": model, "total_timesteps": total, "callback": callback}, globals())
    while model.num_timesteps < total:
        rollout = rollouts.next(callback)
        if not rollout.continue_training:
            break
        if model.num_timesteps > model.learning_starts:
            steps = model.gradient_steps if model.gradient_steps >= 0 else rollout.episode_timesteps
            if steps > 0 and _did_train(model, steps):
                collectors.trained()
        if saver is not None:
            saver.save_if_due()
    callback.on_training_end()
    if saver is not None:
        saver.save(wait=True)


def _did_train(model: Any, gradient_steps: int) -> bool:
    """Train, unless the shards were lost and have not been refilled yet."""
    try:
        if model.replay_buffer.can_sample(1):  # fewer than a batch are enough for SB3 too
            model.train(batch_size=model.batch_size, gradient_steps=gradient_steps)
            return True
    except EmptyShardsError:
        pass
    return False


class _Saver:
    """Saves model and shards every so many transitions."""

    def __init__(self, model: Any, buffer: RayReplayBuffer, folder: str | os.PathLike[str], freq: int) -> None:
        self._model, self._buffer, self._folder, self._freq = model, buffer, folder, freq
        self._saved_at = model.num_timesteps

    def save_if_due(self) -> None:
        """Save, if there are enough new transitions."""
        if self._model.num_timesteps - self._saved_at >= self._freq:
            self.save()

    def save(self, *, wait: bool = False) -> None:
        """Save the shards, then the model: it is never newer than what it was trained on."""
        self._buffer.checkpoint(wait=wait)
        save_checkpoint(self._model, self._folder)
        self._saved_at = self._model.num_timesteps


def _check(model: Any, env_fn: Any, n_collectors: int, exploration: Any, **numbers: int) -> None:
    if not isinstance(model, OffPolicyAlgorithm):
        raise TypeError(
            f"learn takes an off-policy algorithm with a replay buffer, such as DQN or SAC, got {type(model).__name__}"
        )
    if not callable(env_fn):
        raise TypeError(
            f"env_fn must be a function that makes an env, which each collector calls, got {type(env_fn).__name__}: give "
            'e.g. lambda: gym.make("CartPole-v1")'
        )
    for name, given in {"n_collectors": n_collectors, **numbers}.items():
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
            raise ValueError(f"{name} must be a whole number from 1 on, got {given!r}")
    if model.get_env() is None:
        raise ValueError("The model has no env, whose spaces and number of envs are needed: model.set_env(env)")
    if model.get_vec_normalize_env() is not None:
        raise vec_normalize_refused("The model's env")
    if exploration is not None and len(exploration) != n_collectors:
        raise ValueError(f"exploration must have an entry for each of the {n_collectors} collectors, got {len(exploration)}")


def _buffer_of(
    model: Any, n_shards: int, push_steps: int, prefetch: int, checkpoint: Any, timeout: float, address: str | None
) -> RayReplayBuffer:
    """The model's own buffer if it has shards, or a new one that holds what the model's would."""
    held = model.replay_buffer
    if isinstance(held, RayReplayBuffer):
        if held.is_closed:
            raise ValueError("The model's RayReplayBuffer is closed: give it a new one")
        if checkpoint is not None and held.folder != os.path.abspath(checkpoint):
            raise ValueError(
                f"The shards of the model's buffer are saved to {held.folder}, not to {checkpoint}: give RayReplayBuffer the "
                "same checkpoint= as learn"
            )
        return held
    made_class = RayPrioritizedReplayBuffer if isinstance(held, PrioritizedSampling) else RayReplayBuffer
    return made_class(
        model.buffer_size, model.observation_space, model.action_space, device=model.device, n_envs=model.n_envs,
        replay_buffer_class=model.replay_buffer_class, n_shards=n_shards, prefetch=prefetch, push_steps=push_steps,
        checkpoint=None if checkpoint is None else os.fspath(checkpoint), timeout=timeout, address=address,
        seed=model.seed, **model.replay_buffer_kwargs,
    )  # fmt: skip


def _hand_over(held: Any, buffer: RayReplayBuffer) -> None:
    """Give the shards what the model's own buffer holds, unless they have begun with a checkpoint."""
    if not held.size() or any(state.size for state in buffer.states()):
        return
    source = held if isinstance(held, CompressedObservations) else compress_buffer(held)
    n = len(buffer._remotes)
    with source._at_rest() as contents:
        for turn, (first, last) in enumerate(contents.edges(0, contents.n_steps)):
            # A part of each segment for each shard: one shard alone has no room for all.
            for i, slots in enumerate(np.array_split(contents.slots[first:last], n)):
                data = steps_to_wire(source, slots, {})
                buffer._remotes[(i + turn) % n].append(data, keep_priorities=True)


def _setups(
    model: Any, env_fn: Callable[[], Any], buffer: RayReplayBuffer, push_steps: int, n_collectors: int, exploration: Any
) -> list[Setup]:
    file = BytesIO()
    model.save(file)
    saved = np.frombuffer(file.getvalue(), np.uint8)
    # Another `learn`, also after `resume`, must not see the same episodes again.
    seeds = [None if model.seed is None else _seed(model.seed, model.num_timesteps, i) for i in range(n_collectors)]
    return [
        Setup(
            type(model), saved, env_fn, buffer.spec, push_steps, i, None if exploration is None else exploration[i], seeds[i]
        )
        for i in range(n_collectors)
    ]  # fmt: skip


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0]) >> 1


def _cpus(given: float | None, n_collectors: int) -> float:
    if given is not None:
        return given
    there = float(ray.cluster_resources().get("CPU", 1.0))  # type: ignore[no-untyped-call]
    return 1.0 if there > n_collectors else math.floor(1000 * there / (n_collectors + 1)) / 1000
