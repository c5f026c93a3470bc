"""The table of former module paths. Above: finder."""

from __future__ import annotations

_CPU_CODECS = (
    "CompressionMethods COMPRESSION_METHOD_MAP HAS_IGZIP HAS_NUMBA HAS_ZSTD HAS_LZ4 has_zstd has_lz4 rle_compress "
    "rle_numpy_decompress rle_numpy_decompress_old rle_numba_decompress gzip_compress gzip_decompress igzip_compress "
    "igzip_decompress no_compress no_decompress zstd_compress zstd_decompress lz4_block_compress lz4_block_decompress "
    "lz4_frame_compress lz4_frame_decompress"
)
_GPU_CODECS = (
    "COMPRESSION_METHOD_MAP GpuCompressionMethods HAS_ZSTD rle_compress rle_decompress none_compress none_decompress "
    "zstd_compress zstd_decompress"
)

#: Former module, below the package -> module of today, below the package -> the names that it has.
FORMER_PATHS: dict[str, dict[str, str]] = {
    "current_version": {"compat.versions": "package_version"},
    "logging": {"compat.versions": "logger"},
    "types": {"compat.types": "NumberType ReplayLike", "recording.record": "BaseRecordBuffer"},
    # compressed
    "compressed.base": {
        "compat.cpu_buffers": "BaseCompressedBuffer DummyCls",
        "compat.cpu_methods": "COMPRESSION_METHOD_MAP",
        "compressed.dtypes": "find_buffer_dtypes find_smallest_dtype has_igzip has_numba init_jit",
    },
    "compressed.compressed_array": {
        "compat.cpu_buffers": "BaseCompressedBuffer",
        "compressed.array": "CompressedArray",
        "compressed.dtypes": "find_smallest_dtype",
    },
    "compressed.compressed_replay": {
        "compat.cpu_buffers": "BaseCompressedBuffer",
        "compressed.replay": "CompressedReplayBuffer CompressedDictReplayBuffer",
    },
    "compressed.compressed_rollout": {
        "compat.cpu_buffers": "BaseCompressedBuffer",
        "compat.versions": "LEGACY_BEHAVIOR sb3_version",
        "compressed.rollout": "CompressedRolloutBuffer CompressedDictRolloutBuffer",
    },
    "compressed.utils": {"compat.cpu_methods": "find_optimal_shape", "compressed.dtypes": "find_smallest_dtype"},
    "compressed.compression_methods": {
        "compat.cpu_methods": "COMPRESSION_METHOD_MAP HAS_NUMBA has_lz4 has_zstd",
        "compressed.dtypes": "has_igzip has_numba",
    },
    "compressed.compression_methods.compression_methods": {
        "compat.cpu_methods": _CPU_CODECS,
        "compressed.dtypes": "find_smallest_dtype has_igzip has_numba",
    },
    "compressed.compression_methods.compression_methods_lz4": {
        "compat.cpu_methods": "lz4_block_compress lz4_block_decompress lz4_frame_compress lz4_frame_decompress",
    },
    "compressed.compression_methods.compression_methods_numba": {
        "compat.cpu_methods": "rle_numba_decompress",
        "compressed.dtypes": "init_jit",
    },
    "compressed.compression_methods.compression_methods_zstd": {"compat.cpu_methods": "zstd_compress zstd_decompress"},
    # gpu_buffers
    "gpu_buffers.base": {
        "compat.gpu_buffers": "BaseGpuBuffer",
        "compat.sizes": "find_smallest_dtype",
        "gpu_buffers.dtypes": "find_gpu_buffer_dtypes",
    },
    "gpu_buffers.gpu_replay": {
        "compat.gpu_buffers": "BaseGpuBuffer",
        "compat.gpu_stores": "create_observation_store",
        "compat.gpu_heap": "SharedRawHeap",
        "compat.sizes": "estimate_total_heap_bytes",
        "gpu_buffers.dtypes": "numpy_dtype_to_torch",
        "gpu_buffers.buffers": "GpuReplayBuffer",
    },
    "gpu_buffers.gpu_rollout": {
        "compat.gpu_buffers": "BaseGpuBuffer",
        "compat.gpu_stores": "create_observation_store",
        "compat.gpu_heap": "SharedRawHeap",
        "compat.sizes": "estimate_total_heap_bytes",
        "compat.versions": "LEGACY_BEHAVIOR sb3_version",
        "gpu_buffers.dtypes": "numpy_dtype_to_torch",
        "gpu_buffers.buffers": "GpuRolloutBuffer",
    },
    "gpu_buffers.metadata": {"compat.gpu_heap": "SlotMetadata arr_config_length"},
    "gpu_buffers.observation_store": {
        "compat.gpu_stores": "DenseObservationStore RawObservationStore create_observation_store",
        "compat.gpu_heap": "SharedRawHeap SlotMetadata",
        "compat.sizes": "estimate_max_slot_bytes",
    },
    "gpu_buffers.raw_buffer": {"compat.gpu_heap": "RawBuffer SharedRawHeap read_at write_at", "errors": "HeapFullError"},
    "gpu_buffers.size_estimation": {
        "compat.sizes": "estimate_save_ratio is_benchmark_family legacy_save_ratio parse_compression_method poly_save_ratio "
        "resolve_compresslevel validate_compresslevel",
    },
    "gpu_buffers.utils": {
        "compat.sizes": "estimate_max_slot_bytes estimate_save_ratio estimate_total_heap_bytes find_smallest_dtype "
        "is_benchmark_family parse_compression_method torch_dtype_element_size",
        "gpu_buffers.dtypes": "find_gpu_buffer_dtypes numpy_dtype_to_torch torch_dtype_to_numpy",
    },
    "gpu_buffers.compression_methods": {
        "compat.gpu_methods": "COMPRESSION_METHOD_MAP GpuCompressionMethods",
        "gpu_buffers.methods": "has_zstd",
    },
    "gpu_buffers.compression_methods.compression_methods": {
        "compat.gpu_heap": "RawBuffer SlotMetadata arr_config_length read_at write_at",
        "compat.gpu_methods": _GPU_CODECS,
        "gpu_buffers.methods": "has_zstd",
    },
    "gpu_buffers.compression_methods.compression_methods_zstd": {
        "compat.gpu_heap": "RawBuffer SlotMetadata arr_config_length read_at write_at",
        "compat.gpu_methods": "zstd_compress zstd_decompress",
        "gpu_buffers.dtypes": "torch_dtype_to_numpy",
    },
    # recording, training_utils, vec_buf
    "recording.base": {"compat.records": "DummyArray", "recording.record": "BaseRecordBuffer"},
    "recording.dummy_record_buffers": {
        "compat.records": "DummyArray",
        "recording.record": "BaseRecordBuffer DummyRecordBuffer FramelessRecordBuffer RecordBuffer",
    },
    "recording.record_buffer": {"recording.record": "RecordBuffer"},
    "recording.utils": {"compat.records": "force_alloc_mem", "recording.record": "BaseRecordBuffer"},
    "training_utils.warmup": {"training_utils.buffer_warmup": "eval_model warm_up"},
    "training_utils.warm_up": {"training_utils.buffer_warmup": "eval_model warm_up"},
    "vec_buf.buffers": {"vec_buf.rollout": "DummyVecRolloutBuffer"},
}

#: Paths that the documentation of 0.5 shows as functions -> the function that a call of the module calls.
CALLED = {"training_utils.warmup": "warm_up", "training_utils.warm_up": "warm_up"}
