"""`measure` in a process that has not imported this library: `path/to/python path/to/standalone.py JOB`.

This package is loaded from its folder under a name of its own. So `sb3_extra_buffers` is first imported where the measured
buffer is made, and counted with it; and in the environment of a peer it may be another version, or missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def load_measure(name: str = "buffer_bench") -> object:
    """The module `measure` of this folder, as part of a package with another name."""
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]  # our modules are no top-level names
    spec = importlib.util.spec_from_file_location(name, HERE / "__init__.py", submodule_search_locations=[str(HERE)])
    if spec is None or spec.loader is None:
        raise ImportError(f"Cannot load {HERE}")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return importlib.import_module(f"{name}.measure")


if __name__ == "__main__":
    load_measure().main(sys.argv[1])  # type: ignore[attr-defined]
