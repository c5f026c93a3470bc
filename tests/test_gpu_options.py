"""The keywords of the GPU buffers, the sizes they are estimated by, and the examples."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack, VecTransposeImage

from sb3_extra_buffers.errors import LossyStorageWarning
from sb3_extra_buffers.gpu_buffers import (
    GpuDictReplayBuffer,
    GpuReplayBuffer,
    GpuRolloutBuffer,
    available_methods,
    estimate_heap_bytes,
    estimates,
    find_gpu_buffer_dtypes,
    has_zstd,
)
from sb3_extra_buffers.gpu_buffers.dtypes import numpy_dtype_to_torch
from sb3_extra_buffers.gpu_buffers.estimates import RATIOS, SAFETY, estimate_ratio
from tests.gpu_memories import encoder_of
from tests.oracle import add_to_replay
from tests.transitions import Step, play

ROOT = Path(__file__).parent.parent
SPACE = spaces.Box(0, 255, (4, 28, 28), np.uint8)
ACTIONS = spaces.Discrete(4)
ARGS = (40, SPACE, ACTIONS, "cpu", 2)


def load(path: Path) -> Any:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def budget_of(buffer: Any) -> Any:
    return buffer._leaves["observation"].plan.budget


# ---- names


def test_the_methods_that_there_are() -> None:
    assert available_methods() == ["tiles", "none", "rle", "zstd"]
    assert has_zstd()


def test_the_documented_calls_work() -> None:
    gym.register_envs(ale_py)
    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4"), 4)
    shape, dtype = env.observation_space.shape, env.observation_space.dtype
    dtypes = find_gpu_buffer_dtypes(shape, elem_dtype=numpy_dtype_to_torch(dtype), compression_method="rle")
    dqn = DQN(
        "CnnPolicy", env, replay_buffer_class=GpuReplayBuffer, device="cpu", buffer_size=50, learning_starts=10,
        replay_buffer_kwargs={"dtypes": dtypes, "compression_method": "rle", "buffer_device": "cpu"},
    )  # fmt: skip
    dqn.learn(20)
    method = "zstd" if has_zstd() else "rle"
    dtypes = find_gpu_buffer_dtypes(shape, compression_method=method)
    ppo = PPO(
        "CnnPolicy", env, rollout_buffer_class=GpuRolloutBuffer, device="cpu", n_steps=8, batch_size=8, n_epochs=1,
        rollout_buffer_kwargs={"dtypes": dtypes, "compression_method": method, "buffer_device": "cpu"},
    )  # fmt: skip
    ppo.learn(8)
    env.close()


@pytest.mark.parametrize(
    "dtype",
    ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bool"],
)
def test_a_torch_dtype_has_the_bits_of_numpys(dtype: str) -> None:
    assert str(numpy_dtype_to_torch(dtype)) == f"torch.{dtype}"


def test_a_dtype_that_torch_has_not_is_refused() -> None:
    with pytest.raises(TypeError, match="torch has no dtype for NumPy's"):
        numpy_dtype_to_torch(np.longdouble)


# ---- keywords


def test_observations_live_where_the_buffer_does_if_not_told_otherwise() -> None:
    assert GpuReplayBuffer(*ARGS).buffer_device == th.device("cpu")
    assert GpuRolloutBuffer(20, SPACE, ACTIONS, "cpu").buffer_device == th.device("cpu")
    assert GpuRolloutBuffer(20, SPACE, ACTIONS, device="cpu", buffer_device="meta").buffer_device == th.device("meta")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression_method": "tils"}, "No GPU method named 'tils'. Did you mean 'tiles'?"),
        ({"compression_method": "lz4-frame/1"}, "Installed: tiles, none, rle, zstd"),
        ({"compression_method": "zstd99"}, "zstd level must be in"),
        ({"compression_method": "zstd0"}, "zstd level must be in 1..22 or -100..-1, got 0"),
        ({"compression_method": "rle3"}, "has no levels"),
        ({"compression_kwargs": {"level": 3}}, "has no options"),
        ({"decompression_kwargs": {"level": 3}}, "decompression_kwargs has no option 'level'. Allowed: none at all"),
        ({"on_full": "explode"}, "on_full must be one of 'grow', 'evict', 'raise'"),
        ({"heap_bytes": 0}, "heap_bytes must be a positive number"),
        ({"dtypes": "foo"}, "elem_type in dtypes must be a NumPy dtype, got 'foo'"),
        ({"block_frames": 8}, "have no blocks"),
        ({"heap_bytes": 1.5}, "heap_bytes must be a positive number"),
        ({"dtypes": {"elem": th.uint8}}, "dtypes may hold 'elem_type' and 'runs_type'"),
        ({"compression_method": {"camera": "rle"}}, "the observation has"),
        ({"buffer_device": "banana"}, "buffer_device must be a device that torch can use here, got 'banana'"),
        ({"dtypes": {"elem_type": th.bfloat16}}, "torch.bfloat16, which NumPy does not have"),
    ],
)
def test_bad_keywords_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GpuReplayBuffer(*ARGS, **options)


def test_a_typo_in_a_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="heap_byte"):
        GpuReplayBuffer(*ARGS, heap_byte=1)


def test_levels_may_be_given_as_options() -> None:
    buffer = GpuReplayBuffer(*ARGS, compression_method="zstd", compression_kwargs={"level": 7}, frame_stack=4)
    assert encoder_of(buffer).codec.codec.level == 7


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({}, -3),
        ({"compression_kwargs": {"compresslevel": 5}}, 5),
        ({"compression_kwargs": {"elem_type": th.uint8, "runs_type": th.uint16}}, -3),
        ({"dtypes": {"elem_type": th.uint8, "compresslevel": 9}}, 9),
        ({"dtypes": {"compresslevel": 9}, "compression_kwargs": {"level": 2}}, 2),
    ],
)
def test_a_level_may_be_in_many_places_and_zstd_without_one_is_minus_three(options: dict[str, Any], level: int) -> None:
    buffer = GpuReplayBuffer(*ARGS, compression_method="zstd", frame_stack=4, **options)
    assert encoder_of(buffer).codec.codec.level == level


def test_max_slot_bytes_is_the_heap_per_observation() -> None:
    with pytest.warns(DeprecationWarning, match="Use heap_bytes") as caught:
        buffer = GpuReplayBuffer(*ARGS, max_slot_bytes=100, compression_method="rle")
    with pytest.warns(DeprecationWarning, match="Use heap_bytes") as caught_too:
        GpuRolloutBuffer(20, SPACE, ACTIONS, "cpu", max_slot_bytes=100)
    assert budget_of(buffer).limit == 100 * 40
    assert [caught[0].filename, caught_too[0].filename] == [__file__, __file__]  # where the user wrote it


def test_a_dict_of_nothing_is_as_empty_as_sb3s() -> None:
    buffer = GpuDictReplayBuffer(40, spaces.Dict({}), ACTIONS, "cpu", 2)
    buffer.add({}, {}, np.zeros((2, 1)), np.zeros(2), np.zeros(2), [{}, {}])
    assert buffer.sample(3).observations == {}


def test_a_narrower_dtype_warns_and_is_honoured() -> None:
    space = spaces.Box(-300, 300, (30, 30), np.float32)
    with pytest.warns(LossyStorageWarning):
        buffer = GpuReplayBuffer(20, space, ACTIONS, "cpu", dtypes={"elem_type": th.uint8})
    step = next(iter(play(space, ACTIONS, 1, 1)))
    add_to_replay([buffer], step)
    stored = buffer.sample(1).observations
    assert stored.dtype == th.float32
    assert np.array_equal(stored[0].numpy(), np.clip(np.rint(step.obs[0]), 0, 255))


@pytest.mark.parametrize("output_dtype", ["raw", "float"])
def test_legacy_options_act_on_the_batch(output_dtype: Any) -> None:
    buffer = GpuReplayBuffer(*ARGS, normalize_images=True, output_dtype=output_dtype)
    for step in play(SPACE, ACTIONS, 2, 30):
        add_to_replay([buffer], step)
    batch = buffer.sample(8)
    assert batch.observations.dtype == batch.next_observations.dtype == th.float32
    assert 0 < batch.observations.max() <= 1


# ---- sizes


def test_levels_that_were_not_measured_lie_between_those_that_were() -> None:
    known = RATIOS["zstd"]
    measured = sorted(known)
    for level, ratio in known.items():
        assert estimate_ratio(f"zstd{level}") == pytest.approx(ratio * SAFETY)
    low, high = min(known.values()) * SAFETY, max(known.values()) * SAFETY
    for level in (*range(-100, 0), *range(1, 23)):
        assert low <= estimate_ratio(f"zstd{level}") <= high
    between = list(range(measured[-2] + 1, measured[-1]))
    assert between
    for level in between:
        ends = sorted((known[measured[-2]] * SAFETY, known[measured[-1]] * SAFETY))
        assert ends[0] <= estimate_ratio(f"zstd{level}") <= ends[1]


@pytest.mark.parametrize("method", ["zstd0", "zstd23", "zstd-101", "rle1", "gzip3"])
def test_levels_out_of_range_are_a_value_error(method: str) -> None:
    with pytest.raises(ValueError):
        estimate_ratio(method)


def test_the_estimate_is_per_cell() -> None:
    one = estimate_heap_bytes((4, 84, 84), 1, th.uint8, "zstd9")
    assert estimate_heap_bytes((4, 84, 84), 1000, th.uint8, "zstd9") == 1000 * one
    assert one == pytest.approx(28224 * estimate_ratio("zstd9"), abs=1)
    assert estimate_heap_bytes(28224, 1, th.float32, "zstd9") == pytest.approx(4 * one, abs=4)
    limit = budget_of(GpuReplayBuffer(*ARGS, compression_method="rle")).limit
    assert limit == estimate_heap_bytes(SPACE.shape, 40, th.uint8, "rle")
    assert estimate_ratio("zstd") == estimate_ratio("zstd-3")


def test_dtypes_of_numpy_are_as_good_as_torchs() -> None:
    assert estimate_heap_bytes((4, 84, 84), 9, np.float32) == estimate_heap_bytes((4, 84, 84), 9, th.float32)
    assert find_gpu_buffer_dtypes((4, 84, 84), elem_dtype=np.uint8) == find_gpu_buffer_dtypes((4, 84, 84))
    assert numpy_dtype_to_torch(th.int16) is th.int16
    with pytest.raises(ValueError, match="n_cells must be a number of observations, got -5"):
        estimate_heap_bytes((4, 84, 84), -5)


def test_a_real_game_fits_into_the_estimate() -> None:
    gym.register_envs(ale_py)
    env = VecTransposeImage(VecFrameStack(make_atari_env("MsPacmanNoFrameskip-v4", n_envs=4, seed=3), 4))
    space, n_steps = env.observation_space, 120
    buffers = {method: GpuReplayBuffer(4 * n_steps, space, ACTIONS, "cpu", 4, compression_method=method) for method in RATIOS}
    theirs = ReplayBuffer(4 * n_steps, space, ACTIONS, "cpu", 4)
    obs, rng = env.reset(), np.random.default_rng(0)
    for _ in range(n_steps):
        action = rng.integers(0, 9, 4)
        after, reward, done, infos = env.step(action)
        true_after = after.copy()
        for i in np.flatnonzero(done):
            true_after[i] = infos[i]["terminal_observation"]
        add_to_replay([*buffers.values(), theirs], Step(obs, true_after, action.reshape(4, 1), reward, done, infos))
        obs = after
    env.close()
    for method, buffer in buffers.items():
        assert np.array_equal(np.asarray(buffer.observations), theirs.observations)
        memory = encoder_of(buffer)
        used = memory.heap.live_bytes if hasattr(memory, "heap") else memory.nbytes
        assert used <= budget_of(buffer).limit, method
    usage = buffers["none"].memory_usage()
    assert usage.stored_bytes <= 0.26 * theirs.observations.nbytes + 300_000  # the observations written last, on the host
    assert buffers["tiles"].memory_usage().stored_bytes < 0.5 * usage.stored_bytes


# ---- the script behind the table


def test_the_table_is_that_of_the_committed_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(ROOT / "scripts" / "fit_heap_heuristic.py").main(["--check"]) == 0, capsys.readouterr().out


def test_the_script_fits_the_worst_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = load(ROOT / "scripts" / "fit_heap_heuristic.py")

    def rows(game: str, **ratios: float) -> list[dict[str, Any]]:
        return [{"buffer": f"gpu-{name}", "workload": game, "ratio": ratio} for name, ratio in ratios.items()]

    pong = rows("Pong", zstd3=0.02, tiles=0.002, none=0.25, rle=0.099)
    results, table = tmp_path / "sizes.json", tmp_path / "table.py"
    results.write_text(json.dumps({"gpu": [*pong, *rows("Qbert", zstd=0.04, zstd3=0.03, zstd9=0.025)], "sizes": []}))
    shutil.copy(estimates.__file__, table)
    arguments = [str(results), "--table", str(table)]
    assert script.main([*arguments, "--check"]) == 1
    capsys.readouterr()
    assert script.main(arguments) == 0
    printed: dict[str, Any] = {}
    exec(capsys.readouterr().out.rpartition("\n\n")[0], printed)
    assert script.main([*arguments, "--check"]) == 0
    assert "up to date" in capsys.readouterr().out
    assert printed["RATIOS"] == load(table).RATIOS
    assert load(table).RATIOS == {
        "none": {0: 0.25}, "rle": {0: 0.099}, "tiles": {0: 0.002}, "zstd": {-3: 0.04, 3: 0.03, 9: 0.025},
    }  # fmt: skip
    assert "# Worst of: Pong, Qbert." in table.read_text()
    before = table.read_text()
    results.write_text(json.dumps({"gpu": pong[:-2], "sizes": []}))
    assert script.main(arguments) == 1
    assert "No rows of gpu-none, gpu-rle" in capsys.readouterr().err
    assert table.read_text() == before
    with pytest.raises(SystemExit, match="2"):
        script.main([str(tmp_path / "nothing.json")])


# ---- examples

FEW = ("--n-envs", "1", "--device", "cpu", "--total-timesteps")
EXAMPLES = {
    "replay": (*FEW, "90", "--buffer-size", "60", "--learning-starts", "70"),  # it overwrites its first steps
    "rollout": (*FEW, "128"),  # one rollout
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_examples_train_as_sb3_does_and_can_be_watched(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    train = load(ROOT / "examples" / f"example_train_gpu_{kind}.py").main
    ours = train([*EXAMPLES[kind], "--save", "model.zip"])
    assert "Gpu" in capsys.readouterr().out
    theirs = train([*EXAMPLES[kind], "--raw"])
    assert "Gpu" not in capsys.readouterr().out
    assert ours._n_updates == theirs._n_updates > 0
    for key, value in theirs.policy.state_dict().items():
        assert th.equal(ours.policy.state_dict()[key], value), key
    watch = load(ROOT / "examples" / f"example_watch_gpu_{kind}.py").main
    watch(["model.zip", "--device", "cpu", "--total-timesteps", "5", "--video", "game.gif"])
    assert (tmp_path / "game.gif").stat().st_size > 0
    for name in ("shared", "example_watch_gpu_replay"):
        sys.modules.pop(name, None)
