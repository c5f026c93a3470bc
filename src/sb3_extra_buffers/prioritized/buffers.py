"""Prioritized replay buffers with compressed observations. Below: sampling.py, over the replay buffers of `compressed`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer

from sb3_extra_buffers.compressed.replay import ReplayObservations
from sb3_extra_buffers.compressed.signatures import constructor
from sb3_extra_buffers.prioritized.sampling import PrioritizedSampling, Schedule


class PrioritizedObservations(ReplayObservations, PrioritizedSampling):
    """Compressed observations, drawn by their priorities."""

    _draws_itself = True

    def _forget(self, slots: NDArray[np.int64]) -> None:
        """See `EvictingObservations`."""
        self._set(slots, 0)

    def _all_are_there(self) -> bool:
        return self._n_evicted() == 0

    def update_priorities(self, indices: ArrayLike | th.Tensor, errors: ArrayLike | th.Tensor) -> None:
        """See `PrioritizedSampling.update_priorities`."""
        with self._lock:
            super().update_priorities(indices, errors)


class CompressedPrioritizedReplayBuffer(PrioritizedObservations, ReplayBuffer):
    """Prioritized replay over SB3's ReplayBuffer, with observations kept compressed.

    :param buffer_size: number of transitions, of all envs together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param n_envs: number of parallel envs
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param handle_timeout_termination: do not treat a time limit as the end of an episode
    :param alpha: how much priorities count; with 0, sampling is uniform
    :param beta: how much `weights` make up for it: from 0, not at all, to 1; a number, or a schedule of SB3's kind
    :param eps: is added to every error, so that no transition is lost
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's; left out, nothing is ever lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: kept for compatibility; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; chosen by the size of a frame if not given
    :param directory: keep compressed observations in files there, so that the buffer can be larger than memory
    :param keep: leave a checkpoint in the directory when the buffer is closed; `load_buffer(directory)` reads it
    :param max_memory: bytes that observations and arrays may take, e.g. ``"4GB"`` or ``"25%"`` of RAM: as many transitions
        are kept as fit, up to `buffer_size`
    :param random_shift: shift the images of each batch at random, by up to so many pixels, as DrQ does
    """

    _instead = "Use CompressedPrioritizedDictReplayBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        device: th.device | str = "auto", n_envs: int = 1, optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *, alpha: float = 0.6, beta: float | Schedule = 0.4, eps: float = 1e-6,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        directory: str | os.PathLike[str] | None = None, keep: bool = False, max_memory: int | str | None = None,
        random_shift: int = 0,
    ) -> None: ...  # fmt: skip


class CompressedPrioritizedDictReplayBuffer(PrioritizedObservations, DictReplayBuffer):
    """Prioritized replay over SB3's DictReplayBuffer, with observations kept compressed.

    :param buffer_size: number of transitions, of all envs together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param n_envs: number of parallel envs
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param handle_timeout_termination: do not treat a time limit as the end of an episode
    :param alpha: how much priorities count; with 0, sampling is uniform
    :param beta: how much `weights` make up for it: from 0, not at all, to 1; a number, or a schedule of SB3's kind
    :param eps: is added to every error, so that no transition is lost
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's; left out, nothing is ever lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: kept for compatibility; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; chosen by the size of a frame if not given
    :param directory: keep compressed observations in files there, so that the buffer can be larger than memory
    :param keep: leave a checkpoint in the directory when the buffer is closed; `load_buffer(directory)` reads it
    :param max_memory: bytes that observations and arrays may take, e.g. ``"4GB"`` or ``"25%"`` of RAM: as many transitions
        are kept as fit, up to `buffer_size`
    :param random_shift: shift the images of each batch at random, by up to so many pixels, as DrQ does
    """

    _instead = "Use CompressedPrioritizedReplayBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Dict, action_space: spaces.Space[Any],
        device: th.device | str = "auto", n_envs: int = 1, optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *, alpha: float = 0.6, beta: float | Schedule = 0.4, eps: float = 1e-6,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        directory: str | os.PathLike[str] | None = None, keep: bool = False, max_memory: int | str | None = None,
        random_shift: int = 0,
    ) -> None: ...  # fmt: skip


class CompressedPrioritizedNStepReplayBuffer(PrioritizedObservations, NStepReplayBuffer):
    """Prioritized replay over SB3's NStepReplayBuffer, with observations kept compressed.

    :param buffer_size: number of transitions, of all envs together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param n_envs: number of parallel envs
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param handle_timeout_termination: do not treat a time limit as the end of an episode
    :param n_steps: number of steps whose rewards make up a return
    :param gamma: discount factor
    :param alpha: how much priorities count; with 0, sampling is uniform
    :param beta: how much `weights` make up for it: from 0, not at all, to 1; a number, or a schedule of SB3's kind
    :param eps: is added to every error, so that no transition is lost
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's; left out, nothing is ever lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: kept for compatibility; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; chosen by the size of a frame if not given
    :param directory: keep compressed observations in files there, so that the buffer can be larger than memory
    :param keep: leave a checkpoint in the directory when the buffer is closed; `load_buffer(directory)` reads it
    :param max_memory: bytes that observations and arrays may take, e.g. ``"4GB"`` or ``"25%"`` of RAM: as many transitions
        are kept as fit, up to `buffer_size`
    :param random_shift: shift the images of each batch at random, by up to so many pixels, as DrQ does
    """

    _instead = "SB3 has no n-step buffer for Dict observations: use CompressedPrioritizedDictReplayBuffer, with single steps"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        device: th.device | str = "auto", n_envs: int = 1, optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *, n_steps: int = 3, gamma: float = 0.99, alpha: float = 0.6, beta: float | Schedule = 0.4, eps: float = 1e-6,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        directory: str | os.PathLike[str] | None = None, keep: bool = False, max_memory: int | str | None = None,
        random_shift: int = 0,
    ) -> None: ...  # fmt: skip
