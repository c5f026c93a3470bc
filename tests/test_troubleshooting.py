"""The page `troubleshooting` has every error and warning of the library, and quotes messages that the library really has."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import sb3_extra_buffers
from sb3_extra_buffers import errors

ROOT = Path(sb3_extra_buffers.__file__).parent
PAGE = (Path(__file__).parent.parent / "docs" / "troubleshooting.md").read_text()
#: Stands for what differs from message to message, on the page and here.
GAP = "…"
TREES = {path.relative_to(ROOT): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
#: Errors whose messages differ in what to do. Those about damaged files all have one cure, and the others name theirs.
WITH_CURES = (
    "CodecError", "ObservationError", "HeapFullError", "ValueError", "TypeError", "RuntimeError", "IndexError", "OSError",
    "FileNotFoundError", "FileExistsError", "IsADirectoryError", "NotADirectoryError",
)  # fmt: skip
#: What users do not call: they see these errors inside of others, or not at all. The command line says what to do itself.
INTERNAL = ("bench", "cli", "viewer", "native", "store", "codecs/base.py", "compat/finder.py", "datasets/gzipped.py")
#: Quoted for the sake of their class.
CLASSES = {"MemoryError", "OSError", "RuntimeError", "IndexError"}

#: Code between backticks, or between two of them if there are backticks in it.
CODE = re.compile(r"``(.+?)``|`([^`]+)`")


def messages() -> str:
    """All strings of the package, a line for each; what an f-string fills in is a gap."""
    found = []
    for node in (node for tree in TREES.values() for node in ast.walk(tree)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else GAP for part in node.values]
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return "\n".join(found)


def quoted() -> list[str]:
    """The messages in the first column of the tables."""
    rows = re.findall(r"^\| (.*?) \| .* \|$", PAGE, re.MULTILINE)
    texts = [double or single for row in rows for double, single in CODE.findall(row)]
    return [text for text in texts if text not in CLASSES]


def missing(quotes: list[str], known: str) -> list[str]:
    """Quotes with a piece that no message has."""
    pieces = {quote: [piece.strip(" .,:;") for piece in quote.split(GAP)] for quote in quotes}
    return [quote for quote, some in pieces.items() if not all(piece in known for piece in some)]


def test_every_error_and_warning_class_has_a_section() -> None:
    classes = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, (Exception, Warning))]
    assert len(classes) >= 10
    for one in classes:
        if one is not errors.SB3ExtraBuffersError:
            assert f"\n## {one.__name__}\n" in PAGE, f"docs/troubleshooting.md has no section {one.__name__}"


def test_every_warning_is_on_the_page() -> None:
    for path, tree in TREES.items():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "warnings.warn":
                texts = [str(node.value) for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)]
                category = ast.unparse(call.args[1]) if len(call.args) > 1 else "UserWarning"
                is_there = f"\n## {category}\n" in PAGE or any(max(texts, key=len)[:20] in quote for quote in quoted())
                assert is_there, f"{path}:{call.lineno} warns of what docs/troubleshooting.md does not have"


def test_quoted_messages_are_those_of_the_library() -> None:
    quotes = quoted()
    assert len(quotes) > 80
    assert missing(quotes, messages()) == []


def test_a_message_that_has_changed_is_noticed() -> None:
    assert missing(["No codec named …", "No codec was called …"], messages()) == ["No codec was called …"]


def test_every_error_with_a_cure_of_its_own_is_on_the_page() -> None:
    pieces = [max(quote.split(GAP), key=len).strip(" .,:;") for quote in quoted()]
    missed = []
    for path, tree in TREES.items():
        for node in ast.walk(tree) if not path.as_posix().startswith(INTERNAL) else ():
            call = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(call, ast.Call) and ast.unparse(call.func) in WITH_CURES:
                text = GAP.join(str(part.value) for part in ast.walk(call) if isinstance(part, ast.Constant))
                if len(text) > 8 and not any(piece in text for piece in pieces):
                    missed.append(f"{path}:{node.lineno}: {text[:100]}")
    assert missed == [], "docs/troubleshooting.md has no row for these messages"
