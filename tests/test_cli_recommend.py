"""`recommend`: real envs are played, real buffers are filled, and the rule picks from what was measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sb3_extra_buffers.cli import main
from sb3_extra_buffers.cli.measuring import Measurement, candidates, measure, measure_sb3
from sb3_extra_buffers.cli.playing import Experience, play
from sb3_extra_buffers.cli.recommend import code_to_paste, is_same_choice, present, recommended
from sb3_extra_buffers.codecs import make_codec

GIGABYTE = 10**9


def quiet(done: int, note: str) -> None:
    pass


def run_json(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["recommend", "--json", *args]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.cli.measuring.candidates", lambda: ["auto", "none", "gzip1"])


def test_candidates_are_real_codecs_with_the_default_first() -> None:
    names = candidates()
    assert names[:3] == ["auto", "auto-fast", "auto-small"]
    assert len(set(names)) == len(names) > 5
    for name in names[3:]:
        make_codec(name)


def test_a_discrete_state_is_better_off_with_sb3(capsys: pytest.CaptureFixture[str], few_candidates: None) -> None:
    result = run_json(capsys, "--env", "FrozenLake-v1", "--seconds", "0.5")
    assert result["recommended"] is None
    assert result["transitions"] > 100
    # 2 observations of 8 bytes, an action of 8, and 4 bytes each of reward, done and timeout
    assert result["sb3_bytes"] == 1_000_000 * (2 * 8 + 8 + 3 * 4)
    assert "CompressedReplayBuffer" not in result["code"]


def test_pong_shrinks_a_hundredfold(
    capsys: pytest.CaptureFixture[str], few_candidates: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the machine is: a number of transitions ends the game and the filling of buffers, and not a clock."""
    monkeypatch.setattr("sb3_extra_buffers.cli.playing.MOST_TRANSITIONS", 1200)
    monkeypatch.setattr("sb3_extra_buffers.cli.measuring.FILL_SECONDS", math.inf)
    args = ("--env", "PongNoFrameskip-v4", "--seconds", "3600", "--n-envs", "2", "--buffer-size", "100000")
    result = run_json(capsys, *args)
    assert result["transitions"] == 1200
    assert result["sb3_bytes"] == 100_000 * (2 * 4 * 84 * 84 + 8 + 3 * 4)
    default, none, *_ = result["codecs"]
    assert default["method"] == "auto"
    assert default["buffer_bytes"] < 0.01 * result["sb3_bytes"]
    assert 0.1 < none["buffer_bytes"] / result["sb3_bytes"] < 0.15  # frame sharing alone: an eighth
    assert all(codec["add_ratio"] > 0 and codec["sample_ratio"] > 0 for codec in result["codecs"])
    assert result["recommended"] in {"auto", "none", "gzip1"}
    assert "replay_buffer_class=CompressedReplayBuffer" in result["code"]


def test_the_table_marks_one_row_and_shows_code(capsys: pytest.CaptureFixture[str], few_candidates: None) -> None:
    args = ["--env", "ALE/Pong-v5", "--seconds", "0.5", "--buffer-size", "10000000"]
    assert main(["recommend", *args]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("<- recommended") == 1
    assert "(4, 84, 84) uint8" in printed.out
    assert "too large" in next(line for line in printed.out.splitlines() if line.startswith("SB3's own"))
    assert "from sb3_extra_buffers.compressed import CompressedReplayBuffer" in printed.out
    assert "Measuring codecs: 100 %" in printed.err


def test_vizdoom_with_dict_observations_and_stacked_frames(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("vizdoom")
    monkeypatch.chdir(tmp_path)  # ViZDoom leaves a file where it runs
    experience = play("VizdoomBasic-v1", n_envs=1, frame_stack=2, seconds=0.5, most_steps=60, update=quiet)
    assert isinstance(experience.observation_space, spaces.Dict)
    assert experience.observation_space["screen"].shape == (6, 240, 320)  # SB3's order: channels first
    reference = measure_sb3(experience, 1000)
    measured = measure("zstd1", experience, reference, 1000)
    assert 0 < measured.buffer_bytes < 0.5 * reference.buffer_bytes
    assert "CompressedDictReplayBuffer" in code_to_paste(measured, experience, 1000)


def test_extrapolation_agrees_with_a_buffer_that_was_filled() -> None:
    experience = play("PongNoFrameskip-v4", n_envs=1, frame_stack=None, seconds=30, most_steps=1600, update=quiet)
    begun = Experience(experience.observation_space, experience.action_space, 1, experience.steps[:800])
    for method, tolerance in (("none", 0.1), ("gzip1", 0.25)):  # how much a game compresses changes as it goes on
        whole = measure(method, experience, measure_sb3(experience, 1600), 1600)
        predicted = measure(method, begun, measure_sb3(begun, 1600), 1600)
        assert predicted.buffer_bytes == pytest.approx(whole.buffer_bytes, rel=tolerance)


def test_playing_hands_over_the_terminal_observation() -> None:
    experience = play("CartPole-v1", n_envs=2, frame_stack=None, seconds=10, most_steps=200, update=quiet)
    ends = [(step, i) for step in experience.steps for i in np.flatnonzero(step[4])]
    assert ends
    for (_, after, *_), i in ends:
        assert np.abs(after[i, 2]) > 0.2 or np.abs(after[i, 0]) > 2.4  # the pole has fallen: no state that a reset gives
    following = zip(experience.steps, experience.steps[1:], strict=False)
    assert all(np.array_equal(a[1][~a[4]], b[0][~a[4]]) for a, b in following)


def test_a_taste_that_chooses_what_auto_chooses_has_no_row() -> None:
    auto = Measurement("auto", "auto (delta)", 100.0, 1.0, 1.0, 1.0)
    assert is_same_choice(replace(auto, method="auto-fast", label="auto-fast (delta)", add_ratio=0.9), auto)
    assert not is_same_choice(replace(auto, method="auto-small", label="auto-small (zstd)"), auto)
    assert not is_same_choice(replace(auto, method="auto-small", label="auto-small (delta)", buffer_bytes=90.0), auto)
    assert not is_same_choice(replace(auto, method="delta", label="delta"), auto)


# ---- the rule


def measured(method: str, size: float, time_ratio: float = 1.0) -> Measurement:
    return Measurement(method, method, size * GIGABYTE, time_ratio, time_ratio, time_ratio)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([measured("zstd3", 0.95)], "auto"),  # hardly smaller than the default
        ([measured("zstd3", 0.5)], "zstd3"),
        ([measured("zstd3", 0.5, 1.4)], "zstd3"),
        ([measured("zstd9", 0.5, 3.0)], "auto"),  # too slow
    ],
)
def test_the_smallest_that_is_fast_enough_is_recommended(others: list[Measurement], expected: str) -> None:
    best = recommended([measured("auto", 1.0), *others], sb3_bytes=100 * GIGABYTE, ram=50 * GIGABYTE)
    assert best is not None
    assert best.method == expected


def test_the_fastest_is_recommended_where_all_are_slow() -> None:
    best = recommended([measured("auto", 9, 5.0), measured("lz4", 10, 2.0)], sb3_bytes=100 * GIGABYTE, ram=50 * GIGABYTE)
    assert best is not None
    assert best.method == "lz4"


def test_what_does_not_fit_into_half_of_ram_is_not_recommended() -> None:
    best = recommended([measured("auto", 5, 4.0), measured("none", 40, 1.0)], sb3_bytes=100 * GIGABYTE, ram=50 * GIGABYTE)
    assert best is not None
    assert best.method == "auto"


def test_where_nothing_fits_the_smallest_is_recommended() -> None:
    best = recommended([measured("none", 90, 1.0), measured("zstd9", 30, 9.0)], sb3_bytes=200 * GIGABYTE, ram=50 * GIGABYTE)
    assert best is not None
    assert best.method == "zstd9"


def test_a_buffer_that_does_not_fit_is_said_with_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    best = measured("auto", 100)
    present([best], best, 1000 * GIGABYTE, buffer_size=1_000_000, ram=50 * GIGABYTE)
    assert "would hold about 250,000 transitions" in capsys.readouterr().out


def test_sb3_is_recommended_where_little_is_saved() -> None:
    assert recommended([measured("auto", 90)], sb3_bytes=100 * GIGABYTE, ram=500 * GIGABYTE) is None


# ---- the code to paste


@pytest.mark.parametrize(
    ("env_id", "method", "wrong"),
    [("CartPole-v1", "auto", "compression_method"), ("CartPole-v1", "zstd3", "rollout"), ("Pendulum-v1", "gzip1", "DQN")],
)
def test_the_code_runs(env_id: str, method: str, wrong: str) -> None:
    env = gym.make(env_id)
    code = code_to_paste(measured(method, 1), Experience(env.observation_space, env.action_space, 1, []), 500)
    assert wrong not in code
    names: dict[str, Any] = {"env": env}
    exec(code, names)
    assert type(names["model"].replay_buffer).__name__ == "CompressedReplayBuffer"


def test_the_code_for_other_actions_is_ppo_and_runs() -> None:
    experience = Experience(spaces.Dict({"a": spaces.Box(0, 1, (3,))}), spaces.MultiBinary(3), 1, [])
    code = code_to_paste(measured("gzip6", 1), experience, 500)
    assert "rollout_buffer_class=CompressedDictRolloutBuffer" in code
    assert max(map(len, code.splitlines())) <= 100
    compile(code, "code", "exec")
