"""Imports point one way; read from the source, so that an import inside a function counts too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sb3_extra_buffers

ROOT = Path(sb3_extra_buffers.__file__).parent

#: cli, distributed -> training_utils, persistence -> gpu_buffers, vec_buf, compressed -> store -> codecs, spaces -> errors
LAYERS: list[set[str]] = [
    {"errors", "_lazy"},
    {"_optional"},
    {"codecs", "spaces"},
    {"store"},
    {"compressed", "contrib", "gpu_buffers", "recording", "vec_buf"},
    {"training_utils", "persistence", "callbacks", "compat"},
    {"bench"},
    {"cli", "distributed", "__main__"},
    {"__init__"},
]
#: Siblings that may be used within their layer.
ALLOWED = {("contrib", "compressed"), ("gpu_buffers", "compressed"), ("vec_buf", "compressed"), ("__main__", "cli")}
#: Packages from outside that a part must not import. `store.device` is torch memory, the exception that DESIGN.md names.
FORBIDDEN: dict[str, set[str]] = {
    "errors": {"numpy", "torch", "gymnasium", "stable_baselines3"},
    "_optional": {"numpy", "torch", "gymnasium", "stable_baselines3"},
    "codecs": {"torch", "gymnasium", "stable_baselines3", "sb3_contrib"},
    "spaces": {"torch", "stable_baselines3", "sb3_contrib"},
    "store": {"torch", "gymnasium", "stable_baselines3", "sb3_contrib"},
    "recording": {"torch", "gymnasium", "stable_baselines3", "sb3_contrib"},
}
TORCH_ALLOWED = ("store/device",)
#: Optional packages: never imported at the top of a module, except where the whole module is about them.
OPTIONAL = {"numba", "isal", "zstandard", "lz4", "sb3_contrib", "ale_py", "vizdoom", "matplotlib", "ray", "rich"}
ABOUT_OPTIONAL = ("contrib/", "distributed/", "cli/", "codecs/memory_access.py")

MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def layer_of(part: str) -> int:
    found = [i for i, layer in enumerate(LAYERS) if part in layer]
    assert found, f"{part} has no place among the layers of this test yet"
    return found[0]


def imports(path: Path) -> list[tuple[str, bool]]:
    """Dotted modules that a file imports, and whether it does so when it is itself imported."""
    tree = ast.parse((ROOT / path).read_text())
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


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    for module, _ in imports(path):
        top, _, rest = module.partition(".")
        if top != "sb3_extra_buffers":
            continue
        target = rest.partition(".")[0]
        if target in ("", "__version__", part):
            continue
        assert layer_of(target) < layer_of(part) or (part, target) in ALLOWED, f"{path} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_parts_stay_free_of_what_they_do_not_need(path: Path) -> None:
    forbidden = set(FORBIDDEN.get(part_of(path), ()))
    if str(path).startswith(TORCH_ALLOWED):
        forbidden.discard("torch")
    for module, at_top in imports(path):
        if not at_top and part_of(path) == "recording":  # its exports to other formats are made by those formats' packages
            continue
        assert module.partition(".")[0] not in forbidden, f"{path} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_optional_packages_are_imported_when_used(path: Path) -> None:
    for module, at_top in imports(path):
        if at_top and not str(path).startswith(ABOUT_OPTIONAL):
            assert module.partition(".")[0] not in OPTIONAL, f"{path} imports {module} at the top"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_module_prints_asserts_on_input_or_caches_methods(path: Path) -> None:
    tree = ast.parse((ROOT / path).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "print":
            assert part_of(path) in ("cli", "__main__"), f"{path}:{node.lineno} prints"
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    used = [ast.unparse(decorator) for decorator in method.decorator_list]
                    assert not any(
                        name.rpartition(".")[2].startswith(("cache(", "lru_cache")) or name.endswith("cache") for name in used
                    ), f"{path}:{method.lineno} keeps its instance alive"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_every_module_tells_its_place(path: Path) -> None:
    assert ast.get_docstring(ast.parse((ROOT / path).read_text())), path


def test_the_test_sees_imports() -> None:
    assert ("sb3_extra_buffers.codecs.base", True) in imports(Path("codecs/plain.py"))
    assert ("zstandard", False) in imports(Path("codecs/zstd.py"))
    assert layer_of("codecs") < layer_of("store") < layer_of("compressed")
