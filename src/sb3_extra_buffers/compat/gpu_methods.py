"""Single tensors <-> payloads in a RawBuffer, with the functions of 0.5. Above: `BaseGpuBuffer`, and stores by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch as th

from sb3_extra_buffers.compat import cpu_methods
from sb3_extra_buffers.compat.gpu_heap import RawBuffer, SlotMetadata, arr_config_length, read_at, write_at
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.gpu_buffers.dtypes import torch_dtype_to_numpy
from sb3_extra_buffers.gpu_buffers.methods import DEFAULT_LEVEL, has_zstd

HAS_ZSTD = has_zstd()

#: Signed integers by size: torch can do everything with them, but little with unsigned ones.
_INTEGERS = {1: th.int8, 2: th.int16, 4: th.int32, 8: th.int64}


class GpuCompressionMethods(NamedTuple):
    """How a tensor becomes a payload, and how a payload becomes a tensor."""

    compress: Callable[..., SlotMetadata]
    decompress: Callable[..., th.Tensor]


def none_compress(
    arr: th.Tensor, buffer: RawBuffer, byte_start: int, elem_type: th.dtype = th.uint8, **kwargs: Any
) -> SlotMetadata:
    """The values as they are."""
    values = arr.reshape(-1).to(elem_type)
    write_at(buffer, byte_start, 0, values)
    return SlotMetadata(byte_start, 0, 0, values.numel(), values.numel() * values.element_size())


def none_decompress(
    buffer: RawBuffer, meta: SlotMetadata, elem_type: th.dtype, arr_configs: Mapping[str, Any], **kwargs: Any
) -> th.Tensor:
    """The inverse of `none_compress`."""
    values = read_at(buffer, meta.byte_start, meta.pos_elem, arr_config_length(arr_configs), elem_type)
    return values.to(arr_configs.get("dtype", elem_type))


def rle_compress(
    arr: th.Tensor, buffer: RawBuffer, byte_start: int, elem_type: th.dtype = th.uint8, runs_type: th.dtype = th.uint16,
    **kwargs: Any,
) -> SlotMetadata:  # fmt: skip
    """Runs of equal values: all lengths, then all values. One that is longer than ``runs_type`` can say is split."""
    bits = arr.reshape(-1).to(elem_type).contiguous().view(_INTEGERS[elem_type.itemsize])
    values, lengths = th.unique_consecutive(bits, return_counts=True)
    longest = th.iinfo(runs_type).max
    pieces = -(-lengths // longest)
    values, ends = values.repeat_interleave(pieces), pieces.cumsum(0) - 1
    runs = th.full_like(values, longest, dtype=th.int64)
    runs[ends] = lengths - (pieces - 1) * longest
    lengths_bytes = len(runs) * runs_type.itemsize
    write_at(buffer, byte_start, 0, runs.to(runs_type))
    write_at(buffer, byte_start, lengths_bytes, values)
    return SlotMetadata(byte_start, 0, lengths_bytes, len(runs), lengths_bytes + len(runs) * elem_type.itemsize)


def rle_decompress(
    buffer: RawBuffer, meta: SlotMetadata, elem_type: th.dtype, runs_type: th.dtype, arr_configs: Mapping[str, Any],
    **kwargs: Any,
) -> th.Tensor:  # fmt: skip
    """The inverse of `rle_compress`."""
    lengths = read_at(buffer, meta.byte_start, meta.pos_runs, meta.run_length, runs_type).to(th.int64)
    values = read_at(buffer, meta.byte_start, meta.pos_elem, meta.run_length, _INTEGERS[elem_type.itemsize])
    decoded = values.repeat_interleave(lengths).view(elem_type)
    return _checked(decoded, arr_configs).to(arr_configs.get("dtype", elem_type))


def zstd_compress(
    arr: th.Tensor, buffer: RawBuffer, byte_start: int, elem_type: th.dtype = th.uint8, runs_type: th.dtype = th.uint16,
    compresslevel: int = DEFAULT_LEVEL["zstd"], threads: int = 0, **kwargs: Any,
) -> SlotMetadata:  # fmt: skip
    """zstd's bytes, which are made on the host."""
    encoded = cpu_methods.zstd_compress(arr.reshape(-1).to(elem_type).cpu().numpy(), compresslevel=compresslevel)
    write_at(buffer, byte_start, 0, th.frombuffer(bytearray(encoded), dtype=th.uint8))
    return SlotMetadata(byte_start, 0, 0, len(encoded), len(encoded))


def zstd_decompress(
    buffer: RawBuffer, meta: SlotMetadata, elem_type: th.dtype, runs_type: th.dtype, arr_configs: Mapping[str, Any],
    **kwargs: Any,
) -> th.Tensor:  # fmt: skip
    """The inverse of `zstd_compress`."""
    encoded = read_at(buffer, meta.byte_start, meta.pos_elem, meta.payload_bytes, th.uint8).cpu().numpy()
    values = cpu_methods.zstd_decompress(encoded.tobytes(), elem_type=torch_dtype_to_numpy(elem_type))
    decoded = th.from_numpy(values.copy()).to(buffer.device)
    return _checked(decoded, arr_configs).to(arr_configs.get("dtype", elem_type))


def _checked(decoded: th.Tensor, arr_configs: Mapping[str, Any]) -> th.Tensor:
    if len(decoded) != arr_config_length(arr_configs):
        raise CorruptDataError(f"A payload has {len(decoded)} values, {arr_config_length(arr_configs)} were expected")
    return decoded


#: Name -> functions, for every method of 0.5 that is installed. `tiles` is none of them: it needs more than one observation.
COMPRESSION_METHOD_MAP: dict[str, GpuCompressionMethods] = {
    "none": GpuCompressionMethods(none_compress, none_decompress),
    "rle": GpuCompressionMethods(rle_compress, rle_decompress),
}
if HAS_ZSTD:
    COMPRESSION_METHOD_MAP["zstd"] = GpuCompressionMethods(zstd_compress, zstd_decompress)
