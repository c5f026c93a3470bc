"""The functions of sb3-extra-buffers 0.5 for single observations: bytes, heaps on a device, and how large they get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_extra_buffers.codecs import CODECS
from sb3_extra_buffers.compat import cpu_methods, gpu_methods
from sb3_extra_buffers.compat.cpu_buffers import BaseCompressedBuffer
from sb3_extra_buffers.compat.gpu_heap import RawBuffer, SharedRawHeap, SlotMetadata, read_at, write_at
from sb3_extra_buffers.compat.gpu_stores import DenseObservationStore, RawObservationStore, create_observation_store
from sb3_extra_buffers.compat.records import DummyArray, force_alloc_mem
from sb3_extra_buffers.compat.sizes import (
    SAVE_RATIOS,
    estimate_max_slot_bytes,
    estimate_save_ratio,
    estimate_total_heap_bytes,
    find_smallest_dtype,
    is_benchmark_family,
    legacy_save_ratio,
    parse_compression_method,
    poly_save_ratio,
    resolve_compresslevel,
    torch_dtype_element_size,
    validate_compresslevel,
)
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.recording import FramelessRecordBuffer, RecordBuffer
from tests.fixtures.former.make import picture_at

#: Method and dtype -> bytes that 0.5 has written.
WRITTEN: dict[str, str] = json.loads((Path(__file__).parent / "fixtures" / "former" / "bytes.json").read_text())
MSPACMAN = 84 * 84 * 4


# ---- arrays and bytes


@pytest.mark.parametrize("case", WRITTEN)
def test_bytes_of_0_5_are_read_and_written(case: str) -> None:
    spec, dtype = case.split()
    options = {"elem_type": np.dtype(dtype), "runs_type": np.uint16}
    buffer = BaseCompressedBuffer(spec, options, options, {"shape": 256, "dtype": np.dtype(dtype)})
    values, written = picture_at(3).astype(dtype).ravel(), bytes.fromhex(WRITTEN[case])
    read = buffer._decompress(written)
    assert read.dtype == values.dtype
    assert np.array_equal(read, values)
    assert np.array_equal(buffer._decompress(buffer._compress(values)), values)
    if spec.startswith(("none", "rle")):  # the others are as their libraries and levels have it
        assert buffer._compress(values) == written


@pytest.mark.parametrize("name", cpu_methods.COMPRESSION_METHOD_MAP)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_method_gives_back_every_bit(name: str, data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(["uint8", "int16", "float32", "float64"])))
    raw = data.draw(st.lists(st.sampled_from([b"\0", b"\1", b"\xff", b"\x80", b"\x7f"]), min_size=8, max_size=400))
    values = np.frombuffer(b"".join(raw)[: len(raw) // 8 * 8], dtype)  # NaNs and negative zeros among them
    compress, decompress = cpu_methods.COMPRESSION_METHOD_MAP[name]
    types = {"elem_type": dtype, "runs_type": np.uint8}
    options = types if name.startswith(("rle", "none")) else {}
    read = decompress(compress(values, **options), **types, arr_configs={"shape": len(values), "dtype": dtype})
    assert read.tobytes() == values.tobytes()


def test_runs_that_are_longer_than_their_dtype_can_say_are_split() -> None:
    """0.5 wrapped them: 70,000 equal values came back as 4,464."""
    values = np.full(70_000, 7, np.uint8)
    data = cpu_methods.rle_compress(values)
    assert len(data) == 2 * (2 + 1)
    assert np.array_equal(cpu_methods.rle_numpy_decompress(data, np.uint8, np.uint16, {"shape": 70_000}), values)


def test_runs_may_come_back_in_another_dtype() -> None:
    data = cpu_methods.rle_compress(np.array([1, 1, 5], np.uint8))
    read = cpu_methods.rle_numpy_decompress_old(data, np.uint8, np.uint16, {"shape": 3, "dtype": np.float32})
    assert read.dtype == np.float32
    assert read.tolist() == [1, 1, 5]


@pytest.mark.parametrize("damaged", [b"\1\0", b"\1\0\5\0", b"", b"\2\0\7"])
def test_bytes_that_are_no_runs_of_that_many_values_are_refused(damaged: bytes) -> None:
    with pytest.raises(CorruptDataError, match="are no runs of 3 values"):
        cpu_methods.rle_numpy_decompress(damaged, np.uint8, np.uint16, {"shape": 3})


def test_the_map_holds_the_methods_of_0_5() -> None:
    assert set(cpu_methods.COMPRESSION_METHOD_MAP) == {
        "none", "rle", "rle-old", "rle-jit", "gzip", "igzip", "zstd", "lz4-frame", "lz4-block",
    }  # fmt: skip
    assert cpu_methods.HAS_IGZIP is cpu_methods.HAS_NUMBA is cpu_methods.HAS_ZSTD is cpu_methods.HAS_LZ4 is True
    assert set(gpu_methods.COMPRESSION_METHOD_MAP) == {"none", "rle", "zstd"}


@pytest.mark.parametrize("length", [1, 254, 255, 256, 1000])
def test_an_optimal_shape_makes_up_the_length(length: int) -> None:
    rows, columns, remainder = cpu_methods.find_optimal_shape(length)
    assert rows * columns + remainder == length
    assert columns == 255
    assert remainder < columns


# ---- heaps on a device


@pytest.mark.parametrize("method", gpu_methods.COMPRESSION_METHOD_MAP)
@pytest.mark.parametrize("dtype", [th.uint8, th.int16, th.uint16, th.float32, th.float64])
def test_payloads_give_back_every_bit(method: str, dtype: th.dtype) -> None:
    compress, decompress = gpu_methods.COMPRESSION_METHOD_MAP[method]
    memory, values = RawBuffer(9000), th.tensor([0.0, -0.0, 3, 3, 3, 250, 250, 1], dtype=th.float64)
    values = values.repeat_interleave(th.tensor([3, 2, 300, 1, 1, 5, 600, 1])).to(dtype)
    meta = compress(values, memory, 13, elem_type=dtype, runs_type=th.uint8)
    assert meta.byte_start == 13
    assert not memory.data[13 + meta.payload_bytes :].any()  # it says how long it is
    read = decompress(memory, meta, elem_type=dtype, runs_type=th.uint8, arr_configs={"size": len(values), "dtype": dtype})
    assert th.equal(read.view(th.uint8), values.view(th.uint8))
    as_float = decompress(memory, meta, elem_type=dtype, runs_type=th.uint8, arr_configs={"shape": 913, "dtype": th.float64})
    assert as_float.dtype == th.float64


def test_runs_on_a_device_are_those_of_the_host() -> None:
    values = th.tensor([1, 1, 2, 2, 2, 3, 3, 1], dtype=th.uint8)
    memory = RawBuffer(100)
    meta = gpu_methods.rle_compress(values, memory, 20)
    assert (meta.pos_runs, meta.pos_elem, meta.run_length, meta.payload_bytes) == (0, 8, 4, 12)
    assert read_at(memory, 20, 0, 12, th.uint8).numpy().tobytes() == cpu_methods.rle_compress(values.numpy())


def test_payloads_of_another_length_are_refused() -> None:
    memory = RawBuffer(100)
    for method in ("rle", "zstd"):
        compress, decompress = gpu_methods.COMPRESSION_METHOD_MAP[method]
        meta = compress(th.zeros(8, dtype=th.uint8), memory, 0)
        with pytest.raises(CorruptDataError, match="has 8 values, 9 were expected"):
            decompress(memory, meta, elem_type=th.uint8, runs_type=th.uint16, arr_configs={"size": 9})


def test_a_raw_buffer_is_read_and_written_by_place() -> None:
    memory = RawBuffer(16)
    write_at(memory, 2, 2, th.tensor([1.5, -2.0]))
    assert read_at(memory, 0, 4, 2, th.float32).tolist() == [1.5, -2.0]
    memory.copy_region(4, 8, 6)  # where it overlaps itself
    assert memory.read_bytes((6, 8), th.float32).tolist() == [1.5, -2.0]
    target = th.zeros(3)
    memory.read_into((6, 8), target)
    assert target.tolist() == [1.5, -2.0, 0.0]
    assert memory.buffer.nbytes() == memory.size == 16
    for place in ((10, 8), (-1, 4), (0, 17)):
        with pytest.raises(ValueError, match="outside of a RawBuffer of 16 bytes"):
            memory.read_bytes(place, th.uint8)


def test_packing_a_heap_keeps_the_payloads_of_all_cells() -> None:
    heap = SharedRawHeap(n_cells=3, heap_bytes=40)
    for cell, start, length in ((0, 30, 4), (1, 7, 5), (2, 0, 2)):
        heap.buffer.write_bytes((start, length), th.full((length,), cell + 1, dtype=th.uint8))
        heap.start_idx[cell], heap.lengths[cell] = start, length
    heap.data_end = 34
    heap.compact()
    assert heap.data_end == 11
    assert heap.start_idx.tolist() == [0, 4, 9]
    assert heap.buffer.data[:11].tolist() == [1] * 4 + [2] * 5 + [3] * 2
    heap.ensure_space(29)
    with pytest.raises(ValueError, match="30 bytes are needed behind the 11 in use, and it has 40"):
        heap.ensure_space(30)
    empty = SharedRawHeap(2, 8)
    empty.compact()
    assert empty.data_end == 0


# ---- observation stores


def store_of(method: str, n_slots: int, n_envs: int, flat_len: int, heap: SharedRawHeap | None = None, field: int = 0) -> Any:
    compress, decompress = gpu_methods.COMPRESSION_METHOD_MAP[method]
    types: dict[str, Any] = {"elem_type": th.uint8, "runs_type": th.uint16}
    return create_observation_store(
        method, n_slots, n_envs, flat_len, th.uint8, "cpu", field, lambda *args: compress(*args, **types),
        lambda *args: decompress(*args, **types, arr_configs={"size": flat_len}), th.uint16, heap, n_fields=2,
    )  # fmt: skip


@pytest.mark.parametrize("method", gpu_methods.COMPRESSION_METHOD_MAP)
def test_stores_hold_what_was_written_last(method: str) -> None:
    """Two stores in one heap that has to be packed again and again, beside plain arrays."""
    rng, heap = np.random.default_rng(0), SharedRawHeap(2 * 5 * 2, 4000)
    stores = [store_of(method, 5, 2, 64, heap, field) for field in (0, 1)]
    plain: dict[tuple[int, int, int], np.ndarray] = {}
    for _ in range(200):
        field, slot, env = int(rng.integers(2)), int(rng.integers(5)), int(rng.integers(2))
        values = rng.integers(0, rng.integers(1, 40), 64).repeat(1 + int(rng.integers(3)))[:64].astype(np.uint8)
        stores[field].write(slot, env, th.from_numpy(values))
        plain[field, slot, env] = values
        for (one, at, of), expected in plain.items():
            assert np.array_equal(stores[one].read(at, of), expected)
    for store in stores:
        store.flatten()
    for (field, slot, env), expected in plain.items():
        assert np.array_equal(stores[field].read_flat(env * 5 + slot), expected)
        assert np.array_equal(stores[field].read(slot, env), expected)
    assert isinstance(stores[0], DenseObservationStore if method == "none" else RawObservationStore)
    assert heap.data_end <= heap.buffer.size


def test_a_full_heap_leaves_observations_as_they_were() -> None:
    heap = SharedRawHeap(4, 100)
    store = store_of("rle", 4, 1, 30, heap)
    store.write(0, 0, th.arange(30, dtype=th.uint8))
    with pytest.raises(ValueError, match="The heap is full"):
        store.write(1, 0, th.arange(30, dtype=th.uint8))
    assert store.read(0, 0).tolist() == list(range(30))
    with pytest.raises(IndexError, match="Nothing was written to slot 1 of env 0"):
        store.read(1, 0)
    store.compact()


def test_stores_say_what_they_need() -> None:
    with pytest.raises(ValueError, match="'rle' needs compress= and decompress="):
        create_observation_store("rle", 4, 1, 8, th.uint8, "cpu")
    with pytest.raises(ValueError, match="needs a heap: shared_heap=SharedRawHeap"):
        store_of("rle", 4, 1, 8)


def test_metadata_is_a_value() -> None:
    assert SlotMetadata(1, 2, 3, 4, 5) == SlotMetadata(byte_start=1, pos_runs=2, pos_elem=3, run_length=4, payload_bytes=5)


# ---- sizes


@pytest.mark.parametrize(
    ("method", "parsed"),
    [("rle", ("rle", None)), ("zstd3", ("zstd", 3)), ("zstd-5", ("zstd", -5)), ("lz4-frame/5", ("lz4-frame", 5)),
     ("rle-old", ("rle", None)), ("igzip/3", ("igzip", 3))],
)  # fmt: skip
def test_a_method_is_family_and_level(method: str, parsed: tuple[str, int | None]) -> None:
    assert parse_compression_method(method) == parsed


def test_what_is_no_shorthand_is_refused() -> None:
    with pytest.raises(ValueError, match="'lz4-frame5' is no method with a level"):
        parse_compression_method("lz4-frame5")


@pytest.mark.parametrize("family", SAVE_RATIOS)
def test_measured_levels_are_as_measured_and_others_within_the_bounds_of_their_family(family: str) -> None:
    known = SAVE_RATIOS[family]
    lowest, highest = min(known.values()), max(known.values())
    if len(known) == 1:
        assert estimate_save_ratio(family) == known[0]
        return
    for level, ratio in known.items():
        assert estimate_save_ratio(f"{family}/{level}") == estimate_save_ratio(family, level) == pytest.approx(ratio)
    first, last = CODECS[family].load().levels or (0, 0)
    for level in range(max(first, -100), last + 1):
        if family == "zstd" and level == 0:
            continue
        ratio = estimate_save_ratio(family, level)
        assert lowest <= ratio <= highest
        if not min(known) <= level <= max(known):
            assert ratio == highest
    assert lowest <= estimate_save_ratio(family) <= highest
    between = [level for level in sorted(known) if level > 0][:2]
    if between[1] - between[0] > 1:
        assert known[between[1]] < estimate_save_ratio(family, between[0] + 1) < known[between[0]]


def test_the_published_figures_are_those_of_0_5() -> None:
    published = {
        "none": 1.001,
        "rle": 0.753,
        "zstd3": 0.055,
        "zstd-3": 0.069,
        "zstd-5": 0.077,
        "gzip1": 0.096,
        "igzip3": 0.076,
    }
    assert {method: estimate_save_ratio(method) for method in published} == pytest.approx(published)
    assert estimate_save_ratio("zstd") == estimate_save_ratio("zstd-3")
    assert estimate_save_ratio("zstd3", compresslevel=5) == estimate_save_ratio("zstd5")


@pytest.mark.parametrize("method", ["gzip10", "igzip9", "zstd0", "zstd23", "zstd-101", "lz4-frame/17", "lz4-block/17"])
def test_levels_that_there_are_not_are_refused(method: str) -> None:
    with pytest.raises(ValueError, match="level must be in"):
        estimate_save_ratio(method)
    family, level = parse_compression_method(method)
    with pytest.raises(ValueError, match="level must be in"):
        validate_compresslevel(family, int(level or 0))
    with pytest.raises(ValueError, match="level must be in"):
        estimate_max_slot_bytes(MSPACMAN, th.uint8, th.uint16, method)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("none", int(1.001 * 1.5 * MSPACMAN)),
        ("rle", 3 * MSPACMAN),  # every value a run of its own
        ("rle-jit", 3 * MSPACMAN),
        ("zstd3", MSPACMAN // 4 + MSPACMAN // 255 + 64),
        ("zstd-100", int(0.36 * 1.5 * MSPACMAN)),
        ("gzip1", MSPACMAN // 4 + MSPACMAN // 255 + 64),
        ("igzip", MSPACMAN // 4 + MSPACMAN // 255 + 64),
        ("lz4-frame/5", MSPACMAN // 4 + MSPACMAN // 255 + 64),
        ("lz4-block", MSPACMAN // 4 + MSPACMAN // 255 + 64),
        ("tiles", int(0.0144 * 1.5 * MSPACMAN)),
        ("mine", 3 * MSPACMAN),
    ],
)
def test_bytes_to_have_ready_for_an_observation(method: str, expected: int) -> None:
    assert estimate_max_slot_bytes(MSPACMAN, th.uint8, th.uint16, method) == expected
    assert estimate_total_heap_bytes(1000, MSPACMAN, th.uint8, th.uint16, method) == 1000 * expected
    wide = estimate_max_slot_bytes(MSPACMAN, th.float32, th.uint16, method)
    assert wide > expected


def test_room_to_spare_and_a_level_can_be_given() -> None:
    arguments = (MSPACMAN, th.uint8, th.uint16)
    single, double = (estimate_max_slot_bytes(*arguments, "none", overalloc_factor=factor) for factor in (1.5, 3.0))
    assert double == pytest.approx(2 * single, abs=2)
    assert estimate_max_slot_bytes(*arguments, "zstd", compresslevel=-100) == estimate_max_slot_bytes(*arguments, "zstd-100")
    assert estimate_total_heap_bytes(7, *arguments, "zstd", 1.5, -100) == 7 * estimate_max_slot_bytes(*arguments, "zstd-100")
    assert estimate_max_slot_bytes(1, th.uint8, th.uint16, "rle") == 64
    with_numpy = estimate_max_slot_bytes(MSPACMAN, np.uint8, np.uint16, "rle")
    assert with_numpy == estimate_max_slot_bytes(MSPACMAN, th.uint8, th.uint16, "rle")


def test_the_parts_of_an_estimate() -> None:
    assert is_benchmark_family("lz4-block")
    assert not is_benchmark_family("mine")
    assert estimate_save_ratio("mine") == legacy_save_ratio("mine", None) == 2.0
    assert [resolve_compresslevel("zstd", *levels) for levels in ((None, None), (5, None), (5, 7))] == [-3, 5, 7]
    assert resolve_compresslevel("gzip", None, None) is None
    bounds = (1, 3, 0.1, 0.4)
    assert [poly_save_ratio(level, (0.1, 0.0), bounds) for level in (0, 1, 2, 3, 9)] == pytest.approx(
        [0.4, 0.1, 0.2, 0.3, 0.4]
    )
    assert poly_save_ratio(2, (9.0,), bounds) == 0.4
    assert [find_smallest_dtype(n) for n in (255, 256, 2**40, 2**70)] == [th.uint8, th.uint16, th.uint64, th.float32]
    assert find_smallest_dtype(200, signed=True) == th.int16
    assert find_smallest_dtype(10**400, fallback=th.int8) == th.int8
    assert torch_dtype_element_size(th.float64) == 8


# ---- records


def test_a_record_can_be_made_to_take_its_memory_at_once() -> None:
    record = RecordBuffer((4, 4), 1, 5, [np.uint8, np.float32, np.int16])
    force_alloc_mem(record, 3)
    assert np.all(record.frames == 3)  # type: ignore[arg-type]
    assert np.all(record.rewards == 3)
    assert np.all(record.features == 3)
    force_alloc_mem(FramelessRecordBuffer(size=5))


def test_a_dummy_array_ignores_everything() -> None:
    array = DummyArray()
    array[1, 2] = 3
    assert array.fill(1) is array.transpose(2, 0, 1) is None


def test_a_record_keeps_the_pictures_that_0_5s_kept_by_default() -> None:
    record = RecordBuffer(size=2)
    record.add(np.ones((240, 320, 3), np.uint8), 1.0, 2)
    assert record[0].frame.shape == (3, 240, 320)
