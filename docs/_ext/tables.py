"""Tables that fit: on a narrow screen long names break where a reader would, and rows of wide tables become blocks.

Every cell gets the title of its column as `data-label`, which `extra.css` shows in front of it where a row is a block.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

#: From so many columns on, rows become blocks on a narrow screen.
WIDE = 5
#: Code of so many letters may break at spaces.
LONG = 34

TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
CELL = re.compile(r"<td\b(.*?)>(.*?)</td>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")
NAME = re.compile(r"(?<=[>\s])[\w.=(),*]{12,}(?=[<\s])")
SEAM = re.compile(r"(?<=_)(?=\w)|(?<=[a-z])(?=[A-Z])|(?<=[.=(,])(?=\w)")
CODE = re.compile(r'<code class="docutils(?=[^>]*>(.*?)</code>)', re.DOTALL)
#: A number and its unit stay on one line.
UNIT = re.compile(r"(?<=\d) (?=(?:us|ms|MB|kB|B|s|%)\b|%)")


def fitting(table: str) -> str:
    """A table with breaks in long names, units at their numbers, and labels for narrow screens."""
    heads = [TAG.sub("", head).strip() for head in HEAD.findall(table)]
    table = NAME.sub(lambda name: SEAM.sub("<wbr>", name[0]), table)
    table = CODE.sub(_code, table)
    table = ROW.sub(lambda row: _row(row[0], heads), table)
    if len(heads) >= WIDE:
        table = re.sub(r'(<table class="[^"]*)', r"\1 stacks", table, count=1)
    return table


def _code(found: re.Match[str]) -> str:
    is_long = len(TAG.sub("", found[1])) > LONG
    return found[0] + (" long" if is_long else "")


def _row(row: str, heads: list[str]) -> str:
    titles = iter(heads)

    def cell(found: re.Match[str]) -> str:
        text = UNIT.sub("\u00a0", found[2])
        label = f'data-label="{next(titles, "")}"'
        if not TAG.sub("", text).strip():
            label += " data-empty"
        return f"<td {label}{found[1]}>{text}</td>"

    return CELL.sub(cell, row)


def fit_all(
    app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any
) -> None:
    """Change the tables of a page. What is copied from it stays the same."""
    if "body" in context:
        context["body"] = TABLE.sub(
            lambda table: fitting(table[0]), context["body"]
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", fit_all)
    return {"version": "1", "parallel_read_safe": True}
