"""Prefect's own settings: its API's address, read without importing it, and an import past the files of the folder.

    python -P -m fepflow.prefect_settings MODULE ARGUMENTS    runs a module that imports Prefect

Prefect takes its settings once, at import: the environment, then `.env`, prefect.toml and pyproject.toml of the working
directory, then the active profile. `PREFECT_API_URL` is set before, where the local server is used. The files may have
come with a cloned repository, and could name an API that gets our runs and keys (`PREFECT_API_URL`), or a file of
loggers, which runs code (`PREFECT_LOGGING_CONFIG_PATH`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fepflow.documents.files import open_regular
from fepflow.text import printable, shortened

API_URL = "PREFECT_API_URL"
PROFILES_PATH = "PREFECT_PROFILES_PATH"


@dataclass(frozen=True)
class ConfiguredApi:
    """An API, and what names it: a variable, a file, or a profile."""

    url: str
    location: str


def configured_api() -> ConfiguredApi | None:
    """Return the API that Prefect's settings name, or None.

    In Prefect's order: the environment, then the active profile. Prefect itself also reads `.env`, prefect.toml and
    pyproject.toml of the working directory, which may have come with a cloned repository: `ignored_files` names them.
    """
    return next((ConfiguredApi(url, location) for location, url in _named(API_URL)), None)


def configured_value(name: str) -> str | None:
    """Return a setting of Prefect by its variable, in the same order, or None."""
    return next((value for _, value in _named(name)), None)


def _named(name: str) -> Iterator[tuple[str, str]]:
    if value := os.environ.get(name):
        yield name, value
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    profiles = _toml(Path(os.environ.get(PROFILES_PATH) or home / "profiles.toml"))
    active = os.environ.get("PREFECT_PROFILE") or str(profiles.get("active"))
    if value := _table(profiles, "profiles", active).get(name):
        yield "the active Prefect profile", str(value)


def ignored_files() -> Iterator[str]:
    """Yield a sentence for each file of the working directory with settings that fepflow keeps Prefect from reading.

    Those of a `.env` are named among its other variables.
    """
    pyproject = _table(_toml(Path("pyproject.toml")), "tool", "prefect")
    for name, table in (("prefect.toml", _toml(Path("prefect.toml"))), ("pyproject.toml", pyproject)):
        if table:
            listed = shortened(", ".join(printable(key) for key in table))
            advice = f"export them, such as {API_URL}, or put them into a profile of Prefect"
            yield f"{name}: settings of Prefect ({listed}) are not taken from the working directory: {advice}"


def _toml(path: Path) -> Mapping[str, Any]:
    """Return the content of a file; nothing if it cannot be read, of which Prefect itself complains."""
    try:
        with open_regular(path) as file:
            return tomllib.load(file)
    except (OSError, ValueError):
        return {}


def _table(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        inner = document.get(key)
        document = inner if isinstance(inner, dict) else {}
    return document


_PATHS = ("PREFECT_HOME", "PREFECT_PROFILES_PATH")
"""Variables that name files which Prefect reads at import. `$PREFECT_HOME/…` and `~/…` do not depend on the folder."""


def import_prefect() -> None:
    """Import Prefect in the root folder, which holds none of these files, unless the process has done so itself.

    Threads of the host process see that folder as theirs for a second, once: Prefect has no other way.
    """
    if "prefect" in sys.modules:
        return
    for name in _PATHS:
        if (path := os.environ.get(name)) and path[0] not in "$~":
            os.environ[name] = os.path.abspath(path)
    with contextlib.chdir(os.path.abspath(os.sep)):
        importlib.import_module("prefect")


if __name__ == "__main__":
    import_prefect()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
