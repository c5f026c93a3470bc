"""What the documentation shows, works: Python blocks run, commands parse, make targets exist.

The blocks of a page run one after the other in one namespace, as a reader would paste them; in a folder of their own, and with
trainings cut short.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from stable_baselines3.common.base_class import BaseAlgorithm

import sb3_extra_buffers
from sb3_extra_buffers.cli import build_parser

from .ray_actors import uses_ray

ROOT = Path(__file__).parent.parent
PACKAGE = Path(sb3_extra_buffers.__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("benchmarks/*.md")])
#: Steps of a training in a snippet: DQN learns from its 100th on, PPO after a rollout of 128.
MOST_STEPS = 128

FENCE = re.compile(r"^([ \t]*)```(\w+)[^\n]*\n(.*?)^\1```[ \t]*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A code block, and the line of the file that its first line is."""

    language: str
    line: int
    code: str


def blocks(text: str, first_line: int = 1) -> list[Block]:
    return [
        Block(match[2], first_line + text.count("\n", 0, match.start(3)), textwrap.dedent(match[3]))
        for match in FENCE.finditer(text)
    ]


def docstring_blocks(path: Path) -> Iterator[list[Block]]:
    """The Python blocks of each docstring of a file that has some."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        docstring = ast.get_docstring(node, clean=False)
        if docstring and (found := [block for block in blocks(docstring, node.body[0].lineno) if block.language == "python"]):
            yield found


def snippets() -> dict[str, tuple[Path, list[Block]]]:
    """All that has to run, by a name for the test."""
    found = {
        str(path.relative_to(ROOT)): (path, [block for block in blocks(path.read_text()) if block.language == "python"])
        for path in PAGES
    }
    for path in sorted(PACKAGE.rglob("*.py")):
        for one in docstring_blocks(path):
            found[f"{path.relative_to(PACKAGE)}:{one[0].line}"] = (path, one)
    return {name: snippet for name, snippet in found.items() if snippet[1]}


SNIPPETS = snippets()
COMMANDS = sorted(
    {
        line.strip()
        for path in PAGES
        for block in blocks(path.read_text())
        if block.language in ("bash", "console", "shell", "sh")
        for line in block.code.splitlines()
        if line.strip() and not line.startswith("#")
    }
)


@pytest.fixture
def short_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every SB3 algorithm asks `_setup_learn` how many steps to do."""
    original = BaseAlgorithm._setup_learn

    def setup_learn(self: BaseAlgorithm, total_timesteps: int, *args: Any, **kwargs: Any) -> Any:
        return original(self, min(total_timesteps, MOST_STEPS), *args, **kwargs)

    monkeypatch.setattr(BaseAlgorithm, "_setup_learn", setup_learn)


@pytest.mark.usefixtures("short_trainings")
@pytest.mark.parametrize("name", SNIPPETS)
def test_python_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if uses_ray(name):
        request.getfixturevalue("reused_actors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    path, found = SNIPPETS[name]
    namespace: dict[str, Any] = {"__name__": "__snippet__"}
    for block in found:
        if "minari" in block.code and sys.version_info < (3, 11):
            continue  # Minari needs Python 3.11
        # Empty lines before it, so that a traceback names the line of the page.
        exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("command", COMMANDS)
def test_shown_commands_exist(command: str) -> None:
    words = shlex.split(command.removeprefix("$ "), comments=True)
    if words[:3] == ["python", "-m", "sb3_extra_buffers"]:
        words[:3] = ["sb3-extra-buffers"]
    if words[0] == "sb3-extra-buffers":
        build_parser().parse_args(words[1:])
    elif words[0] == "make":
        makefile = (ROOT / "Makefile").read_text()
        targets = re.findall(r"^([\w-]+):", makefile, re.MULTILINE)
        variables = re.findall(r"^(\w+) \?=", makefile, re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets), targets
        assert {word.partition("=")[0] for word in words[1:] if "=" in word} <= set(variables), variables
    else:
        assert words[0].rpartition("/")[2] in ("pip", "pytest", "python", "git", "cd", "ray"), (
            f"{command} is not checked by this test"
        )


def test_snippets_that_start_ray_are_known() -> None:
    found = {name for name, (_, made) in SNIPPETS.items() if any("distributed" in one.code for one in made)}
    assert found == {name for name in SNIPPETS if uses_ray(name)}


def test_blocks_are_found() -> None:
    assert blocks("a\n```python\nx = 1\n```\n  ```bash\n  ls\n  ```\n") == [
        Block("python", 3, "x = 1\n"),
        Block("bash", 6, "ls\n"),
    ]
    assert len(SNIPPETS["docs/quickstart.md"][1]) >= 3


def test_docstrings_with_code_are_among_the_snippets() -> None:
    assert len([name for name in SNIPPETS if ".py:" in name]) >= 3
    for path in PACKAGE.rglob("*.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        unfenced = FENCE.sub("", docstring)
        assert not re.search(r"^\s*(import|from) [\w.]+", unfenced, re.MULTILINE), f"{path} shows code that does not run"


def test_prose_is_not_shown_as_python_that_never_runs() -> None:
    """A fence without a language, or with a misspelt one, would be passed over in silence."""
    known = {"python", "bash", "text", "json", "toml", "yaml", "console"}
    for path in PAGES:
        fences = re.findall(r"^[ \t]*```(.*)$", path.read_text(), re.MULTILINE)
        unknown = [opening for opening in fences[::2] if opening not in known and not opening.startswith("{")]
        assert not unknown, f"{path.name}: {unknown}"
