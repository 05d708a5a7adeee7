"""An ASGI application of the suite's folder, from the command line and from Python, to a verdict."""

from __future__ import annotations

import pytest

from .conftest import Workplace

pytestmark = pytest.mark.e2e

SUITE = """\
name: asgi
target: {http: {app: "my_agent.py:app", url: /ask, output: $.answer}, attempts: 1, retries: 0}
test_cases: cases.jsonl
checks: [{id: same, type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.expected}}]
"""

AGENT = """\
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

@asynccontextmanager
async def lifespan(app):
    with Path(__file__).with_name("log").open("a") as log:
        log.write("up ")
        yield
        log.write("down ")

app = FastAPI(lifespan=lifespan)

@app.post("/ask")
async def ask(body: dict):
    if body["input"] == "impossible":
        raise LookupError("no such order")
    return {"answer": body["input"]}
"""


@pytest.fixture
def prepared(workplace: Workplace) -> Workplace:
    workplace.write_suite(["one", "two", "impossible"])
    workplace.suite.write_text(SUITE, encoding="utf-8")
    (workplace.folder / "my_agent.py").write_text(AGENT, encoding="utf-8")
    return workplace


def test_the_command_calls_it_and_its_exception_is_an_error_of_one_case(prepared: Workplace) -> None:
    assert prepared.fepflow("validate", prepared.suite).returncode == 0
    assert not (prepared.folder / "log").exists(), "validate calls nobody"
    done = prepared.run()
    assert done.returncode == 4, done.stdout + done.stderr
    results = prepared.results
    assert {name: result.output.value for name, result in results.items()} == {
        "one": "one",
        "two": "two",
        "impossible": None,
    }
    error = results["impossible"].output.metadata["error"]
    assert (error["kind"], error["message"]) == ("exception", "LookupError: no such order (my_agent.py:18)")
    assert (prepared.folder / "log").read_text() == "up down "


@pytest.mark.battery
def test_the_python_api_does_too(prepared: Workplace) -> None:
    code = (
        "import fepflow\n"
        "run = fepflow.run('suite.yaml')\n"
        "assert [result.passed for result in run.results] == [True, True, False], run\n"
        "assert run.outcome == 'inconclusive', run\n"
    )
    with prepared.running(code=code) as process:
        assert process.communicate(timeout=120)[1] == ""
        assert process.returncode == 0


def test_a_misspelt_application_is_reported_with_a_suggestion(prepared: Workplace) -> None:
    prepared.suite.write_text(SUITE.replace("my_agent.py:app", "my_agent.py:ap").replace("url:", "ulr:"))
    done = prepared.fepflow("validate", prepared.suite)
    assert done.returncode == 2
    assert "did you mean url?" in done.stderr
    prepared.suite.write_text(SUITE.replace("my_agent.py:app", "my_agent.py:ap"))
    done = prepared.fepflow("validate", prepared.suite)
    assert done.returncode == 2
    assert "my_agent.py: target.http.app: there is no ap in my_agent (did you mean app?)" in done.stderr
