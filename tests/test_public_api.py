"""The public names, exactly. A name that is missing here breaks a user; one that is new here is a promise."""

from __future__ import annotations

import importlib
import inspect

import pytest
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

import sb3_extra_buffers
from sb3_extra_buffers import compressed, errors
from sb3_extra_buffers.compressed.options import CompressionOptions

NAMES: dict[str, set[str]] = {
    "compressed": {
        "CompressedArray", "CompressedDictReplayBuffer", "CompressedDictRolloutBuffer", "CompressedHerReplayBuffer",
        "CompressedNStepReplayBuffer", "CompressedReplayBuffer", "CompressedRolloutBuffer", "find_buffer_dtypes",
        "find_smallest_dtype", "has_igzip", "has_numba", "init_jit",
    },
    "compressed.compression_methods": {
        "COMPRESSION_METHOD_MAP", "HAS_NUMBA", "has_igzip", "has_lz4", "has_numba", "has_zstd",
    },
    "compressed.compression_methods.compression_methods_numba": {"init_jit"},
    "contrib": {
        "CompressedMaskableDictRolloutBuffer", "CompressedMaskableRolloutBuffer", "CompressedRecurrentDictRolloutBuffer",
        "CompressedRecurrentRolloutBuffer", "compress_rollout_buffer",
    },
    "gpu_buffers": {
        "COMPRESSION_METHOD_MAP", "GpuDictReplayBuffer", "GpuDictRolloutBuffer", "GpuReplayBuffer", "GpuRolloutBuffer",
        "find_gpu_buffer_dtypes", "has_zstd",
    },
    "gpu_buffers.raw_buffer": {"HeapFullError", "RawBuffer", "Room", "SharedRawHeap"},
    "gpu_buffers.utils": {
        "estimate_max_slot_bytes", "estimate_total_heap_bytes", "find_gpu_buffer_dtypes", "numpy_dtype_to_torch",
    },
    "codecs": {"CODECS", "Codec", "auto_codec", "available_codecs", "make_codec"},
    "store": {"ArrayView", "DetectingStore", "FrameLayout", "FrameStore", "MemoryUsage", "RowStore", "Store"},
}  # fmt: skip


@pytest.mark.parametrize("module", NAMES)
def test_exported_names(module: str) -> None:
    imported = importlib.import_module(f"sb3_extra_buffers.{module}")
    assert set(imported.__all__) == NAMES[module]
    for name in NAMES[module]:
        assert getattr(imported, name) is not None
    assert set(dir(imported)) >= NAMES[module]


def test_unknown_names_raise_attribute_error() -> None:
    contrib = importlib.import_module("sb3_extra_buffers.contrib")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = contrib.Nothing


def test_version() -> None:
    assert sb3_extra_buffers.__version__.count(".") == 2


@pytest.mark.parametrize(
    ("name", "parent"),
    [
        ("CompressedReplayBuffer", ReplayBuffer), ("CompressedDictReplayBuffer", DictReplayBuffer),
        ("CompressedHerReplayBuffer", HerReplayBuffer), ("CompressedNStepReplayBuffer", NStepReplayBuffer),
        ("CompressedRolloutBuffer", RolloutBuffer), ("CompressedDictRolloutBuffer", DictRolloutBuffer),
    ],
)  # fmt: skip
def test_buffers_are_sb3_buffers(name: str, parent: type) -> None:
    assert issubclass(getattr(compressed, name), parent)
    assert getattr(compressed, name).__doc__


def test_constructor_keywords() -> None:
    assert [name for name in inspect.signature(CompressionOptions).parameters if not name.startswith("_")] == [
        "dtypes", "normalize_images", "compression_method", "compression_kwargs", "decompression_kwargs", "output_dtype",
        "frame_stack", "block_frames",
    ]  # fmt: skip


def test_errors_are_of_the_kinds_that_callers_know() -> None:
    tree = {
        "CodecError": ValueError, "MissingBackendError": ImportError, "CorruptDataError": ValueError,
        "ObservationError": ValueError, "HeapFullError": MemoryError,
        "LossyStorageWarning": UserWarning, "FallbackWarning": UserWarning,
    }  # fmt: skip
    for name, kind in tree.items():
        assert issubclass(getattr(errors, name), kind)
        assert name.endswith("Warning") or issubclass(getattr(errors, name), errors.SB3ExtraBuffersError)


def test_legacy_map_holds_the_installed_codecs() -> None:
    from sb3_extra_buffers.codecs import available_codecs
    from sb3_extra_buffers.compressed.compression_methods import COMPRESSION_METHOD_MAP

    assert list(COMPRESSION_METHOD_MAP) == available_codecs()
    assert all(codec.name == name for name, codec in COMPRESSION_METHOD_MAP.items())
