"""The command line as far as it goes without Prefect: what it takes, its errors, how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli, FillRun, check


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run"], "name a suite: this folder has no suite.yaml (`fepflow init` writes one)"),
        (["eval"], "name a suite: this folder has no suite.yaml"),
        (["validate"], "name a suite: this folder has no suite.yaml"),
        (["run", "suite.yaml", "--first", "3", "--limit", "3"], "give one of the two"),
        (["run", "--set", "repeats", "suite.yaml"], "--set reads like target.http.url="),
        (["run", "--resume"], "There are no runs yet"),
        (["run", "suite.yaml", "--resume", "latest"], "give a suite or --resume RUN, not both"),
        (["run", "--resume", "latest", "--limit", "3"], "leave the other options out"),
        (["run", "--resume", "1234"], "There is no run '1234'"),
        (["run", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
        (["run", "suite.yaml", "--limit", "1.5"], "1.5 is not a count (20) or a fraction (0.1)"),
        (["run", "suite.yaml", "--limit", "many"], "many is not a number"),
        (["run", "suite.yaml", "--filter-metadata", "topic"], "topic is not of the form key=value"),
        (["run", "suite.yaml", "-o", "report.pdf"], "no report ends in .pdf"),
        (["run", "suite.yaml", "--env-file", "nowhere.env"], "nowhere.env: there is no such file (--env-file)"),
        (["validate", "."], "is a folder (name a file in it)"),
        (["show", "latest"], "There are no runs yet"),
        (
            ["schedule", "suite.yaml", "--cron", "61 2 * * *"],
            "'61 2 * * *' is not a cron expression: give minute, hour",
        ),
        (["schedule", "suite.yaml", "--cron", "0 2 30 2 *"], "The moment of '0 2 30 2 *' never comes"),
        (["schedule", "suite.yaml", "--every", "1h", "--timezone", "Mars/X"], "There is no timezone 'Mars/X'"),
        (["frobnicate"], "No such command 'frobnicate'"),
    ],
)
def test_usage_errors_end_with_2(cli: Cli, words: list[str], says: str) -> None:
    done = cli(*words)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.exit_code == 2


def test_a_selection_without_cases_is_told_before_a_server_is_started(cli: Cli, home: Path) -> None:
    assert cli("init", ".").exit_code == 0
    for options, says in (
        (["--case", "capitol-1"], "--case capitol-1: no test case has such an id"),
        (["--filter-metadata", "topic=none"], "No test case is left by --filter-metadata topic=none"),
        (["--filter-failing", "1234"], "There is no run '1234'"),
    ):
        done = cli("run", "suite.yaml", *options)
        assert says in done.stderr
        assert done.exit_code == 2
    assert not (home / "home" / "server.json").exists()


def test_an_env_file_gives_what_the_environment_does_not(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_URL", "http://127.0.0.1:1")
    monkeypatch.delenv("AGENT_TOKEN", raising=False)
    (home / "suite.yaml").write_text(
        "name: env\n"
        'target: {http: {url: "${AGENT_URL}", headers: {Authorization: "Bearer ${AGENT_TOKEN}"}}}\n'
        "test_cases: [{id: a, input: 1}]\n"
        "checks: [{type: contains, arguments: {text: $.output.value, phrases: [a]}}]\n"
    )
    without = cli("validate", "suite.yaml")
    assert without.exit_code == 2
    assert "${AGENT_TOKEN} is not set in the environment (export AGENT_TOKEN" in without.stderr

    (home / "other.env").write_text("AGENT_TOKEN=from-the-file\nAGENT_URL=nonsense\n")
    try:
        assert cli("validate", "suite.yaml", "--env-file", "other.env").exit_code == 0
        assert os.environ["AGENT_URL"] == "http://127.0.0.1:1", "what is set already stays"
    finally:
        os.environ.pop("AGENT_TOKEN", None)


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    assert version("fepflow") in cli("--version").stdout


@pytest.mark.battery
def test_a_closed_pipe_is_not_an_error(fill_run: FillRun, home: Path) -> None:
    for _ in range(3):
        fill_run([("good", Output(value="yes" * 50_000), check(True))])
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "fepflow.cli.main", "show", "--json"],
        env={**os.environ, "FEPFLOW_HOME": str(home / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_output_that_cannot_be_written_is_named_and_one_that_nobody_reads_changes_no_exit_code() -> None:
    command = [sys.executable, "-P", "-m", "fepflow.cli.main", "--version"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "error: The output cannot be written: No space left on device.\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


LEAVES_A_THREAD = """
import fepflow.cli.main, threading, time
def stay():
    threading.main_thread().join()
    print("left", flush=True)
    time.sleep(60)
threading.Thread(target=stay).start()
fepflow.cli.main.main()
"""


def test_ctrl_c_at_the_very_end_leaves_with_the_exit_code_of_the_command() -> None:
    """Python waits for the threads of others; that of Prefect's log is one."""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", LEAVES_A_THREAD, "frobnicate"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background lets its children ignore Ctrl-C; a terminal does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "left\n"
        while process.poll() is None:  # Python does not notice one that comes just as it begins to wait
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 2


def test_an_internal_error_is_one_line(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.delenv("FEPFLOW_DEBUG", raising=False)
    monkeypatch.setattr("fepflow.services.run_service.validate", broken)
    done = cli("validate", "suite.yaml")
    assert done.exit_code == 3
    assert done.stderr.startswith("error: ZeroDivisionError: division by zero\n")
    assert "FEPFLOW_DEBUG=1" in done.stderr


def test_an_internal_error_is_shown_whole_on_demand() -> None:
    code = """
import fepflow.cli.main

def broken(**_):
    raise PermissionError(13, "Permission denied")

fepflow.cli.main.fepflow.main = broken
fepflow.cli.main.main()
"""
    environment = {**os.environ, "FEPFLOW_DEBUG": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("PermissionError: [Errno 13] Permission denied\n")


def test_a_stored_pytest_run_cannot_be_resumed(cli: Cli, store: Store) -> None:
    store.runs.create(
        RunRecord(id="a" * 32, name="a test", suite={"target": {"pytest": "a test"}}, repeats=1),
        [TestCase(id="a", input=1)],
    )
    store.leases.acquire("a" * 32, "me", 60)
    store.leases.finish("a" * 32, "me", "completed", outcome="pass")
    done = cli("run", "--resume", "latest")
    assert done.exit_code == 2
    assert "run pytest again" in done.stderr
    assert store.runs.get("a" * 32).outcome == "pass"
