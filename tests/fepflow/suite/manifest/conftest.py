"""Manifests in a folder, read as suites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fepflow.suite.reader import LoadedSuite, load_suite

Read = Callable[..., LoadedSuite]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads the text of a manifest as the suite that it stands for; the environment is what is given."""

    def read(text: str, **env: str) -> LoadedSuite:
        path = tmp_path / "manifest.yaml"
        path.write_text(text, encoding="utf-8")
        return load_suite(path, env)

    return read


def told(loaded: LoadedSuite) -> list[str]:
    """What is wrong with it, each with its line in the manifest."""
    return [f"{problem.severity} {str(problem).removeprefix(f'{problem.file}:')}" for problem in loaded.problems]
