"""The directive `examples-gallery`: every script in `examples` that can be run, with a picture, its purpose and its code.

Scripts are found by pattern. What one is for is its docstring. Its picture is that of the first game that it names;
`scripts/gallery_pictures.py` makes the pictures.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

EXAMPLES = Path(__file__).parents[2] / "examples"
PICTURES = Path(__file__).parents[1] / "pictures"
OPTION = re.compile(r"--[a-z][\w-]*( \d+)?")
#: A word in the source -> its picture, and what that shows.
SHOWN = {
    "vizdoom": ("doom.png", "Doom: RGB and segmentation masks"),
    "mspacman": ("mspacman.png", "four stacked frames of MsPacman"),
    "pong": ("pong.png", "four stacked frames of Pong"),
}


def scripts(pattern: str) -> list[Path]:
    """The examples that are run, not imported."""
    found = EXAMPLES.glob(pattern)
    return sorted(path for path in found if "__main__" in path.read_text())


class ExamplesGallery(SphinxDirective):
    """Used in a Markdown page, with patterns of file names."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        patterns = self.arguments[0].split()
        paths = [path for pattern in patterns for path in scripts(pattern)]
        if not paths:
            raise self.error(f"No example is named like {patterns}")
        lines = [line for path in paths for line in self.card(path)]
        node = nodes.container(classes=["gallery"])
        self.state.nested_parse(
            StringList(lines, self.env.docname), self.content_offset, node
        )
        return [node]

    def card(self, path: Path) -> list[str]:
        """One example as Markdown."""
        self.env.note_dependency(str(path))
        source = path.read_text()
        docstring = ast.get_docstring(ast.parse(source)) or ""
        docstring = OPTION.sub(r"`\g<0>`", docstring)
        lines = [f"::::{{container}} example\n**`{path.name}`**\n"]
        lowered = source.lower()
        words = [word for word in SHOWN if word in lowered]
        if words:
            picture, shows = SHOWN[min(words, key=lowered.index)]
            lines += [f"![{shows}](pictures/{picture})\n"]
        relative = Path(os.path.relpath(path, self.env.srcdir)).as_posix()
        lines += [
            f"{docstring}\n",
            "<details><summary>Code</summary>\n",
            f"```{{literalinclude}} {relative}\n:language: python\n```\n",
            "</details>\n",
            "::::\n",
        ]
        return "\n".join(lines).splitlines()


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("examples-gallery", ExamplesGallery)
    return {"version": "1", "parallel_read_safe": True}
