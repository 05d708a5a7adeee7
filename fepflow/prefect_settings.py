"""Where Prefect's API is by Prefect's own settings, read without importing prefect.

Prefect takes its settings once, at import: `PREFECT_API_URL` is set before, where the local server is used.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fepflow.env_file import ENV_FILE, read_env_file
from fepflow.security.regular_files import open_regular

API_URL = "PREFECT_API_URL"
PROFILES_PATH = "PREFECT_PROFILES_PATH"


@dataclass(frozen=True)
class ConfiguredApi:
    """An API, and what names it: a variable, a file, or a profile."""

    url: str
    location: str


def configured_api() -> ConfiguredApi | None:
    """The API that Prefect's settings name, or None.

    In Prefect's order: the environment, then `.env`, prefect.toml and pyproject.toml of the working directory, then the
    active profile.
    """
    return next((ConfiguredApi(str(url), location) for location, url in _named() if url), None)


def _named() -> Iterator[tuple[str, Any]]:
    yield API_URL, os.environ.get(API_URL)
    variables = read_env_file(Path(ENV_FILE))
    yield f"{API_URL} in {ENV_FILE}", variables.get(API_URL)
    files = [("prefect.toml", _toml(Path("prefect.toml")))]
    files.append(("pyproject.toml", _table(_toml(Path("pyproject.toml")), "tool", "prefect")))
    for name, settings in files:
        yield name, _table(settings, "api").get("url")
    named = [os.environ.get(PROFILES_PATH), variables.get(PROFILES_PATH)]
    named += [settings.get("profiles_path") for _, settings in files]
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    profiles = _toml(Path(next(filter(None, named), home / "profiles.toml")))
    active = os.environ.get("PREFECT_PROFILE") or str(profiles.get("active"))
    yield "the active Prefect profile", _table(profiles, "profiles", active).get(API_URL)


def _toml(path: Path) -> Mapping[str, Any]:
    """What a file holds; nothing where it cannot be read, of which Prefect itself complains."""
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
