"""MaskablePPO: pass one of these as `rollout_buffer_class`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch as th
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer

from sb3_extra_buffers.compressed.rollout import RolloutObservations
from sb3_extra_buffers.compressed.signatures import constructor


class CompressedMaskableRolloutBuffer(RolloutObservations, MaskableRolloutBuffer):  # type: ignore[misc]
    """sb3-contrib's MaskableRolloutBuffer, with observations kept compressed.

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

    _instead = "Use CompressedMaskableDictRolloutBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        device: th.device | str = "auto", gae_lambda: float = 1, gamma: float = 0.99, n_envs: int = 1,
        *, dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
    ) -> None: ...  # fmt: skip


class CompressedMaskableDictRolloutBuffer(RolloutObservations, MaskableDictRolloutBuffer):  # type: ignore[misc]
    """sb3-contrib's MaskableDictRolloutBuffer, with observations kept compressed.

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

    _instead = "Use CompressedMaskableRolloutBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Dict, action_space: spaces.Space[Any],
        device: th.device | str = "auto", gae_lambda: float = 1, gamma: float = 0.99, n_envs: int = 1,
        *, dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
    ) -> None: ...  # fmt: skip
