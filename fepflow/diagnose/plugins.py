"""The suite's plugins: Python files whose checks and embedders are registered when they are loaded."""

from __future__ import annotations

from pathlib import Path

from fepflow.checks.extension.plugins import load_plugin
from fepflow.diagnose.suite_validation import file_of
from fepflow.errors import InputError, Problem
from fepflow.suite.reader import LoadedSuite


def load_plugins(loaded: LoadedSuite, problems: list[Problem]) -> None:
    """Run the suite's plugins, so that their checks are registered; errors are added to `problems`."""
    for index, name in enumerate(loaded.section("plugins") or ()):
        plugin = file_of(loaded, name, ("plugins", index), problems)
        if plugin is None:
            continue
        try:
            load_plugin(plugin, str(Path(loaded.document.file).parent / name))
        except InputError as error:
            problems += error.problems
