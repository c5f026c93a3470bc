"""What the viewer reads is what the buffer holds, of every class; episodes and their numbers, conditions, overviews."""

from __future__ import annotations

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.recording import RecordBuffer
from sb3_extra_buffers.viewer import answers, experience
from sb3_extra_buffers.viewer.cache import ByteCache
from sb3_extra_buffers.viewer.conditions import parse_conditions
from sb3_extra_buffers.viewer.episodes import ENDINGS, find_episodes
from sb3_extra_buffers.viewer.overview import histogram
from sb3_extra_buffers.viewer.source import Source, names_of
from tests.saved_buffers import EVERYTHING, as_numpy
from tests.test_cli_files import saved_in_parts
from tests.viewer_game import ACTIONS, Game, frame, length_of, stacked

VIEWED = [kind for kind in EVERYTHING if kind != "array"]


def opened(path: Path) -> Any:
    return Source(path, path.name).state()


def columns(buffer: Any) -> dict[tuple[str, bool], np.ndarray]:
    """Observations in the order of time, ``(steps, envs, ...)``, by key and whether they are the next ones."""
    if isinstance(buffer, RecordBuffer):
        frames = buffer[:].frame
        return {} if frames is None else {("frames", False): frames[:, None]}
    n, oldest = buffer.size(), buffer.pos if buffer.full else 0
    ready = getattr(buffer, "generator_ready", False)
    slots = np.arange(n) if ready else (oldest + np.arange(n)) % buffer.buffer_size
    found = {}
    for name in ("observations", "next_observations"):
        column = getattr(buffer, name, None)
        parts = column.items() if isinstance(column, dict) else [] if column is None else [("observation", column)]
        for key, part in parts:
            values = as_numpy(part[:])
            if ready:
                values = values.reshape(buffer.n_envs, -1, *values.shape[1:]).swapaxes(0, 1)
            found[key, name.startswith("next")] = values[slots]
    return found


@pytest.mark.parametrize("kind", VIEWED)
def test_observations_and_arrays_of_every_class_are_those_of_the_buffer(kind: str, tmp_path: Path) -> None:
    made, path = EVERYTHING[kind](), tmp_path / "buffer.sb3x"
    made.save(path)
    buffer, seen = load_buffer(path, device="cpu"), opened(path).experience
    expected = columns(buffer)
    assert {key for key, _ in expected} == set(seen.leaves)
    rng = np.random.default_rng(0)
    for (key, following), values in expected.items():
        for env in range(seen.n_envs):
            at = rng.permutation(seen.n_steps)[:9]
            assert np.array_equal(seen.observations(key, env, at, following=following), values[at, env])
            assert np.array_equal(seen.scattered(key, env, at, following=following), values[at, env])
    if isinstance(buffer, RecordBuffer):
        assert np.array_equal(seen.array("rewards")[:, 0], buffer[:].reward)
        return
    slots = (np.arange(buffer.size()) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size
    assert np.array_equal(seen.array("rewards"), buffer.rewards[slots])
    if getattr(buffer, "generator_ready", False):
        assert np.array_equal(seen.array("values")[..., 0], buffer.values.reshape(buffer.n_envs, -1).T)
    for name in seen.names:
        assert np.array_equal(seen.rows(name, 1, 3, 9), seen.array(name)[3:9, 1])


@pytest.mark.parametrize("kind", VIEWED)
def test_everything_that_is_asked_of_a_source_has_an_answer(kind: str, tmp_path: Path) -> None:
    EVERYTHING[kind]().save(tmp_path / "buffer.sb3x")
    state = opened(tmp_path / "buffer.sb3x")
    assert state.overview["transitions"] == state.experience.n_steps * state.experience.n_envs
    assert set(state.memory["keys"]) == set(state.experience.leaves)
    assert isinstance(state.findings, list)
    table = answers.episodes(state, {})
    assert table["total"] == len(state.episodes) == len(table["rows"])
    one = answers.episode(state, table["rows"][-1]["episode"])
    assert one["length"] == len(one["track"])
    found = answers.steps(state, one["env"], {"first": str(one["first"]), "count": "2"})
    assert all(len(rows) == min(2, one["length"]) for rows in found["arrays"].values())
    for key in answers.keys(state):
        if "picture" not in key:
            lines = answers.values(state, 0, {"key": key["key"]})
            assert len(lines["values"]) == len(lines["steps"]) == state.experience.n_steps


def test_a_compressed_array_has_no_steps_to_look_at(tmp_path: Path) -> None:
    EVERYTHING["array"]().save(tmp_path / "array.sb3x")
    with pytest.raises(CorruptDataError, match="no steps to look at"):
        opened(tmp_path / "array.sb3x")


def test_files_of_several_segments_and_small_caches_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "buffer.sb3x"
    _, theirs = saved_in_parts(path, monkeypatch)
    monkeypatch.setattr(experience, "CACHE_BYTES", 1)
    monkeypatch.setattr(experience, "WINDOW", 8)
    seen = opened(path).experience
    assert len(seen._runs) > 2
    at = np.random.default_rng(1).permutation(seen.n_steps)
    for env in range(seen.n_envs):
        assert np.array_equal(seen.observations("observation", env, at), theirs.observations[at, env])
        assert np.array_equal(seen.scattered("observation", env, at, following=True), theirs.next_observations[at, env])
    assert np.array_equal(seen.array("actions"), theirs.actions)
    assert np.array_equal(seen.rows("rewards", 1, 40, 290), theirs.rewards[40:290, 1])


# ---- episodes


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=40), st.booleans())
def test_episodes_are_those_of_a_walk_through_the_steps(dones: list[list[bool]], is_cut: bool) -> None:
    ends = np.array(dones)
    rewards = np.arange(ends.size, dtype=np.float32).reshape(ends.shape)

    class Plain:
        n_steps, n_envs, first, names = len(ends), 3, 7, ("dones",)
        has_timeouts = True

        def dones(self) -> Any:
            return ends

        def has(self, name: str) -> bool:
            return True

        def array(self, name: str) -> Any:
            return rewards if name == "rewards" else ends & (np.arange(3) == 1)

    Plain.is_cut = is_cut  # type: ignore[attr-defined]
    found = find_episodes(Plain())  # type: ignore[arg-type]
    expected = []
    for env in range(3):
        first = 0
        for t in range(len(ends)):
            if ends[t, env] or t == len(ends) - 1:
                how = ("timeout" if env == 1 else "terminal") if ends[t, env] else "running"
                cut = is_cut and first == 0
                expected.append((first + 7, env, t + 8, float(rewards[first : t + 1, env].sum()), how, cut))
                first = t + 1
    assert sorted(expected) == [
        (int(f), int(e), int(b), float(r), ENDINGS[k], bool(c))
        for f, e, b, r, k, c in zip(found.first, found.env, found.last, found.returns, found.ended, found.is_cut, strict=True)
    ]
    assert found.number.tolist() == list(range(len(expected)))


def test_episodes_of_the_game(tmp_path: Path) -> None:
    Game(200).play(150).buffer.save(tmp_path / "game.sb3x")
    state = opened(tmp_path / "game.sb3x")
    table = state.episodes
    for env in range(2):
        lengths = table.length[table.env == env].tolist()
        assert lengths[:-1] == [length_of(env, i) for i in range(len(lengths) - 1)]
        ended = [ENDINGS[i] for i in table.ended[table.env == env]]
        assert ended == [*("timeout" if i % 3 == 2 else "terminal" for i in range(len(ended) - 1)), "running"]
    assert state.overview["actions"][0]["names"] == list(ACTIONS)
    assert answers.steps(state, 0, {})["names"] == list(ACTIONS)
    assert state.findings == []


def test_numbers_of_episodes_stay_while_the_ring_goes_round(tmp_path: Path) -> None:
    game, folder = Game(100), tmp_path / "run"
    game.play(30).buffer.checkpoint(folder)
    source = Source(folder, "run")
    known: dict[tuple[int, int], int] = {}  # by env and last step: an episode that has ended does not change any more
    for _ in range(25):
        game.play(13).buffer.checkpoint(folder)
        state = source.state()
        table = state.episodes
        assert len(set(table.number.tolist())) == len(table)
        for number, env, last, ended in zip(table.number, table.env, table.last, table.ended, strict=True):
            if ENDINGS[ended] != "running":
                assert known.setdefault((int(env), int(last)), int(number)) == int(number)
        step = state.experience.first + state.experience.n_steps - 1
        assert step == game.step - 1
        newest = state.experience.observations("observation", 1, np.array([state.experience.n_steps - 1]))[0]
        assert np.array_equal(newest, stacked(1, step))
    assert state.experience.first > 200
    assert state.experience.is_cut


def test_a_folder_is_read_again_only_where_it_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._FEW_STEPS", 0)
    game = Game(500)
    game.play(100).buffer.checkpoint(tmp_path / "run")
    source = Source(tmp_path / "run", "run")
    first = source.state()
    assert source.state() is first
    read: list[str] = []
    original = experience.StoredRun.array
    monkeypatch.setattr(experience.StoredRun, "array", lambda run, name: read.append(name) or original(run, name))
    game.play(20).buffer.checkpoint(tmp_path / "run")
    assert source.state() is not first
    assert read.count("rewards") == 1
    assert source.state().experience.n_steps == 120


def test_what_was_read_of_an_earlier_state_does_not_hold_its_closed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._FEW_STEPS", 0)
    game = Game(500)
    game.play(100).buffer.checkpoint(tmp_path / "run")
    source = Source(tmp_path / "run", "run")
    source.state().experience.observations("observation", 0, np.array([3]))
    game.play(20).buffer.checkpoint(tmp_path / "run")
    source.state()
    gc.collect()
    assert np.array_equal(source.state().experience.observations("observation", 1, np.array([3]))[0], stacked(1, 3))


def test_states_that_share_a_cache_read_one_after_the_other(tmp_path: Path) -> None:
    game = Game(60)
    game.play(30).buffer.checkpoint(tmp_path)
    source = Source(tmp_path, "run")
    before = source.state().experience
    game.play(10).buffer.checkpoint(tmp_path)
    after = source.state().experience
    assert after.cache is before.cache
    with ThreadPoolExecutor(1) as thread, before.cache.lock:  # as if another request still read the state before
        reading = thread.submit(after.observations, "observation", 0, np.array([3]))
        with pytest.raises(TimeoutError):
            reading.result(timeout=0.2)
    assert np.array_equal(reading.result()[0], stacked(0, 3))


def test_a_new_buffer_in_the_same_folder_begins_anew(tmp_path: Path) -> None:
    Game(100).play(60).buffer.checkpoint(tmp_path / "run")
    source = Source(tmp_path / "run", "run")
    assert source.state().experience.n_steps == 60
    Game(100).play(30).buffer.checkpoint(tmp_path / "run")
    assert source.state().experience.n_steps == 30
    assert source.state().episodes.number.tolist() == list(range(len(source.state().episodes)))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", [0, 1, 2, 3, 4]), ("return > 3", [1, 4]), ("RETURN>=3 and length < 50", [0, 1]), ("ended by timeout", [1, 3]),
        ("ended != timeout, env = 0", [0, 2]), ("length >= 1e2", [3, 4]), ("start < 5 & return < 0", [2]),
        ("episode == 14", [4]),
    ],
)  # fmt: skip
def test_conditions(text: str, kept: list[int]) -> None:
    from sb3_extra_buffers.viewer.episodes import Episodes

    returns = np.array([3.0, 9.0, -1.0, np.nan, 4.0])
    first, length = np.array([0, 10, 4, 20, 30]), np.array([5, 49, 50, 100, 200])
    ended, env = np.array([0, 1, 3, 1, 2]), np.array([0, 1, 0, 1, 1])
    table = Episodes(np.arange(10, 15), env, first, first + length, returns, ended, np.zeros(5, bool))
    assert table.chosen(parse_conditions(text)).tolist() == kept
    assert table.chosen([], "return").tolist() == [2, 0, 4, 1, 3]
    assert table.chosen([], "return", descending=True).tolist() == [1, 4, 0, 2, 3]


@pytest.mark.parametrize(
    "text", ["foo > 3", "return >", "return > x", "ended by magic", "return > 3 or length < 2", "a" * 600]
)
def test_conditions_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_conditions(text)


# ---- smaller parts


def test_the_memory_of_the_overview_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "game.sb3x"
    Game(2000).play(2000).buffer.save(path)
    memory = opened(path).memory
    assert sum(memory["keys"]["observation"]["codecs"].values()) == pytest.approx(1)
    assert 0.5 * path.stat().st_size < memory["stored"] <= path.stat().st_size
    assert memory["raw"] == 2 * 2000 * 2 * 4 * 24 * 24
    assert memory["total"][-1] == memory["stored"]
    assert len(memory["step"]) > 5


def test_histograms_count_everything() -> None:
    few = histogram(np.array([1, 1, 2, np.nan]))
    assert (few["values"], few["counts"], few["not_finite"]) == ([1.0, 2.0], [2, 1], 1)
    many = histogram(np.random.default_rng(0).normal(size=1000))
    assert sum(many["counts"]) == 1000
    rare = np.zeros(200_000)
    rare[77_777 : 77_777 + 30] = np.arange(30)
    assert sum(histogram(rare)["counts"]) == 200_000


def test_the_cache_keeps_what_was_asked_for_last() -> None:
    made: list[int] = []

    def make(n: int) -> Any:
        return lambda: (made.append(n) or n, 4)

    cache = ByteCache(8)
    assert [cache.get(n, make(n)) for n in (1, 2, 1, 3, 1, 2)] == [1, 2, 1, 3, 1, 2]
    assert made == [1, 2, 3, 2]


def test_names_tell_paths_apart() -> None:
    assert names_of([Path("a/x.sb3x"), Path("b/y.sb3x")]) == ["x.sb3x", "y.sb3x"]
    assert names_of([Path("a/x"), Path("b/x")]) == [str(Path("a/x")), str(Path("b/x"))]
    assert len(set(names_of([Path("a/x"), Path("a/x")]))) == 2


def test_frames_are_cut_as_they_are_stacked(tmp_path: Path) -> None:
    from sb3_extra_buffers.viewer.pictures import sheet

    Game(100).play(50).buffer.save(tmp_path / "game.sb3x")
    state = opened(tmp_path / "game.sb3x")
    found = sheet(state.experience, "observation", state.pictures["observation"], 1, 20)[..., 0]
    assert np.array_equal(found, np.block([[frame(1, t) for t in range(17, 21)], [frame(1, t) for t in range(18, 22)]]))
    newest = sheet(state.experience, "observation", state.pictures["observation"], 1, 20, newest=True)
    assert np.array_equal(newest[..., 0], frame(1, 20))


def test_the_viewer_needs_neither_torch_nor_sb3(tmp_path: Path) -> None:
    """They would cost seconds and hundreds of megabytes."""
    Game(100).play(50).buffer.save(tmp_path / "game.sb3x")
    code = (
        "import sys; from pathlib import Path; from sb3_extra_buffers.viewer.source import Source\n"
        "import sb3_extra_buffers.viewer.server, sb3_extra_buffers.cli.view\n"
        f"state = Source(Path({str(tmp_path / 'game.sb3x')!r}), 'x').state(); state.findings, state.memory, state.overview\n"
        "assert not {'torch', 'stable_baselines3', 'matplotlib', 'PIL'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
