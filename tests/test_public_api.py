"""The public names, exactly. A name that is missing here breaks a user; one that is new here is a promise."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from types import ModuleType

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
from sb3_extra_buffers import compressed, errors, training_utils
from sb3_extra_buffers.compressed.options import CompressionOptions, ReplayOptions

NAMES: dict[str, set[str]] = {
    "compressed": {
        "CompressedArray", "CompressedDictReplayBuffer", "CompressedDictRolloutBuffer", "CompressedHerReplayBuffer",
        "CompressedNStepReplayBuffer", "CompressedReplayBuffer", "CompressedRolloutBuffer", "DummyCls", "find_buffer_dtypes",
        "find_smallest_dtype", "has_igzip", "has_numba", "init_jit", "random_shift",
    },
    "contrib": {
        "CompressedMaskableDictRolloutBuffer", "CompressedMaskableRolloutBuffer", "CompressedRecurrentDictRolloutBuffer",
        "CompressedRecurrentRolloutBuffer", "compress_rollout_buffer",
    },
    "gpu_buffers": {
        "BaseGpuBuffer", "COMPRESSION_METHOD_MAP", "GpuDictReplayBuffer", "GpuDictRolloutBuffer", "GpuReplayBuffer",
        "GpuRolloutBuffer", "RawBuffer", "SharedRawHeap", "SlotMetadata", "available_methods", "estimate_heap_bytes",
        "find_gpu_buffer_dtypes", "has_zstd",
    },
    "codecs": {
        "AUTO", "CODECS", "Codec", "Format", "Frames", "available_codecs", "make_codec", "register_codec",
        "restore_codec",
    },
    "store": {"ArrayView", "BlockStore", "FrameLayout", "LeafStore", "MemoryUsage", "RowStore", "Store", "StorePlan"},
    "prioritized": {
        "CompressedPrioritizedDictReplayBuffer", "CompressedPrioritizedNStepReplayBuffer", "CompressedPrioritizedReplayBuffer",
        "PrioritizedDQN", "PrioritizedQRDQN", "PrioritizedReplayBufferSamples", "PrioritizedSampling",
    },
    "distributed": {"RayPrioritizedReplayBuffer", "RayReplayBuffer", "learn"},
    "recording": {"BaseRecordBuffer", "DummyRecordBuffer", "FramelessRecordBuffer", "RecordBuffer"},
    "vec_buf": {"DummyVecRolloutBuffer"},
    "viewer": {"Viewer"},
    "datasets": {
        "OfflineMix", "OfflineMixCallback", "from_d4rl", "from_dqn_replay", "from_episodes", "from_minari", "to_minari",
    },
    "callbacks": {"BufferCheckpointCallback", "BufferMemoryCallback", "transition_memory"},
    "resuming": {"resume", "save_checkpoint"},
    "persistence": {"load_buffer"},
    "merging": {"merge_buffers"},
    "converting": {"compress_buffer", "decompress_buffer"},
    "errors": {
        "CodecError", "CorruptDataError", "FallbackWarning", "HeapFullError", "LossyStorageWarning", "MissingBackendError",
        "NativeLibraryError", "ObservationError", "SB3ExtraBuffersError", "SegmentVersionError",
        "UncompressedBufferWarning", "EmptyShardsError", "ShardLostWarning", "CollectorLostWarning",
        "WaitingForResourcesWarning",
    },
    "training_utils": set(),  # its modules are the names
    "training_utils.atari": {"make_env", "register_games"},
    "training_utils.buffer_warmup": {"warm_up"},
    "training_utils.eval_model": {"closing_if", "eval_model", "process_outcome", "progress"},
    "training_utils.filling": {"Buffers", "Filling", "ReplayLike", "cut_off"},
    "training_utils.play": {"Transitions", "as_stored", "as_taken", "play"},
    "training_utils.summary": {"RewardSummary", "summarize"},
    "training_utils.vec_env": {"VecEnvClass", "check_counts", "vectorize"},
    "training_utils.vizdoom": {
        "CLASSES", "CLASS_STEP", "DoomPictures", "Pictures", "make_env", "semantic_mask",
    },
}  # fmt: skip
#: Parts that promise nothing to those who import them.
INTERNAL = {
    "_lazy",
    "_machine",
    "_optional",
    "_text",
    "bench",
    "cli",
    "compat",
    "native",
    "random_state",
    "segments",
    "spaces",
}
#: What the package itself has, from one of its parts.
TOP = {
    "load_buffer": "persistence", "merge_buffers": "merging", "compress_buffer": "converting",
    "decompress_buffer": "converting", "BufferCheckpointCallback": "callbacks", "resume": "resuming",
}  # fmt: skip
#: What it had in 0.5. The modules of 0.5 are pinned in test_compat.py.
FORMER_TOP = {"NumberType", "ReplayLike", "package_version", "sb3_ver", "sb3_version"}


def exported(module: ModuleType) -> set[str]:
    """`__all__`; for a module without one, the names that it defines at its top and does not hide."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    found: set[str] = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("module", NAMES)
def test_exported_names(module: str) -> None:
    imported = importlib.import_module(f"sb3_extra_buffers.{module}")
    assert exported(imported) == NAMES[module]
    for name in NAMES[module]:
        assert getattr(imported, name) is not None
    assert set(dir(imported)) >= NAMES[module]


def test_names_of_the_package_itself() -> None:
    assert exported(sb3_extra_buffers) == {*TOP, *FORMER_TOP, "__version__"}
    assert set(dir(sb3_extra_buffers)) >= TOP.keys()
    for name, part in TOP.items():
        assert getattr(sb3_extra_buffers, name) is getattr(importlib.import_module(f"sb3_extra_buffers.{part}"), name)
        assert name in NAMES[part]


def test_every_part_is_pinned_or_internal() -> None:
    parts = {part.name for part in pkgutil.iter_modules(sb3_extra_buffers.__path__)} - {"__main__"}
    pinned = {module.partition(".")[0] for module in NAMES}
    assert parts <= pinned | INTERNAL, "a new part: are its names public?"
    assert not pinned & INTERNAL
    assert {f"training_utils.{part.name}" for part in pkgutil.iter_modules(training_utils.__path__)} <= NAMES.keys()


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
    every = [
        "dtypes", "normalize_images", "compression_method", "compression_kwargs", "decompression_kwargs", "output_dtype",
        "frame_stack", "block_frames",
    ]  # fmt: skip
    for options, keywords in (
        (CompressionOptions, every),
        (ReplayOptions, [*every, "directory", "keep", "max_memory", "random_shift"]),
    ):
        assert [name for name in inspect.signature(options).parameters if not name.startswith("_")] == keywords


def test_errors_are_of_the_kinds_that_callers_know() -> None:
    tree = {
        "CodecError": ValueError, "MissingBackendError": ImportError, "NativeLibraryError": ImportError,
        "CorruptDataError": ValueError, "SegmentVersionError": errors.CorruptDataError,
        "ObservationError": ValueError, "HeapFullError": MemoryError,
        "LossyStorageWarning": UserWarning, "FallbackWarning": UserWarning, "UncompressedBufferWarning": UserWarning,
        "EmptyShardsError": ValueError, "ShardLostWarning": UserWarning, "CollectorLostWarning": UserWarning,
        "WaitingForResourcesWarning": UserWarning,
    }  # fmt: skip
    for name, kind in tree.items():
        assert issubclass(getattr(errors, name), kind)
        assert name.endswith("Warning") or issubclass(getattr(errors, name), errors.SB3ExtraBuffersError)
