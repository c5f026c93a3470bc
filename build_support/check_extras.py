"""Install the wheel with no extra, with each extra alone and with all, and use it: python check_extras.py [NAME...]

A NAME is an extra, `none` or `all`; without any, all of them are checked.

Builds the wheel first. Takes about a quarter of an hour, and 6 GB on disk meanwhile. Each extra gets an environment of its
own, which also sees a common one with the wheel and what it always needs. `use_extras.py` says what must work there.
$TORCH_FLAGS are options of pip for torch, e.g. "--index-url https://download.pytorch.org/whl/cpu".
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

from compile import fail

ROOT = Path(__file__).resolve().parent.parent
#: Extras for work on the library itself.
FOR_DEVELOPERS = {"docs", "test", "dev"}


def run(*command: object, folder: Path) -> None:
    """Run a command that leaves its files in a folder; end with a sentence if it fails."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"TMPDIR": str(folder), "MINARI_DATASETS_PATH": str(folder / "minari"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in command], cwd=folder, env=env, check=False)
    if done.returncode:
        fail(f"Failed: {shlex.join(str(word) for word in command)}")


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, folder=folder)
    return next(folder.glob("*.whl"))


def extras_of(wheel: Path) -> list[str]:
    """The extras that users install."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        found = Parser().parsestr(archive.read(metadata).decode()).get_all("Provides-Extra", [])
    return [name for name in found if name not in FOR_DEVELOPERS]


def make_environment(folder: Path, sees: Path | None = None) -> Path:
    """A fresh environment, which may see the packages of another one. Returns its Python."""
    venv.create(folder, with_pip=True)
    if sees is not None:
        packages = next(folder.glob("**/site-packages"))
        packages.joinpath("common.pth").write_text(f"{next(sees.glob('**/site-packages'))}\n")
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def check(wheel: Path, extras: Sequence[str], common: Path) -> None:
    """Install the wheel with these extras, and use it."""
    print(f"extras: {', '.join(extras) or 'none'}", flush=True)
    folder = common.with_name("one")
    python = make_environment(folder, sees=common)
    requirement = f"{wheel}[{','.join(extras)}]" if extras else wheel
    pip = [python, "-m", "pip"]
    run(*pip, "install", "-q", "-c", ROOT / "constraints.txt", requirement, folder=folder)
    run(*pip, "install", "-q", "--no-deps", "--force-reinstall", wheel, folder=folder)  # a copy here, not the common one
    run(*pip, "check", folder=folder)
    run(python, Path(__file__).with_name("use_extras.py"), *extras, folder=folder)
    shutil.rmtree(folder)


def main(wanted: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = build_wheel(folder)
        extras = extras_of(wheel)
        sets = {"none": [], **{name: [name] for name in extras}, "all": extras}
        if unknown := set(wanted) - set(sets):
            fail(f"No extras {sorted(unknown)}. There are {', '.join(sets)}.")
        common = folder / "common"
        pip = [make_environment(common), "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
        run(*pip, "torch", *shlex.split(os.environ.get("TORCH_FLAGS", "")), folder=folder)
        run(*pip, wheel, folder=folder)
        for name in wanted or sets:
            check(wheel, sets[name], common)
    print(f"The wheel works with these extras: {', '.join(wanted or sets)}")


if __name__ == "__main__":
    main(sys.argv[1:])
