"""Ray on this machine, or the cluster that is joined: started when it is needed, and stopped if it was started here."""

from __future__ import annotations

import logging
from typing import Any

import ray

#: How many buffers and trainings use Ray now, and whether this module has started it.
_users = 0
_is_started_here = False


def join(address: str | None = None) -> None:
    """Use Ray: as it is running in this process, or that of a cluster, or a new one on this machine.

    :param address: for `ray.init`, e.g. ``"auto"`` or ``"10.0.0.5:6379"``. Without it Ray's own rule holds: the cluster of
        `RAY_ADDRESS`, or the one that runs on this machine, or a new one
    """
    global _users, _is_started_here
    if not ray.is_initialized():
        ray.init(
            address=address, include_dashboard=None if address else False, log_to_driver=False, logging_level=logging.WARNING
        )
        _is_started_here = True
    _users += 1


def leave() -> None:
    """Do not use Ray any longer. The last one shuts it down, if it was started here."""
    global _users, _is_started_here
    _users = max(_users - 1, 0)
    if _users == 0 and _is_started_here:
        _is_started_here = False
        ray.shutdown()


def end_actors(handles: list[Any]) -> None:
    """End actors that were started here."""
    for handle in handles if ray.is_initialized() else ():
        ray.kill(handle, no_restart=True)
