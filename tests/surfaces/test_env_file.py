"""`.env` and `--env-file`: every command that looks at a setting reads them first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fepflow.settings import settings
from surfaces.cli.main import fepflow

from .conftest import Cli, FillRun

SUITE = """\
name: env
target: {recorded: {path: outputs.jsonl}}
test_cases: cases.jsonl
checks: [{type: contains, arguments: {text: $.output.value, phrases: [a]}}]
"""

WORDS = {
    "validate": "validate suite.yaml",
    "run": "run suite.yaml",
    "list": "list",
    "show": "show",
    "cancel": "cancel latest",
    "compare": "compare latest latest",
    "plan": "plan suite.yaml --min 0.5 --expect 0.95",
    "evalguard import": "evalguard import cases.jsonl",
    "evalguard list": "evalguard list",
    "evalguard export": "evalguard export abcdef12",
    "evalguard verdict": "evalguard verdict abcdef12 --thresholds suite.yaml",
    "trends": "trends env",
    "baseline set": "baseline set main latest",
    "baseline list": "baseline list",
    "baseline remove": "baseline remove main",
    "calibrate": "calibrate suite.yaml --labels labels.csv",
    "labels export": "labels export latest -o new-labels.csv",
    "up": "up",
    "down": "down",
    "status": "status",
    "serve": "serve",
    "schedule": "schedule --list",
    "alert": "alert --list",
    "limits": "limits",
    "limits set": "limits set slow --concurrency 1",
    "limits remove": "limits remove slow",
    "store migrate": "store migrate",
    "store check": "store check",
    "store backup": "store backup copy.db",
    "cache stats": "cache stats",
    "cache clear": "cache clear",
    "keys create": "keys create ci",
    "keys list": "keys list",
    "keys revoke": "keys revoke 000000000000",
    "audit": "audit",
    "view": "view --no-browser",
}
"""What to write for each command."""

NO_SETTINGS = {"init", "checks", "schema", "ecp conformance", "ecp step"}
NO_SETTINGS |= {"evalguard schema", "evalguard validate", "evalguard migrate"}
"""These need none; those of `ecp` read the file for the variables that the agent gets."""


def commands_of(group: click.Group, prefix: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{prefix}{name}"
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{prefix}{name} ")


@pytest.fixture
def folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite, and an environment that says nothing of fepflow and is as before when the test is over."""
    for name in ("FEPFLOW_PORT", "FEPFLOW_HOME", "PREFECT_API_URL", "FEPFLOW_MODELS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (home / "suite.yaml").write_text(SUITE)
    (home / "cases.jsonl").write_text('{"id": "a", "input": 1}\n')
    (home / "outputs.jsonl").write_text('{"value": "a"}\n')
    (home / "labels.csv").write_text("id,label\na,pass\n")
    return home


def test_the_commands_here_are_all_that_there_are() -> None:
    assert set(commands_of(fepflow)) == {*WORDS, *NO_SETTINGS}


@pytest.mark.parametrize("file", [".env", pytest.param("other.env", marks=pytest.mark.battery)])
@pytest.mark.parametrize("command", WORDS)
def test_every_command_reads_it_before_any_setting(folder: Path, cli: Cli, command: str, file: str) -> None:
    (folder / file).write_text("FEPFLOW_PORT=nonsense\n")
    if file != ".env":
        (folder / ".env").write_text("FEPFLOW_PORT=4200\n")  # is not read then
    words = [*WORDS[command].split(), *([] if file == ".env" else ["--env-file", file])]
    if command in ("serve", "view"):  # another program takes the process's place
        done = subprocess.run(
            [sys.executable, "-P", "-m", "surfaces.cli.main", *words], capture_output=True, text=True, check=False
        )
        assert (done.returncode, "FEPFLOW_PORT" in done.stderr) == (2, True), done.stderr
    else:
        result = cli(*words)
        assert (result.exit_code, "FEPFLOW_PORT" in result.stderr) == (2, True), result.stderr


def test_env_file_of_a_group_holds_for_its_commands(folder: Path, cli: Cli) -> None:
    (folder / "other.env").write_text("FEPFLOW_PORT=nonsense\n")
    (folder / ".env").write_text("FEPFLOW_MODELS=of-the-folder\n")
    result = cli("limits", "--env-file", "other.env", "remove", "slow")
    assert "FEPFLOW_PORT" in result.stderr
    assert "FEPFLOW_MODELS" not in result.stderr, ".env is not read as well"


def test_list_and_show_look_where_run_has_written(folder: Path, cli: Cli, fill_run: FillRun) -> None:
    run = fill_run([])
    (folder / ".env").write_text("FEPFLOW_HOME=home\n")
    settings.cache_clear()
    assert run.id[:8] in cli("list").stdout
    assert run.id[:8] in cli("show").stdout
    assert os.environ["FEPFLOW_HOME"] == "home"


def test_another_file_names_another_store(folder: Path, cli: Cli, fill_run: FillRun) -> None:
    run = fill_run([])
    (folder / ".env").write_text("FEPFLOW_HOME=home\n")
    (folder / "other.env").write_text("FEPFLOW_HOME=elsewhere\n")
    settings.cache_clear()
    assert run.id[:8] not in cli("list", "--env-file", "other.env").stdout


def test_the_folders_file_sets_nothing_that_the_operator_decides(folder: Path, cli: Cli) -> None:
    (folder / ".env").write_text("FEPFLOW_MODELS=*\n")
    result = cli("list")
    assert ".env: FEPFLOW_MODELS is left out: only the operator sets it" in result.stderr
    assert "FEPFLOW_MODELS" not in os.environ
    cli("list", "--env-file", ".env")
    assert os.environ["FEPFLOW_MODELS"] == "*"
