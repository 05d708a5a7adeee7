"""The address of Prefect's API by Prefect's own settings, read without importing prefect.

Prefect takes its settings once, at import: `PREFECT_API_URL` is set before, where the local server is used.
"""

from __future__ import annotations

import os
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
