"""Rollouts of a learner whose steps are taken elsewhere: what SB3's `collect_rollouts` does for each step, without the env.

    report of a collector -> steps -> callbacks, counters, logs, target networks, as SB3 has them

SB3's unit is a step of all envs of the model: `num_timesteps` grows by so many, and callbacks are called once. Here too,
however many envs a collector has. Above: learning. Below: collectors.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import RolloutReturn
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
        self._at = 0  # the next step of the first report
        self._credit = 0  # transitions that do not make a step of the model yet
        self._came = model.num_timesteps

    def next(self, callback: BaseCallback) -> RolloutReturn:
        """One rollout: as many steps or episodes as the model's `train_freq` says."""
        model = self._model
        n_steps = n_episodes = 0
        callback.on_rollout_start()
        while should_collect_more_steps(model.train_freq, n_steps, n_episodes):
            report, at = self._next_step()
            rewards, dones = report.rewards[at], report.dones[at]
            infos = [report.infos.get((at, env), {}) for env in range(len(dones))]
            self._credit += len(dones)
            while self._credit >= model.n_envs:
                self._credit -= model.n_envs
                n_steps += 1
                model.num_timesteps += model.n_envs
                callback.update_locals(
                    {"self": model, "infos": infos, "rewards": rewards, "dones": dones, "callback": callback}
                )
                if not callback.on_step():
                    return RolloutReturn(n_steps * model.n_envs, n_episodes, continue_training=False)
                model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
                model._on_step()
                infos = [{} for _ in dones] if self._credit >= model.n_envs else infos
            model._update_info_buffer([report.infos.get((at, env), {}) for env in range(len(dones))], dones)
            n_episodes += self._count_episodes(dones)
        callback.on_rollout_end()
        return RolloutReturn(n_steps * model.n_envs, n_episodes, continue_training=True)

    def _count_episodes(self, dones: Any) -> int:
        ended = int(np.count_nonzero(dones))
        for _ in range(ended):
            self._model._episode_num += 1
            if self._log_interval is not None and self._model._episode_num % self._log_interval == 0:
                logger, collectors = self._model.logger, self._collectors
                logger.record("distributed/versions_behind", collectors.versions_behind)
                logger.record("distributed/collector_restarts", collectors.n_restarts)
                _dump_logs(self._model)
        return ended

    def _next_step(self) -> tuple[Report, int]:
        self.refill()
        report, at = self._reports[0], self._at
        self._at += 1
        if self._at == len(report.dones):
            self._reports.popleft()
            self._at = 0
        return report, at

    def refill(self) -> None:
        """Give collectors their orders and take what has come. Waits if there is nothing, or if weights are too old."""
        collectors = self._collectors
        if not self._reports or self._at == 0:
            self._take(collectors.wait(timeout=0))
        collectors.keep_busy(self._n_steps, self._came, self._total)
        while not self._reports or collectors.is_too_far_behind:
            self._take(collectors.wait())
            collectors.keep_busy(self._n_steps, self._came, self._total)

    def _take(self, report: Report | None) -> None:
        if report is not None:
            self._reports.append(report)
            self._came += report.rewards.size


def _dump_logs(model: Any) -> None:
    (model.dump_logs if hasattr(model, "dump_logs") else model._dump_logs)()
