"""Collectors as Ray actors: orders, reports, restarts. Above: rollouts. Below: collector.

Each collector has at most two orders: one that it works on, and the next. So it does not wait for the learner, and does not
run further ahead. A new version of the weights is published once as many orders were given with the last one as there are
collectors.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError

from sb3_extra_buffers.distributed.collector import Collector, Order, Report, Setup, weights_of
from sb3_extra_buffers.distributed.remote import PAUSE, RemoteShard
from sb3_extra_buffers.errors import CollectorLostWarning, WaitingForResourcesWarning

#: Orders of a collector.
_MOST_ORDERS = 2
#: A collector that dies so often without a report is not started again. It waits twice as long each time.
_MOST_DEATHS = 8
_CLOSING_SECONDS = 5.0
#: After so long a collector that has no process yet is said to wait for CPUs.
_STARTING_SECONDS = 20.0


@dataclass
class _Placed:
    """An order that was given to a collector."""

    ref: Any
    version: int
    n_transitions: int


class _Worker:
    """One collector.

    :param setup: what it begins with, as an object of Ray
    :param cpus: that Ray reserves for it
    """

    def __init__(self, number: int, setup: Any, targets: list[RemoteShard], cpus: float, timeout: float) -> None:
        made: Any = ray.remote(Collector).options(max_restarts=-1, num_cpus=cpus, scheduling_strategy="SPREAD")
        self.handle, self.number = made.remote(), number
        self._setup, self._targets, self._timeout = setup, targets, timeout
        self.placed: deque[_Placed] = deque()
        self.deaths = 0
        self.deadline = 0.0
        self.beginning: Any = None
        self._n_begun = 0
        self.begin()

    def begin(self) -> None:
        """Let it make its envs and its model. `beginning` is there until it has."""
        self.placed.clear()
        self.beginning = self.handle.begin.remote(self._setup, self._targets, self._n_begun)
        self._n_begun += 1
        self.wait_from_now()

    def wait_from_now(self) -> None:
        """It has the whole time for what it does now."""
        self.deadline = time.monotonic() + self._timeout

    @property
    def awaited(self) -> Any:
        """What it works on."""
        return self.placed[0].ref if self.beginning is None and self.placed else self.beginning


class Collectors:
    """All collectors of a training.

    :param setups: one for each
    :param targets: the shards
    :param model: the learner's, whose weights they get
    :param cpus: that Ray reserves for each
    :param max_versions_behind: a collector never acts by weights that are older
    :param timeout: seconds that an order may take
    """

    def __init__(
        self,
        setups: list[Setup],
        targets: list[RemoteShard],
        model: Any,
        *,
        cpus: float,
        max_versions_behind: int,
        timeout: float,
    ) -> None:
        self._model, self._timeout, self._most_behind = model, timeout, max_versions_behind
        self._workers: list[_Worker] = []
        self.version = 0
        self._weights = ray.put(weights_of(model))
        self._cpus = cpus
        self._is_trained = False  # since the weights were published
        self._n_orders = 0  # with these weights
        self.n_restarts = 0
        self.n_envs = 0
        for i, setup in enumerate(setups):
            self._workers.append(_Worker(i, ray.put(setup), targets, cpus, timeout))

    def begin(self) -> None:
        """Wait until all are ready. Warns if they wait for CPUs, which may take for ever."""
        warn_at: float | None = time.monotonic() + _STARTING_SECONDS
        while self._n_beginning:
            self.wait(timeout=None if warn_at is None else max(warn_at - time.monotonic(), 0) + PAUSE)
            if warn_at is not None and time.monotonic() > warn_at:
                self._warn_of_waiting()
                warn_at = None

    @property
    def _n_beginning(self) -> int:
        return sum(worker.beginning is not None for worker in self._workers)

    def _warn_of_waiting(self) -> None:
        """Say what collectors wait for, unless Ray has it."""
        there, free = (
            float(found.get("CPU", 0))
            for found in (ray.cluster_resources(), ray.available_resources())  # type: ignore[no-untyped-call]
        )
        if not self._n_beginning or free >= self._cpus:
            return
        warnings.warn(
            f"{self._n_beginning} of {len(self._workers)} collectors have not started yet: each asks for {self._cpus:g} CPUs, "
            f"and of the {there:g} that Ray has {free:g} are free. Training begins when there are enough. Give fewer "
            "n_collectors or a smaller cpus_per_collector, end what else uses Ray (`ray status` shows it), or add nodes",
            WaitingForResourcesWarning,
            stacklevel=2,
        )

    @property
    def handles(self) -> list[Any]:
        """The Ray actors."""
        return [worker.handle for worker in self._workers]

    # ---- orders

    def trained(self) -> None:
        """The learner's weights have changed."""
        self._is_trained = True

    @property
    def n_ordered(self) -> int:
        """Transitions that are ordered and have not come."""
        return sum(one.n_transitions for worker in self._workers for one in worker.placed)

    @property
    def versions_behind(self) -> int:
        """How many versions older than the newest the oldest weights are that a collector may act by."""
        return self.version - min((one.version for worker in self._workers for one in worker.placed), default=self.version)

    @property
    def is_too_far_behind(self) -> bool:
        """Whether the next version has to wait for a collector that has an old one."""
        is_due = self._is_trained and self._n_orders >= len(self._workers)
        return is_due and self.versions_behind >= self._most_behind

    def keep_busy(self, n_steps: int, num_timesteps: int, wanted: int, total_timesteps: int) -> None:
        """Give orders to collectors that have too few, as long as transitions are wanted.

        :param n_steps: steps of an order
        :param num_timesteps: transitions that have come
        :param wanted: how many are to come in all
        :param total_timesteps: of the training, for schedules
        """
        for depth in range(_MOST_ORDERS):
            for worker in self._workers:
                missing = wanted - num_timesteps - self.n_ordered
                if missing <= 0:
                    return
                if worker.beginning is None and len(worker.placed) <= depth:
                    self._publish()
                    steps = min(n_steps, -(-missing // self.n_envs))
                    self._place(worker, Order(steps, num_timesteps + self.n_ordered, total_timesteps, self.version))

    def _place(self, worker: _Worker, order: Order) -> None:
        if not worker.placed:
            worker.wait_from_now()
        ref = worker.handle.collect.remote(order, self._weights)
        worker.placed.append(_Placed(ref, order.version, order.n_steps * self.n_envs))
        self._n_orders += 1

    def _publish(self) -> None:
        """Make a new version of the weights, if they have changed and all collectors may have got the last one."""
        if self._is_trained and self._n_orders >= len(self._workers) and not self.is_too_far_behind:
            self._weights = ray.put(weights_of(self._model))
            self.version += 1
            self._is_trained, self._n_orders = False, 0

    # ---- reports

    def wait(self, *, timeout: float | None = None) -> Report | None:
        """The next report; None if a collector has become ready instead, or none has come in time.

        Collectors that have died or hang are started anew.
        """
        awaited = {worker.awaited: worker for worker in self._workers if worker.awaited is not None}
        if not awaited:
            return None
        left = min(worker.deadline for worker in awaited.values()) - time.monotonic()
        ready, _ = ray.wait(list(awaited), num_returns=1, timeout=max(left, 0) if timeout is None else timeout)
        if not ready:
            self._end_hung()
            return None
        worker = awaited[ready[0]]
        try:
            answer = ray.get(ready[0])
        except ActorDiedError:
            raise
        except RayActorError:
            self._begin_again(worker, "died")
            return None
        worker.wait_from_now()
        if worker.beginning is not None:
            worker.beginning, self.n_envs = None, answer
            return None
        worker.placed.popleft()
        worker.deaths = 0
        report: Report = answer
        return report

    def _end_hung(self) -> None:
        for worker in self._workers:
            if worker.awaited is not None and worker.deadline < time.monotonic():
                ray.kill(worker.handle, no_restart=False)
                self._begin_again(worker, f"did not answer within {self._timeout:g} s")

    def _begin_again(self, worker: _Worker, what: str) -> None:
        """Let a collector that Ray starts anew begin as before. Its orders are void."""
        worker.deaths += 1
        if worker.deaths > _MOST_DEATHS:
            raise RuntimeError(
                f"Collector {worker.number} {what}, {worker.deaths} times without a report. `ray logs` has what it "
                "wrote; `ray status` shows whether the cluster has CPUs and memory for it"
            )
        if worker.beginning is None:  # not while it is being started, which may need several attempts
            self.n_restarts += 1
            message = f"Collector {worker.number} {what} and was started anew. Training goes on"
            warnings.warn(message, CollectorLostWarning, stacklevel=2)
        time.sleep(PAUSE * 2 ** (worker.deaths - 1))
        worker.begin()

    def close(self) -> None:
        """Close the envs and end the collectors."""
        idle = [worker for worker in self._workers if worker.awaited is None]
        closing = [worker.handle.close.remote() for worker in idle]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSING_SECONDS)
        for worker in self._workers:
            ray.kill(worker.handle, no_restart=True)
