"""Rollout buffers: SB3's classes over columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.preprocessing import get_obs_shape

from sb3_extra_buffers.compressed.mixin import RESETTING, CompressedObservations, new_life
from sb3_extra_buffers.compressed.signatures import constructor
from sb3_extra_buffers.store.locks import give_way, waiting_forks


class RolloutObservations(CompressedObservations):
    """The part that is specific to rollout buffers: one column, emptied at every rollout."""

    _column_names = ("observations",)

    def reset(self) -> None:
        """SB3's `reset`, without allocating observations."""
        if not self._leaves:  # called by SB3's constructor, on a hollow space
            super().reset()
            return
        with self._lock:
            self._interrupted = RESETTING  # from here on the reset is completed, by this call or by the next
            try:
                self._make_up()
            except BaseException:
                self._make_up()
                raise

    def _reset(self) -> None:
        """All of `reset`. Can be interrupted, and repeated."""
        self.obs_shape = dict.fromkeys(self._leaves, (0,)) if self._is_dict else (0,)  # type: ignore[assignment]
        try:
            super(CompressedObservations, self).reset()
        finally:
            self.obs_shape = get_obs_shape(self.observation_space)  # type: ignore[assignment]
        for leaf in self._leaves.values():
            leaf.clear()
        self._age, self._life = 0, new_life()
        self._install_columns()

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """SB3's `get`."""
        with self._lock:
            if self._interrupted is not None:
                self._make_up()
            return super().get(*args, **kwargs)  # type: ignore[misc]

    def add(self, obs: Any, *args: Any, **kwargs: Any) -> None:
        """SB3's `add`. A step that is refused, e.g. for a wrong shape or range, changes nothing."""
        if waiting_forks:
            give_way()
        with self._lock:
            if self._interrupted is not None:
                self._make_up()
            stored, slot, age = self._stored, self.pos, self._age
            if slot >= self.buffer_size:
                raise IndexError(f"The rollout is full: it has all {self.buffer_size} steps. Call reset() first")
            stored.prepare(slot, (obs,))
            try:
                super().add(stored.placeholder, *args, **kwargs)
                stored.commit_step()
                self._age = age + 1
            except BaseException:
                self._interrupted, self._next_age = slot, age + 1
                self._make_up()
                raise

    def _complete_add(self, slot: int) -> None:
        """See `CompressedObservations`."""
        if self.pos == self.buffer_size:
            self.full = True

    def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
        """SB3's minibatch."""
        return self._reading(lambda: super(RolloutObservations, self)._get_samples(*args, **kwargs))  # type: ignore[safe-super]


class CompressedRolloutBuffer(RolloutObservations, RolloutBuffer):
    """SB3's RolloutBuffer, with observations kept compressed.

    :param buffer_size: number of steps per env
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param gae_lambda: trade-off of bias and variance of the advantages; 1 gives the classic advantage
    :param gamma: discount factor
    :param n_envs: number of parallel envs
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's, which may lose values; without it, nothing is lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: accepted for old code; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; by default it depends on the size of a frame
    """

    _instead = "Use CompressedDictRolloutBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        device: th.device | str = "auto", gae_lambda: float = 1, gamma: float = 0.99, n_envs: int = 1,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, *, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
    ) -> None: ...  # fmt: skip


class CompressedDictRolloutBuffer(RolloutObservations, DictRolloutBuffer):
    """SB3's DictRolloutBuffer, with observations kept compressed.

    :param buffer_size: number of steps per env
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param gae_lambda: trade-off of bias and variance of the advantages; 1 gives the classic advantage
    :param gamma: discount factor
    :param n_envs: number of parallel envs
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's, which may lose values; without it, nothing is lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: accepted for old code; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; by default it depends on the size of a frame
    """

    _instead = "Use CompressedRolloutBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Dict, action_space: spaces.Space[Any],
        device: th.device | str = "auto", gae_lambda: float = 1, gamma: float = 0.99, n_envs: int = 1,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, *, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
    ) -> None: ...  # fmt: skip
