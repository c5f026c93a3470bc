"""Long names in tables may break where a reader would: after an underscore, before a capital. For narrow screens."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
NAME = re.compile(r'(?<=<span class="pre">)[^<]{12,}(?=</span>)')
SEAM = re.compile(r"(?<=_)(?=\w)|(?<=[a-z])(?=[A-Z])|(?<=[.=(,])(?=\w)")


def add_breaks(
    app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any
) -> None:
    """Put `<wbr>` into the names; it is not copied with the text."""
    if "body" in context:
        context["body"] = TABLE.sub(
            lambda table: NAME.sub(
                lambda name: SEAM.sub("<wbr>", name[0]), table[0]
            ),
            context["body"],
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_breaks)
    return {"version": "1", "parallel_read_safe": True}
