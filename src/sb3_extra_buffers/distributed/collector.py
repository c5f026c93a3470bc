"""Collectors: steps envs with the newest policy and sends what they see to the shards, usable in any process.

    order -> weights, number of steps -> SB3's own `collect_rollouts` -> small buffer -> segment -> a shard
          -> report: rewards, ends of episodes, their statistics

The collector has a model of the learner's class, which SB3 itself has loaded, so it explores as SB3 does.
Above: collectors, which lets Ray run them. Below: wire.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Protocol

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.utils import ConstantSchedule
from stable_baselines3.common.vec_env import VecNormalize

from sb3_extra_buffers.distributed.spec import LEAST_STEPS, BufferSpec
from sb3_extra_buffers.distributed.wire import Wire, steps_to_wire

#: What SB3 reads of an info: statistics of a finished episode. The rest does not travel.
_INFO_KEYS = ("episode", "is_success")
#: More than a collector has envs, which are seeded by the numbers behind its seed.
_SEEDS_PER_LIFE = 10_000


class Target(Protocol):
    """Where experience goes: a `Shard`, or one in another process."""

    def append(self, data: Wire) -> Any: ...


@dataclass
class Setup:
    """What a collector begins with.

    :param algorithm: class of the model
    :param saved: the model, as its `save` writes it
    :param env_fn: makes its env or envs
    :param spec: what buffer the shards hold
    :param push_steps: the most steps of an order
    :param number: of the collector; its first shard depends on it
    :param exploration: epsilon or its schedule, or action noise, instead of the model's own
    :param seed: of envs and policy
    """

    algorithm: type[OffPolicyAlgorithm]
    saved: NDArray[np.uint8]
    env_fn: Callable[[], Any]
    spec: BufferSpec
    push_steps: int
    number: int = 0
    exploration: Any = None
    seed: int | None = None


@dataclass
class Order:
    """Some steps to take.

    :param n_steps: of each env
    :param num_timesteps: transitions that all collectors have before these, for warm-up and schedules
    :param total_timesteps: of the training
    :param version: of the weights
    """

    n_steps: int
    num_timesteps: int
    total_timesteps: int
    version: int


@dataclass
class Report:
    """What came of an order.

    :param rewards: ``(steps, envs)``
    :param dones: ``(steps, envs)``
    :param infos: by step and env, only where SB3 would look at them
    :param version: of the weights that were used
    """

    rewards: NDArray[np.float32]
    dones: NDArray[np.bool_]
    infos: dict[tuple[int, int], dict[str, Any]]
    version: int

    @property
    def n_transitions(self) -> int:
        return int(self.rewards.size)


@dataclass
class _Watching(BaseCallback):
    """Keeps what the learner wants to know of a rollout."""

    rewards: list[Any] = field(default_factory=list)
    dones: list[Any] = field(default_factory=list)
    infos: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def _on_step(self) -> bool:
        for env, info in enumerate(self.locals["infos"]):
            if known := {key: info[key] for key in _INFO_KEYS if key in info}:
                self.infos[len(self.dones), env] = known
        self.rewards.append(self.locals["rewards"].copy())
        self.dones.append(self.locals["dones"].copy())
        return True

    def report(self, version: int) -> Report:
        """What was seen, and begin anew."""
        made = Report(np.array(self.rewards, np.float32), np.array(self.dones, bool), dict(self.infos), version)
        for seen in (self.rewards, self.dones, self.infos):
            seen.clear()
        return made


class Collector:
    """Steps envs and fills shards."""

    def __init__(self) -> None:
        self._model: Any = None
        self._version = -1

    def begin(self, setup: Setup, targets: Sequence[Target], life: int = 0) -> int:
        """Make the envs and the model. Returns the number of envs.

        :param targets: the shards
        :param life: how often it has begun before: with the same seed it would send the same transitions again
        """
        th.set_num_threads(1)  # a batch of observations is small, and other collectors use the other cores
        env = setup.env_fn()
        steps = max(setup.push_steps, LEAST_STEPS)
        spec = setup.spec
        model: Any = setup.algorithm.load(
            BytesIO(memoryview(setup.saved)), env=env, device="cpu", replay_buffer_class=spec.buffer_class, buffer_size=steps,
            replay_buffer_kwargs=dict(spec.arguments), optimize_memory_usage=False, tensorboard_log=None, verbose=0, n_steps=1,
        )  # fmt: skip
        if isinstance(model.get_env(), VecNormalize) or model.get_vec_normalize_env() is not None:
            raise vec_normalize_refused("env_fn")
        _explore_by(model, setup.exploration)
        if setup.seed is not None:
            model.set_random_seed(setup.seed + _SEEDS_PER_LIFE * life)
        model.replay_buffer = spec.make(steps, model.n_envs)
        first = setup.number % len(targets)
        self._model, self._targets = model, itertools.cycle([*targets[first:], *targets[:first]])
        _, self._watching = model._setup_learn(1, _Watching())
        return int(model.n_envs)

    def collect(self, order: Order, weights: dict[str, NDArray[Any]]) -> Report:
        """Take some steps and send them to the next shard.

        :param weights: the policy's tensors that collecting needs, by name, see `weights_of`
        """
        model = self._model
        if order.version != self._version:
            tensors = {name: th.as_tensor(np.array(one)) for name, one in weights.items()}
            model.policy.load_state_dict(tensors, strict=False)
            self._version = order.version
        model.num_timesteps, model._total_timesteps = order.num_timesteps, order.total_timesteps
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
        buffer = model.replay_buffer
        buffer.reset()
        model.collect_rollouts(
            model.env, self._watching, TrainFreq(order.n_steps, TrainFrequencyUnit.STEP), buffer,
            action_noise=model.action_noise, learning_starts=model.learning_starts, log_interval=None,
        )  # fmt: skip
        with buffer._at_rest() as contents:
            data = steps_to_wire(buffer, contents.slots, {})
        next(self._targets).append(data)
        report: Report = self._watching.report(order.version)
        return report

    def close(self) -> None:
        """Close the envs."""
        if self._model is not None:
            self._model.env.close()


def _explore_by(model: Any, exploration: Any) -> None:
    """Let a model explore by other settings than its own."""
    if exploration is None:
        return
    if isinstance(exploration, ActionNoise):
        model.action_noise = exploration
    elif hasattr(model, "exploration_schedule"):
        model.exploration_schedule = exploration if callable(exploration) else ConstantSchedule(float(exploration))
        model.exploration_rate = model.exploration_schedule(1.0)
    else:
        raise ValueError(f"exploration={exploration!r}: {type(model).__name__} has no epsilon. Give an ActionNoise of SB3")


def weights_of(model: Any) -> dict[str, NDArray[Any]]:
    """The tensors of a policy that collecting needs: all but target networks. They are still the model's memory."""
    tensors = model.policy.state_dict()
    return {name: one.detach().cpu().numpy() for name, one in tensors.items() if "target" not in name.partition(".")[0]}


def vec_normalize_refused(where: str) -> ValueError:
    """The error for envs in VecNormalize."""
    return ValueError(
        f"{where} uses VecNormalize, whose running statistics belong to one process: collectors would each normalize "
        "differently. Normalize in the env (gymnasium.wrappers) or in the policy"
    )
