"""Offline data mixed into the batches of any replay buffer. The importers beside it make the offline buffer.

    sample(32) -> 16 fresh samples by the class behind + 16 by the offline buffer's own `sample` -> one batch of SB3's type

Both draw from NumPy's global random numbers, the fresh part first, so the same seed gives the same batches. "The class behind"
is the next one in the MRO, such as `CompressedReplayBuffer`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from copy import copy
from typing import Any, cast

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed.augmentation import shift_batch
from sb3_extra_buffers.compressed.contents import known_class
from sb3_extra_buffers.persistence import load_buffer
from sb3_extra_buffers.prioritized import PrioritizedReplayBufferSamples, PrioritizedSampling
from sb3_extra_buffers.prioritized.sampling import as_array

Fraction = float | Callable[[float], float]


class OfflineMix(ReplayBuffer):
    """Put before a replay buffer class, gives every batch a share of samples from a fixed offline buffer.

    Use it as ``class Mixed(OfflineMix, CompressedReplayBuffer): ...``. If the share is not a whole number of samples, it is
    rounded and the difference is carried over to the next batch. So each batch is less than one sample off, and the difference
    never adds up.

    Saving, `memory_usage` and `reset` concern the fresh steps only, not the offline buffer. A saved file holds a buffer of the
    class behind; `resume` and ``DQN.load`` mix again.

    :param offline: a replay buffer with the same spaces, of this library or of SB3, or the path of a saved one. SB3 puts the
        arguments of a buffer into every saved model, so a path keeps models small
    :param offline_fraction: share of each batch that is offline, from 0 to 1; or a schedule of SB3's kind, a function of the
        remaining progress, from 1 to 0. For a schedule, pass `OfflineMixCallback` to ``learn``

    All other arguments are those of the class behind.
    """

    #: Remaining progress of the training, for a schedule; None until it is set.
    progress_remaining: float | None = None
    #: Of a prioritized class: `weights` and `indices` of the last batch.
    latest: tuple[th.Tensor, NDArray[np.int64]]

    def __init__(self, *args: Any, offline: Any = None, offline_fraction: Fraction = 0.5, **kwargs: Any) -> None:
        if not callable(offline_fraction):
            _checked_fraction(offline_fraction)
        if not isinstance(offline, ReplayBuffer | str | os.PathLike):
            raise TypeError(
                f"{type(self).__name__} needs offline=, a replay buffer or the path of a saved one, got "
                f"{'nothing' if offline is None else type(offline).__name__}"
            )
        super().__init__(*args, **kwargs)
        self.offline_fraction = offline_fraction
        #: The rounding difference of earlier batches: offline samples that are still due.
        self._owed = 0.0
        self._offline_path = None if isinstance(offline, ReplayBuffer) else os.path.abspath(offline)
        self._offline: Any = offline if isinstance(offline, ReplayBuffer) else self._loaded()
        self._share_env()
        _check_fit(self, self._offline)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the whole signature: that of the class behind, and the two new arguments."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            return
        own = inspect.signature(OfflineMix.__init__).parameters
        shown = [one for one in inspect.signature(cls._behind()).parameters.values() if one.kind is not one.VAR_KEYWORD]
        cls.__signature__ = inspect.Signature([*shown, own["offline"], own["offline_fraction"]])  # type: ignore[attr-defined]

    @classmethod
    def _behind(cls) -> type:
        """The class that draws the fresh samples."""
        return cls.__mro__[cls.__mro__.index(OfflineMix) + 1]

    @property
    def offline(self) -> Any:
        """The offline buffer."""
        return self._offline

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """SB3's `sample`: fresh samples first, then the offline ones.

        :param batch_size: number of samples, fresh and offline together
        :param env: normalizes all of them
        """
        return self._mixed("sample", batch_size, env=env)

    def sample_sequences(self, batch_size: int, *args: Any, **kwargs: Any) -> Any:
        """The same for sequences. See `sample_sequences` of the class behind.

        :param batch_size: number of sequences, fresh and offline together
        """
        return self._mixed("sample_sequences", batch_size, *args, **kwargs)

    def update_priorities(self, indices: Any, errors: Any) -> None:
        """For a prioritized class behind. Offline samples, whose index is -1, have no priority and are ignored."""
        indices, errors = as_array(indices, np.int64), as_array(errors, np.float32)
        is_fresh = indices >= 0 if len(indices) == len(errors) else slice(None)  # others are refused by the class behind
        cast(Any, super()).update_priorities(indices[is_fresh], errors[is_fresh])

    def _mixed(self, name: str, batch_size: int, *args: Any, **kwargs: Any) -> Any:
        n_offline, owed = self._n_offline(batch_size)
        draw = getattr(super(), name)
        if n_offline < batch_size and self.size() == 0:
            raise ValueError(
                f"{batch_size - n_offline} of {batch_size} samples must be fresh, but there are no fresh steps yet. Collect "
                "some first (learning_starts), or set offline_fraction to 1 until then"
            )
        parts = [draw(batch_size - n_offline, *args, **kwargs)] if n_offline < batch_size or not batch_size else []
        if n_offline:
            parts.append(self._shifted(_moved(getattr(self._offline, name)(n_offline, *args, **kwargs), self.device)))
            if issubclass(type(self), PrioritizedSampling):
                parts[-1] = _with_weights(parts[-1], n_offline)
        batch = parts[0] if len(parts) == 1 else _joined(parts[0], parts[1], type(self).__name__)
        if isinstance(batch, PrioritizedReplayBufferSamples):
            self.latest = batch.weights, batch.indices
        self._owed = owed
        return batch

    def _shifted(self, batch: Any) -> Any:
        """An offline batch with `random_shift` of this buffer, unless the offline buffer has shifted its images itself."""
        pads = [getattr(getattr(one, "_options", None), "random_shift", 0) for one in (self, self._offline)]
        if not pads[0] or pads[1]:
            return batch
        return shift_batch(batch, pads[0], {key: leaf.leaf for key, leaf in vars(self)["_leaves"].items()})

    def _n_offline(self, batch_size: int) -> tuple[int, float]:
        """How many samples of the next batch are offline, and the new rounding difference."""
        fraction = self.offline_fraction
        if callable(fraction):
            if self.progress_remaining is None:
                raise ValueError(
                    "offline_fraction is a schedule, but the remaining progress is not known: pass OfflineMixCallback() to "
                    "learn, or set buffer.progress_remaining"
                )
            fraction = fraction(max(self.progress_remaining, 0.0))  # the last rollout may have more steps than are left
        due = _checked_fraction(fraction) * batch_size + self._owed
        n = min(max(round(due), 0), batch_size)
        return n, due - n

    def _loaded(self) -> Any:
        loaded = load_buffer(str(self._offline_path), device=self.device)
        if not isinstance(loaded, ReplayBuffer):
            raise TypeError(f"{self._offline_path} holds a {type(loaded).__name__}; offline must be a replay buffer")
        return loaded

    def set_env(self, env: VecEnv) -> None:
        """For hindsight replay: the env that computes the rewards of new goals, for both buffers."""
        cast(Any, super()).set_env(env)
        self._share_env()

    def _share_env(self) -> None:
        if isinstance(self._offline, HerReplayBuffer) and self._offline.env is None:
            env = vars(self).get("env")
            if env is not None:
                self._offline.set_env(env)

    # ---- saving

    def _like(self, n_slots: int, made_class: Any = None) -> Any:
        """A buffer of the class behind: slices and merges of this one are not mixed."""
        parent: Any = super()
        return parent._like(n_slots, made_class or known_class(self))

    def take_over(self, loaded: Any) -> None:
        """Take over the contents of a loaded buffer of the class behind.

        :param loaded: its stores and arrays become those of this buffer; it must not be used any more
        """
        options = copy(loaded._options)
        if type(loaded) is not self._behind():
            raise TypeError(
                f"A saved {type(self).__name__} is loaded as a {type(loaded).__name__}, but the class behind it is "
                f"{self._behind().__name__}. Load the model and the buffer separately"
            )
        own = {name: getattr(self, name) for name in ("offline_fraction", "_owed", "_offline_path", "_offline")}
        vars(self).update(vars(loaded) | own)
        vars(options)["keep"] = False  # `loaded` must not close what belongs to this buffer now
        vars(loaded)["_options"] = options

    def __getstate__(self) -> dict[str, Any]:
        parent: Any = super()
        state = dict(parent.__getstate__() if hasattr(parent, "__getstate__") else self.__dict__)
        if self._offline_path is not None:
            state["_offline"] = None  # is loaded from its path again
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        parent: Any = super()
        if hasattr(parent, "__setstate__"):
            parent.__setstate__(state)
        else:
            self.__dict__.update(state)
        if self._offline is None:
            self._offline = self._loaded()


class OfflineMixCallback(BaseCallback):
    """Tells an `OfflineMix` the remaining progress of the training, for a schedule."""

    def _init_callback(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        if not isinstance(buffer, OfflineMix):
            raise ValueError(f"OfflineMixCallback needs a model whose buffer is an OfflineMix, got a {type(buffer).__name__}")
        self._tell()

    def _tell(self) -> None:
        buffer: Any = self.model.replay_buffer  # type: ignore[attr-defined]
        buffer.progress_remaining = self.model._current_progress_remaining

    def _on_rollout_end(self) -> None:
        self._tell()  # all gradient steps come between the end of a rollout and the next one

    def _on_step(self) -> bool:
        return True


def _checked_fraction(fraction: Any) -> float:
    if isinstance(fraction, bool) or not isinstance(fraction, int | float | np.number) or not 0 <= fraction <= 1:
        raise ValueError(f"offline_fraction must be a number from 0 to 1, or a schedule of such numbers, got {fraction!r}")
    return float(fraction)


def _check_fit(buffer: Any, offline: Any) -> None:
    """ValueError unless batches of both can be joined."""
    if isinstance(offline, PrioritizedSampling):
        raise ValueError(
            f"Offline data are drawn uniformly, so a {type(offline).__name__} cannot be the offline buffer. Use another class"
        )
    for name in ("observation_space", "action_space"):
        own, other = getattr(buffer, name), getattr(offline, name)
        if own != other:
            raise ValueError(
                f"The {name} of the offline buffer is {other}, but the env has {own}. Import the data with {name}=model.{name}"
            )
    if offline.size() == 0:
        raise ValueError("The offline buffer is empty")
    returns = [(one.n_steps, one.gamma) if isinstance(one, NStepReplayBuffer) else (1, None) for one in (buffer, offline)]
    if returns[0] != returns[1]:
        raise ValueError(
            f"The offline buffer has (n_steps, gamma) = {returns[1]}, but this one {returns[0]}. Import the data into a "
            "buffer of the same kind"
        )
    for name in ("normalize_images", "output_dtype"):
        own, other = (getattr(getattr(one, "_options", None), name, None) or None for one in (buffer, offline))
        if (own, other) != (None, None) and own != other and {own, other} != {None, "raw"}:
            raise ValueError(f"The offline buffer has {name}={other!r}, but this one {own!r}. Use the same for both")


def _joined(fresh: Any, recorded: Any, name: str) -> Any:
    """Two batches of SB3's types as one."""
    if type(fresh) is not type(recorded):
        raise TypeError(
            f"{name} samples {type(fresh).__name__}, but its offline buffer {type(recorded).__name__}. Import the data into a "
            "buffer of the same kind"
        )
    return type(fresh)(*(_cat(one, other) for one, other in zip(fresh, recorded, strict=True)))


def _with_weights(batch: Any, n: int) -> PrioritizedReplayBufferSamples:
    """A uniform batch as one of a prioritized class: weights of 1, because there is no bias to correct."""
    return PrioritizedReplayBufferSamples._make([*batch, th.ones(n, 1, device=batch.rewards.device), np.full(n, -1)])


def _cat(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {key: _cat(one[key], other[key]) for key in one}
    if one is None or other is None:
        return None
    if one.dtype != other.dtype:
        raise TypeError(f"Batches of {one.dtype} and {other.dtype} cannot be joined: use the same options for both buffers")
    return th.cat((one, other)) if isinstance(one, th.Tensor) else np.concatenate((one, other))


def _moved(batch: Any, device: th.device) -> Any:
    """A batch on another device."""
    return type(batch)(*(_to(one, device) for one in batch))


def _to(one: Any, device: th.device) -> Any:
    if isinstance(one, dict):
        return {key: _to(value, device) for key, value in one.items()}
    return one if one is None else one.to(device)
