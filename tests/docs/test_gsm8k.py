"""The GSM8K example judges recorded answers just as the authors of the data did, case by case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from fepflow.checks import registry
from fepflow.checks.engine import evaluate
from fepflow.checks.registry import load_plugin
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks.batches import split_into_batches
from fepflow.tasks.call_target import call_target
from fepflow.tasks.create_run import create_run
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "gsm8k"
TEST_DATA = os.environ.get("FEPFLOW_TEST_DATA")
FOLDER = Path(TEST_DATA or "") / "data" / "gsm8k"
QUESTIONS = 1_319
CORRECT = {"6b_finetuning": 286, "175b_verification": 742}

needs_data = pytest.mark.skipif(not TEST_DATA, reason="FEPFLOW_TEST_DATA does not name the folder of the answers")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A store of one's own, and the permission to read the answers."""
    monkeypatch.setenv("FEPFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("FEPFLOW_DATA_ROOTS", str(FOLDER))
    monkeypatch.setenv("GSM8K_FOLDER", str(FOLDER))
    settings.cache_clear()
    yield monkeypatch
    settings.cache_clear()


@pytest.fixture(autouse=True)
def _clean_catalogue(monkeypatch):
    """What the plugin registers is gone after the test, and so is the note that it was loaded."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr("fepflow.checks.registry._loaded", {})


def said_by_the_authors(model: str) -> dict[str, bool]:
    """Whether the model's answer to each question is correct."""
    lines = (FOLDER / "solutions.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["question"]: record[model]["is_correct"] for record in map(json.loads, lines)}


async def run_without_prefect(suite: Path) -> tuple[str, dict[str, bool]]:
    """Every step of a run in its order; the verdict, and what the check said by question."""
    with Store.open(settings().store_address) as store:
        run_id = create_run(store, validate_suite(suite)).run.id
        async with open_run(run_id) as context:
            for batch in split_into_batches(range(context.run.calls)):
                work = await context.begin(batch)
                await call_target(context, work)
                await run_checks_of_batch(context, work)
            verdict = await decide_run(context)
        passed = {result.case.input: result.checks[0].results["passed"] for result in store.results.by_case(run_id)}
    return verdict.outcome, passed


@needs_data
@pytest.mark.may_stall(reason="the suite is validated in the loop, which commands do before there is one")
@pytest.mark.parametrize(
    ("model", "outcome"),
    [("6b_finetuning", "fail"), pytest.param("175b_verification", "pass", marks=pytest.mark.battery)],
)
async def test_recorded_answers_are_judged_as_the_authors_judged_them(environment, model, outcome):
    environment.setenv("GSM8K_MODEL", model)
    verdict, passed = await run_without_prefect(EXAMPLE / "suite.yaml")
    assert passed == said_by_the_authors(model)
    assert (len(passed), sum(passed.values())) == (QUESTIONS, CORRECT[model])
    assert verdict == outcome


@needs_data
def test_the_cases_of_both_models_have_the_same_ids(environment):
    ids = []
    for model in CORRECT:
        environment.setenv("GSM8K_MODEL", model)
        ids.append([case.id for case in validate_suite(EXAMPLE / "suite.yaml").cases])
    assert ids[0] == ids[1]


@pytest.fixture
def judge():
    """What `final_number` says about a text and its reference."""
    load_plugin(EXAMPLE / "final_number.py", "final_number.py")

    def judge(text: str, reference: str) -> Any:
        check = Check(type="final_number", arguments={"text": "$.output.value", "reference": reference})
        case = TestCase(id="case", input="question")
        return evaluate([case], [Output(value=text)], [check]).results[0].check_results[0]

    return judge


@pytest.mark.parametrize(
    "text",
    ["A: 18000", "A: 18,000", "A: $18,000.", "A: €18000.00", "Q: 3 A: 4\nA:18000 ", "A: 1.\nA: 18000.0\n"],
)
def test_the_same_number_passes_however_it_is_written(judge, text):
    assert judge(text, "so it is 18000\nA: 18000").results["passed"] is True


@pytest.mark.parametrize("text", ["A: 1800", "A: -18000", "18000", "A: 18000 billion", "A: 36000/2", "A:", "A: NaN"])
def test_another_number_or_none_does_not_pass(judge, text):
    assert judge(text, "A: 18000").results["passed"] is False


def test_the_result_shows_both_numbers(judge):
    results = judge("it is $1,200.\nA: 1,200.", "A: 12").results
    assert results == {"passed": False, "found": "1200", "wanted": "12"}


def test_a_reference_without_a_number_is_an_error_and_no_fail(judge):
    result = judge("A: 1", "nobody knows")
    assert (result.status, result.results) == ("error", {})
    assert "the reference has no number" in result.error.message


@contextmanager
def replay(model: str) -> Iterator[str]:
    """The replay service in a process of its own; its address."""
    command = [sys.executable, str(EXAMPLE / "replay.py"), "--folder", str(FOLDER), "--model", model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@needs_data
@pytest.mark.e2e
@pytest.mark.battery
def test_over_http_each_question_is_sent_once_with_the_same_verdict(stack, tmp_path):
    report = tmp_path / "result.json"
    with replay("175b_verification") as address:
        environment = {"GSM8K_URL": address, "GSM8K_FOLDER": str(FOLDER), "FEPFLOW_DATA_ROOTS": str(FOLDER)}
        done = stack.fepflow("run", EXAMPLE / "suite-http.yaml", "-o", report, env=environment)
        assert done.returncode == 0, done.stderr
        with urlopen(f"{address}/count") as answer:
            assert json.load(answer) == {"requests": QUESTIONS, "questions": QUESTIONS}
    passed = {}
    for result in json.loads(report.read_text(encoding="utf-8"))["results"]:
        context = result["execution_context"]
        passed[context["test_case"]["input"]] = result["check_results"][0]["results"]["passed"]
        assert context["output"]["metadata"]["attempts"] == 1
    assert len(passed) == QUESTIONS
    assert passed == said_by_the_authors("175b_verification")
    assert sum(passed.values()) == CORRECT["175b_verification"]


@needs_data
def test_the_replay_service_says_which_models_there_are():
    command = [sys.executable, str(EXAMPLE / "replay.py"), "--folder", str(FOLDER), "--model", "9b", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has no answers of 9b; it has those of 6b_finetuning, 175b_verification" in done.stderr
