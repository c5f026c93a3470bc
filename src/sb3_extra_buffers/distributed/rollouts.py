"""Rollouts of a learner whose steps are taken elsewhere: what SB3's `collect_rollouts` does for each step, without the env.

    report of a collector -> steps -> callbacks, counters, logs, target networks, as SB3 has them

A step of SB3 is one of all envs of the model: `num_timesteps` grows by so many, and callbacks are called once. So it is here,
however many envs a collector has: its transitions are counted off, as many at a time as the model has envs.

Above: learning. Below: collectors.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import RolloutReturn, TrainFrequencyUnit
from stable_baselines3.common.utils import should_collect_more_steps

from sb3_extra_buffers.distributed.collector import Report
from sb3_extra_buffers.distributed.collectors import Collectors


class Rollouts:
    """Hands out the steps of collectors, a rollout at a time.

    :param model: the learner's
    :param n_steps: steps of an order
    :param log_interval: episodes from one line of the log to the next
    """

    def __init__(
        self, model: Any, collectors: Collectors, *, n_steps: int, total_timesteps: int, log_interval: int | None
    ) -> None:
        self._model, self._collectors = model, collectors
        self._n_steps, self._total, self._log_interval = n_steps, total_timesteps, log_interval
        self._reports: deque[Report] = deque()
        self._at = 0  # the next transition of the first report
        self._came = model.num_timesteps

    def next(self, callback: BaseCallback) -> RolloutReturn:
        """One rollout: as many steps or episodes as the model's `train_freq` says."""
        model = self._model
        n_steps = n_episodes = 0
        callback.on_rollout_start()
        while should_collect_more_steps(model.train_freq, n_steps, n_episodes):
            rewards, dones, infos = self._next_step(n_steps)
            model.num_timesteps += model.n_envs
            n_steps += 1
            callback.update_locals({"self": model, "infos": infos, "rewards": rewards, "dones": dones, "callback": callback})
            if not callback.on_step():
                return RolloutReturn(n_steps * model.n_envs, n_episodes, continue_training=False)
            model._update_info_buffer(infos, dones)
            model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
            model._on_step()
            n_episodes += self._count_episodes(dones)
        callback.on_rollout_end()
        return RolloutReturn(n_steps * model.n_envs, n_episodes, continue_training=True)

    def _count_episodes(self, dones: NDArray[np.bool_]) -> int:
        ended, model = int(np.count_nonzero(dones)), self._model
        for _ in range(ended):
            model._episode_num += 1
            if self._log_interval is not None and model._episode_num % self._log_interval == 0:
                model.logger.record("distributed/versions_behind", self._collectors.versions_behind)
                model.logger.record("distributed/collector_restarts", self._collectors.n_restarts)
                model.dump_logs()
        return ended

    def _next_step(self, n_steps: int) -> tuple[NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Rewards, ends of episodes and infos of as many transitions as the model has envs.

        :param n_steps: that the rollout has
        """
        model = self._model
        # The last rollout is completed, beyond the total, as SB3 does.
        is_counted = model.train_freq.unit == TrainFrequencyUnit.STEP
        missing = (model.train_freq.frequency - n_steps) * model.n_envs if is_counted else model.n_envs
        rewards, dones = np.zeros(model.n_envs, np.float32), np.zeros(model.n_envs, bool)
        infos: list[dict[str, Any]] = []
        for env in range(model.n_envs):
            self._refill(max(self._total, self._came + missing))
            report, at = self._reports[0], self._at
            rewards[env], dones[env] = report.rewards.flat[at], report.dones.flat[at]
            infos.append(report.infos.get(divmod(at, report.dones.shape[1]), {}))
            self._at += 1
            if self._at == report.n_transitions:
                self._reports.popleft()
                self._at = 0
        return rewards, dones, infos

    def _refill(self, wanted: int) -> None:
        """Give collectors their orders and take what has come. Waits if there is nothing, or if weights are too old.

        :param wanted: transitions that are to come in all
        """
        collectors = self._collectors
        if self._at == 0:
            self._take(collectors.wait(timeout=0))
            self._order(self._total)
        while not self._reports or collectors.is_too_far_behind:
            self._order(self._total if self._reports else wanted)
            self._take(collectors.wait())

    def _order(self, wanted: int) -> None:
        self._collectors.keep_busy(self._n_steps, self._came, wanted, self._total)

    def _take(self, report: Report | None) -> None:
        if report is not None:
            self._reports.append(report)
            self._came += report.n_transitions
