"""The constructor keywords: what they store, what they return, and what they refuse before anything is changed."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces

from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
    find_buffer_dtypes,
    find_smallest_dtype,
    init_jit,
)
from sb3_extra_buffers.errors import CodecError, LossyStorageWarning, ObservationError
from tests.oracle import DICT_SPACE, IMAGE, add_to_replay, add_to_rollout
from tests.transitions import play

ACTIONS = spaces.Discrete(2)
VECTOR = spaces.Box(-1000, 1000, (6,), np.float32)


def replay(space: spaces.Space[Any] = IMAGE, size: int = 20, n_envs: int = 1, **options: Any) -> Any:
    buffer_class = CompressedDictReplayBuffer if isinstance(space, spaces.Dict) else CompressedReplayBuffer
    return buffer_class(size, space, ACTIONS, n_envs=n_envs, **options)


def add(buffer: Any, obs: Any, next_obs: Any = None) -> None:
    n = buffer.n_envs
    buffer.add(obs, obs if next_obs is None else next_obs, np.zeros(n), np.zeros(n), np.zeros(n), [{}] * n)


def filled(space: spaces.Space[Any], n_steps: int = 15, n_envs: int = 1, **options: Any) -> Any:
    buffer = replay(space, n_envs=n_envs, **options)
    for step in play(space, ACTIONS, n_envs, n_steps):
        add_to_replay([buffer], step)
    return buffer


def sample(buffer: Any, n: int = 30) -> Any:
    np.random.seed(0)
    return buffer.sample(n)


# ---- dtypes


def test_a_narrower_elem_type_warns_once_and_clips() -> None:
    with pytest.warns(LossyStorageWarning, match="float32 observations as uint8") as caught:
        buffer = replay(VECTOR, dtypes={"elem_type": np.uint8})
    assert len(caught) == 1
    add(buffer, np.array([[300, -5, 2.6, 44.4, np.nan, np.inf]], np.float32))
    batch = sample(buffer, 1)
    assert batch.observations.dtype == th.float32
    assert batch.observations.tolist() == [[255, 0, 3, 44, 0, 255]]


@pytest.mark.parametrize("stored", ["int8", "int16", "uint8", "uint64", "int64"])
@pytest.mark.parametrize("given", ["float64", "int64", "uint64", "int32"])
def test_values_out_of_range_are_clipped_never_wrapped(stored: str, given: str) -> None:
    space = (
        spaces.Box(-np.inf, np.inf, (4,), np.dtype(given))
        if given == "float64"
        else spaces.Box(np.iinfo(given).min, np.iinfo(given).max, (4,), np.dtype(given))
    )
    low, high = (-1e300, 1e300) if given == "float64" else (np.iinfo(given).min, np.iinfo(given).max)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyStorageWarning)
        buffer = replay(space, dtypes={"elem_type": stored})
    values = np.array([[low, high, 1, 100]], given)
    add(buffer, values)
    read = np.asarray(buffer.observations[0, 0])
    info = np.iinfo(stored)
    assert read[2:].tolist() == [1, 100]
    assert float(read[0]) == float(max(int(low), info.min))
    assert float(read[1]) == pytest.approx(float(min(int(high), info.max)))


@pytest.mark.parametrize(("given", "stored"), [("float64", "float32"), ("float32", "float16"), ("int64", "float16")])
def test_narrower_floats_are_clipped_too(given: str, stored: str) -> None:
    space = spaces.Box(-(2**40), 2**40, (4,), np.dtype(given))
    with pytest.warns(LossyStorageWarning):
        buffer = replay(space, dtypes={"elem_type": stored})
    large = 2**40 if given == "int64" else np.finfo(given).max
    add(buffer, np.array([[large, -large, 1, 3]], given))
    read = np.asarray(buffer.observations[0, 0])
    assert read.tolist() == [float(np.finfo(stored).max), -float(np.finfo(stored).max), 1, 3]


def test_infinities_stay_infinite_in_a_narrower_float() -> None:
    with pytest.warns(LossyStorageWarning):
        buffer = replay(VECTOR, dtypes={"elem_type": "float16"})
    add(buffer, np.array([[np.inf, -np.inf, np.nan, -0.0, 0.5, 7]], np.float32))
    assert str(np.asarray(buffer.observations[0, 0]).tolist()) == "[inf, -inf, nan, -0.0, 0.5, 7.0]"


def test_a_wider_elem_type_loses_nothing_and_says_nothing() -> None:
    buffer = filled(IMAGE, dtypes={"elem_type": np.uint16})
    plain = filled(IMAGE)
    assert np.array_equal(np.asarray(buffer.observations), np.asarray(plain.observations))
    assert sample(buffer).observations.dtype == th.uint8


def test_of_a_dict_only_what_fits_is_stored_otherwise() -> None:
    """One elem_type for all keys: leaves that it cannot hold keep their own dtype."""
    buffer = filled(DICT_SPACE, dtypes={"elem_type": np.uint8})
    plain = filled(DICT_SPACE)
    for key in DICT_SPACE.spaces:
        assert np.asarray(buffer.observations[key]).tobytes() == np.asarray(plain.observations[key]).tobytes(), key


def test_find_buffer_dtypes() -> None:
    assert find_buffer_dtypes((4, 84, 84), np.uint8) == {"elem_type": np.uint8, "runs_type": np.uint16}
    assert find_buffer_dtypes(200, np.dtype("float32"), "rle-jit") == {"elem_type": np.float32, "runs_type": np.uint8}
    assert find_buffer_dtypes((300, 300), "uint8", "zstd-3")["runs_type"] is np.uint32
    dtypes = find_buffer_dtypes(IMAGE.shape, IMAGE.dtype, "rle-jit")
    filled(IMAGE, dtypes=dtypes, compression_method="rle-jit")
    with pytest.raises(CodecError):
        find_buffer_dtypes((4,), np.uint8, "zsdt")


def test_find_smallest_dtype() -> None:
    unsigned = [find_smallest_dtype(n) for n in (0, 255, 256, 65535, 65536, 2**32 - 1, 2**32)]
    assert unsigned == [np.uint8, np.uint8, np.uint16, np.uint16, np.uint32, np.uint32, np.uint64]
    signed = [find_smallest_dtype(n, signed=True) for n in (127, 128, 32768, 2**31)]
    assert signed == [np.int8, np.int16, np.int32, np.int64]
    assert [find_smallest_dtype(n) for n in (2**64, 2**128, 2**200)] == [np.float32, np.float64, np.float64]
    assert find_smallest_dtype(10**400) is np.float32
    assert find_smallest_dtype(10**400, fallback=object) is object
    with pytest.raises(ValueError, match="from 0 on, got -1"):
        find_smallest_dtype(-1)


def test_init_jit_compiles_the_signature_that_is_used() -> None:
    from sb3_extra_buffers.codecs import rle_jit

    init_jit(elem_type=np.uint32, runs_type=np.uint32)
    kernels: Any = rle_jit._compiled()
    before = [len(kernel.signatures) for kernel in kernels]
    space = spaces.Box(0, 100, (300,), np.uint32)
    for block_frames in (4, None):
        sample(filled(space, dtypes={"runs_type": np.uint32}, compression_method="rle-jit", block_frames=block_frames))
    assert [len(kernel.signatures) for kernel in kernels] == before


# ---- codecs


def test_compression_method_per_key() -> None:
    buffer = filled(DICT_SPACE, compression_method={"camera": "gzip5", "far": "rle"})
    codecs = {key: leaf.store.codec for key, leaf in buffer._leaves.items()}
    assert codecs["camera"].spec == "gzip/5"
    assert codecs["far"].name == "rle"
    assert codecs["speed"].name == "none"
    both = filled(
        DICT_SPACE, compression_method={"camera": "gzip", "far": "zstd"},
        compression_kwargs={"camera": {"level": 2}, "far": {"level": 7}},
    )  # fmt: skip
    assert both._leaves["camera"].store.codec.spec == "gzip/2"
    assert both._leaves["far"].store.codec.spec == "zstd/7"


def test_auto_chooses_per_leaf() -> None:
    space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (1, 84, 84), np.uint8),
            "speed": spaces.Box(-1, 1, (4,), np.float32),
            "depth": spaces.Box(0, 1, (84, 83), np.float32),
        }
    )
    buffer = CompressedDictReplayBuffer(400, space, ACTIONS, device="cpu")
    rng = np.random.default_rng(0)
    pictures = rng.integers(256, size=(3, 1, 84, 84), dtype=np.uint8)
    distances = rng.random((84, 1), np.float32).repeat(83, axis=1)  # rows that are never where they were before

    def observation(step: int) -> dict[str, np.ndarray]:
        camera = pictures[step // 100 % 3].copy()
        camera[0, step % 84, :40] = step % 256
        return {"camera": camera[None], "speed": rng.random((1, 4), np.float32), "depth": rng.permutation(distances)[None]}

    for step in range(300):
        buffer.add(observation(step), observation(step + 1), np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    assert {key: leaf.store.codec.name for key, leaf in buffer._leaves.items()} == {
        "camera": "delta", "speed": "none", "depth": "zstd",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression_method": "zsdt"}, "Did you mean 'zstd'"),
        ({"compression_method": ""}, "No codec named ''. Installed"),
        ({"compression_method": "lz4-block3"}, "Did you mean 'lz4-block/3'"),
        ({"compression_method": "zstd23"}, r"zstd level must be in 1\.\.22 or -100\.\.-1, got 23"),
        ({"compression_method": ["zstd"]}, r"must be a codec's name, or a dict of names by key, got \['zstd'\]"),
        ({"compression_method": None}, "must be a codec's name, or a dict of names by key, got None"),
        ({"dtypes": {"elem_type": "foo"}}, "elem_type in dtypes must be a NumPy dtype, got 'foo'"),
        ({"compression_method": "gzip10"}, r"gzip level must be in 0\.\.9, got 10"),
        ({"compression_method": "rle3"}, "has no levels"),
        ({"compression_method": "zstd", "compression_kwargs": {"levle": 1}}, "no option 'levle'"),
        ({"compression_kwargs": {"level": 1}}, "'auto' has no options"),
        ({"compression_method": "gzip", "decompression_kwargs": {"nothing": 1}}, "no option 'nothing'"),
        ({"output_dtype": "double"}, "output_dtype must be 'raw' or 'float'"),
        ({"dtypes": {"elem": "uint8"}}, "dtypes may hold"),
        ({"frame_stack": 5}, "frame_stack=5 does not fit"),
        ({"frame_stack": 0}, "frame_stack must be"),
        ({"frame_stack": "four"}, "frame_stack must be"),
        ({"frame_stack": {"camera": 4}}, r"frame_stack names \['camera'\]"),
        ({"compression_method": {"camera": "gzip"}}, r"names \['camera'\]"),
        ({"block_frames": 0}, "block_frames must be a positive number"),
        ({"block_frames": 2, "frame_stack": 4}, "block_frames must be at least"),
    ],
)
@pytest.mark.parametrize("buffer_class", [CompressedReplayBuffer, CompressedRolloutBuffer])
def test_bad_options_are_refused_at_construction(buffer_class: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        buffer_class(20, IMAGE, ACTIONS, **options)


def test_an_unknown_keyword_is_no_option() -> None:
    for buffer_class in (CompressedReplayBuffer, CompressedRolloutBuffer):
        with pytest.raises(TypeError, match="compresion_method"):
            buffer_class(20, IMAGE, ACTIONS, compresion_method="zstd")


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ({"compression_method": "gzip", "compression_kwargs": {"compresslevel": 5}}, "gzip/5"),
        ({"compression_method": "gzip5", "compression_kwargs": {"compresslevel": 5}}, "gzip/5"),
        ({"compression_method": "gzip", "compression_kwargs": {"compresslevel": 5, "level": 5}}, "gzip/5"),
        ({"compression_method": "gzip", "dtypes": {"elem_type": np.uint8, "compresslevel": 5}}, "gzip/5"),
        ({"compression_method": "gzip7", "dtypes": {"compresslevel": 5}}, "gzip/7"),
        ({"compression_method": "gzip", "dtypes": {"compresslevel": 5}, "compression_kwargs": {"level": 2}}, "gzip/2"),
        ({"compression_method": "rle", "dtypes": {"compresslevel": 5}}, "rle"),
        ({"compression_method": "rle-old"}, "rle"),
        ({"compression_method": "none1"}, "none"),
        ({"compression_method": "lz4-block/16"}, "lz4-block/16"),
        (
            {
                "compression_method": "zstd", "decompression_kwargs": {"elem_type": np.uint8, "compresslevel": 9},
                "compression_kwargs": {"elem_type": np.uint8, "runs_type": np.uint16, "compresslevel": 9, "threads": 2},
            },
            "zstd/9",
        ),
        ({"compression_method": "lz4-frame/1", "compression_kwargs": {"block_size": 4}}, "lz4-frame/1"),
    ],
)  # fmt: skip
def test_options_of_0_5_are_understood(options: dict[str, Any], spec: str) -> None:
    before = copy.deepcopy(options)
    assert filled(IMAGE, **options)._leaves["observation"].store.codec.spec == spec
    assert options == before


def test_options_of_0_5_need_no_method() -> None:
    kwargs = {"elem_type": np.uint8, "runs_type": np.uint16}
    buffer = filled(IMAGE, dtypes={"compresslevel": 3}, compression_kwargs=kwargs, decompression_kwargs=kwargs)
    assert np.array_equal(np.asarray(buffer.observations), np.asarray(filled(IMAGE).observations))


def test_a_dtype_alone_is_an_elem_type() -> None:
    assert filled(IMAGE, dtypes=np.uint8)._options.dtypes == {"elem_type": np.uint8}
    with pytest.raises(ValueError, match="elem_type in dtypes must be a NumPy dtype, got 'zstd'"):
        replay(IMAGE, dtypes="zstd")


def test_two_levels_by_two_names_are_refused() -> None:
    with pytest.raises(CodecError, match="level=3 and compresslevel=4, which mean the same"):
        replay(IMAGE, compression_method="gzip", compression_kwargs={"level": 3, "compresslevel": 4})
    with pytest.raises(CodecError, match="'gzip3' says level 3"):
        replay(IMAGE, compression_method="gzip3", compression_kwargs={"compresslevel": 4})


def test_storage_options_may_be_given_by_position_as_in_0_5() -> None:
    dtypes, options = {"elem_type": np.uint8, "runs_type": np.uint8}, {"compresslevel": 5}
    made: list[Any] = [
        CompressedReplayBuffer(20, IMAGE, ACTIONS, "cpu", 1, False, True, dtypes, True, "gzip", options, {}, "float"),
        CompressedRolloutBuffer(20, IMAGE, ACTIONS, "cpu", 0.9, 0.99, 1, dtypes, True, "gzip", options, {}),
    ]
    for buffer in made:
        chosen = buffer._options
        assert (chosen.dtypes, chosen.normalize_images, chosen.compression_method) == (dtypes, True, "gzip")
        assert (chosen.compression_kwargs, chosen.decompression_kwargs) == (options, {})
    assert made[0]._options.output_dtype == "float"


def test_init_jit_takes_all_that_dtypes_may_hold() -> None:
    init_jit(elem_type=np.uint8, runs_type=np.uint16, compresslevel=3)


def test_the_callers_dicts_stay_as_they_are() -> None:
    options = {
        "dtypes": {"elem_type": np.uint8, "runs_type": np.uint16}, "compression_kwargs": {"level": 3},
        "decompression_kwargs": {"level": 3},
    }  # fmt: skip
    before = copy.deepcopy(options)
    filled(IMAGE, compression_method="zstd", **options)
    filled(IMAGE, compression_method="zstd3", **options)
    assert options == before


# ---- what a batch holds


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("output_dtype", ["raw", "float"])
def test_normalize_images_divides_image_leaves_only(normalize: bool, output_dtype: str) -> None:
    options = {"normalize_images": normalize, "output_dtype": output_dtype}
    batch, plain = sample(filled(DICT_SPACE, **options)), sample(filled(DICT_SPACE))
    for side in ("observations", "next_observations"):
        for key, expected in getattr(plain, side).items():
            value = getattr(batch, side)[key]
            if key == "camera" and normalize:
                expected = expected.float() / 255.0
            elif output_dtype == "float":
                expected = expected.float()
            assert value.dtype == expected.dtype
            assert th.equal(value, expected), key


def test_rollout_output_options() -> None:
    batches = []
    for options in ({}, {"normalize_images": True}, {"output_dtype": "float"}):
        buffer = CompressedDictRolloutBuffer(10, DICT_SPACE, ACTIONS, **options)
        for step in play(DICT_SPACE, ACTIONS, 1, 10):
            add_to_rollout([buffer], step)
        np.random.seed(0)
        batches.append(next(buffer.get(None)).observations)
    plain, normalized, floats = batches
    assert th.equal(normalized["camera"], plain["camera"].float() / 255.0)
    assert th.equal(normalized["speed"], plain["speed"])
    assert all(value.dtype == th.float32 for value in floats.values())
    assert th.equal(floats["camera"], plain["camera"].float())


def test_images_that_are_no_images_are_not_divided() -> None:
    for space in (spaces.Box(0, 100, (1, 12, 12), np.uint8), spaces.Box(0, 255, (12, 12), np.uint8), VECTOR):
        assert th.equal(sample(filled(space, normalize_images=True)).observations, sample(filled(space)).observations)


@pytest.mark.parametrize("method", ["none", "rle", "gzip", "zstd", "delta"])
def test_the_output_dtype_does_not_depend_on_the_codec(method: str) -> None:
    for space, dtype in ((IMAGE, th.uint8), (VECTOR, th.float32), (spaces.Discrete(3), th.int64)):
        assert sample(filled(space, compression_method=method)).observations.dtype == dtype


# ---- frames


def test_frame_stack_per_key() -> None:
    space = spaces.Dict({"a": IMAGE, "b": IMAGE, "c": spaces.Box(-1, 1, (3,), np.float32)})
    buffer = filled(space, frame_stack={"a": 2, "b": 1})
    assert buffer._leaves["a"].store.layout.stack == 2
    assert buffer._leaves["b"].store.layout.stack == 1


def test_a_stack_is_found() -> None:
    assert filled(IMAGE)._leaves["observation"].store.layout.stack == 4
    assert filled(spaces.Box(0, 255, (12, 12, 4), np.uint8))._leaves["observation"].store.layout.axis == -1
    assert filled(spaces.Box(0, 255, (12, 10, 10), np.uint8))._leaves["observation"].store.layout.frame_bytes == 300


# ---- what is refused, before anything is changed


@pytest.mark.parametrize("n_steps", [0, 5])
def test_wrong_observations_are_refused_before_anything_is_changed(n_steps: int) -> None:
    buffer = filled(IMAGE, n_steps=n_steps, n_envs=2)
    good = np.ones((2, 4, 12, 12), np.uint8)
    state = np.asarray(buffer.observations), np.asarray(buffer.next_observations), buffer.pos, buffer.rewards.copy()
    for bad in (
        np.ones((2, 4, 12, 11), np.uint8),
        np.ones((3, 4, 12, 12), np.uint8),
        np.full((2, 4, 12, 12), 300),
        good * 0.5,
    ):
        for pair in ((bad, good), (good, bad)):
            with pytest.raises(ObservationError):
                add(buffer, *pair)
            assert np.array_equal(np.asarray(buffer.observations), state[0])
            assert np.array_equal(np.asarray(buffer.next_observations), state[1])
            assert buffer.pos == state[2]
            assert np.array_equal(buffer.rewards, state[3])


def test_wrong_dict_observations_are_refused_before_anything_is_changed() -> None:
    buffer = filled(DICT_SPACE, n_steps=3)
    good = next(play(DICT_SPACE, ACTIONS, 1, 1)).obs
    before = {key: np.asarray(view) for key, view in buffer.observations.items()}
    for bad in ({**good, "speed": np.ones((1, 7))}, {key: good[key] for key in good if key != "gear"}):
        for pair in ((bad, good), (good, bad)):
            with pytest.raises(ObservationError, match=r"speed|gear"):
                add(buffer, *pair)
            for key, view in buffer.observations.items():
                assert np.asarray(view).tobytes() == before[key].tobytes(), key
    assert buffer.pos == 3


def test_rollouts_refuse_wrong_observations_too() -> None:
    buffer = CompressedRolloutBuffer(5, IMAGE, ACTIONS)
    with pytest.raises(ObservationError, match="need"):
        buffer.add(np.ones((1, 3)), np.zeros(1), np.zeros(1), np.zeros(1), th.zeros(1), th.zeros(1))
    assert buffer.pos == 0


# ---- memory_usage


def test_memory_usage() -> None:
    buffer = replay(DICT_SPACE, size=40, n_envs=2)
    assert buffer.memory_usage().raw_bytes == 0
    assert buffer.memory_usage().ratio == 0
    for step in play(DICT_SPACE, ACTIONS, 2, 15):
        add_to_replay([buffer], step)
    usage = buffer.memory_usage()
    assert set(usage.keys) == set(DICT_SPACE.spaces)
    written = 15 * 2 * 2  # steps, envs, obs and next_obs
    for key, leaf in usage.keys.items():
        space = DICT_SPACE.spaces[key]
        size = int(np.prod(space.shape or (1,))) * np.dtype(space.dtype).itemsize
        assert leaf.raw_bytes == written * size
        assert leaf.ratio == leaf.stored_bytes / leaf.raw_bytes
    assert usage.raw_bytes == sum(leaf.raw_bytes for leaf in usage.keys.values())
    assert usage.stored_bytes == sum(leaf.stored_bytes for leaf in usage.keys.values())
    assert usage.ratio == usage.stored_bytes / usage.raw_bytes
    assert usage.blocks > 0


def test_a_buffer_too_large_for_memory_can_be_made() -> None:
    """SB3 would allocate, or warn about, 56 GB of observations."""
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = replay(space, size=1_000_000)
    add(buffer, np.ones((1, 4, 84, 84), np.uint8))
    assert sample(buffer, 3).observations.shape == (3, 4, 84, 84)
