"""`auto` decides by the data: by sizes and counted work alone, for blocks that begin from then on, and says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice, pairwise

import numpy as np
import pytest
from gymnasium import spaces

from sb3_extra_buffers.codecs import AUTO, make_codec
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.native import delta_encode
from sb3_extra_buffers.store import BlockStore, FrameLayout
from sb3_extra_buffers.store.host import choosing
from sb3_extra_buffers.store.host.choosing import Chooser, Estimate, chooser_for_order, make_chooser
from sb3_extra_buffers.store.host.coding import Coding
from tests.store_segments import put_segment, segment_of

COLOUR = FrameLayout((3, 40, 60), np.dtype(np.uint8))
GRAY = FrameLayout((200, 200), np.dtype(np.uint8))


def still(layout: FrameLayout) -> Iterator[np.ndarray]:
    """A picture in which a few pixels change."""
    rng = np.random.default_rng(0)
    frame = rng.integers(256, size=layout.frame_bytes, dtype=np.uint8)
    while True:
        frame = frame.copy()
        frame[rng.integers(frame.size, size=20)] += 1
        yield frame


def noise(layout: FrameLayout) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    while True:
        yield rng.integers(256, size=layout.frame_bytes, dtype=np.uint8)


def bars(layout: FrameLayout) -> Iterator[np.ndarray]:
    """Rows of six kinds, in a new order in every frame: nothing but a library finds what repeats."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(256, size=(6, 200), dtype=np.uint8)
    while True:
        yield kinds[rng.integers(6, size=layout.frame_bytes // 200)].reshape(-1)


def grainy(layout: FrameLayout) -> Iterator[np.ndarray]:
    """A picture with the noise of a camera."""
    rng = np.random.default_rng(0)
    picture = rng.integers(250, size=layout.frame_bytes, dtype=np.uint8)
    while True:
        yield picture + rng.integers(4, size=picture.size, dtype=np.uint8)


Scene = Callable[[FrameLayout], Iterator[np.ndarray]]


def shown(chooser: Chooser, frames: Iterator[np.ndarray], n: int) -> list[str]:
    """What is chosen after each of so many steps."""
    specs = []
    for frame in islice(frames, n):
        if chooser.is_due():
            chooser.look(frame)
        specs.append(chooser.chosen.spec)
    return specs


@pytest.mark.parametrize(("scene", "chosen"), [(still, "delta"), (grainy, "delta"), (noise, "none"), (bars, "zstd/3")])
def test_the_choice_follows_the_data(scene: Scene, chosen: str) -> None:
    chooser = make_chooser("auto", GRAY, 16)
    specs = shown(chooser, scene(GRAY), 300)
    assert specs[0] == "delta"  # until something is known
    # What nothing shrinks is the same to `delta` and `none`: the core keeps it as it is either way.
    assert specs[-1] in ({"delta", "none"} if chosen == "none" else {chosen})


def test_the_same_data_lead_to_the_same_choice() -> None:
    first, second = (make_chooser("auto", GRAY, 16) for _ in range(2))
    assert shown(first, bars(GRAY), 600) == shown(second, bars(GRAY), 600)
    assert first.estimates() == second.estimates()


def test_a_new_scene_changes_the_choice_and_nothing_that_was_written() -> None:
    store = BlockStore(GRAY, 400, "auto", n_columns=1, block_frames=16, is_whole=False)
    frames = [*islice(still(GRAY), 200), *islice(bars(GRAY), 9000)]
    kept = np.zeros((400, GRAY.frame_bytes), np.uint8)
    methods = []
    for t, frame in enumerate(frames):
        store.write(0, np.array([t % 400]), frame.reshape(1, 200, 200))
        kept[t % 400] = frame
        methods.append(store.method)
        if t in (190, 320, 9100):
            assert np.array_equal(store.read(0, np.arange(400)).reshape(400, -1), kept)
            store.check()
    assert methods[199] == "delta"
    assert methods[-1] == "zstd/3"
    again = BlockStore(GRAY, 400, "auto", n_columns=1, block_frames=16, is_whole=False)
    put_segment(again, segment_of(store))
    assert again.method == "zstd/3"
    assert np.array_equal(again.read(0, np.arange(400)).reshape(400, -1), kept)


def looks_with(
    monkeypatch: pytest.MonkeyPatch, chooser: Chooser, delta: Callable[[int], float], library: Callable[[int], float], n: int
) -> tuple[list[int], list[str]]:
    """Looks at which libraries are tried, and what is chosen after each, if sizes are these at look k. Work is 1."""
    monkeypatch.setattr(choosing, "_LATER", 64)
    monkeypatch.setattr(chooser, "price", 0.0)
    tried: list[int] = []
    chosen: list[str] = []

    def estimated(coding: Coding) -> Iterator[None]:
        k = len(chosen)
        if coding.is_library:
            tried.append(k)
        yield
        by_pixels = 0.8 if coding.channels > 1 else 1.0
        return Estimate(library(k) * by_pixels if coding.is_library else delta(k), 1.0)

    monkeypatch.setattr(chooser, "_try_library", lambda coding, *_: estimated(coding))
    monkeypatch.setattr(chooser, "_try_delta", lambda coding, *_: estimated(coding))
    original = chooser._choice

    def choice() -> Coding:
        coding = original()
        chosen.append(coding.spec)
        return coding

    monkeypatch.setattr(chooser, "_choice", choice)
    frames = still(chooser._layout)
    while len(chosen) < n:
        shown(chooser, frames, 1)
    return sorted(set(tried)), chosen


def test_libraries_are_tried_less_often_where_they_are_far_from_being_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their calls are the slowest steps of a look."""
    chooser = make_chooser("auto", GRAY, 16)
    tried, chosen = looks_with(monkeypatch, chooser, lambda k: 0.03, lambda k: 0.3, 32)
    assert tried == [*range(8), 15, 23, 31]
    assert set(chosen) == {"delta"}


@pytest.mark.parametrize(
    ("delta", "library", "expected"),
    [
        (lambda k: 0.5 if k < 9 else 0.275, lambda k: 0.4 if k < 9 else 0.22, {"zstd/3"}),  # all become easier
        (lambda k: 0.35 if k == 15 else 0.3, lambda k: 0.7 if k == 15 else 0.25, {"zstd/3"}),  # one odd look
        (lambda k: 1.0, lambda k: 1.0 if k < 9 else 0.2, {"delta", "zstd/3"}),  # `delta` does not see the change
        (lambda k: 0.03 if k < 12 else 0.9, lambda k: 0.3, {"delta", "zstd/3"}),
    ],
)
def test_a_choice_is_what_it_would_be_if_all_were_always_tried(
    monkeypatch: pytest.MonkeyPatch, delta: Callable[[int], float], library: Callable[[int], float], expected: set[str]
) -> None:
    found = []
    for n_full in (8, 1):
        monkeypatch.setattr(choosing, "_FULL_LOOKS", n_full)
        found.append(looks_with(monkeypatch, make_chooser("auto", GRAY, 16), delta, library, 32)[1])
    assert found[0] == found[1]
    assert set(found[0][1:]) == expected


def test_both_orders_of_a_named_codec_are_always_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = chooser_for_order(Coding(make_codec("zstd3"), 4), COLOUR, 16)
    assert chooser is not None
    tried, _ = looks_with(monkeypatch, chooser, lambda k: 1.0, lambda k: 0.5, 20)
    assert tried == list(range(20))


def test_small_takes_the_smallest_and_fast_what_is_read_fastest() -> None:
    estimates = [Estimate(0.5, 4.0), Estimate(1.0, 1.0), Estimate(0.3, 12.0)]
    chosen = {}
    for taste in AUTO:
        chooser = make_chooser(taste, GRAY, 16)
        chooser._looks.append(estimates)
        chosen[taste] = chooser._choice().spec
    # 0.5 + 0.07 * 4 = 0.78 and 0.3 + 0.07 * 12 = 1.14; with 0.3 instead of 0.07: 1.7, 1.3 and 3.9
    assert chosen == {"auto": "delta", "auto-fast": "none", "auto-small": "zstd/3"}


def test_equals_do_not_alternate() -> None:
    chooser = make_chooser("auto-small", GRAY, 16)
    for sizes in ((0.50, 0.49), (0.50, 0.46)):
        chooser._looks.append([Estimate(sizes[0], 1.0), Estimate(1.0, 1.0), Estimate(sizes[1], 1.0)])
        assert chooser._choice().spec == "delta"
    assert chooser.reason().startswith("delta: kept, as none is a tenth lower, by its size + 0 * work of delta 50.0% size")
    chooser._looks.extend([[Estimate(0.5, 1.0), Estimate(1.0, 1.0), Estimate(0.3, 1.0)]] * 8)
    assert chooser._choice().spec == "zstd/3"


def test_a_step_tries_one_frame_or_a_part_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no `add` takes long."""
    tried: list[int] = []
    libraries: list[int] = []

    def encoded(frames: np.ndarray, *args: object) -> object:
        tried.append(frames.nbytes)
        return delta_encode(frames, *args)  # type: ignore[arg-type]

    def encode(coding: Coding, frames: np.ndarray) -> None:
        tried.append(frames.nbytes)
        libraries.append(frames.nbytes)

    monkeypatch.setattr(choosing, "delta_encode", encoded)
    monkeypatch.setattr(Coding, "encode", encode)
    layout = FrameLayout((3, 120, 160), np.dtype(np.uint8))
    chooser = make_chooser("auto", layout, 16)
    for frame in islice(noise(layout), 100):
        tried.clear()
        if chooser.is_due():
            chooser.look(frame)
        assert sum(tried) <= layout.frame_bytes
        assert len(tried) <= 1
    assert chooser.estimates()
    assert max(libraries) <= max(7168, layout.frame_bytes // 8)
    assert libraries[0] <= 512  # a library that was not called for a while is slow at first


def test_a_piece_that_is_tried_in_parts_is_about_as_large_as_the_whole() -> None:
    """Random pixels of a few colours, in the order of the observation and by pixels."""
    rng = np.random.default_rng(0)
    palette = rng.integers(256, size=(9, 3), dtype=np.uint8)
    layout = FrameLayout((3, 120, 160), np.dtype(np.uint8))
    frames = np.stack([palette[rng.integers(9, size=120 * 160)].T.reshape(-1) for _ in range(5)])
    for coding in make_chooser("auto-small", layout, 16).candidates[2:]:
        chooser, found = Chooser(layout, [coding], 16, 0.0), []
        for part_bytes, n in ((1 << 16, 2), (1 << 13, 9)):
            trial = chooser._try_library(coding, frames, part_bytes)
            assert [next(trial) for _ in range(n)] == [None] * n
            with pytest.raises(StopIteration) as end:
                next(trial)
            found.append(end.value.value.size)
        assert found[1] == pytest.approx(found[0], rel=0.15)


def test_frames_that_repeat_are_not_looked_at() -> None:
    chooser = make_chooser("auto", GRAY, 16)
    frame = next(noise(GRAY))
    shown(chooser, iter([frame] * 100), 100)
    assert not chooser.estimates()


def test_the_estimate_of_delta_is_what_the_store_makes_of_it() -> None:
    """Sizes, and how long pieces are: the rule of the core stands here again."""
    chooser = make_chooser("auto", GRAY, 16)
    store = BlockStore(GRAY, 320, "auto", block_frames=16, is_whole=False)
    for t, frame in enumerate(islice(grainy(GRAY), 320)):
        if chooser.is_due():
            chooser.look(frame)
        store.write(0, np.array([t]), frame.reshape(1, 200, 200))
    part = store._native.usage().live_bytes / (320 * GRAY.frame_bytes)
    assert store.method == "delta"
    assert chooser.estimates()[0].size == pytest.approx(part, rel=0.05)


def test_a_named_codec_chooses_the_order_of_bytes_only() -> None:
    rng = np.random.default_rng(0)

    def pixels() -> Iterator[np.ndarray]:
        while True:  # pixels of a few colours, each of which is a different value in each channel
            palette = rng.integers(256, size=(4, 3), dtype=np.uint8)
            yield palette[rng.integers(4, size=2400)].T.reshape(-1)

    store = BlockStore(COLOUR, 300, make_codec("zstd"), block_frames=16, is_whole=False)
    frames = np.array(list(islice(pixels(), 250)))
    for t, frame in enumerate(frames):
        store.write(0, np.array([t]), frame.reshape(1, 3, 40, 60))
    assert store.method == "zstd/3"
    assert store.reason.startswith("zstd/3 by pixels: lowest size")
    assert np.array_equal(store.read(0, np.arange(250)).reshape(250, -1), frames)
    assert chooser_for_order(Coding(make_codec("zstd")), GRAY, 16) is None
    assert chooser_for_order(Coding(make_codec("delta")), COLOUR, 16) is None


def test_a_buffer_says_what_was_chosen_and_why() -> None:
    space = spaces.Box(0, 255, (200, 200, 1), np.uint8)
    buffer = CompressedReplayBuffer(300, space, spaces.Discrete(2), device="cpu", compression_method="auto-small")
    assert buffer.memory_usage().codec == "not encoded until the frame stack is known"
    frames = [frame.reshape(1, 200, 200, 1) for frame in islice(bars(GRAY), 301)]
    for obs, after in pairwise(frames):
        buffer.add(obs, after, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    said = buffer.memory_usage().codec
    wanted = r"zstd/3: lowest size \+ 0 \* work of delta [\d.]+% size and [\d.]+ work, none 100.0% size and 1.0 work, zstd/3 "
    assert re.match(wanted, said)
    assert repr(buffer.memory_usage()).endswith(f"; {said}")
    assert repr(buffer).endswith(", zstd/3>")


@pytest.mark.parametrize("place", ["frames", "choice"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_look_begins_anew(monkeypatch: pytest.MonkeyPatch, place: str, error: type[BaseException]) -> None:
    """Neither does it fail for ever, nor does it keep frames for ever."""
    chooser, frames = make_chooser("auto", GRAY, 16), still(GRAY)

    def fail(*args: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        if place == "frames":
            patch.setattr(choosing.np, "array_equal", fail)
        else:
            patch.setattr(chooser, "_choice", fail)
        with pytest.raises(error):
            shown(chooser, frames, 60)
    assert chooser._frames is None
    shown(chooser, frames, 600)
    assert len(chooser._looks) > 3
    assert chooser.reason().startswith("delta: lowest")


def test_a_look_that_was_cut_off_is_forgotten() -> None:
    chooser, frames = make_chooser("auto", GRAY, 16), still(GRAY)
    while chooser._trials is None:
        shown(chooser, frames, 1)
    list(chooser._trials)  # what an interrupt at the wrong moment leaves
    shown(chooser, frames, 300)
    assert all(len(look) == len(chooser.candidates) for look in chooser._looks)
    assert chooser.estimates()


@pytest.mark.parametrize(("saved_by", "loaded_by"), [("gzip", "zstd"), ("zstd", "igzip"), ("igzip", "gzip")])
def test_a_choice_is_resumed_where_another_library_is_installed(
    monkeypatch: pytest.MonkeyPatch, saved_by: str, loaded_by: str
) -> None:
    monkeypatch.setattr(choosing, "_LIBRARIES", (saved_by,))
    store = BlockStore(GRAY, 300, "auto-small", block_frames=16, is_whole=False)
    frames = np.array(list(islice(bars(GRAY), 300))).reshape(-1, 200, 200)
    store.write(0, np.arange(100), frames[:100])
    for t in range(100):
        store.write(0, np.array([t]), frames[t : t + 1])
    assert store.codec.name == saved_by
    monkeypatch.setattr(choosing, "_LIBRARIES", (loaded_by,))
    again = BlockStore(GRAY, 300, "auto-small", block_frames=16, is_whole=False)
    assert again.codec.name != saved_by
    put_segment(again, segment_of(store))
    assert again.codec.name == saved_by
    for t in range(100, 300):
        again.write(0, np.array([t]), frames[t : t + 1])
    assert again.codec.name in (saved_by, loaded_by)
    assert np.array_equal(again.read(0, np.arange(300)), frames)


def test_looks_that_did_not_try_a_resumed_choice_are_forgotten() -> None:
    chooser, frames = make_chooser("auto-small", GRAY, 16), bars(GRAY)
    shown(chooser, frames, 200)
    assert len(chooser._looks) > 1
    chooser.resume(Coding(make_codec("lz4-block"), 4))
    assert chooser.reason() == "lz4-block/0 until others have been tried"
    shown(chooser, frames, 300)
    assert len(chooser.estimates()) == len(chooser.candidates)


@pytest.mark.parametrize("scene", [still, noise, bars])
@pytest.mark.parametrize("at_once", [1, 7, 400])
def test_many_steps_at_once_lead_to_the_same_choices(scene: Scene, at_once: int) -> None:
    n = 300
    frames = np.stack([*islice(still(GRAY), 40), *islice(scene(GRAY), n - 39)]).reshape(n + 1, 1, *GRAY.shape)
    many, single = (BlockStore(GRAY, n, "auto", n_columns=2) for _ in range(2))
    for first in range(0, n, at_once):
        many.write_steps(first, (frames[:-1][first : first + at_once], frames[1:][first : first + at_once]))
    for i in range(n):
        single.write_step(i, (frames[i], frames[i + 1]))
    assert many.memory_usage() == single.memory_usage()
    assert "until others have been tried" not in many.reason
