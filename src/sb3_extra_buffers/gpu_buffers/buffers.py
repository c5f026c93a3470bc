"""GPU buffers: SB3's classes over columns whose observations live on a torch device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer

from sb3_extra_buffers.compressed.signatures import constructor
from sb3_extra_buffers.gpu_buffers.mixin import GpuReplayObservations, GpuRolloutObservations


class GpuReplayBuffer(GpuReplayObservations, ReplayBuffer):
    """SB3's ReplayBuffer, with observations on a device.

    :param buffer_size: number of transitions, of all envs together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param n_envs: number of parallel envs
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param handle_timeout_termination: do not treat a time limit as the end of an episode
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_gpu_buffer_dtypes` makes it. ``elem_type`` asks to
        store another dtype than the space's; left out, nothing is ever lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: ``"tiles"``, ``"none"``, ``"rle"``, ``"zstd"`` or ``"zstd<level>"``; for Dict observations
        also one per key
    :param compression_kwargs: options of the method, e.g. ``dict(level=3)`` for zstd
    :param decompression_kwargs: kept for compatibility; must be empty
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: kept for compatibility; must be None, as a device has no blocks
    :param buffer_device: torch device of the observations; ``device`` if not given
    :param heap_bytes: bytes that the observations may take; estimated if not given
    :param max_slot_bytes: deprecated; bytes per observation
    :param on_full: when they need more: ``"grow"``, ``"evict"``, where the oldest transitions go, or ``"raise"``
    :param random_shift: shift the images of each batch at random, by up to so many pixels, as DrQ does
    """

    _instead = "Use GpuDictReplayBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        device: th.device | str = "auto", n_envs: int = 1, optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "tiles", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        *, frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        buffer_device: th.device | str | None = None, heap_bytes: int | None = None, max_slot_bytes: int | None = None,
        on_full: Literal["grow", "evict", "raise"] = "grow", random_shift: int = 0,
    ) -> None: ...  # fmt: skip


class GpuDictReplayBuffer(GpuReplayObservations, DictReplayBuffer):
    """SB3's DictReplayBuffer, with observations on a device.

    :param buffer_size: number of transitions, of all envs together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param n_envs: number of parallel envs
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param handle_timeout_termination: do not treat a time limit as the end of an episode
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_gpu_buffer_dtypes` makes it. ``elem_type`` asks to
        store another dtype than the space's; left out, nothing is ever lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: ``"tiles"``, ``"none"``, ``"rle"``, ``"zstd"`` or ``"zstd<level>"``; for Dict observations
        also one per key
    :param compression_kwargs: options of the method, e.g. ``dict(level=3)`` for zstd
    :param decompression_kwargs: kept for compatibility; must be empty
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: kept for compatibility; must be None, as a device has no blocks
    :param buffer_device: torch device of the observations; ``device`` if not given
    :param heap_bytes: bytes that the observations may take; estimated if not given
    :param max_slot_bytes: deprecated; bytes per observation
    :param on_full: when they need more: ``"grow"``, ``"evict"``, where the oldest transitions go, or ``"raise"``
    :param random_shift: shift the images of each batch at random, by up to so many pixels, as DrQ does
    """

    _instead = "Use GpuReplayBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Dict, action_space: spaces.Space[Any],
        device: th.device | str = "auto", n_envs: int = 1, optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "tiles", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        *, frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        buffer_device: th.device | str | None = None, heap_bytes: int | None = None, max_slot_bytes: int | None = None,
        on_full: Literal["grow", "evict", "raise"] = "grow", random_shift: int = 0,
    ) -> None: ...  # fmt: skip


class GpuRolloutBuffer(GpuRolloutObservations, RolloutBuffer):
    """SB3's RolloutBuffer, with observations on a device.

    :param buffer_size: number of steps per env
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param gae_lambda: trade-off of bias and variance of the advantages; 1 gives the classic advantage
    :param gamma: discount factor
    :param n_envs: number of parallel envs
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_gpu_buffer_dtypes` makes it. ``elem_type`` asks to
        store another dtype than the space's; left out, nothing is ever lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: ``"tiles"``, ``"none"``, ``"rle"``, ``"zstd"`` or ``"zstd<level>"``; for Dict observations
        also one per key
    :param compression_kwargs: options of the method, e.g. ``dict(level=3)`` for zstd
    :param decompression_kwargs: kept for compatibility; must be empty
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: kept for compatibility; must be None, as a device has no blocks
    :param buffer_device: torch device of the observations; ``device`` if not given
    :param heap_bytes: bytes that the observations may take; estimated if not given
    :param max_slot_bytes: deprecated; bytes per observation
    :param on_full: when they need more: ``"grow"`` or ``"raise"``
    """

    _instead = "Use GpuDictRolloutBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        device: th.device | str = "auto", gae_lambda: float = 1, gamma: float = 0.99, n_envs: int = 1,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "tiles", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, *, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        buffer_device: th.device | str | None = None, heap_bytes: int | None = None, max_slot_bytes: int | None = None,
        on_full: Literal["grow", "evict", "raise"] = "grow",
    ) -> None: ...  # fmt: skip


class GpuDictRolloutBuffer(GpuRolloutObservations, DictRolloutBuffer):
    """SB3's DictRolloutBuffer, with observations on a device.

    :param buffer_size: number of steps per env
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param gae_lambda: trade-off of bias and variance of the advantages; 1 gives the classic advantage
    :param gamma: discount factor
    :param n_envs: number of parallel envs
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_gpu_buffer_dtypes` makes it. ``elem_type`` asks to
        store another dtype than the space's; left out, nothing is ever lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: ``"tiles"``, ``"none"``, ``"rle"``, ``"zstd"`` or ``"zstd<level>"``; for Dict observations
        also one per key
    :param compression_kwargs: options of the method, e.g. ``dict(level=3)`` for zstd
    :param decompression_kwargs: kept for compatibility; must be empty
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: kept for compatibility; must be None, as a device has no blocks
    :param buffer_device: torch device of the observations; ``device`` if not given
    :param heap_bytes: bytes that the observations may take; estimated if not given
    :param max_slot_bytes: deprecated; bytes per observation
    :param on_full: when they need more: ``"grow"`` or ``"raise"``
    """

    _instead = "Use GpuRolloutBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Dict, action_space: spaces.Space[Any],
        device: th.device | str = "auto", gae_lambda: float = 1, gamma: float = 0.99, n_envs: int = 1,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "tiles", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, *, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        buffer_device: th.device | str | None = None, heap_bytes: int | None = None, max_slot_bytes: int | None = None,
        on_full: Literal["grow", "evict", "raise"] = "grow",
    ) -> None: ...  # fmt: skip
