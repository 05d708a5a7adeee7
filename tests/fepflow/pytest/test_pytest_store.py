"""Evaluations as pytest tests: their results in the store, and what is loaded for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fepflow.store.store import Store
from tests.fepflow.pytest.pytest_project import Project, text_of

STORED = """
@evaluate(CASES, CHECKS, samples=2, success_threshold=0.9)
def test_capitals(test_case):
    return "Paris"

@pytest.mark.parametrize("country", ["Peru"])
@evaluate(CASES, CHECKS)
async def test_more(test_case, country):
    if test_case.id == "japan":
        raise ConnectionError("the agent is away")
    return test_case.expected

def test_another_exception_is_an_error():
    pass
"""


LOADED = """
import sys

def pytest_sessionfinish():
    print("loaded", sorted({"prefect", "litellm", "sqlalchemy"} & set(sys.modules)))
"""


def test_by_default_nothing_is_stored_and_neither_prefect_nor_the_store_is_loaded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEPFLOW_HOME", str(project.folder / "home"))
    project.pytester.makeconftest(LOADED)
    result = project.run_alone(STORED, "-s")
    result.assert_outcomes(failed=2, passed=1)
    assert "loaded []" in text_of(result)
    assert not (project.folder / "home").exists()


@pytest.mark.parametrize("workers", [[], pytest.param(["-n2"], marks=pytest.mark.battery)])
def test_results_are_stored_as_completed_runs(project: Project, workers: list[str]) -> None:
    url = f"sqlite:///{project.folder / 'results.db'}"
    project.pytester.makeconftest(LOADED)
    result = project.run_alone(STORED, "-s", f"--fepflow-store={url}", *workers)
    result.assert_outcomes(failed=2, passed=1)
    assert "loaded ['sqlalchemy']" in text_of(result)
    with Store.open(url) as store:
        runs = {run.name: run for run in store.runs.newest()}
        assert set(runs) == {"test_agent.py::test_capitals", "test_agent.py::test_more[Peru]"}
        failed, unknown = runs.values() if next(iter(runs)).endswith("capitals") else reversed(runs.values())
        assert (failed.status, failed.outcome, failed.repeats, failed.tags) == ("completed", "fail", 2, ["pytest"])
        assert failed.started_at is not None
        assert failed.completed_at is not None
        assert failed.started_at <= failed.completed_at
        assert [(metric["id"], metric["value"]) for metric in failed.metrics] == [("pass_rate", 0.5), ("contains", 0.5)]
        assert failed.verdict["gate"] == "At least 0.9 of the results must pass."
        kept = [
            (found.case.id, found.repeat, found.output.value)
            for found in store.results.by_case(failed.id)
            if found.output
        ]
        assert kept == [("france", 0, "Paris"), ("france", 1, "Paris"), ("japan", 0, "Paris"), ("japan", 1, "Paris")]
        assert unknown.outcome == "inconclusive"
        (japan,) = store.results.by_case(unknown.id, failed_only=True)
        assert japan.output is not None
        assert "the agent is away" in japan.output.metadata["error"]["message"]
        assert [check.status for check in japan.checks] == ["error"]
    result.stdout.fnmatch_lines([f"test_agent.py::test_capitals: fail, * (fepflow show {failed.id[:8]})"])


@pytest.mark.battery
def test_a_stored_run_is_shown_by_the_command_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{project.folder / 'results.db'}"
    monkeypatch.setenv("FEPFLOW_STORE_URL", url)
    project.run_alone(STORED, "--fepflow-store", "-k", "capitals").assert_outcomes(failed=1)
    command = [sys.executable, "-m", "fepflow.cli.main", "show", "latest", "--failed"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "test_agent.py::test_capitals" in shown
    assert "gate: At least 0.9 of the results must pass." in shown
    assert "japan #2" in shown


def test_a_function_in_arguments_is_stored_by_its_name(project: Project) -> None:
    url = f"sqlite:///{project.folder / 'results.db'}"
    result = project.run(
        """
        from collections.abc import Callable
        from fepflow import BaseCheck, JSONPath

        class Passes(BaseCheck):
            value: str | JSONPath
            rule: Callable

            def __call__(self):
                return {"passed": self.rule(self.value)}

        def is_short(text):
            return len(text) < 10

        OWN = [TestCase(id="own", input="?", checks=[Passes(value="$.output.value", rule=is_short)])]

        @evaluate(OWN, [Passes(value="$.output.value", rule=is_short)])
        def test_short(test_case):
            return "short"
        """,
        f"--fepflow-store={url}",
    )
    result.assert_outcomes(passed=1)
    with Store.open(url) as store:
        (run,) = store.runs.newest()
        assert run.suite["checks"][0]["arguments"]["rule"] == "is_short"


def test_a_failure_to_store_is_reported_and_changes_no_outcome(project: Project) -> None:
    result = project.run(
        """
        @evaluate([TestCase(id="a", input=lambda: 1)], [ExactMatchCheck(actual="$.output.value", expected=1)])
        def test_one(test_case):
            return test_case.input()
        """,
        f"--fepflow-store=sqlite:///{project.folder / 'results.db'}",
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*the results of test_agent.py::test_one are not stored: *the case 'a' has no JSON*"])


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (["--fepflow-store", "test_agent.py"], "test_agent.py is not a database URL. Without a URL, write"),
        (["--fepflow-store=mysql://user:secret@host/db"], "The store cannot be a mysql database"),
        (["--fepflow-store=sqlite:////proc/nowhere/x.db"], "The store /proc/nowhere/x.db cannot be opened"),
    ],
)
def test_an_invalid_store_url_is_an_error_before_any_call(project: Project, option: list[str], complaint: str) -> None:
    result = project.run(STORED, *option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = "\n".join(result.errlines)
    assert complaint in errors
    assert "secret" not in errors


@pytest.mark.battery
def test_the_installed_plugin_loads_nothing_into_other_sessions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one():\n    pass\n")
    pytester.makeconftest(
        "import sys\ndef pytest_sessionfinish():\n"
        "    ours = ('fepflow', 'pydantic')\n"
        "    print('loaded', sorted(name for name in sys.modules if name.partition('.')[0] in ours))\n"
    )
    others = ("asyncio", "anyio", "hypothesispytest", "schemathesis")
    result = pytester.runpytest_subprocess("-s", *(f"-pno:{name}" for name in others))
    result.assert_outcomes(passed=1)
    assert "loaded ['fepflow', 'fepflow.pytest', 'fepflow.pytest.plugin']" in text_of(result)
