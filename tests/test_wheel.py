"""What `pip install` puts on a machine: the package, its compiled library, its figures and its command; nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NATIVE = "sb3_extra_buffers/native/"
LIBRARY = {"win32": "sb3x.dll", "darwin": "libsb3x.dylib"}.get(sys.platform, "libsb3x.so")

# Trains on a dot that moves through frames, once with our buffer and once with SB3's.
TRAINING = """
import shutil, sys
import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack
import sb3_extra_buffers
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.native import library

class Dot(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def frame(self):
        frame = np.zeros((36, 36, 1), np.uint8)
        frame[self.at % 36, 3 * self.at % 36] = 255
        return frame

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.frame(), {}

    def step(self, action):
        self.at += 1 + int(action)
        return self.frame(), float(action), self.at > 50, False, {}

def train(**options):
    env = VecFrameStack(DummyVecEnv([Dot, Dot]), 4)
    model = DQN("CnnPolicy", env, buffer_size=64, learning_starts=16, batch_size=8, seed=0, device="cpu", **options)
    return model.learn(120)

th.set_num_threads(1)
assert not [name for name in ("cc", "gcc", "clang", "make") if shutil.which(name)]
assert sb3_extra_buffers.__file__.startswith(sys.prefix), sb3_extra_buffers.__file__
assert str(library.library_path()).startswith(sys.prefix), library.library_path()
ours, theirs = train(replay_buffer_class=CompressedReplayBuffer), train()
assert isinstance(ours.replay_buffer, CompressedReplayBuffer)
weights = zip(ours.policy.state_dict().values(), theirs.policy.state_dict().values())
assert all(th.equal(mine, other) for mine, other in weights)
print("trained", sum("sb3x" in line for line in open("/proc/self/maps")) if sys.platform == "linux" else 1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and a wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "demo_output", "debug_obs", "_build")
    shutil.copytree(ROOT, source, ignore=ignored)
    for leftover in ("libsb3x.so", "libsb3x.dylib", "sb3x.dll"):  # must not get into the wheel
        (source / "src" / NATIVE / leftover).write_bytes(b"of an earlier build")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def wheel(folder: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_only_the_package_is_installed(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"sb3_extra_buffers"}


def test_every_module_and_the_type_marker_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "sb3_extra_buffers").rglob("*.py")}
    assert modules | {"sb3_extra_buffers/py.typed"} <= set(wheel.namelist())


def test_the_library_and_its_header_are_all_that_is_native_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    native = {name.removeprefix(NATIVE) for name in wheel.namelist() if name.startswith(NATIVE) and not name.endswith(".py")}
    assert native == {LIBRARY, "sb3x.h"}
    assert not [name for name in wheel.namelist() if name.endswith((".so", ".dylib", ".dll", ".c")) and NATIVE not in name]


def test_the_wheel_is_for_one_platform_and_every_python(folder: Path, wheel: zipfile.ZipFile) -> None:
    path = next(folder.glob("*.whl"))
    python, abi, platform = path.stem.split("-")[-3:]
    assert (python, abi) == ("py3", "none")
    assert platform != "any"
    command = [sys.executable, str(ROOT / "build_support" / "check_wheels.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_wheel_with_the_wrong_library_is_refused(folder: Path, wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    renamed = tmp_path / "sb3_extra_buffers-1.0.0-py3-none-win_amd64.whl"
    shutil.copy(next(folder.glob("*.whl")), renamed)
    command = [sys.executable, str(ROOT / "build_support" / "check_wheels.py"), str(renamed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "should have the library sb3_extra_buffers/native/sb3x.dll" in done.stderr


def test_all_sources_of_the_library_are_in_the_sdist(folder: Path) -> None:
    with tarfile.open(next(folder.glob("*.tar.gz"))) as sdist:
        names = {name.split("/", 1)[-1] for name in sdist.getnames()}
    native = ROOT / "src" / NATIVE
    sources = {path.relative_to(ROOT).as_posix() for path in [*native.glob("*.c"), *native.glob("*.h")]}
    assert len(sources) > 1
    assert sources | {"build_support/backend.py", "build_support/compile.py"} <= names
    assert not [name for name in names if name.endswith((".so", ".dylib", ".dll"))]


def test_figures_for_estimates_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    assert json.loads(wheel.read("sb3_extra_buffers/bench/sizes.json"))["sizes"]


def test_the_page_of_the_viewer_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    page = ROOT / "src" / "sb3_extra_buffers" / "viewer" / "page"
    assert {f"sb3_extra_buffers/viewer/page/{path.name}" for path in page.iterdir()} <= set(wheel.namelist())
    assert b"<!doctype html>" in wheel.read("sb3_extra_buffers/viewer/page/index.html")


def test_the_wheel_has_the_licence_and_the_command(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    entry = next(name for name in names if name.endswith("entry_points.txt"))
    assert "sb3-extra-buffers = sb3_extra_buffers.cli:main" in wheel.read(entry).decode()


@pytest.mark.skipif(sys.platform == "win32", reason="folders of a venv are named differently")
def test_the_wheel_trains_in_a_fresh_venv_without_a_compiler(folder: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, str(next(folder.glob("*.whl")))], check=True)
    # torch and the others are those of the environment that runs the tests. Its own .pth files, and with them an editable
    # install of this package, are not looked at.
    shared = venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages" / "shared.pth"
    shared.write_text(sysconfig.get_path("purelib") + "\n")

    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SB3_EXTRA_BUFFERS"))}
    env |= {"PATH": str(venv / "bin"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(python), "-c", TRAINING], capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    word, n_mappings = done.stdout.split()
    assert word == "trained"
    assert int(n_mappings) > 0, "the library was not loaded"
