"""One rollout buffer for SB3 in front of several: each call goes to all of them, and SB3 gets the answer of the first.

PPO -> DummyVecRolloutBuffer -> buffers[0]   trained on
                             -> buffers[1]   does the same work, for comparison
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer

#: Attributes that SB3 or a callback may read, from the first buffer.
_READ_FROM_FIRST = (
    "observations", "actions", "rewards", "advantages", "returns", "episode_starts", "log_probs", "values",
    "pos", "full", "generator_ready",
)  # fmt: skip
_SAME = ("buffer_size", "observation_space", "action_space", "n_envs", "gae_lambda", "gamma")
_END = object()


class DummyVecRolloutBuffer(RolloutBuffer):
    """A rollout buffer that passes every call to several buffers; the model trains on the minibatches of the first.

    Give it to SB3 as ``rollout_buffer_class``, with
    ``rollout_buffer_kwargs=dict(buffers=[RolloutBuffer, partial(CompressedRolloutBuffer, compression_method="zstd3")])``.
    The weights are those of a training with the first buffer alone, bit for bit. An error in any buffer is raised.

    :param buffer_size: steps of a rollout
    :param observation_space: observation space
    :param action_space: action space
    :param device: where minibatches go
    :param n_envs: number of envs
    :param use_threads: add to the buffers side by side. Minibatches are always made one after the other, because they draw
        from NumPy's global random numbers
    :param buffers: a list. Rollout buffers that have the same sizes, spaces and factors, or classes (or other callables) that
        make one from the other arguments
    :param gae_lambda: see SB3's RolloutBuffer
    :param gamma: discount factor
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: th.device | str = "auto",
        n_envs: int = 1,
        use_threads: bool = False,
        buffers: Sequence[RolloutBuffer | Callable[..., RolloutBuffer]] = (),
        *,
        gae_lambda: float = 1,
        gamma: float = 0.99,
    ) -> None:
        # Skips RolloutBuffer's constructor, which allocates arrays; the first buffer has them.
        super(RolloutBuffer, self).__init__(buffer_size, observation_space, action_space, device, n_envs=n_envs)
        del self.pos, self.full
        self.gae_lambda, self.gamma = gae_lambda, gamma
        # a generator, for example, would be exhausted when SB3 makes a second buffer
        if not isinstance(buffers, (list, tuple)):
            raise TypeError(f"buffers must be a list of rollout buffers, or of callables that make one; got {buffers!r}")
        if not buffers:
            raise ValueError("buffers must hold at least one rollout buffer, got none")
        self.buffers = [self._made(buffer) for buffer in buffers]
        twice = [buffer for i, buffer in enumerate(self.buffers) if any(buffer is other for other in self.buffers[:i])]
        if twice:
            raise ValueError(f"buffers must hold different buffers, got a {type(twice[0]).__name__} twice. Make one for each")
        self.use_threads = use_threads
        self._pool: ThreadPoolExecutor | None = None

    def _made(self, entry: Any) -> RolloutBuffer:
        """A buffer from an entry of ``buffers``.

        It is checked, because another gamma, for example, would silently train another agent.
        """
        if callable(entry):
            entry = entry(
                self.buffer_size, self.observation_space, self.action_space,
                device=self.device, gae_lambda=self.gae_lambda, gamma=self.gamma, n_envs=self.n_envs,
            )  # fmt: skip
        if not isinstance(entry, RolloutBuffer):
            raise TypeError(f"buffers must hold rollout buffers, or callables that make one; got {entry!r}")
        differing = [name for name in _SAME if getattr(entry, name) != getattr(self, name)]
        if differing:
            got = ", ".join(f"{name}={getattr(entry, name)}" for name in differing)
            expected = ", ".join(f"{name}={getattr(self, name)}" for name in differing)
            raise ValueError(f"A {type(entry).__name__} has {got}, but the model needs {expected}")
        return entry

    # ---- one call, all buffers

    def _each(self, call: Callable[[RolloutBuffer], None]) -> None:
        """Call something for each buffer. The first error is raised after all calls."""
        if self.use_threads:
            pool = self._started_pool()
            running = [pool.submit(call, buffer) for buffer in self.buffers]
            wait(running)
            errors = [future.exception() for future in running]
        else:
            errors = [_error_of(call, buffer) for buffer in self.buffers]
        for error in errors:
            if error is not None:
                raise error

    def reset(self) -> None:
        """SB3's `reset`, of each buffer."""
        self._each(lambda buffer: buffer.reset())

    def add(self, *args: Any, **kwargs: Any) -> None:
        """SB3's `add`, to each buffer."""
        self._each(lambda buffer: buffer.add(*args, **kwargs))

    def compute_returns_and_advantage(self, last_values: th.Tensor, dones: np.ndarray[Any, Any]) -> None:
        """SB3's `compute_returns_and_advantage`, of each buffer."""
        self._each(lambda buffer: buffer.compute_returns_and_advantage(last_values, dones))

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        """SB3's `get` for all buffers at the same time, with the same random numbers. Yields the minibatches of the first."""
        generators = [buffer.get(batch_size) for buffer in self.buffers]
        while True:
            before = np.random.get_state()
            batch = next(generators[0], _END)
            after = np.random.get_state()
            try:
                for buffer, generator in zip(self.buffers[1:], generators[1:], strict=True):
                    np.random.set_state(before)
                    if (next(generator, _END) is _END) != (batch is _END):
                        raise RuntimeError(f"{type(buffer).__name__} gave another number of minibatches than the first buffer")
            finally:
                np.random.set_state(after)
            if batch is _END:
                return
            yield batch

    # ---- one call, the first buffer

    def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
        return self.buffers[0]._get_samples(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _READ_FROM_FIRST:
            return getattr(self.buffers[0], name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # ---- the thread pool: made at its first use, so that a copy makes its own

    def _started_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self.buffers), "rollout-buffer")
            weakref.finalize(self, self._pool.shutdown)
        return self._pool

    def close(self) -> None:
        """End the threads. The buffers stay usable, and are then called one after the other."""
        self.use_threads = False
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def __enter__(self) -> DummyVecRolloutBuffer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _error_of(call: Callable[[RolloutBuffer], None], buffer: RolloutBuffer) -> Exception | None:
    try:
        call(buffer)
    except Exception as error:
        return error
    return None
