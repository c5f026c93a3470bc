"""Damaged and hostile files: one clear error, never a crash, never something else than what was saved. The full campaign is
`make torture`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.errors import CorruptDataError, SegmentVersionError
from sb3_extra_buffers.store.format import MAGIC
from tests.damage import by_accident, on_purpose, outcome, sections, signed
from tests.saved_buffers import EVERYTHING, array, replay

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize("kind", EVERYTHING)
def test_files_that_were_damaged_by_accident(kind: str, tmp_path: Path) -> None:
    original, path, rng = EVERYTHING[kind](), tmp_path / "buffer", random.Random(kind)
    original.save(path)
    data = path.read_bytes()
    for _ in range(40):
        changed = by_accident(data, rng)
        path.write_bytes(changed)
        assert outcome(path, original) in (("refused", "equal") if changed != data else ("equal",))


@pytest.mark.parametrize("kind", EVERYTHING)
def test_files_that_were_damaged_on_purpose(kind: str, tmp_path: Path) -> None:
    original, path, rng = EVERYTHING[kind](), tmp_path / "buffer", random.Random(kind)
    original.save(path)
    data = path.read_bytes()
    found = set()
    for _ in range(60):
        path.write_bytes(on_purpose(data, rng))
        found.add(outcome(path, original, is_hostile=True))
    assert "refused" in found


def changed_header(tmp_path: Path, original: Any, **changes: Any) -> Path:
    path = tmp_path / "buffer"
    original.save(path)
    _, header, parts = sections(path.read_bytes())
    header.update(changes)
    path.write_bytes(signed(header, parts))
    return path


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    original = replay("replay", 20)[0]
    path = tmp_path / "buffer"
    original.save(path)
    data = path.read_bytes()
    for changed, words in (
        (data[:40], "ends after 40 of the 64 bytes"),
        (data[:-1], "cut off"),
        (data + b"x" * 100, "no file of sb3-extra-buffers, or it is damaged"),
        (b"\x89PNG\r\n\x1a\n" + data, "no file of sb3-extra-buffers"),
        (data + data, "does not belong where it stands"),
        (data.replace(MAGIC, b"SB3XSEQ\n"), "no file of sb3-extra-buffers"),
    ):
        path.write_bytes(changed)
        with pytest.raises(CorruptDataError, match=words):
            load_buffer(path)
    newer = bytearray(data)
    newer[8] = 3
    path.write_bytes(bytes(newer))
    with pytest.raises(SegmentVersionError, match=r"version 3; this version .* reads up to 2. Upgrade it"):
        load_buffer(path)
    older = newer
    older[8] = 1
    path.write_bytes(bytes(older))
    with pytest.raises(SegmentVersionError, match=r"version 1, of a development version .* reads 2. Load it"):
        load_buffer(path)
    about = sections(data)[1]["buffer"]
    for change, words in (
        ({"class": "Popen"}, "'Popen', which this version does not know. It knows CompressedReplayBuffer"),
        ({"class": "CompressedDictReplayBuffer"}, "cannot be made: CompressedDictReplayBuffer needs a Dict"),
        ({"arguments": {**about["arguments"], "compression_method": "rm -rf"}}, "rm -rf"),
        ({"observation_space": {"type": "Graph"}}, "type 'Graph'"),
        ({"observation_space": {**about["observation_space"], "shape": [5]}}, "observations of uint8"),
        ({"slots": 5}, "20 steps in 5 slots"),
    ):
        with pytest.raises((CorruptDataError, ValueError), match=words):
            load_buffer(changed_header(tmp_path, original, buffer={**about, **change}))


def test_a_file_cannot_ask_for_more_memory_than_it_has_bytes(tmp_path: Path) -> None:
    path = tmp_path / "buffer"
    array().save(path)
    _, header, parts = sections(path.read_bytes())
    for one in header["sections"]:
        if one["name"].endswith("heads"):
            one["shape"] = [2**38, 1]
    path.write_bytes(signed(header, parts))
    with pytest.raises(CorruptDataError, match="has the shape"):
        load_buffer(path)
    original = replay("replay", 20)[0]
    about = sections(changed_header(tmp_path, original).read_bytes())[1]["buffer"]
    with pytest.raises((CorruptDataError, MemoryError), match=r"smaller buffer_size|cannot be made"):
        load_buffer(changed_header(tmp_path, original, buffer={**about, "slots": 2**39}))


@pytest.mark.parametrize("kind", ["replay", "record", "array"])
def test_a_file_cannot_claim_more_steps_than_it_has_bytes(kind: str, tmp_path: Path) -> None:
    original = EVERYTHING[kind]()
    path = changed_header(tmp_path, original, count=2**28)
    _, header, _ = sections(path.read_bytes())
    header["sections"] = []
    path.write_bytes(signed(header, []))
    with pytest.raises(CorruptDataError, match="more than its bytes can hold"):
        load_buffer(path)


def test_segments_must_hold_the_same_of_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.segments.runs._SEGMENT_BYTES", 1)
    monkeypatch.setattr("sb3_extra_buffers.segments.runs._LEAST_BLOCKS", 1)
    path = tmp_path / "buffer"
    replay("replay-vector", 70, slots=80)[0].save(path)
    rest, header, parts = sections(path.read_bytes())
    assert rest
    kept = [i for i, one in enumerate(header["sections"]) if one["name"] != "array/rewards"]
    header["sections"] = [header["sections"][i] for i in kept]
    first = signed(header, [parts[i] for i in kept])
    rest_of_it, following, its_parts = sections(rest)
    following["after"] = int.from_bytes(first[-4:], "little")
    path.write_bytes(first + signed(following, its_parts) + rest_of_it)
    with pytest.raises(CorruptDataError, match=r"differ in what they hold|does not belong"):
        load_buffer(path)


@pytest.mark.parametrize("shape", [[30, 0, 2**61, 2**61], [1] * 71])
def test_shapes_that_numpy_cannot_make_are_refused(shape: list[int], tmp_path: Path) -> None:
    original = replay("replay", 30)[0]
    path = changed_header(tmp_path, original)
    _, header, parts = sections(path.read_bytes())
    for one in header["sections"]:
        if one["name"] == "array/rewards":
            one["shape"] = [len(parts) and 30, *shape[1:]]
    path.write_bytes(signed(header, parts))
    with pytest.raises(CorruptDataError, match=r"has the shape|no array of numbers"):
        load_buffer(path)


@pytest.mark.parametrize(
    "change",
    [{"gamma": "x"}, {"gamma": None}, {"gamma": 2}, {"n_steps": "3"}, {"n_steps": 2.5}, {"n_steps": 0}, {"n_steps": 2**33},
     {"dtypes": {"elem_type": "i4,f8,(2,3)f4"}}, {"dtypes": {"runs_type": "(2,3)f4"}}],
)  # fmt: skip
def test_arguments_that_cannot_be_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    original = replay("n-step", 20)[0]
    about = sections(changed_header(tmp_path, original).read_bytes())[1]["buffer"]
    path = changed_header(tmp_path, original, buffer={**about, "arguments": {**about["arguments"], **change}})
    with pytest.raises(CorruptDataError, match=r"A file (says|names the dtype)"):
        load_buffer(path)


def test_steps_behind_the_end_of_their_episode_are_refused(tmp_path: Path) -> None:
    from tests.saved_buffers import her

    buffer, _, env = her(45)
    buffer.ep_length[buffer.ep_length > 0] = 1
    buffer.save(tmp_path / "buffer")
    with pytest.raises(CorruptDataError, match="behind the end of their episodes"):
        load_buffer(tmp_path / "buffer", env=env)


def test_segments_of_two_files_cannot_be_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.segments.runs._SEGMENT_BYTES", 4_000)
    monkeypatch.setattr("sb3_extra_buffers.segments.runs._LEAST_BLOCKS", 0)
    made = [replay("replay", 30, seed=seed)[0] for seed in (1, 2)]
    data = []
    for one in made:
        one.save(tmp_path / "buffer")
        data.append((tmp_path / "buffer").read_bytes())
    starts = [[i for i in range(len(one)) if one.startswith(MAGIC, i)] for one in data]
    assert len(starts[0]) > 3
    cut = starts[0][2], starts[1][2]
    (tmp_path / "buffer").write_bytes(data[0][: cut[0]] + data[1][cut[1] :])
    with pytest.raises(CorruptDataError, match="put together wrongly"):
        load_buffer(tmp_path / "buffer")
    (tmp_path / "buffer").write_bytes(data[0][: cut[0]])  # whole segments, but not all
    with pytest.raises(CorruptDataError, match="cut off"):
        load_buffer(tmp_path / "buffer")


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.sb3x")), ids=lambda path: path.name)
def test_files_of_every_version_are_read(path: Path) -> None:
    """`<class>-v<version>.sb3x`, committed when the version was new. They hold what `EVERYTHING` makes."""
    kind = path.name.rpartition("-v")[0]
    assert outcome(path, EVERYTHING[kind]()) == "equal"


def test_there_are_fixtures() -> None:
    assert len(list(FIXTURES.glob("*-v2.sb3x"))) >= 5
