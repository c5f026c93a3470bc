"""Every example runs, and the training examples end in the weights that they end in with the library's own buffers."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch as th

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return tmp_path


def load(name: str, source: str | None = None) -> ModuleType:
    """An example as a module, maybe with another source."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if source is None:
        spec.loader.exec_module(module)
    else:
        exec(compile(source, spec.origin or name, "exec"), vars(module))
    return module


def run(name: str, *argv: str) -> Any:
    return load(name).main(list(argv))


def weights(model: Any) -> dict[str, th.Tensor]:
    return getattr(model, "policy", model).state_dict()


def assert_same_weights(ours: Any, theirs: Any) -> None:
    for key, value in weights(theirs).items():
        assert th.equal(weights(ours)[key], value), key


#: One env, and so few steps that PPO collects and learns once.
FEW = ("--n-envs", "1", "--device", "cpu", "--total-timesteps", "128")
#: DQN learns five times, from a buffer that has begun to overwrite its first steps.
OVERWRITTEN = ("--buffer-size", "60", "--learning-starts", "70", "--total-timesteps", "90")
LEARN = (*FEW, *OVERWRITTEN)
TRAINING = {
    "PPO on Pong": ("example_train_rollout", *FEW),
    "DQN": ("example_train_replay", *LEARN),
    "n-step DQN": ("example_train_replay", "--n-step", "3", *LEARN),
    "recorded play": ("example_train_dqn_offline", "--recorded-steps", "100", "--offline-steps", "3", *LEARN),
    "masks": ("example_train_dqn_vizdoom", "--obs", "labels", *LEARN),
    "masks and RGB": ("example_train_dqn_vizdoom", "--obs", "both", *LEARN),
    "HER": ("example_train_her", *FEW, "--total-timesteps", "200"),
    "RecurrentPPO": ("example_train_recurrent_ppo", *FEW),
    "MaskablePPO": ("example_train_maskable_ppo", *FEW),
}


@pytest.mark.parametrize("command", TRAINING.values(), ids=TRAINING)
def test_training_ends_in_the_weights_of_the_raw_twin(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    ours = run(*command)
    assert "Compressed" in capsys.readouterr().out
    theirs = run(*command, "--raw")
    assert "Compressed" not in capsys.readouterr().out
    assert ours._n_updates == theirs._n_updates > 0
    assert_same_weights(ours, theirs)


def test_a_model_that_was_trained_can_be_evaluated_and_watched(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(own_folder / "model.zip")
    run("example_train_replay", *LEARN, "--save", model)
    which = (model, "--algo", "dqn", "--game", "mspacman")
    summary = run("example_evaluate", *which, "--episodes", "1", "--n-envs", "1", "--buffer-size", "100")
    assert summary.episodes == 1
    assert "100 transitions in" in capsys.readouterr().out
    run("example_watch", *which, "--total-timesteps", "40", "--video", "game.gif")
    assert (own_folder / "game.gif").stat().st_size > 1000


def test_the_tables_name_every_buffer(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--total-timesteps", "300", "--n-envs", "1", "--methods", "auto", "gzip1", "none")
    stored = run("example_eval_memory_saving", *options)
    assert stored["auto"] < stored["none"] < stored["SB3"]
    table = run("example_eval_memory_loading", *options, "--repeats", "3")
    assert table.keys() == stored.keys()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines] == ["buffer", "---", "SB3", "auto", "gzip1", "none"] * 2


def test_in_the_cleanrl_example_only_the_import_differs() -> None:
    ours = "from sb3_extra_buffers.compressed import CompressedReplayBuffer as ReplayBuffer"
    theirs = "from stable_baselines3.common.buffers import ReplayBuffer"
    source = (EXAMPLES / "example_cleanrl_dqn.py").read_text()
    assert source.count("sb3_extra_buffers") == source.count(ours) == 1
    options = list(OVERWRITTEN)
    theirs_by_import = load("example_cleanrl_dqn", source.replace(ours, theirs))
    assert_same_weights(load("example_cleanrl_dqn").main(options), theirs_by_import.main(options))


def test_several_envs_run_in_their_own_processes(own_folder: Path) -> None:
    """As a user would run it: a process of its own, the default of several envs."""
    command = [sys.executable, str(EXAMPLES / "example_train_rollout.py"), "--total-timesteps", "256", "--n-envs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=own_folder, check=False)
    assert done.returncode == 0, done.stderr
    assert "CompressedRolloutBuffer: 256 transitions" in done.stdout


def test_the_rl_zoo_takes_the_buffer_from_its_hyperparameters(own_folder: Path) -> None:
    pytest.importorskip("rl_zoo3", exc_type=ImportError)
    command = [
        sys.executable, "-m", "rl_zoo3.train", "--algo", "dqn", "--env", "MsPacmanNoFrameskip-v4",
        "--conf-file", str(EXAMPLES / "rl_zoo" / "dqn.yml"), "--n-timesteps", "120", "--eval-freq", "-1",
        "--log-folder", "logs", "--save-replay-buffer", "--hyperparams", "learning_starts:100", "buffer_size:80",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=own_folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    from stable_baselines3 import DQN

    [path] = own_folder.glob("logs/dqn/*/MsPacmanNoFrameskip-v4.zip")
    model = DQN.load(path, buffer_size=1)
    assert model.replay_buffer_class.__name__ == "CompressedReplayBuffer"


SBX_TWINS = """
import sys, warnings
import jax, example_train_sbx_dqn
warnings.simplefilter("error")  # what importing JAX warns of is not ours
models = [example_train_sbx_dqn.main([*sys.argv[1:], *raw]) for raw in ((), ("--raw",))]
ours, theirs = (jax.tree_util.tree_leaves(model.policy.qf_state.params) for model in models)
assert len(ours) > 5
assert all(bool((a == b).all()) for a, b in zip(ours, theirs, strict=True))
"""


@pytest.mark.long
def test_sbx_trains_to_the_same_weights_with_both_buffers(own_folder: Path) -> None:
    """In a process of its own: where JAX has been used, it warns of every fork of later tests."""
    if importlib.util.find_spec("sbx") is None:
        pytest.skip("sbx-rl is not installed")
    command = [sys.executable, "-c", SBX_TWINS, *OVERWRITTEN]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=own_folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["CompressedReplayBuffer", "ReplayBuffer"]


def test_every_example_is_described_in_the_readme() -> None:
    text = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.rglob("*"):
        if path.suffix in (".py", ".yml") and path.name != "shared.py":
            assert str(path.relative_to(EXAMPLES)) in text, path.name


def test_scripts_have_the_names_that_the_documentation_of_0_5_uses() -> None:
    for name in (
        "train_replay", "train_rollout", "train_gpu_replay", "watch_gpu_replay", "train_gpu_rollout", "watch_gpu_rollout",
        "eval_memory_saving", "eval_memory_loading",
    ):  # fmt: skip
        assert (EXAMPLES / f"example_{name}.py").is_file()
    assert all(path.stem.startswith("example_") for path in EXAMPLES.glob("*.py") if path.name != "shared.py")
