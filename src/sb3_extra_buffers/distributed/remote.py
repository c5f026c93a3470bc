"""Shards as Ray actors. Every call has a time-out. Above: pool, buffer, collector. Below: shard.

Ray starts a shard anew when its process dies. Calls fail while it does so, and the shard then has another life: that is how it
is noticed here.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError

from sb3_extra_buffers.distributed.shard import Shard, ShardState
from sb3_extra_buffers.distributed.spec import BufferSpec
from sb3_extra_buffers.distributed.wire import Wire, in_pieces

#: Seconds between two attempts to reach an actor that is being started.
PAUSE = 0.1


def start_shards(
    spec: BufferSpec, buffer_size: int, n_shards: int, *, folder: str | None = None, seed: int | None = None
) -> list[Any]:
    """Start shards that hold `buffer_size` transitions together, spread over the nodes. Returns their handles.

    :param folder: for their checkpoints, each in a folder of its own there
    """
    folders = [None if folder is None else f"{folder}/shard-{i}" for i in range(n_shards)]
    there = 0 if folder is None else len(list(Path(folder).glob("shard-*")))
    if there not in (0, n_shards):
        raise ValueError(f"{folder} is a checkpoint of {there} shards, and n_shards={n_shards}: give n_shards={there}")
    for one in folders:
        if one is not None:  # all at once: a run that is killed before each has written something can be resumed
            Path(one).mkdir(parents=True, exist_ok=True)
    made: Any = ray.remote(Shard).options(max_restarts=-1, num_cpus=0, scheduling_strategy="SPREAD")
    sizes = [buffer_size // n_shards + (i < buffer_size % n_shards) for i in range(n_shards)]
    return [
        made.remote(spec, size, where, None if seed is None else seed + i)
        for i, (size, where) in enumerate(zip(sizes, folders, strict=True))
    ]


class RemoteShard:
    """A shard in another process.

    :param handle: the Ray actor
    :param number: of the shard
    :param timeout: seconds that a call may take, a restart of the shard included
    """

    def __init__(self, handle: Any, number: int, timeout: float) -> None:
        self.handle, self.number, self.timeout = handle, number, timeout
        self._updates: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
        self._sender, self._n_appended = secrets.token_hex(6), 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process is another sender."""
        return RemoteShard, (self.handle, self.number, self.timeout)

    def start(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Begin a call. Returns what `ray.get` waits for."""
        if self._updates:
            numbers, errors = (np.concatenate(parts) for parts in zip(*self._updates, strict=True))
            self._updates = []
            if method == "draw":
                kwargs = {"numbers": numbers, "errors": errors}
            else:
                self.handle.update_priorities.remote(numbers, errors)
        if method == "append":
            args = (*in_pieces(args[0]),)
        return getattr(self.handle, method).remote(*args, **kwargs)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """The result of a call. While the shard is being started anew, it is tried again."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return self.result(self.start(method, *args, **kwargs), deadline - time.monotonic())
            except ActorDiedError:
                raise
            except RayActorError:
                if time.monotonic() > deadline:
                    raise self.too_late() from None
                time.sleep(PAUSE)

    def result(self, ref: Any, timeout: float | None = None) -> Any:
        """The result of a call that was begun. RayActorError if the shard has died meanwhile."""
        try:
            return ray.get(ref, timeout=max(self.timeout if timeout is None else timeout, 0))
        except GetTimeoutError:
            raise self.too_late() from None

    def too_late(self) -> TimeoutError:
        """The error of a call that took too long."""
        return TimeoutError(
            f"Shard {self.number} did not answer within {self.timeout:g} s. `ray status` shows whether its node is there and "
            "has memory left; give a larger timeout= if it is busy"
        )

    def append(self, data: Wire, *, keep_priorities: bool = False) -> ShardState:
        """See `Shard.append`. Also if its answer is lost and it is sent again, it is appended once."""
        self._n_appended += 1
        state: ShardState = self.call(
            "append", data, keep_priorities=keep_priorities, sender=self._sender, number=self._n_appended
        )
        return state

    def update_priorities(self, numbers: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """See `Shard.update_priorities`. Travels with the next call: a call of its own for each batch would take longer."""
        self._updates.append((numbers, errors))
