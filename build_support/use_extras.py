"""Use an installed sb3-extra-buffers as its extras allow: python use_extras.py EXTRA...

`check_extras.py` runs this in a fresh environment for each extra. What needs no extra must work, and so must what the given
extras bring. Everything else must say which extra to install.
"""

from __future__ import annotations

import importlib
import io
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer

import sb3_extra_buffers
from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.cli import main as command_line
from sb3_extra_buffers.codecs import CODECS
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.datasets import from_d4rl
from sb3_extra_buffers.errors import FallbackWarning, MissingBackendError
from sb3_extra_buffers.recording import RecordBuffer

#: Modules that are about one optional package and import it at once.
ABOUT_OPTIONAL = (
    "sb3_extra_buffers.codecs.rle_jit",
    "sb3_extra_buffers.contrib.",
    "sb3_extra_buffers.prioritized.quantiles",
    "sb3_extra_buffers.viewer.",
)


# ---- without extras


def import_all() -> None:
    """Import every module, and accept a missing package only where the module is about that package."""
    package = Path(sb3_extra_buffers.__file__).parent
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if parts[-1] == "__main__":
            continue
        name = ".".join(part for part in parts if part != "__init__")
        try:
            importlib.import_module(name)
        except ImportError:
            if not name.startswith(ABOUT_OPTIONAL):
                raise


def train() -> None:
    """A training ends in the weights that SB3's own buffer gives."""
    th.set_num_threads(1)
    ours, theirs = (
        DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=kind, learning_starts=20, seed=0, device="cpu").learn(120)
        for kind in (CompressedReplayBuffer, ReplayBuffer)
    )
    for mine, other in zip(ours.policy.state_dict().values(), theirs.policy.state_dict().values(), strict=True):
        assert th.equal(mine, other)


def fill(method: str) -> None:
    """Frames come back from a buffer, and from a file, as they were added."""
    space = spaces.Box(0, 255, (4, 36, 36), np.uint8)
    buffer = CompressedReplayBuffer(64, space, spaces.Discrete(2), device="cpu", compression_method=method)
    frames = np.random.default_rng(0).integers(0, 4, (54, 36, 36)).astype(np.uint8)
    for step in range(50):
        obs, next_obs = frames[None, step : step + 4], frames[None, step + 1 : step + 5]
        buffer.add(obs, next_obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    with tempfile.TemporaryDirectory() as folder:
        buffer.save(Path(folder, "buffer.sb3x"))
        loaded = load_buffer(Path(folder, "buffer.sb3x"), device="cpu")
    for step in range(50):
        assert np.array_equal(buffer.observations[step, 0], frames[step : step + 4]), (method, step)
        assert np.array_equal(loaded.next_observations[step, 0], frames[step + 1 : step + 5]), (method, step)


def use_command_line() -> None:
    """Commands that need no extra end with 0."""
    for words in (["info"], ["estimate", "--shape", "4,84,84"]):
        with redirect_stdout(io.StringIO()):
            assert command_line(words) == 0, words


# ---- what an extra brings


def codec(name: str) -> Callable[[], None]:
    return lambda: fill(name)


def use_atari() -> None:
    from sb3_extra_buffers.training_utils.atari import make_env

    env = make_env("PongNoFrameskip-v4", framestack=4)
    assert env.reset().shape == (1, 4, 84, 84)
    env.close()


def use_vizdoom() -> None:
    from sb3_extra_buffers.training_utils.vizdoom import make_env

    env = make_env("basic", obs="labels")
    assert env.reset().shape == (1, 1, 120, 160)
    env.close()


def use_contrib() -> None:
    from sb3_extra_buffers.contrib import CompressedMaskableRolloutBuffer, compress_rollout_buffer

    assert callable(compress_rollout_buffer)
    CompressedMaskableRolloutBuffer(8, spaces.Box(0, 255, (4, 36, 36), np.uint8), spaces.Discrete(2), device="cpu").reset()


def record() -> RecordBuffer:
    record = RecordBuffer(res=(32, 32), ch_num=3, size=8)
    for step in range(8):
        record.add(np.full((32, 32, 3), 20 * step, np.uint8), 0.0, 0)
    return record


def use_video() -> None:
    with tempfile.TemporaryDirectory() as folder:
        record().save_video(Path(folder, "record.mp4"))
        assert Path(folder, "record.mp4").stat().st_size > 0


def use_minari() -> None:
    record().to_minari("check/extras-v0", action_space=spaces.Discrete(2))


def use_d4rl() -> None:
    with suppress(FileNotFoundError):
        from_d4rl("missing.hdf5")  # asks for h5py first
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(Path(folder, "steps.hdf5"), "w") as file:
            for name, array in (("observations", np.zeros((9, 3))), ("actions", np.zeros((9, 2))), ("rewards", np.zeros(9))):
                file[name] = array
            file["terminals"] = np.arange(9) % 3 == 2
        assert from_d4rl(Path(folder, "steps.hdf5"), max_episode_steps=10).size() == 9


def use_progress_bar() -> None:
    DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=CompressedReplayBuffer, device="cpu").learn(50, progress_bar=True)


def use_cameras() -> None:
    importlib.import_module("mujoco")
    importlib.import_module("minigrid")
    gym.make("CarRacing-v3").close()


def use_viewer() -> None:
    from sb3_extra_buffers.viewer import Viewer

    with tempfile.TemporaryDirectory() as folder:
        record().save(Path(folder, "record.sb3x"))
        Viewer(Path(folder, "record.sb3x"), port=0).start().stop()


def use_ray() -> None:
    from sb3_extra_buffers.distributed import RayReplayBuffer

    buffer = RayReplayBuffer(100, gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2), n_shards=1, push_steps=10)
    for step in range(10):
        observation = np.full((1, 3), step / 10, np.float32)
        buffer.add(observation, observation, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])
    assert buffer.sample(4).observations.shape == (4, 3)
    buffer.close()


def use_zoo() -> None:
    importlib.import_module("rl_zoo3.train")


class Feature(NamedTuple):
    """What can be done where one of these extras is installed."""

    extras: set[str]
    use: Callable[[], None]
    #: Without them, our error or warning says what to install; None where the feature belongs to another package.
    without: type[Exception] | None = MissingBackendError


FEATURES = {
    "zstd": Feature({"zstd", "fast"}, codec("zstd3")),
    "lz4-frame": Feature({"lz4", "fast"}, codec("lz4-frame/1")),
    "lz4-block": Feature({"lz4", "fast"}, codec("lz4-block")),
    "igzip": Feature({"isal", "fast", "datasets"}, codec("igzip1"), FallbackWarning),
    "rle-jit": Feature({"numba"}, codec("rle-jit"), FallbackWarning),
    "Atari": Feature({"atari", "extra"}, use_atari),
    "ViZDoom": Feature({"vizdoom"}, use_vizdoom),
    "sb3-contrib": Feature({"contrib", "zoo"}, use_contrib),
    "MP4": Feature({"video"}, use_video),
    "Minari": Feature({"minari", "datasets"}, use_minari),
    "D4RL": Feature({"minari", "datasets"}, use_d4rl),
    "progress bar": Feature({"extra"}, use_progress_bar, None),
    "cameras": Feature({"cameras"}, use_cameras, None),
    "viewer": Feature({"viewer"}, use_viewer),
    "Ray": Feature({"ray"}, use_ray),
    "RL Zoo": Feature({"zoo"}, use_zoo, None),
}


def check(name: str, feature: Feature, extras: set[str]) -> str:
    """Use a feature. Returns how it went; raises where that is wrong."""
    try:
        feature.use()
    except (ImportError, FallbackWarning) as error:
        if feature.extras & extras:
            raise
        if feature.without is None:
            return "not there"
        if not isinstance(error, feature.without) or 'pip install "sb3-extra-buffers[' not in str(error):
            raise RuntimeError(f"{name} does not say which extra to install") from error
        return f"not there: {error}"
    return "works"  # also where another extra happens to bring the package


def main(extras: set[str]) -> None:
    assert Path(sb3_extra_buffers.__file__).is_relative_to(sys.prefix), sb3_extra_buffers.__file__
    unknown = extras - {extra for feature in FEATURES.values() for extra in feature.extras}
    assert not unknown, f"FEATURES does not say what the extras {unknown} are for"
    if sys.version_info < (3, 11):
        del FEATURES["Minari"]  # needs Python 3.11
    import_all()
    train()
    for name in ("auto", *(name for name, entry in CODECS.items() if entry.backend is None)):
        fill(name)
    use_command_line()
    warnings.simplefilter("error", FallbackWarning)
    for name, feature in FEATURES.items():
        print(f"  {name:14} {check(name, feature, extras)}")


if __name__ == "__main__":
    main(set(sys.argv[1:]))
