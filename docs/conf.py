"""Sphinx: furo, MyST Markdown, and an API reference by autodoc. Built by `make docs`, where a warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from sb3_extra_buffers import __version__

project = "sb3-extra-buffers"
copyright = "the sb3-extra-buffers authors"
release = __version__

extensions = [
    "myst_nb",  # Markdown, and the notebook
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "benchmark_plots",
    "benchmark_results",
    "benchmark_summary",
    "examples_gallery",
    "tables",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["attrs_inline", "colon_fence"]
nb_execution_mode = (
    "off"  # the notebook shows the outputs that it was committed with
)
myst_heading_anchors = 3

default_role = "code"  # docstrings write `name`
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: name
    for name in (
        "ArrayLike",
        "Buffers",
        "DTypeLike",
        "PolicyPredictor",
        "VecEnvClass",
    )
}
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"

html_theme = "furo"
html_title = f"sb3-extra-buffers {__version__}"
html_static_path = ["_static"]
html_css_files = ["extra.css"]
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_prompt_text = "$ "
