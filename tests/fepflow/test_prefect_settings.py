"""Where Prefect's API is: what is read without Prefect is what Prefect itself would take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings.models.root import Settings

from fepflow.prefect_settings import configured_api

URL = "http://127.0.0.1:{}/api"
PROFILE = f'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "{URL.format(5)}"\n'

SOURCES = {
    "PREFECT_API_URL": URL.format(1),
    "PREFECT_API_URL in .env": URL.format(2),
    "prefect.toml": URL.format(3),
    "pyproject.toml": URL.format(4),
    "the active Prefect profile": URL.format(5),
}
"""In Prefect's order: an address for each."""


def write(location: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the API in one of the sources."""
    url = SOURCES[location]
    if location == "PREFECT_API_URL":
        monkeypatch.setenv(location, url)
    elif location.endswith(".env"):
        (folder / ".env").write_text(f"PREFECT_API_URL={url}\n")
    elif location == "prefect.toml":
        (folder / location).write_text(f'[api]\nurl = "{url}"\n')
    elif location == "pyproject.toml":
        (folder / location).write_text(f'[tool.prefect.api]\nurl = "{url}"\n')
    else:
        (folder / "home" / ".prefect").mkdir(parents=True)
        (folder / "home" / ".prefect" / "profiles.toml").write_text(PROFILE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with an empty home in it."""
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_prefect() -> str | None:
    """The API that Prefect itself takes: it reads all its sources anew, but has looked up the user's home folder."""
    return Settings().api.url


def of_prefect_in_a_process_of_its_own() -> str:
    code = "from prefect.settings import get_current_settings; print(get_current_settings().api.url)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nothing_names_one(folder: Path) -> None:
    assert configured_api() is None


@pytest.mark.parametrize("first", range(len(SOURCES)))
def test_the_first_of_the_sources_is_taken_as_prefect_takes_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    for location in list(SOURCES)[first:]:
        write(location, folder, monkeypatch)
    found = configured_api()
    assert found is not None
    assert (found.location, found.url) == list(SOURCES.items())[first]
    assert found.url == (of_prefect_in_a_process_of_its_own() if "Prefect profile" in found.location else of_prefect())


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".env", "PREFECT_PROFILES_PATH=mine.toml\n"),
        ("prefect.toml", 'profiles_path = "mine.toml"\n'),
        ("pyproject.toml", '[tool.prefect]\nprofiles_path = "mine.toml"\n'),
    ],
)
def test_the_file_of_profiles_is_where_prefect_looks_for_it(folder: Path, file: str, text: str) -> None:
    (folder / file).write_text(text)
    (folder / "mine.toml").write_text(PROFILE)
    found = configured_api()
    assert found is not None
    assert found.url == of_prefect() == URL.format(5)


@pytest.mark.parametrize("text", ["", "[api", "api = 1\n", "[api]\nurl = ''\n"])
def test_a_file_that_names_none_is_passed_over(folder: Path, text: str) -> None:
    (folder / "prefect.toml").write_text(text)
    assert configured_api() is None
