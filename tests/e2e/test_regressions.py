"""From a first run to a baseline, and to a run that is worse: what a person types, reads and gets as an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Stack, Workplace

pytestmark = pytest.mark.e2e

AGENT = """
def answer(question):
    return "I do not know" if int(question.split()[-1]) < WRONG else question
"""
SUITE = """
name: refunds
target: {python: agent.py:answer}
test_cases: cases.jsonl
checks:
  - {id: right, type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.expected}}
gate: {regression: {margin: 0.1}}
"""


def answers(workplace: Workplace, wrong: int) -> None:
    """Another version of the agent, which does not know the first so many questions."""
    (workplace.folder / "agent.py").write_text(f"WRONG = {wrong}\n{AGENT}", encoding="utf-8")


@pytest.fixture
def suite(workplace: Workplace) -> Workplace:
    """A suite of 80 cases whose only gate is that nothing is worse than the baseline main."""
    questions = [f"question {number}" for number in range(80)]
    rows = [json.dumps({"id": each, "input": each, "expected": each}) for each in questions]
    (workplace.folder / "cases.jsonl").write_text("\n".join(rows), encoding="utf-8")
    workplace.suite.write_text(SUITE, encoding="utf-8")
    return workplace


def verdict_page(stack: Stack, flow_run_id: str | None) -> dict[str, Any]:
    body = {"flow_runs": {"id": {"any_": [flow_run_id]}}}
    found = stack.api.post("/artifacts/filter", json=body).raise_for_status().json()
    (verdict,) = [artifact for artifact in found if artifact["key"] == "verdict-refunds"]
    return dict(verdict)


def test_a_worse_version_of_an_agent_fails_against_the_baseline(suite: Workplace, stack: Stack, tmp_path: Path) -> None:
    answers(suite, 2)
    first = suite.run("--quiet")
    assert first.returncode == 4, "nothing was compared, so nothing was passed"
    base = suite.record
    assert f"fepflow baseline set main {base.id[:8]}" in first.stdout + first.stderr
    named = suite.fepflow("baseline", "set", "main", base.id[:8])
    assert (named.returncode, named.stdout.split()[:5]) == (0, ["main", "of", "refunds", "is", "run"]), named.stderr

    answers(suite, 3)
    passed = suite.run("--quiet")
    assert passed.returncode == 0, passed.stdout
    good = suite.record.id
    report = tmp_path / "report.json"
    answers(suite, 30)
    failed = suite.run("-o", report)
    assert failed.returncode == 1, failed.stdout
    worse = suite.record
    assert "FAIL  right: a difference of -0.35" in failed.stdout
    assert f"fepflow compare {base.id[:8]} {worse.id[:8]}" in failed.stdout
    regression = json.loads(report.read_text(encoding="utf-8"))["metadata"]["verdict"]["regression"]
    assert (regression["run_id"], regression["matched"]) == (base.id, "all 80 test cases matched")
    (metric,) = regression["metrics"]
    assert (metric["worsened"], metric["improved"], metric["outcome"]) == (28, 0, "fail")
    assert metric["high"] < -0.1

    shown = verdict_page(stack, worse.flow_run_id)
    assert shown["description"].startswith("FAIL: right: a difference of -0.35")
    assert f"Against main, run `{base.id[:8]}`: all 80 test cases matched" in shown["data"]
    assert "| right | 0.975 | 0.625 | -0.35 |" in shown["data"]
    assert "| 28 | 0 | 0.1 | fail |" in shown["data"]
    assert stack.api.state_of(worse.flow_run_id)[0] == "FAILED"

    compared = suite.fepflow("compare", "main", worse.id[:8], "--format", "markdown", "--limit", "100")
    assert compared.returncode == 1, compared.stderr
    lines = compared.stdout.splitlines()
    assert lines[0] == "### Regression"
    flipped = {line.split("**")[1] for line in lines if line.startswith("- **")}
    assert flipped == {f"question {number}" for number in range(2, 30)}
    assert compared.stdout.count("  - new: I do not know") == 28

    assert suite.fepflow("compare", "main", good, "--margin", "0.1").returncode == 0
    assert suite.fepflow("compare", "main", good, "--margin", "0.01").returncode == 4, "not shown to be so small"

    # What was there is no proof of what is not: without its baseline the same good agent does not pass.
    answers(suite, 0)
    assert suite.fepflow("baseline", "remove", "main").returncode == 0
    assert suite.run("--quiet").returncode == 4


@pytest.mark.battery
def test_one_document_that_broke_is_one_of_twenty_and_not_ten_questions_of_two_hundred(workplace: Workplace) -> None:
    """By questions the interval of -0.05 ends within the margin, and the run passed."""
    rows = [
        {"id": text, "input": text, "expected": text, "metadata": {"document": number // 10}}
        for number, text in enumerate(f"question {number}" for number in range(200))
    ]
    (workplace.folder / "cases.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    workplace.suite.write_text(f"{SUITE}cluster: $.test_case.metadata.document\n", encoding="utf-8")
    answers(workplace, 0)
    workplace.run("--quiet")
    base = workplace.record.id[:8]
    workplace.fepflow("baseline", "set", "main", base)
    answers(workplace, 10)
    done = workplace.run("--quiet")
    assert done.returncode == 4, done.stdout
    assert "n = 200 in 20 documents) is within the margin of 0.1, against main" in done.stdout
    compared = workplace.fepflow("compare", base, "latest", "--margin", "0.1", "--format", "json")
    assert compared.returncode == 4, compared.stdout
    assert '"paired-bounded-clustered"' in compared.stdout
    workplace.suite.write_text(SUITE, encoding="utf-8")
    assert workplace.run("--quiet").returncode == 0, "by questions"
