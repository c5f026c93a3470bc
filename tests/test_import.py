"""Importing costs nothing and prints nothing; without any extra the library still trains."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sb3_extra_buffers.native.threads import thread_count


def run(code: str, tmp_path: Path, *flags: str) -> str:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


MODULES = ["", ".compressed", ".contrib", ".codecs", ".store", ".errors", ".compressed.compression_methods"]


def test_importing_prints_nothing_and_imports_no_numba(tmp_path: Path) -> None:
    names = [f"sb3_extra_buffers{name}" for name in MODULES]
    code = f"""
import importlib, sys
import stable_baselines3  # what it imports is not ours
before = set(sys.modules)
for name in {names!r}:
    importlib.import_module(name)
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
for optional in ("numba", "llvmlite", "isal", "zstandard", "lz4", "sb3_contrib", "ale_py", "vizdoom"):
    assert optional not in new, optional
"""
    assert run(code, tmp_path, "-W", "error::UserWarning:sb3_extra_buffers") == ""
    assert list(tmp_path.iterdir()) == []  # nothing was compiled


def test_default_settings_import_no_numba_and_write_no_cache(tmp_path: Path) -> None:
    code = """
import sys
import textwrap
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from sb3_extra_buffers.compressed import CompressedArray, CompressedReplayBuffer, CompressedRolloutBuffer

before = set(sys.modules)
for space in (
    spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Box(0, 255, (3, 64, 64), np.uint8), spaces.Box(-1, 1, (17,), np.float32),
):
    buffer = CompressedReplayBuffer(100, space, spaces.Discrete(3), device="cpu")
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 2, (60, 1, *space.shape)).astype(space.dtype)
    for t in range(59):
        buffer.add(frames[t], frames[t + 1], np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    buffer.sample(32)
array = CompressedArray((3,), np.uint8, (30, 30))
array[0] = 1
assert array[0].all()
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert not {"numba", "llvmlite"} & new, new & {"numba", "llvmlite"}
"""
    assert run(code, tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


def test_codecs_need_neither_torch_nor_sb3(tmp_path: Path) -> None:
    code = """
import sys
import textwrap
import sb3_extra_buffers.codecs, sb3_extra_buffers.store
assert not {"torch", "gymnasium", "stable_baselines3"} & set(sys.modules)
"""
    assert run(code, tmp_path) == ""


HIDE = """
import sys, warnings
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "isal", "zstandard", "lz4", "sb3_contrib", "ale_py", "vizdoom"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
warnings.simplefilter("error", UserWarning)
"""


def test_works_with_no_extra_installed(tmp_path: Path) -> None:
    code = (
        HIDE
        + """
import numpy as np
from stable_baselines3 import DQN
from stable_baselines3.common.envs import FakeImageEnv
from sb3_extra_buffers.codecs import available_codecs
from sb3_extra_buffers.compressed import CompressedReplayBuffer, CompressedRolloutBuffer, has_igzip, has_numba, init_jit
from sb3_extra_buffers.errors import FallbackWarning, MissingBackendError

assert not has_numba() and not has_igzip()
init_jit()
assert available_codecs() == ["none", "rle", "gzip", "delta"]
weights = []
for options in ({"replay_buffer_class": CompressedReplayBuffer}, {}):
    env = FakeImageEnv(screen_height=40, screen_width=40, n_channels=1, discrete=True)
    env.observation_space.seed(0)
    model = DQN("CnnPolicy", env, buffer_size=60, learning_starts=20, batch_size=4, train_freq=16, seed=0, **options)
    model.learn(100)
    weights.append({key: value.numpy() for key, value in model.policy.state_dict().items()})
assert all(np.array_equal(weights[0][key], value) for key, value in weights[1].items())
assert model.replay_buffer.__class__.__name__ == "ReplayBuffer"

args = (20, env.observation_space, env.action_space)
for method in ("none", "delta", "rle", "gzip"):
    buffer = CompressedReplayBuffer(*args, compression_method=method)
    frames = np.random.default_rng(0).integers(0, 3, (60, 1, *env.observation_space.shape), dtype=np.uint8)
    for t in range(50):
        buffer.add(frames[t], frames[t + 1], np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    assert np.array_equal(buffer.observations[(np.arange(30, 50)) % 20, np.zeros(20, int)], frames[30:50, 0])
for method, extra in (("zstd", "zstd"), ("lz4-frame", "lz4"), ("lz4-block", "lz4")):
    try:
        CompressedReplayBuffer(*args, compression_method=method)
    except ImportError as error:
        assert f'pip install "sb3-extra-buffers[{extra}]"' in str(error)
    else:
        raise AssertionError(method)
for method in ("igzip", "rle-jit"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CompressedRolloutBuffer(*args, compression_method=method)
    assert [warning.category for warning in caught] == [FallbackWarning], method
try:
    from sb3_extra_buffers.contrib import CompressedMaskableRolloutBuffer
except ImportError as error:
    assert "sb3-extra-buffers[contrib]" in str(error), error
else:
    raise AssertionError("contrib")
"""
    )
    assert run(code, tmp_path) == ""


def test_nothing_but_the_package_is_importable_from_it() -> None:
    import sb3_extra_buffers

    root = Path(sb3_extra_buffers.__file__).parent
    assert (root / "py.typed").exists()
    assert not {"tests", "docs", "examples", "scripts"} & {path.name for path in root.iterdir()}


@pytest.mark.parametrize("shape", [(4, 36, 36), (8,)], ids=["pictures", "vectors"])
def test_a_missing_library_is_said_by_the_constructor(shape: tuple[int, ...], tmp_path: Path) -> None:
    """And not by the first `add` or `sample` that needs it."""
    code = f"""
        import numpy as np
        from gymnasium import spaces
        from sb3_extra_buffers.compressed import CompressedReplayBuffer
        from sb3_extra_buffers.errors import NativeLibraryError
        try:
            CompressedReplayBuffer(10, spaces.Box(0, 255, {shape}, np.uint8), spaces.Discrete(2), "cpu")
        except NativeLibraryError as error:
            print(error)
    """
    environment = {**os.environ, "SB3_EXTRA_BUFFERS_LIBRARY": str(tmp_path / "nowhere.so")}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "does not exist; correct or unset the environment variable" in done.stdout


@pytest.mark.parametrize("asked", ["0", "-1", "1.5", "many"])
def test_a_number_of_threads_that_is_none_is_ignored_with_a_warning(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SB3_EXTRA_BUFFERS_THREADS", asked)
    with pytest.warns(UserWarning, match=f"must be a number from 1 to 16, got '{asked}'"):
        assert thread_count() >= 1
    monkeypatch.setenv("SB3_EXTRA_BUFFERS_THREADS", "1000")
    assert thread_count() == 16
