"""The page about conformance: each line names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")


def named() -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)(?:::([\w.]+))?`", PAGE)


def test_each_test_that_is_named_exists() -> None:
    assert len(named()) > 40
    for path, name in named():
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert not name or name in functions, f"{path}::{name}"


def test_each_line_of_a_requirement_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| FEP"))]
    assert len(rows) > 20
    for row in rows:
        assert "`tests/" in row, row
