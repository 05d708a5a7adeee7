"""The address of Prefect's API, read without Prefect as Prefect reads it, past files of the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fepflow.prefect_settings import configured_api, ignored_files

URL = "http://127.0.0.1:{}/api"
PROFILE = f'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "{URL.format(5)}"\n'
LOGGERS = """\
version: 1
disable_existing_loggers: false
formatters: {code: {"()": subprocess.getoutput, cmd: "touch ran"}}
"""

SOURCES = {
    ".env": "PREFECT_API_URL={url}\nPREFECT_PROFILES_PATH=mine.toml\nPREFECT_LOGGING_CONFIG_PATH=loggers.yml\n",
    "prefect.toml": 'profiles_path = "mine.toml"\n[api]\nurl = "{url}"\n[logging]\nconfig_path = "loggers.yml"\n',
    "pyproject.toml": '[tool.prefect.api]\nurl = "{url}"\n[tool.prefect.logging]\nconfig_path = "loggers.yml"\n',
}
"""Files of a working directory that Prefect reads, each with an API and with a file of loggers that runs code."""

TAKEN = "import prefect.main; from prefect.settings import get_current_settings as s; print(s().api.url)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with an empty home in it."""
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loggers.yml").write_text(LOGGERS)
    return tmp_path


def of_prefect(code: str = TAKEN) -> str:
    """The API that Prefect takes in a process of its own."""
    ours = f"from fepflow.prefect_settings import import_prefect; import_prefect(); {code}"
    done = subprocess.run([sys.executable, "-P", "-c", ours], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write_profile(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PROFILE)


def test_nothing_names_one(folder: Path) -> None:
    assert configured_api() is None


@pytest.mark.battery
def test_a_variable_comes_before_the_active_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(folder / "home" / ".prefect" / "profiles.toml")
    found = configured_api()
    assert found is not None
    assert (found.location, found.url) == ("the active Prefect profile", URL.format(5))
    assert of_prefect() == found.url
    monkeypatch.setenv("PREFECT_API_URL", URL.format(1))
    found = configured_api()
    assert found is not None
    assert (found.location, found.url) == ("PREFECT_API_URL", URL.format(1))
    assert of_prefect() == found.url


@pytest.mark.parametrize(
    ("variable", "value", "file"),
    [
        ("PREFECT_PROFILES_PATH", "mine.toml", "mine.toml"),
        pytest.param("PREFECT_HOME", "prefect", "prefect/profiles.toml", marks=pytest.mark.battery),
    ],
)
@pytest.mark.battery
def test_the_file_of_profiles_is_where_prefect_looks_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, file: str
) -> None:
    write_profile(folder / file)
    monkeypatch.setenv(variable, value)
    found = configured_api()
    assert found is not None
    assert found.url == of_prefect() == URL.format(5)


@pytest.mark.parametrize(
    "file", [".env", *(pytest.param(file, marks=pytest.mark.battery) for file in ("prefect.toml", "pyproject.toml"))]
)
def test_files_of_the_working_directory_neither_name_an_api_nor_run_code(folder: Path, file: str) -> None:
    (folder / file).write_text(SOURCES[file].format(url=URL.format(2)))
    write_profile(folder / "mine.toml")
    assert configured_api() is None
    assert of_prefect() == "None"
    assert not (folder / "ran").exists()


@pytest.mark.battery
@pytest.mark.parametrize("file", SOURCES)
def test_prefect_by_itself_runs_code_of_the_working_directory(folder: Path, file: str) -> None:
    """Else the test above would show nothing."""
    (folder / file).write_text(SOURCES[file].format(url=URL.format(2)))
    subprocess.run([sys.executable, "-P", "-c", TAKEN], capture_output=True, check=False)
    assert (folder / "ran").exists()


@pytest.mark.parametrize(
    ("file", "names"), [("prefect.toml", "profiles_path, api, logging"), ("pyproject.toml", "api, logging")]
)
def test_settings_that_are_not_taken_are_named(folder: Path, file: str, names: str) -> None:
    (folder / file).write_text(SOURCES[file].format(url=URL.format(2)))
    (sentence,) = ignored_files()
    assert sentence.startswith(
        f"{file}: settings of Prefect ({names}) are not taken from the working directory: export"
    )


@pytest.mark.parametrize("text", ["", "[api", "[tool.other]\na = 1\n"])
def test_a_file_without_settings_is_passed_over(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)
    assert list(ignored_files()) == []
