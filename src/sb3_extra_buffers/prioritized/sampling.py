"""Prioritized sampling (Schaul et al. 2016), put before a replay buffer class of SB3's kind. Below: the core's tree of sums.

    add:                transition -> the largest weight so far
    sample:             tree -> slots and envs -> SB3's own `_get_samples` -> its batch, with `weights` and `indices`
    update_priorities:  errors -> weights of these transitions

The weights are an array by step, as rewards are, so they are saved, cut and merged as all arrays are. The tree of their sums
is made when it is first needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch as th
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize

from sb3_extra_buffers.compressed.rebinding import Instead, rebound
from sb3_extra_buffers.native.tree import SumTree

Schedule = Callable[[float], float]
#: Added to the largest float32, this still makes no infinity.
_MOST_EPS = 1e30


class PrioritizedReplayBufferSamples(NamedTuple):
    """SB3's batch, and what prioritized learning needs beside it.

    :param weights: ``(batch_size, 1)``: what the loss of each transition is to be multiplied with; the largest is 1
    :param indices: ``(batch_size,)``: which transitions these are, for `update_priorities`
    """

    observations: Any
    actions: th.Tensor
    next_observations: Any
    dones: th.Tensor
    rewards: th.Tensor
    discounts: th.Tensor | None
    weights: th.Tensor
    indices: NDArray[np.int64]


class _Envs(threading.local):
    """The envs of the batch that is being made: given before SB3's code asks for them, or drawn by it."""

    given: NDArray[np.int64] | None = None
    drawn: NDArray[np.int64] | None = None
    #: Slots and envs of the batch, as cells.
    cells: NDArray[np.int64]

    def begin(self) -> None:
        """Begin a batch: SB3's code has not asked yet."""
        self.drawn = None

    def randint(self, *args: Any, **kwargs: Any) -> NDArray[np.int64]:
        """What SB3's code calls instead of `np.random.randint`."""
        drawn = self.drawn = np.random.randint(*args, **kwargs) if self.given is None else self.given
        return drawn


_envs = _Envs()
_numpy = Instead(np, random=Instead(np.random, randint=_envs.randint))


@cache
def _with_envs(get_samples: Callable[..., Any]) -> Callable[..., Any]:
    """SB3's `_get_samples` with envs from `_envs`."""
    return rebound(get_samples, np=_numpy)


class PrioritizedSampling(ReplayBuffer):
    """Draws transitions in proportion to their priorities.

    It also takes the arguments of the class behind it:

        class PrioritizedReplayBuffer(PrioritizedSampling, ReplayBuffer): ...  # over SB3's uncompressed arrays

    :param alpha: how much priorities count: with 0 sampling is uniform, and SB3's
    :param beta: how much weights make up for it: with 0 they are all 1. A number, or a schedule of SB3's kind, which is
        asked with `progress_remaining`; `PrioritizedDQN` keeps that up to date
    :param eps: is added to every error, so that no transition is lost
    """

    _tree: SumTree | None = None
    #: Arrays whose rows change after their step was added; a checkpoint keeps them apart.
    _changing_arrays = ("priorities",)
    #: `weights` and `indices` of the last batch.
    latest: tuple[th.Tensor, NDArray[np.int64]]

    def __init__(self, *args: Any, alpha: float = 0.6, beta: float | Schedule = 0.4, eps: float = 1e-6, **kwargs: Any) -> None:
        if not _is_between(alpha, 0, 1):
            raise ValueError(f"alpha must be between 0 (uniform) and 1 (in full proportion), got {alpha!r}")
        if not callable(beta) and not _is_between(beta, 0, 1):
            raise ValueError(f"beta must be between 0 (no correction) and 1 (full correction), or a schedule, got {beta!r}")
        if not _is_between(eps, 0, _MOST_EPS) or np.float32(eps) == 0:
            raise ValueError(
                f"eps must be a positive number up to {_MOST_EPS}, got {eps!r}: with 0, transitions could get lost"
            )
        super().__init__(*args, **kwargs)
        self.alpha, self.beta, self.eps = alpha, beta, eps
        #: What is left of training, for a schedule: 1 at its begin, 0 at its end.
        self.progress_remaining = 1.0
        #: Priority to the power of alpha, of each transition; 0 where there is none.
        self.priorities = np.zeros((self.buffer_size, self.n_envs), np.float32)
        #: The largest of all times, which new transitions get.
        self._largest = np.ones(1, np.float32)

    def add(self, *args: Any, **kwargs: Any) -> None:
        """SB3's `add`. A new transition gets the largest priority so far."""
        slot = self.pos
        try:
            super().add(*args, **kwargs)
        finally:
            if self.pos != slot or self.buffer_size == 1:  # written, even if it was interrupted afterwards
                self._set(np.array([slot]), self._largest[0])
                if self.optimize_memory_usage and self.full:  # the oldest has lost its observation
                    self._set(np.array([self.pos]), 0)

    def _set(self, slots: NDArray[np.int64], weight: float) -> None:
        if self._tree is None:
            self.priorities[slots] = weight
            return
        cells = (slots[:, None] * self.n_envs + np.arange(self.n_envs)).reshape(-1)
        self._sums().set(cells, np.full(len(cells), weight, np.float32))

    def _sums(self) -> SumTree:
        if self._tree is None or self._tree.weights is not self.priorities:
            self._tree = SumTree(self.priorities)
            self._largest[0] = max(self._largest[0], self.priorities.max())
        return self._tree

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> PrioritizedReplayBufferSamples:  # type: ignore[override]
        """Draw a batch. Its range of priorities is cut into `batch_size` equal parts, and one transition drawn from each.

        :param batch_size: number of transitions
        :param env: normalizes the batch, as in SB3
        """
        if not self.pos and not self.full:
            raise ValueError("The buffer is empty: add transitions before you sample")
        if self.alpha == 0 and self._all_are_there():
            batch = super().sample(batch_size, env)
            return self._with_weights(batch, np.ones(batch_size, np.float32), _envs.cells)
        slots, envs, cells, ratios = self._sums().draw(np.random.random(batch_size), self.n_envs)
        _envs.given = envs
        try:
            batch = self._get_samples(slots, env)
        finally:
            _envs.given = None
        return self._with_weights(batch, ratios ** np.float32(-self.current_beta()), cells)

    def _get_samples(self, batch_inds: NDArray[np.int64], env: VecNormalize | None = None) -> Any:
        _envs.begin()
        batch = self._run(_with_envs(super()._get_samples.__func__), batch_inds, env)  # type: ignore[attr-defined]
        if _envs.drawn is None:
            raise TypeError(f"{type(self).__name__}._get_samples does not draw envs as SB3 does, which is what this needs")
        if _envs.given is None:
            _envs.cells = batch_inds * self.n_envs + _envs.drawn
        return batch

    def _run(self, get_samples: Callable[..., Any], batch_inds: NDArray[np.int64], env: VecNormalize | None) -> Any:
        """The batch that this function makes; compressed buffers have their own way to run it."""
        return get_samples(self, batch_inds, env)

    def _with_weights(
        self, batch: Any, weights: NDArray[np.float32], cells: NDArray[np.int64]
    ) -> PrioritizedReplayBufferSamples:
        self.latest = self.to_torch(weights.reshape(-1, 1), copy=False), cells
        return PrioritizedReplayBufferSamples._make([*batch, *self.latest])

    def _all_are_there(self) -> bool:
        """Whether every slot that was written still has its transition."""
        return True

    def current_beta(self) -> float:
        """The number that `beta` is, or that its schedule says now."""
        if not callable(self.beta):
            return self.beta
        beta = self.beta(self.progress_remaining)
        # The remaining progress is a little below 0 when the last rollout has more steps than there are left.
        if not _is_between(beta, -0.01, 1.01):
            raise ValueError(f"beta must be between 0 and 1, but its schedule says {beta!r} at {self.progress_remaining}")
        return min(max(beta, 0.0), 1.0)

    def update_priorities(self, indices: ArrayLike | th.Tensor, errors: ArrayLike | th.Tensor) -> None:
        """Give transitions the priority of their error.

        :param indices: of the batch
        :param errors: absolute errors of these transitions, e.g. temporal differences
        """
        cells, size = as_array(indices, np.int64), as_array(errors, np.float32)
        if self.alpha and len(cells) == len(size) and self._sums().update(cells, size, self._weights(size), self._largest):
            return
        is_there = self._check_update(cells, size)
        if self.alpha:
            cells, size = cells[is_there], size[is_there]
            self._sums().update(cells, size, self._weights(size), self._largest)

    def _weights(self, errors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Priorities to the power of alpha. Of what is no error, something without a warning: it is refused."""
        weights: NDArray[np.float32] = np.abs(errors)
        weights += np.float32(self.eps)
        weights **= np.float32(self.alpha)
        return weights

    def _check_update(self, cells: NDArray[np.int64], errors: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Refuse wrong arguments of `update_priorities`. Returns which cells are not gone since they were drawn."""
        written = (self.buffer_size if self.full else self.pos) * self.n_envs
        if len(cells) != len(errors):
            raise ValueError(f"There must be an error for each transition, got {len(errors)} errors for {len(cells)} indices")
        if len(cells) and (cells.min() < 0 or cells.max() >= written):
            raise ValueError(f"indices must be those of a batch, below {written}, got {cells.min()} to {cells.max()}")
        is_wrong = ~(np.isfinite(errors) & (errors >= 0))
        if is_wrong.any():
            raise ValueError(f"errors must be finite and not negative, got {errors[is_wrong][0]}: pass their absolute values")
        is_there: NDArray[np.bool_] = self.priorities.reshape(-1)[cells] > 0
        return is_there

    # ---- for shards, which write and draw transitions themselves

    @property
    def total_priority(self) -> float:
        """The sum of all priorities, each to the power of alpha."""
        return float(self._sums().total)

    def draw_cells(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """Transitions in proportion to their priorities, each as ``slot * n_envs + env``, drawn from equal parts in turn.

        :param numbers: random ones from 0 to 1, one for each transition
        """
        return self._sums().draw(numbers, self.n_envs)[2]

    def priorities_written(self, new: NDArray[np.int64] | None = None) -> None:
        """The caller has written transitions.

        :param new: the slots of new ones, which get the largest priority so far; without it, `priorities` itself was written
        """
        if new is None:
            self._tree = None
        else:
            self._set(new, self._largest[0])

    def change_alpha(self, alpha: float) -> None:
        """Go on with another alpha: all priorities become what they would be with it."""
        if alpha == self.alpha:
            return
        for array in (self.priorities, self._largest):
            array[array > 0] **= np.float32(alpha / self.alpha if self.alpha else 0)
        self.alpha, self._tree = alpha, None

    def reset(self) -> None:
        """SB3's `reset`."""
        super().reset()
        if hasattr(self, "priorities"):
            self.priorities[:], self._largest[:], self._tree = 0, 1, None

    def __getstate__(self) -> dict[str, Any]:
        parent: Any = super()
        state = parent.__getstate__() if hasattr(parent, "__getstate__") else self.__dict__
        return {name: value for name, value in state.items() if name not in ("_tree", "latest")}


def _is_between(value: Any, low: float, high: float) -> bool:
    """Whether this is a number in the range; NaN is not."""
    return isinstance(value, Real) and low <= float(value) <= high


def as_array(values: Any, dtype: Any) -> NDArray[Any]:
    """Indices (np.int64) or errors (np.float32) that the caller gave, in one dimension."""
    array: NDArray[Any]
    if isinstance(values, th.Tensor):
        values = values.detach().cpu()
        array = (values.float() if values.dtype is th.bfloat16 else values).numpy()  # NumPy has no bfloat16
    else:
        array = np.asarray(values)
    if array.dtype == dtype and array.ndim == 1 and array.flags.c_contiguous:
        return array
    if dtype is np.int64 and array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"indices must be whole numbers, got {array.dtype}")
    if array.dtype.kind not in "iuf":
        raise ValueError(f"errors must be numbers, got {array.dtype}")
    with np.errstate(over="ignore"):  # becomes infinite, and is refused
        return np.ascontiguousarray(array.reshape(-1), dtype)
