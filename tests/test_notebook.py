"""The notebook runs from top to bottom."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

#: As it is committed it was run in full by scripts/run_notebook.py. Here it learns ten times instead of a hundred.
SHORTER = {"STEPS = 1_000": "STEPS = 400", "learning_starts=600": "learning_starts=360"}
NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook.ipynb"


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cells after a run in a kernel of its own."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for long, short in SHORTER.items():
        [cell] = [cell for cell in notebook.cells if long in cell.source]
        cell.source = cell.source.replace(long, short)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Jupyter's own, about event loops and paths
        nbclient.NotebookClient(
            notebook, timeout=110, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    return list(notebook.cells)


@pytest.mark.long
def test_the_notebook_trains_shows_memory_and_frames(cells: list[Any]) -> None:
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert "identical weights" in text
    assert "4 frames of 7,056 bytes" in text
    assert "Look at http://127.0.0.1:" in text
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
