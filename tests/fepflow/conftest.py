"""A home of its own for every test, a store that can be filled by hand, and the command line in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import alembic.command  # noqa: F401  # pytester forgets what a run inside it imported; SQLAlchemy warns of a second time
import click
import hypothesis  # noqa: F401  # once `main` has frozen the garbage collector, it could no longer be imported
import pytest
from click.testing import CliRunner, Result

from fepflow.calls.python.target import given_up
from fepflow.cli import main
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.settings import NAMED_FILE, current_file, settings, use_folder_file
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from tests.fepflow.pytest.pytest_project import Project

FillRun = Callable[..., RunRecord]
Cli = Callable[..., Result]

NO_ANSWER = Output(
    value=None,
    metadata={
        "error": {"type": "timeout_error", "kind": "timeout", "message": "no answer within 2 s", "recoverable": True},
        "attempts": 2,
        "attempt_log": [{"attempt": 1, "latency_ms": 2000.0}, {"attempt": 2, "latency_ms": 2500.0}],
    },
)

BROKE_OFF = Output(
    value={"steps": [{"public_output": "one"}]},
    metadata={
        "error": {
            "type": "unknown_error",
            "kind": "crashed",
            "message": "step 2 of 2: the agent exited with code 1",
            "recoverable": True,
            "partial": True,
        },
        "attempts": 1,
    },
)
"""Of a scenario of which the second step failed."""

NASTY = {
    "control": "bell \x07, nul \x00, escape \x1b[31m",
    "surrogate": "half a pair \ud83d",
    "noncharacter": "\uffff and \ufffe",
    "markup": ']]><!-- & "quoted" </testcase> <script>alert(1)</script>',
    "formula": "=HYPERLINK(A1)",
    "plus": "+1",
    "minus": "-1",
    "at": "@SUM(A1)",
    "tab": "\tx",
    "return": "\rx",
    "line feed": "\n=1+1",
    "full width": "＝1+1",
    "mark": "\ufeff=1+1",
    "space": "  =1+1",
    "lines": 'one\n"two", three',
    "nothing": "",
    "right to left": "\u202eabc",
}
"""What agents may say."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with fepflow's home below it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEPFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(NAMED_FILE, "")  # what a command sets is taken back with it
    use_folder_file()
    settings.cache_clear()
    yield tmp_path
    current_file.cache_clear()
    settings.cache_clear()


@pytest.fixture
def cli(home: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command as `fepflow …` does, errors and all."""

    def invoke(*arguments: str | Path) -> Result:
        @click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
        @click.argument("words", nargs=-1)
        def fepflow(words: Sequence[str]) -> None:
            monkeypatch.setattr("sys.argv", ["fepflow", *words])
            given_up.clear()  # else `main` would end this process a while after a test of agents that hang
            interrupt = signal.getsignal(signal.SIGINT)
            try:
                main.main()
            finally:
                signal.signal(signal.SIGINT, interrupt)

        return CliRunner().invoke(fepflow, ["--", *map(str, arguments)])

    return invoke


def check(passed: bool | None, error: str | None = None, **arguments: Any) -> CheckResult:
    """A check's answer: passed, failed, or in error."""
    return CheckResult(
        check_type="contains",
        status="error" if error else "completed",
        results={} if error else {"passed": passed},
        evaluated_at=utc_now(),
        resolved_arguments={name: {"value": value} for name, value in arguments.items()},
        metadata={"check_id": "says_so", "check_version": "1.0.0"},
        **({"error": CheckError(type="timeout_error", message=error)} if error else {}),
    )


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """A small project of its own, on which pytest is run."""
    return Project(pytester)


@pytest.fixture
def store(home: Path, new_store: Callable[[str], str]) -> Iterator[Store]:
    with Store.open(new_store(f"sqlite:///{home / 'home' / 'fepflow.db'}")) as opened:
        yield opened


@pytest.fixture
def fill_run(store: Store) -> FillRun:
    """Stores a completed run of one call for each case: (id, output, check's answer); None where it was not got to."""

    def fill(rows: Sequence[tuple[str, Output | None, CheckResult | None]], **fields: Any) -> RunRecord:
        run_id = f"{len(store.runs.newest()):08x}feedbeef"
        suite = {"name": "refunds"}
        new = RunRecord(id=run_id, name="refunds", suite=suite, repeats=1, tags=["nightly"])
        store.runs.create(new, [TestCase(id=name, input=f"input of {name}", expected="yes") for name, _, _ in rows])
        store.leases.acquire(run_id, "host/1/a", 30)
        outputs = [
            NewOutput(case_index, 0, "a" * 64, output)
            for case_index, (_, output, _) in enumerate(rows)
            if output is not None
        ]
        checks = [
            NewCheckResult(case_index, 0, "says_so", "b" * 64, result, result.results.get("passed"))
            for case_index, (_, _, result) in enumerate(rows)
            if result is not None
        ]
        store.results.write(run_id, outputs, checks)
        verdict = {"gate": "Every check must pass.", "reasons": ["because"], "warnings": []}
        store.leases.finish(
            run_id, "host/1/a", "completed", **{"outcome": "fail", "verdict": verdict, "metrics": [], **fields}
        )
        return store.runs.get(run_id)

    return fill
