"""The documentation builds without a warning, and says what the package says."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from sb3_extra_buffers.codecs import CODECS
from sb3_extra_buffers.compressed.mixin import CompressedObservations

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def build(target: Path, source: Path = DOCS) -> subprocess.CompletedProcess[str]:
    # A process of its own: Sphinx changes docutils for good, and third parties' warnings are not ours.
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-d", f"{target}-doctrees", "-b", "html"]
    return subprocess.run(
        [*command, str(source), str(target)], capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}
    )


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The text of a built page."""
    target = tmp_path_factory.mktemp("docs") / "html"
    done = build(target)
    assert done.returncode == 0, done.stderr
    return lambda page: (target / f"{page}.html").read_text()


def test_every_page_is_built_and_linked(html: Callable[[str], str]) -> None:
    index = html("index")
    for page in DOCS.glob("*.md"):
        html(page.stem)
        assert page.stem == "index" or f'href="{page.stem}.html"' in index


def test_drawings_are_in_the_page_and_follow_its_theme(html: Callable[[str], str]) -> None:
    page = html("how_it_works")
    assert page.count('<svg class="drawing"') == len(list(DOCS.glob("drawings/*.svg"))) == 2
    for path in DOCS.glob("drawings/*.svg"):
        assert not re.search(r"(fill|stroke|style)=|<style", path.read_text()), f"{path.name} sets a colour of its own"


@pytest.mark.parametrize("package", ["compressed", "contrib", "gpu_buffers", "recording", "vec_buf"])
def test_every_public_class_and_function_is_in_the_reference(package: str, html: Callable[[str], str]) -> None:
    module = importlib.import_module(f"sb3_extra_buffers.{package}")
    page = html("api")
    for name in module.__all__:
        if callable(getattr(module, name)):
            assert re.search(rf'id="[\w.]*\.{name}"', page), f"{name} is not in docs/api.md"


def test_every_codec_and_keyword_is_explained() -> None:
    codecs, buffers = (DOCS / "choosing_a_codec.md").read_text(), (DOCS / "buffers.md").read_text()
    for name, entry in CODECS.items():
        row = re.search(rf"^\| `{name}` \|(.*?)\|", codecs, re.MULTILINE)
        assert row, f"{name} has no row"
        assert bool(row[1].strip()) == (entry.load().levels is not None), f"levels of {name}"
    keywords = re.findall(r":param (\w+):", CompressedObservations.__doc__ or "")
    assert len(keywords) == 8
    for keyword in keywords:
        assert f"\n| `{keyword}` |" in buffers, keyword


def test_results_become_tables_and_plots_and_none_a_note(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (tmp_path / "index.md").write_text("# Title\n\n```{benchmark-results}\n```\n")
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(DOCS / '_ext')!r})\n"
        "extensions, benchmark_results = ['myst_parser', 'benchmark_results'], 'results'\n"
        "myst_enable_extensions = ['colon_fence']\n"
    )

    def page(name: str) -> str:
        done = build(tmp_path / name, tmp_path)
        assert done.returncode == 0, done.stderr
        return (tmp_path / name / "index.html").read_text()

    note = "No results are committed"
    assert note in page("before")
    results.mkdir()
    result = {"buffer": "auto", "workload": "Pong", "transitions": 1000, "error": "a reason"}
    saved = {"command": "bench --game Pong", "machine": {"cores": 2}, "workloads": {"Pong": [result]}}
    (results / "bench.json").write_text(json.dumps(saved))
    Image.new("RGB", (8, 8)).save(results / "pong_memory.png")
    after = page("after")
    assert note not in after
    assert re.search(r"<td><p>auto</p></td>.*a reason", after, re.DOTALL)
    assert 'alt="pong memory"' in after
    (tmp_path / "index.md").write_text("# Title\n\n```{benchmark-results} one.json\n```\n")
    (tmp_path / "one.json").write_text(json.dumps(saved))
    one = page("one")
    assert "<td><p>auto</p></td>" in one
    assert 'alt="pong memory"' not in one


def test_long_names_in_tables_break_at_their_seams(html: Callable[[str], str]) -> None:
    page = html("buffers")
    assert "Compressed<wbr>Replay<wbr>Buffer" in page
    assert "optimize_<wbr>memory_<wbr>usage" in page
    assert not re.search(r"<pre>(?:(?!</pre>).)*<wbr>", page, re.DOTALL)  # code to copy stays as it is


def test_a_warning_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("extensions = ['myst_parser']\n")
    (tmp_path / "index.md").write_text("# Title\n\n[nowhere](missing.md)\n")
    done = build(tmp_path / "html", tmp_path)
    assert done.returncode != 0
    assert "missing.md" in done.stderr


def test_the_notebook_is_committed_without_outputs() -> None:
    notebook = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
