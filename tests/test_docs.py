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

import sb3_extra_buffers
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
    pages = {"how_it_works": 2, "distributed": 1}
    for page, count in pages.items():
        assert html(page).count('<svg class="drawing"') == count, page
    assert len(list(DOCS.glob("drawings/*.svg"))) == sum(pages.values())
    for path in DOCS.glob("drawings/*.svg"):
        assert not re.search(r"(fill|stroke|style)=|<style", path.read_text()), f"{path.name} sets a colour of its own"


PACKAGES = ["compressed", "contrib", "datasets", "distributed", "gpu_buffers", "recording", "vec_buf"]


@pytest.mark.parametrize("package", PACKAGES)
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


def test_the_notebook_is_committed_with_the_outputs_of_one_run() -> None:
    """The site shows them without running it. `scripts/run_notebook.py` makes them."""
    text = (ROOT / "examples" / "notebook.ipynb").read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}  # no error among them
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    assert not re.search(r"/home/|/tmp/|/work/|\.venv", text)


def test_the_site_shows_the_notebook_with_its_pictures(html: Callable[[str], str]) -> None:
    page = html("notebook")
    assert page.count("<img") >= 4
    assert "identical weights" in page


def test_the_gallery_has_every_example(html: Callable[[str], str]) -> None:
    page = html("examples")
    scripts = [path for path in (ROOT / "examples").glob("*.py") if "__main__" in path.read_text()]
    assert len(scripts) > 10
    for path in scripts:
        assert f">{path.name}<" in page, path.name


def test_the_figures_in_the_readme_are_the_committed_results() -> None:
    rows = subprocess.run(
        [sys.executable, "-c", "import benchmark_summary; print(*benchmark_summary.summary_table(), sep='\\n')"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(DOCS / "_ext")},
    ).stdout.splitlines()  # fmt: skip
    readme = (ROOT / "README.md").read_text()
    assert len(rows) > 10
    assert [row for row in rows if row not in readme] == []
    check = json.loads((ROOT / "benchmarks" / "results" / "check.json").read_text())
    [million] = [bar["value"] for bar in check["bars"] if bar["label"] == "1,000,000 transitions: memory (RSS)"]
    assert f"Here it takes {million:.0f} MB" in readme


def test_the_plots_are_drawn_into_the_page(html: Callable[[str], str]) -> None:
    page = html("benchmarks")
    assert page.count('<svg class="plot"') == 3
    assert "Atari, gray, stack of 4" in page
    assert not re.search(r"#(0[1-6])\1\1", page), "a colour was not replaced by one of the theme"
    assert page.index("<strong>In short:</strong>") < page.index('<svg class="plot"')


def test_rows_of_wide_tables_carry_the_titles_of_their_columns(html: Callable[[str], str]) -> None:
    page = html("benchmark_tables")
    assert page.count("<table") == page.count(' stacks"') > 20
    assert 'data-label="sample(256)"' in page


def test_citation_and_issue_templates_are_up_to_date() -> None:
    assert f"\nversion: {sb3_extra_buffers.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    for name in ("bug", "performance", "feature"):
        assert "`sb3-extra-buffers info`" in (ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text()


def test_the_architecture_page_names_what_is_there() -> None:
    """Files of the tree, and `file.py` `Class.function` in the walks."""
    page = (DOCS / "architecture.md").read_text()
    package = ROOT / "src" / "sb3_extra_buffers"
    tree = re.search(r"```text\n(.*?)```", page, re.DOTALL)
    assert tree
    folder, named = "", set()
    for depth, name in re.findall(r"^([│ ]*)[├└]── (\S+)", tree[1], re.MULTILINE):
        folder = name if not depth else folder
        path = package / name if not depth else package / folder / name
        assert path.exists(), path
        named.add(name.rstrip("/"))
    parts = {path.name for path in package.iterdir() if not path.name.startswith("__") and path.suffix in ("", ".py")}
    assert parts - named == set(), "parts of the package that the tree does not show"
    walked = re.findall(r"`([\w/]+\.py)` `(?:(\w+)\.)?(\w+)`", page)
    assert len(walked) > 15
    for file, owner, function in walked:
        module = importlib.import_module(f"sb3_extra_buffers.{file.removesuffix('.py').replace('/', '.')}")
        assert hasattr(getattr(module, owner) if owner else module, function), f"{file}: {owner}.{function}"
