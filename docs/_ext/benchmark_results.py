"""The directive `benchmark-results`: the committed results as tables and plots, so that no figure is typed by hand.

Tables are what `sb3-extra-buffers bench --render FILE` prints, plots are the pictures beside the results. Without results, a
note says so. The setting `benchmark_results` names their folder, relative to the pages; an argument names one file instead.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from sb3_extra_buffers.cli import main

NONE_YET = [
    ":::{note}",
    "No results are committed to `benchmarks/results` yet. The commands below make them.",
    ":::",
]


class BenchmarkResults(SphinxDirective):
    """Used in a Markdown page; takes one file, or none for all of the folder."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        where = self.arguments or [self.config.benchmark_results]
        path = Path(self.env.srcdir, where[0])
        files = [path] if path.is_file() else sorted(path.glob("*.json"))
        plots = sorted(path.glob("*.png"))
        for path in (*files, *plots):
            self.env.note_dependency(str(path))
        lines = [line for path in files for line in (*rendered(path), "")]
        for path in plots:
            relative = Path(os.path.relpath(path, self.env.srcdir)).as_posix()
            lines += [f"![{path.stem.replace('_', ' ')}]({relative})", ""]
        node = nodes.container(classes=["benchmark-results"])
        self.state.nested_parse(
            StringList(lines or NONE_YET, self.env.docname),
            self.content_offset,
            node,
        )
        return [node]


def rendered(path: Path) -> list[str]:
    """A results file as Markdown."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        status = main(["bench", "--render", str(path)])
    if status:
        raise ValueError(
            f"bench --render {path} failed with exit code {status}"
        )
    return text.getvalue().splitlines()


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value(
        "benchmark_results", "../benchmarks/results", "env", (str,)
    )
    app.add_directive("benchmark-results", BenchmarkResults)
    return {"version": "1", "parallel_read_safe": True}
