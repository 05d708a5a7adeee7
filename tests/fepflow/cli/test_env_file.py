"""`.env` and `--env-file`: who may say what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fepflow.cli.main import fepflow
from fepflow.settings import PREFERENCES, Settings, settings
from tests.fepflow.conftest import Cli, FillRun

SUITE = """\
name: env
target: {recorded: {path: outputs.jsonl}}
test_cases: cases.jsonl
checks: [{type: contains, arguments: {text: $.output.value, phrases: [a]}}]
"""

WORDS = {
    "validate": "validate suite.yaml",
    "run": "run suite.yaml",
    "eval": "eval suite.yaml",
    "rescore": "rescore latest",
    "import": "import results.jsonl",
    "export": "export latest --to csv",
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
    "baseline export": "baseline export baselines.zip",
    "baseline import": "baseline import results.jsonl",
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
    "store prune": "store prune --keep 90d",
    "delete": "delete latest --yes",
    "cases add": "cases add latest -o new-cases.jsonl",
    "cache stats": "cache stats",
    "cache clear": "cache clear",
    "keys create": "keys create ci",
    "keys list": "keys list",
    "keys revoke": "keys revoke 000000000000",
    "audit": "audit",
    "view": "view --no-browser",
}
"""The text to write for each command."""

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
    monkeypatch.setenv("HOME", str(home))  # whose ~/.fepflow is not the developer's
    (home / "suite.yaml").write_text(SUITE)
    (home / "cases.jsonl").write_text('{"id": "a", "input": 1}\n')
    (home / "outputs.jsonl").write_text('{"value": "a"}\n')
    (home / "labels.csv").write_text("id,label\na,pass\n")
    record = {"id": "a", "input": 1, "output": 1, "scores": {"exact": 1}, "span_id": "s", "root_span_id": "s"}
    (home / "results.jsonl").write_text(json.dumps(record))
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
    if command == "serve":  # another program takes the process's place
        done = subprocess.run(
            [sys.executable, "-P", "-m", "fepflow.cli.main", *words], capture_output=True, text=True, check=False
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


def test_a_file_that_is_named_names_the_store(folder: Path, cli: Cli, fill_run: FillRun) -> None:
    run = fill_run([])
    (folder / "this.env").write_text("FEPFLOW_HOME=home\n")
    (folder / "other.env").write_text("FEPFLOW_HOME=elsewhere\n")
    for file, names in (("this.env", True), ("other.env", False)):
        os.environ.pop("FEPFLOW_HOME", None)
        settings.cache_clear()
        assert (run.id[:8] in cli("list", "--env-file", file).stdout) is names


def test_the_folders_file_sets_nothing_that_the_operator_decides(folder: Path, cli: Cli) -> None:
    names = sorted(set(Settings.model_fields) - set(PREFERENCES))
    for some in (names[start : start + 8] for start in range(0, len(names), 8)):  # no more of them are shown at once
        variables = [spelled for name in some for spelled in (f"FEPFLOW_{name}".upper(), f"fepflow_{name}".lower())]
        (folder / ".env").write_text("".join(f"{variable}=1\n" for variable in variables))
        result = cli("list")
        assert f".env: {', '.join(variables)}: not taken." in result.stderr
        assert result.exit_code == 0
        usual = Settings.model_validate(_given())
        assert {name: getattr(settings(), name) for name in some} == {name: getattr(usual, name) for name in some}


def _given() -> dict[str, str]:
    return {"home": os.environ["FEPFLOW_HOME"]} if "FEPFLOW_HOME" in os.environ else {}


def test_the_folders_file_sets_preferences(folder: Path) -> None:
    assert set(PREFERENCES) == {"port", "api_port", "grpc_port", "cache_ttl"}
    (folder / ".env").write_text("FEPFLOW_PORT=4242\nfepflow_cache_ttl=2h\nFEPFLOW_HOME=elsewhere\n")
    assert (settings().port, settings().cache_ttl) == (4242, 7200.0)
    assert settings().home != Path("elsewhere")
    assert "FEPFLOW_PORT" not in os.environ


def test_nothing_of_the_folders_file_gets_into_the_environment(folder: Path, cli: Cli) -> None:
    (folder / ".env").write_text("PYTHONPATH=evil\nOPENAI_API_KEY=sk-of-the-file\nexport LD_PRELOAD=/evil.so\n")
    before = dict(os.environ)
    result = cli("list")
    assert os.environ == before
    assert result.stderr.count("not taken") == 1
    assert ".env: PYTHONPATH, OPENAI_API_KEY, LD_PRELOAD: not taken." in result.stderr
    assert "a model's key: provider_config: {api_key: ${OPENAI_API_KEY}}" in result.stderr
    assert "export them, or, if you trust the file, name it: --env-file .env" in result.stderr
    assert "sk-of-the-file" not in result.output


def test_a_file_that_is_named_sets_everything_but_what_loads_code(folder: Path, cli: Cli) -> None:
    (folder / ".env").write_text("PYTHONPATH=evil\nLD_PRELOAD=/evil.so\nFEPFLOW_MODELS=*\nLD_SDK_KEY=k\n")
    os.environ.pop("PYTHONPATH", None)
    result = cli("list", "--env-file", ".env")
    names = ("FEPFLOW_MODELS", "LD_SDK_KEY")
    try:
        assert [os.environ.pop(name) for name in names] == ["*", "k"]
        assert not {"PYTHONPATH", "LD_PRELOAD"} & set(os.environ)
        assert "/.env: PYTHONPATH, LD_PRELOAD: not taken, programs load code by such variables" in result.stderr
    finally:
        for name in names:
            os.environ.pop(name, None)


OF_VARIABLES = """\
name: env
target: {http: {url: "${BOT_URL}", headers: {Authorization: "Bearer ${BOT_TOKEN}"}}}
test_cases: [{id: a, input: 1}]
judge: {model_config: {model: openai/x}, provider_config: {api_key: "${JUDGE_KEY}"}}
checks: [{type: llm_judge, arguments: {prompt: "good? {{$.output.value}}", response_format: {type: object}}}]
"""


def test_what_a_suite_refers_to_is_taken_from_the_folders_file(folder: Path, cli: Cli) -> None:
    (folder / "suite.yaml").write_text(OF_VARIABLES)
    (folder / ".env").write_text("BOT_URL=http://127.0.0.1:9\nBOT_TOKEN=t\nJUDGE_KEY=k\nOTHER=1\n")
    result = cli("validate", "suite.yaml")
    assert result.exit_code == 0, result.stderr
    assert ".env: OTHER: not taken." in result.stderr
    (folder / ".env").write_text("BOT_URL=http://127.0.0.1:9\nBOT_TOKEN=t\nJUDGE_KEY=k\n")
    assert "not taken" not in cli("validate", "suite.yaml").stderr


def test_a_file_beside_the_suite_is_named_where_a_variable_is_missing(folder: Path, cli: Cli) -> None:
    (folder / "suites").mkdir()
    (folder / "suites" / "suite.yaml").write_text(OF_VARIABLES)
    (folder / "suites" / ".env").write_text("BOT_URL=http://127.0.0.1:9\nJUDGE_KEY=k\n")
    where = (
        "it is in suites/.env, which is not read, only the one of the working directory is: use --env-file suites/.env"
    )
    stderr = cli("validate", "suites/suite.yaml").stderr
    assert f"${{BOT_URL}} is not set in the environment ({where}, or export BOT_URL)" in stderr
    assert f"${{JUDGE_KEY}} is not set in the environment ({where}, or export JUDGE_KEY)" in stderr
    assert (
        "${BOT_TOKEN} is not set in the environment (export BOT_TOKEN, or give a default: ${BOT_TOKEN:-...})" in stderr
    )
    (folder / "other.env").write_text("BOT_TOKEN=t\n")
    (folder / ".env").write_text("BOT_URL=http://127.0.0.1:9\n")
    stderr = cli("validate", "suites/suite.yaml", "--env-file", "other.env").stderr
    os.environ.pop("BOT_TOKEN")
    assert "only the file that --env-file names is: use --env-file suites/.env, or export BOT_URL" in stderr


OF_A_PROVIDER = OF_VARIABLES.replace('provider_config: {api_key: "${JUDGE_KEY}"}', "provider_config: {}")


def test_the_key_of_a_provider_is_found_where_it_is_not_taken_from(
    folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (folder / "suite.yaml").write_text(OF_A_PROVIDER)
    (folder / ".env").write_text("BOT_URL=http://127.0.0.1:9\nBOT_TOKEN=t\nOPENAI_API_KEY=sk-of-the-file\n")
    result = cli("validate", "suite.yaml")
    assert result.exit_code == 2
    advice = (
        "it is in .env, which only fills in ${NAME} of the suite: write provider_config: {api_key: ${OPENAI_API_KEY}}"
    )
    assert (
        f"needs OPENAI_API_KEY, not set in the environment ({advice}, use --env-file .env, or export" in result.stderr
    )
    (folder / "suite.yaml").write_text(OF_VARIABLES.replace("JUDGE_KEY", "OPENAI_API_KEY"))
    assert cli("validate", "suite.yaml").exit_code == 0


def test_a_virtual_environment_named_like_the_file_is_none(folder: Path, cli: Cli) -> None:
    (folder / ".env").mkdir()
    assert cli("list").exit_code == 0


def test_a_file_that_cannot_be_read_is_said_before_anything_is_done(folder: Path, cli: Cli) -> None:
    (folder / ".env").write_bytes(b"NAME=\xff\xfe\n")
    result = cli("list")
    assert (result.exit_code, "error: .env:1: " in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("name", ["REPEATS", "REPEAT", "EPOCHS"])
def test_each_long_name_of_an_option_is_a_variable(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"FEPFLOW_RUN_{name}", "0")
    done = cli("run", "suite.yaml")
    assert (done.exit_code, "0 is not in the range 1<=x<=1000" in done.stderr) == (2, True)
