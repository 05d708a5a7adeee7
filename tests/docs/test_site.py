"""The documentation's site: it builds without a warning, shows all of the code's surface, and loads nothing."""

from __future__ import annotations

import re
import runpy
import warnings
from html import unescape
from pathlib import Path

import pytest

import fepflow
from fepflow.checks.schemas import complete_suite_schema
from fepflow.cli.main import fepflow as command_line
from fepflow.settings import Settings

ROOT = Path(__file__).parents[2]
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    # In this process, which has loaded fepflow. Strict: links that lead nowhere, for example, are errors.
    with warnings.catch_warnings(action="ignore"), pytest.MonkeyPatch.context() as environment:
        environment.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def headings(page):
    """The headings of a page, as its readers see them."""
    found = re.findall(r"<h\d[^>]*>(.*?)<a class=\"headerlink\"", page.read_text(encoding="utf-8"), re.DOTALL)
    return {unescape(re.sub(r"<[^>]+>", "", text)) for text in found}


def test_each_page_of_the_documentation_is_in_the_site(site):
    for page in (ROOT / "docs").rglob("*.md"):
        name = "index.html" if page.name == "README.md" else f"{page.stem}.html"
        assert (site / page.parent.relative_to(ROOT / "docs") / name).exists(), page


def test_the_site_loads_nothing_from_elsewhere(site):
    loaded = r"<(?:script|img|iframe|source|link(?=[^>]*rel=\"?(?:stylesheet|icon|preload|preconnect)))[^>]*https?://"
    for page in site.rglob("*.html"):
        assert re.findall(loaded, page.read_text(encoding="utf-8")) == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?https?://", style.read_text(encoding="utf-8")) == [], style
    for picture in (ROOT / "docs" / "pictures").glob("*.svg"):
        assert "http" not in picture.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", ""), picture


def test_the_reference_has_what_the_code_has(site):
    commands = {f"fepflow {name}" for name, command in command_line.commands.items() if command.name == name}
    assert commands <= headings(site / "reference" / "commands.html")
    names = {name for name in fepflow.__all__ if not name.endswith("Check") or name == "Check"}
    assert names - {"BaseCheck", "BaseAsyncCheck", "JSONPath"} <= headings(site / "reference" / "python.html")
    suite = (site / "reference" / "suite.html").read_text(encoding="utf-8")
    assert [name for name in complete_suite_schema()["properties"] if f"<code>{name}</code>" not in suite] == []
    rest = headings(site / "reference" / "rest.html")
    assert {"POST /v1/evaluate", "GET /api/evaluations/{id}", "GET /v1/thresholds"} <= rest
    grpc = (site / "reference" / "grpc.html").read_text(encoding="utf-8")
    assert "RunEvaluation" in grpc
    assert "message TestCaseResult" in re.sub(r"<[^>]+>", "", grpc)


def test_the_page_of_settings_is_what_the_code_says():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert REFERENCE["with_settings"](page) == page, "stale: python docs/reference.py"
    assert all(f"| `FEPFLOW_{name.upper()}` |" in page for name in Settings.model_fields)


def test_lists_are_lists_for_python_markdown_too():
    page = "A text:\n- one\n\n  More of it.\n- two\n\n```console\n$ a\n  b\n- c\n```\n"
    file = type("File", (), {"src_uri": "page.md"})
    shown = REFERENCE["on_page_markdown"](page, type("Page", (), {"file": file}), None, None)
    assert shown == "A text:\n\n- one\n\n    More of it.\n- two\n\n```console\n$ a\n  b\n- c\n```\n"
