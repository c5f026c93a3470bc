"""`recommend`: real envs are played, real buffers are filled, and the rule picks from what was measured."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.callbacks import transition_memory
from sb3_extra_buffers.cli import main
from sb3_extra_buffers.cli.algorithms import ALGORITHMS, choose, code_to_paste, policy_of
from sb3_extra_buffers.cli.envs import make_env
from sb3_extra_buffers.cli.measuring import Measurement, Reference, Task, candidates, measure, measure_sb3
from sb3_extra_buffers.cli.playing import Experience, play
from sb3_extra_buffers.cli.recommend import is_same_choice, larger_pieces, present
from sb3_extra_buffers.cli.verdict import Verdict, decide
from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.compressed import CompressedReplayBuffer

GIGABYTE = 10**9
SCREEN = spaces.Box(0, 255, (4, 84, 84), np.uint8)

#: A bar that moves over noise or over nothing, with a camera that Dict observations name.
SOURCE = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Bar(gym.Env):
    def __init__(self, side=40, noise=False, as_dict=False):
        self.side, self.noise, self.as_dict = side, noise, as_dict
        box = spaces.Box(0, 255, (side, side), np.uint8)
        self.observation_space = spaces.Dict(camera=box, speed=spaces.Box(-1, 1, (2,))) if as_dict else box
        self.action_space = spaces.Discrete(2)

    def _seen(self):
        frame = np.zeros((self.side, self.side), np.uint8)
        if self.noise:
            frame = self.np_random.integers(256, size=frame.shape, dtype=np.uint8)
        frame[self.t % self.side] = 255
        return {"camera": frame, "speed": np.ones(2, np.float32)} if self.as_dict else frame

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        print("hello from the env")
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        return self._seen(), 1.0, self.t == 200, False, {}
"""


def quiet(done: int, note: str) -> None:
    pass


def experience_of(name: str, n_envs: int = 1, most_steps: int = 200, **options: Any) -> Experience:
    env = make_env(name, n_envs=n_envs, **options)
    try:
        return play(env, seconds=600, most_steps=most_steps, update=quiet)
    finally:
        env.close()


def run_json(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["recommend", "--json", *args]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.cli.measuring.candidates", lambda: ["auto", "none", "gzip1"])


@pytest.fixture
def bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_candidates: None) -> str:
    """A file with an env, and at most 600 transitions of it: a number ends the game, and not a clock."""
    monkeypatch.setattr("sb3_extra_buffers.cli.playing.MOST_TRANSITIONS", 600)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "bar_env.py").write_text(SOURCE)
    return f"{tmp_path}/bar_env.py"


def test_candidates_are_real_codecs_with_the_default_first() -> None:
    names = candidates()
    assert names[:3] == ["auto", "auto-fast", "auto-small"]
    assert len(set(names)) == len(names) > 5
    for name in names[3:]:
        make_codec(name)


# ---- real envs


def test_a_small_buffer_is_better_off_with_sb3(capsys: pytest.CaptureFixture[str], few_candidates: None) -> None:
    """CartPole: 52 MB for a million transitions."""
    result = run_json(capsys, "--env", "CartPole-v1", "--seconds", "0.5", "--memory", "8GB")
    assert result["recommended"] is None
    assert result["transitions"] > 100
    # 2 observations of 16 bytes, an action of 8, and 4 bytes each of reward, done and timeout
    assert result["sb3_bytes"] == 1_000_000 * (2 * 16 + 8 + 3 * 4) == 52e6
    assert result["reason"] == "SB3's own buffer takes 52 MB, only 0.65 % of the 8 GB that it may take: keep it."
    assert result["code"] == 'from stable_baselines3 import DQN\n\nmodel = DQN("MlpPolicy", env, buffer_size=1_000_000)'


def test_pong_shrinks_a_hundredfold(
    capsys: pytest.CaptureFixture[str], few_candidates: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the machine is: a number of transitions ends the game, and not a clock."""
    monkeypatch.setattr("sb3_extra_buffers.cli.playing.MOST_TRANSITIONS", 1200)
    args = ("--env", "PongNoFrameskip-v4", "--seconds", "3600", "--n-envs", "2", "--buffer-size", "100k")
    result = run_json(capsys, *args)
    assert (result["transitions"], result["buffer_size"], result["algorithm"]) == (1200, 100_000, "DQN")
    assert result["sb3_bytes"] == 100_000 * (2 * 4 * 84 * 84 + 8 + 3 * 4)
    default, none, *_ = result["codecs"]
    assert default["method"] == "auto"
    assert default["buffer_bytes"] < 0.01 * result["sb3_bytes"]
    assert 0.1 < none["buffer_bytes"] / result["sb3_bytes"] < 0.15  # frame sharing alone: an eighth
    for codec in result["codecs"]:
        assert codec["add_ratio"] > 0
        assert codec["read_ratio"] > 0
        assert codec["low_bytes"] <= codec["buffer_bytes"] <= codec["high_bytes"]
    assert result["recommended"] in {"auto", "none", "gzip1"}
    assert "replay_buffer_class=CompressedReplayBuffer" in result["code"]


def test_the_table_marks_one_row_and_shows_code(capsys: pytest.CaptureFixture[str], few_candidates: None) -> None:
    args = ["--env", "ALE/Pong-v5", "--seconds", "0.5", "--buffer-size", "1e7", "--memory", "4GB"]
    assert main(["recommend", *args]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("<-") == 1
    assert "(4, 84, 84) uint8" in printed.out
    own = next(line for line in printed.out.splitlines() if line.startswith("SB3's own"))
    assert own.split()[4:7] == ["100", "%", f"{4 * GIGABYTE // (2 * 28_224 + 20) // 1000 * 1000:,}"]  # how many fit
    assert "from sb3_extra_buffers.compressed import CompressedReplayBuffer" in printed.out
    assert "it may take 4 GB" in printed.out
    assert "Measuring codecs: 100 %" in printed.err


def test_vizdoom_with_dict_observations_and_stacked_frames(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("vizdoom")
    monkeypatch.chdir(tmp_path)  # ViZDoom leaves a file where it runs
    experience = experience_of("VizdoomBasic-v1", frame_stack=2, most_steps=60)
    assert isinstance(experience.observation_space, spaces.Dict)
    assert experience.observation_space["screen"].shape == (6, 240, 320)  # SB3's order: channels first
    task = Task.of("replay", experience, 1000, GIGABYTE)
    reference = measure_sb3(task)
    one = measure("zstd1", task, reference)
    assert 0 < one.buffer_bytes < 0.5 * reference.bytes_at(1000)
    assert "CompressedDictReplayBuffer" in code_to_paste(ALGORITHMS["dqn"], experience, 1000, "auto")


def test_playing_hands_over_the_terminal_observation() -> None:
    experience = experience_of("CartPole-v1", n_envs=2)
    ends = [(step, i) for step in experience.steps for i in np.flatnonzero(step[4])]
    assert ends
    for (_, after, *_), i in ends:
        assert np.abs(after[i, 2]) > 0.2 or np.abs(after[i, 0]) > 2.4  # the pole has fallen: no state that a reset gives
    following = zip(experience.steps, experience.steps[1:], strict=False)
    assert all(np.array_equal(a[1][~a[4]], b[0][~a[4]]) for a, b in following)


def test_an_env_that_fails_is_said_with_the_step(bar: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(bar).write_text(SOURCE.replace("self.t += 1", "self.t += 1\n        if self.t == 8:\n            {}['velocity']"))
    assert main(["recommend", "--env", bar]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "sb3-extra-buffers recommend: The env failed after 7 steps: KeyError: 'velocity'. --debug shows where"
    )


# ---- files, arguments, algorithms


def test_a_file_with_arguments_is_recommended_for_and_may_print(bar: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, "--env", bar, "--env-kwargs", "side=50", "as_dict=true", "--n-envs", "2", "--memory", "1GB")
    assert result["transitions"] == 600
    assert result["sb3_bytes"] == 1_000_000 * (2 * (50 * 50 + 8) + 8 + 3 * 4)
    assert "replay_buffer_class=CompressedDictReplayBuffer" in result["code"]
    assert '"MultiInputPolicy"' in result["code"]


def test_ppo_sizes_a_rollout_buffer(bar: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--env", f"{bar}:Bar", "--algo", "ppo", "--n-envs", "3", "--env-kwargs", "side=60", "--memory", "20MB")
    result = run_json(capsys, *args)
    assert (result["algorithm"], result["buffer"], result["buffer_size"]) == ("PPO", "rollout", 3 * 2048)
    # one observation of uint8, an action of 8 bytes; reward, return, start, value, log probability and advantage of 4
    assert result["sb3_bytes"] == 3 * 2048 * (60 * 60 + 8 + 6 * 4)
    assert result["recommended"] is not None
    assert "rollout_buffer_class=CompressedRolloutBuffer" in result["code"]
    assert "n_steps" not in result["code"]  # PPO's own
    assert all(codec["read_ratio"] > 0 for codec in result["codecs"])
    given = run_json(capsys, *args, "--n-steps", "100")
    assert given["buffer_size"] == 300
    assert given["transitions"] == 300
    assert "n_steps=100" in given["code"]


def test_a_rollout_that_does_not_fit_gets_fewer_steps(bar: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--env", bar, "--algo", "a2c", "--n-steps", "1M", "--n-envs", "2", "--env-kwargs", "noise=True", "--memory", "5MB")
    result = run_json(capsys, *args)
    n_steps = int(re.search(r"n_steps=([\d_]+)", result["code"])[1])  # type: ignore[index]
    assert result["recommended"] is None  # nothing can be saved of noise in a rollout
    assert 2 * n_steps == result["recommended_size"]
    assert n_steps % 64 == 0
    assert 0.85 * 5e6 < 2 * n_steps * (1600 + 8 + 6 * 4) <= 5e6
    assert f"The largest n_steps that fits is {n_steps:_}." in result["reason"]


@pytest.mark.parametrize("memory", ["1MB", "3MB", "200MB"])
@pytest.mark.parametrize("noise", [False, True])
def test_code_that_is_printed_fits_into_memory(memory: str, noise: bool, bar: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The buffer of the code is made and filled."""
    result = run_json(capsys, "--env", bar, "--env-kwargs", f"noise={noise}", "--memory", memory)
    size = int(re.search(r"buffer_size=([\d_]+)", result["code"])[1])  # type: ignore[index]
    assert size == result["recommended_size"] <= 1_000_000
    bytes_ = result["memory_bytes"]
    if size < 1_000_000:
        assert f"The largest buffer_size that fits is {size:_}." in result["reason"]
    filled_size = min(size, 20_000)  # more takes long
    made = CompressedReplayBuffer if result["recommended"] else ReplayBuffer
    options = {"compression_method": result["recommended"]} if result["recommended"] else {}
    buffer = made(filled_size, spaces.Box(0, 255, (40, 40), np.uint8), spaces.Discrete(2), "cpu", **options)
    for step in experience_of(bar, most_steps=600, options=_options(noise)).steps * (filled_size // 600 + 1):
        buffer.add(*step)
    assert transition_memory(buffer).stored_bytes * size / filled_size <= bytes_


def _options(noise: bool) -> Any:
    from sb3_extra_buffers.cli.envs import EnvOptions

    return EnvOptions(kwargs={"noise": noise})


def test_where_not_even_a_step_fits_there_is_no_code(
    bar: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sb3_extra_buffers.cli.playing.MOST_TRANSITIONS", 4)
    args = ["--env", bar, "--env-kwargs", "side=800", "noise=True", "--memory", "1MB"]
    result = run_json(capsys, *args)
    assert result["code"] is None
    assert result["recommended_size"] == 0
    assert result["reason"].endswith("Nothing fits: give it more --memory, or make observations smaller.")
    assert main(["recommend", *args]) == 0
    assert "import" not in capsys.readouterr().out


def test_the_memory_is_half_of_ram_or_what_is_free(
    bar: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sb3_extra_buffers._machine.ram_bytes", lambda: 10 * GIGABYTE)
    for free, memory, words in ((8, 5, "half of this machine's RAM"), (3, 3, "what is free now")):
        monkeypatch.setattr("sb3_extra_buffers._machine.available_bytes", lambda free=free: free * GIGABYTE)
        assert run_json(capsys, "--env", bar)["memory_bytes"] == memory * GIGABYTE
        assert main(["recommend", "--env", bar]) == 0
        assert f"it may take {memory} GB, {words}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--algo", "sac"], "SAC takes no actions of Discrete(2). --algo may be dqn, qrdqn, ppo, a2c, trpo"),
        (["--algo", "PPO", "--buffer-size", "100"], "PPO has a rollout buffer: --n-steps sets its size, not --buffer-size"),
        (["--n-steps", "100"], "DQN has a replay buffer: --buffer-size sets its size, not --n-steps"),
    ],
)
def test_what_an_algorithm_does_not_take_is_refused(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--env", "CartPole-v1", *args]) == 2
    assert message in capsys.readouterr().err


# ---- figures


def test_the_same_codec_gives_the_same_figure_however_slow_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task.of("replay", experience_of("PongNoFrameskip-v4", most_steps=200), 1_000_000, GIGABYTE)
    reference = measure_sb3(task)
    first = measure("gzip1", task, reference)
    add = CompressedReplayBuffer.add

    def slowly(*args: Any) -> None:
        time.sleep(0.003)
        add(*args)

    monkeypatch.setattr(CompressedReplayBuffer, "add", slowly)
    again = measure("gzip1", task, reference)
    sizes = ("buffer_bytes", "low_bytes", "high_bytes", "largest")
    assert [getattr(first, name) for name in sizes] == [getattr(again, name) for name in sizes]


def test_codecs_with_the_same_bytes_give_the_same_figure() -> None:
    pytest.importorskip("numba")
    task = Task.of("replay", experience_of("PongNoFrameskip-v4", most_steps=150), 1_000_000, GIGABYTE)
    reference = measure_sb3(task)
    rle, jit = (measure(name, task, reference) for name in ("rle", "rle-jit"))
    assert rle.buffer_bytes == jit.buffer_bytes
    auto, delta = (measure(name, task, reference) for name in ("auto", "delta"))
    assert auto.label == "auto (delta)"
    assert auto.buffer_bytes == delta.buffer_bytes


def test_a_small_sample_says_how_unsure_it_is(bar: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--env", bar, "--seconds", "0.001"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(r"\d+ transitions are too few to say how far off the memory may be", printed)
    assert "Play longer: --seconds 60" in printed
    assert " ? " in printed
    assert main(["recommend", "--env", bar]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Memory is extrapolated; +/- is how far off it may be, by how much parts of the sample differ." in printed
    assert main(["recommend", "--env", bar, "--buffer-size", "500"]) == 0
    assert "All transitions were played, nothing is extrapolated." in " ".join(capsys.readouterr().out.split())


def test_a_taste_that_chooses_what_auto_chooses_has_no_row() -> None:
    auto = replace(measured("auto", 1), label="auto (delta)", buffer_bytes=100.0)
    assert is_same_choice(replace(auto, method="auto-fast", label="auto-fast (delta)", add_ratio=0.9), auto)
    assert not is_same_choice(replace(auto, method="auto-small", label="auto-small (zstd3)"), auto)
    assert not is_same_choice(replace(auto, method="auto-small", label="auto-small (delta)", buffer_bytes=90.0), auto)
    assert not is_same_choice(replace(auto, method="delta", label="delta"), auto)


def test_a_taste_that_is_smaller_than_its_codec_says_why() -> None:
    """`auto-small` gives zstd pieces of twice the size, so both are zstd3 and their figures differ."""
    small = replace(measured("auto-small", 1), label="auto-small (zstd3)")
    assert larger_pieces([measured("auto", 3), small, measured("zstd3", 1.4)]) == [
        "auto-small encodes more frames together than zstd3 does: smaller, and slower to read."
    ]
    assert larger_pieces([measured("auto", 3), small, measured("zstd3", 1)]) == []
    assert larger_pieces([measured("auto", 3), measured("zstd3", 1)]) == []
    of_dict = replace(small, label="auto-small (zstd3, none)")
    assert larger_pieces([of_dict, measured("none", 9), measured("zstd3", 1.4)]) == [
        "auto-small encodes more frames together than zstd3 does: smaller, and slower to read."
    ]


# ---- the rule


def measured(method: str, size: float, time_ratio: float = 1.0, memory: float = 25) -> Measurement:
    """A codec that takes so many gigabytes for a million transitions."""
    bytes_ = size * GIGABYTE
    return Measurement(method, method, bytes_, bytes_, bytes_, int(memory / size * 1e6), time_ratio, time_ratio, time_ratio)


def verdict_of(
    measurements: list[Measurement], sb3_gigabytes: float = 100, memory: float = 25, kind: str = "replay"
) -> Verdict:
    experience = Experience(SCREEN, spaces.Discrete(2), 4, [])
    reference = Reference(None, sb3_gigabytes * 1000, "")
    return decide(measurements, reference, Task(kind, experience, [], 1_000_000, memory * GIGABYTE))


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
    verdict = verdict_of([measured("auto", 1.0), *others])
    assert verdict.best is not None
    assert (verdict.best.method, verdict.size) == (expected, 1_000_000)


@pytest.mark.parametrize(("slower", "expected"), [(1.1, "auto"), (2.5, "lz4")])
def test_the_fastest_is_recommended_where_all_are_slow_but_not_by_chance(slower: float, expected: str) -> None:
    verdict = verdict_of([measured("auto", 9, 2.0 * slower), measured("lz4", 10, 2.0)])
    assert verdict.best is not None
    assert verdict.best.method == expected


def test_what_does_not_fit_is_not_recommended_where_something_fits() -> None:
    verdict = verdict_of([measured("auto", 5, 4.0), measured("none", 40, 1.0)])
    assert verdict.best is not None
    assert verdict.best.method == "auto"
    close = verdict_of([measured("auto", 25.5), measured("zstd3", 24.5)])
    assert close.best is not None
    assert close.best.method == "zstd3"


def test_where_nothing_fits_the_largest_buffer_that_does_is_recommended() -> None:
    verdict = verdict_of([measured("none", 90, 1.0), measured("zstd9", 30, 9.0)], sb3_gigabytes=200)
    assert verdict.best is not None
    assert (verdict.best.method, verdict.size) == ("zstd9", 830_000)
    assert verdict.reason.startswith("1,000,000 transitions do not fit into 25 GB: zstd9 would take about 30 GB.")
    assert verdict.reason.endswith("The largest buffer_size that fits is 830_000.")
    rollout = verdict_of([measured("auto", 30)], sb3_gigabytes=200, kind="rollout")
    assert rollout.size == 4 * 200_000  # of 4 envs, in whole minibatches of 64
    assert rollout.reason.endswith("The largest n_steps that fits is 200_000.")


def test_an_uncertain_codec_counts_by_what_surely_fits() -> None:
    unsure = replace(measured("auto", 20), high_bytes=30 * GIGABYTE, largest=800_000)
    verdict = verdict_of([unsure])
    assert (verdict.best, verdict.size) == (unsure, 800_000)
    assert verdict.reason.startswith("1,000,000 transitions may not fit into 25 GB: auto would take about 20 GB.")


def test_sb3_is_recommended_where_little_is_saved_or_needed() -> None:
    little = verdict_of([measured("auto", 18)], sb3_gigabytes=20)
    assert (little.best, little.size) == (None, 1_000_000)
    assert little.reason == "Compression saves less than a fifth here: keep SB3's own buffer."
    small = verdict_of([measured("auto", 0.001)], sb3_gigabytes=0.9)
    assert (small.best, small.reason) == (
        None, "SB3's own buffer takes 900 MB, only 3.6 % of the 25 GB that it may take: keep it."
    )  # fmt: skip
    assert verdict_of([measured("auto", 0.001)], sb3_gigabytes=2).best is not None


def test_a_codec_that_saves_little_is_recommended_where_only_it_fits() -> None:
    verdict = verdict_of([measured("auto", 24)], sb3_gigabytes=26)
    assert verdict.best is not None
    neither = verdict_of([measured("auto", 90)], sb3_gigabytes=100)
    assert (neither.best, neither.size) == (None, 250_000)


def test_the_table_fits_into_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    best = replace(measured("auto-small", 30, 12.34), label="auto-small (zstd3, none)")
    task = Task("replay", Experience(SCREEN, spaces.Discrete(2), 1, []), [], 100_000_000, 25 * GIGABYTE)
    present([best], Verdict(best, 1, "A reason. " * 20), Reference(None, 123_456.0, ""), task)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


# ---- the code to paste


@pytest.mark.parametrize(
    ("env_id", "algorithm", "method", "wrong"),
    [
        ("CartPole-v1", None, "auto", "compression_method"),
        ("CartPole-v1", None, "zstd3", "rollout"),
        ("Pendulum-v1", None, "gzip1", "DQN"),
        ("Pendulum-v1", "td3", None, "Compressed"),
        ("CartPole-v1", "qrdqn", "lz4-frame/9", "rollout"),
        ("CartPole-v1", "ppo", "auto", "buffer_size"),
        ("CartPole-v1", "a2c", "zstd3", "replay"),
    ],
)
def test_the_code_runs(env_id: str, algorithm: str | None, method: str | None, wrong: str) -> None:
    env = gym.make(env_id)
    experience = Experience(env.observation_space, env.action_space, 1, [])
    code = code_to_paste(choose(algorithm, env.action_space), experience, 512, method)
    assert wrong not in code
    assert max(map(len, code.splitlines())) <= 100
    names: dict[str, Any] = {"env": env}
    exec(code, names)
    model = names["model"]
    buffer = getattr(model, "replay_buffer", None) or model.rollout_buffer
    assert (type(buffer).__name__.startswith("Compressed"), buffer.buffer_size) == (method is not None, 512)


def test_the_algorithm_goes_by_the_actions() -> None:
    finite, endless = spaces.Box(-1, 1, (2,)), spaces.Box(-np.inf, np.inf, (2,))
    assert [choose(None, space).name for space in (spaces.Discrete(2), finite, endless)] == ["DQN", "SAC", "PPO"]
    assert choose(None, spaces.MultiBinary(3)).name == "PPO"
    with pytest.raises(ValueError, match=r"TD3 takes no actions of Box.*--algo may be ppo, a2c, trpo"):
        choose("td3", endless)
    with pytest.raises(ValueError, match="No algorithm of SB3 takes actions of Dict"):
        choose(None, spaces.Dict(a=finite))


@pytest.mark.parametrize(
    ("space", "policy"),
    [
        (SCREEN, "CnnPolicy"),
        (spaces.Box(0, 255, (3, 7, 7), np.uint8), "MlpPolicy"),  # MiniGrid: too small for SB3's convolutions
        (spaces.Box(-1, 1, (4,)), "MlpPolicy"),
        (spaces.Discrete(5), "MlpPolicy"),
        (spaces.Dict(a=SCREEN), "MultiInputPolicy"),
    ],
)
def test_the_policy_goes_by_the_observations(space: spaces.Space[Any], policy: str) -> None:
    assert policy_of(Experience(space, spaces.Discrete(2), 1, [])) == policy
