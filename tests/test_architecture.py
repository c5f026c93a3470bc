"""Imports point one way; read from the source, so that an import inside a function counts too."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import sb3_extra_buffers

ROOT = Path(sb3_extra_buffers.__file__).parent

#: From the bottom to the top. `spaces` needs gymnasium, so neither `codecs` nor `native` may import it.
LAYERS: list[set[str]] = [
    {"errors", "_lazy", "_text"},
    {"_optional"},
    {"_machine"},
    {"native"},
    {"codecs", "spaces"},
    {"store"},
    {"segments"},
    {"compressed", "contrib", "gpu_buffers", "prioritized", "recording", "vec_buf"},
    {"training_utils", "persistence", "merging", "converting", "random_state", "resuming", "callbacks", "compat", "datasets"},
    {"bench", "viewer"},
    {"cli", "distributed", "__main__"},
    {"__init__"},
]
#: Siblings that may be used within their layer.
ALLOWED = {
    ("contrib", "compressed"),
    ("gpu_buffers", "compressed"),
    ("prioritized", "compressed"),
    ("vec_buf", "compressed"),
    ("__main__", "cli"),
    ("merging", "persistence"),
    ("resuming", "persistence"),
    ("resuming", "random_state"),
    ("callbacks", "resuming"),
    ("resuming", "datasets"),
    ("datasets", "persistence"),
    ("datasets", "training_utils"),
}
#: Packages from outside that a part must not import. `store.device` keeps frames in torch memory, so it is the exception.
FORBIDDEN: dict[str, set[str]] = {
    "errors": {"numpy", "torch", "gymnasium", "stable_baselines3"},
    "_optional": {"numpy", "torch", "gymnasium", "stable_baselines3"},
    "native": {"torch", "gymnasium", "stable_baselines3", "sb3_contrib"},
    "codecs": {"torch", "gymnasium", "stable_baselines3", "sb3_contrib"},
    "spaces": {"torch", "stable_baselines3", "sb3_contrib"},
    "store": {"torch", "gymnasium", "stable_baselines3", "sb3_contrib"},
    "segments": {"torch", "stable_baselines3", "sb3_contrib"},
    "recording": {"torch", "gymnasium", "stable_baselines3", "sb3_contrib"},
    "viewer": {"torch", "stable_baselines3", "sb3_contrib"},
}
TORCH_ALLOWED = ("store/device",)
#: Optional packages: never imported at the top of a module, except where the whole module is about them.
OPTIONAL = {"numba", "isal", "zstandard", "lz4", "sb3_contrib", "ale_py", "vizdoom", "matplotlib", "ray", "rich", "uvicorn"}
ABOUT_OPTIONAL = ("contrib/", "prioritized/quantiles.py", "distributed/", "cli/", "codecs/rle_jit.py")
#: A process that imports numba grows by a hundred megabytes. Only the codec that is named after it may.
ABOUT_NUMBA = "codecs/rle_jit.py"

MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def layer_of(part: str) -> int:
    found = [i for i, layer in enumerate(LAYERS) if part in layer]
    assert found, f"{part} has no place among the layers of this test yet"
    return found[0]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Dotted modules that a file imports, and whether it does so when it is itself imported."""
    tree = tree_of(path)
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, at_top: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, at_top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                package = ("sb3_extra_buffers", *path.parent.parts)[: 1 - child.level or None] if child.level else ()
                module = ".".join((*package, *filter(None, [child.module])))
                names = [f"{module}.{alias.name}" for alias in child.names] if module == "sb3_extra_buffers" else [module]
                found.extend((name, at_top) for name in names)
            is_deferred = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Try)) or (
                isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "COMPILED")
            )
            visit(child, at_top and not is_deferred)

    visit(tree, True)
    return found


def test_imports_point_down() -> None:
    assert [f"{path} imports {module}" for path in MODULES for module in imports_upwards(path)] == []


def imports_upwards(path: Path) -> list[str]:
    """What a file imports of this package without being allowed to."""
    part, found = part_of(path), []
    for module, _ in imports(path):
        top, _, rest = module.partition(".")
        target = rest.partition(".")[0]
        if top != "sb3_extra_buffers" or target in ("", "__version__", part):
            continue
        if layer_of(target) >= layer_of(part) and (part, target) not in ALLOWED:
            found.append(module)
    return found


def test_parts_stay_free_of_what_they_do_not_need() -> None:
    assert [f"{path} imports {module}" for path in MODULES for module in forbidden_imports(path)] == []


def forbidden_imports(path: Path) -> list[str]:
    forbidden = set(FORBIDDEN.get(part_of(path), ()))
    if str(path).startswith(TORCH_ALLOWED):
        forbidden.discard("torch")
    only_top = part_of(path) == "recording"  # its exports to other formats are made by those formats' packages
    return [module for module, at_top in imports(path) if module.partition(".")[0] in forbidden and (at_top or not only_top)]


def test_optional_packages_are_imported_when_used() -> None:
    assert [
        f"{path} imports {module} at the top"
        for path in MODULES
        for module, at_top in imports(path)
        if at_top and not str(path).startswith(ABOUT_OPTIONAL) and module.partition(".")[0] in OPTIONAL
    ] == []


def test_numba_is_imported_by_one_codec_alone() -> None:
    assert [
        f"{path} imports {module}"
        for path in MODULES
        if path.as_posix() != ABOUT_NUMBA
        for module in [*(module for module, _ in imports(path)), *imports_by_name(tree_of(path))]
        if module.partition(".")[0] in ("numba", "llvmlite")
    ] == []


def imports_by_name(tree: ast.AST) -> list[str]:
    """Modules that are imported by a call: ``import_module("numba")``."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    names = [(ast.unparse(call.func).rpartition(".")[2], call.args[0]) for call in calls]
    return [
        str(name.value)
        for call, name in names
        if call in ("import_module", "__import__", "require") and isinstance(name, ast.Constant)
    ]


def test_no_module_prints_asserts_or_caches_methods() -> None:
    assert [
        f"{path}, {fault}"
        for path in MODULES
        for fault in faults_of(tree_of(path), may_print=part_of(path) in ("cli", "__main__"))
    ] == []


def faults_of(tree: ast.AST, *, may_print: bool = False) -> list[str]:
    """What a library must not do: print, check by an assert (gone under ``python -O``), keep instances alive in a cache."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "print" and not may_print:
            found.append(f"line {node.lineno} prints")
        if isinstance(node, ast.Assert):
            found.append(f"line {node.lineno} asserts: raise an error, or use typing.cast")
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    used = [ast.unparse(decorator).rpartition(".")[2] for decorator in method.decorator_list]
                    if any(name.startswith(("cache(", "lru_cache")) or name.endswith("cache") for name in used):
                        found.append(f"line {method.lineno} keeps its instance alive")
    return found


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("print(1)", "line 1 prints"),
        ("def f(x):\n    assert x > 0, x", "line 2 asserts"),
        ("class A:\n    @functools.lru_cache(8)\n    def f(self): ...", "keeps its instance alive"),
        ("class A:\n    @cache\n    def f(self): ...", "keeps its instance alive"),
    ],
)
def test_the_test_sees_faults(code: str, fault: str) -> None:
    [found] = faults_of(ast.parse(code))
    assert fault in found


def test_every_module_tells_its_place() -> None:
    assert [str(path) for path in MODULES if not ast.get_docstring(tree_of(path))] == []


def test_the_test_sees_imports() -> None:
    assert ("sb3_extra_buffers.codecs.base", True) in imports(Path("codecs/plain.py"))
    assert ("zstandard", False) in imports(Path("codecs/zstd.py"))
    assert imports_by_name(ast.parse("x = importlib.import_module('numba.core'); installed('lz4')")) == ["numba.core"]
    assert layer_of("native") < layer_of("codecs") < layer_of("store") < layer_of("compressed")
