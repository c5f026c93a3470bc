"""Run the example notebook and keep its outputs, which the documentation shows: python scripts/run_notebook.py"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook.ipynb"


def main() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    metadata = dict(notebook.metadata)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False).execute()
    notebook.metadata = nbformat.from_dict(metadata)  # without the versions of this machine
    nbformat.write(notebook, NOTEBOOK)
    print(f"{NOTEBOOK}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells were run")


if __name__ == "__main__":
    main()
