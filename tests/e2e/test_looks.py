"""A suite that is run until it passes: what each gate makes of it, and where the number of runs is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Stack, Workplace

pytestmark = pytest.mark.e2e

AGENT = """
from pathlib import Path

def answer(question):
    unlucky = int(Path(__file__).with_name("unlucky").read_text())
    return "I do not know" if int(question.split()[-1]) < unlucky else question
"""
SUITE = """
name: refunds
target: {python: agent.py:answer, version: "${GIT_SHA:-1.4}"}
test_cases: cases.jsonl
checks:
  - {id: right, type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.expected}}
gate: {min: {right: 0.9}GATE}
"""


@pytest.fixture
def suite(workplace: Workplace) -> Workplace:
    questions = [f"question {number}" for number in range(100)]
    rows = [json.dumps({"id": each, "input": each, "expected": each}) for each in questions]
    (workplace.folder / "cases.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (workplace.folder / "agent.py").write_text(AGENT, encoding="utf-8")
    return workplace


@pytest.mark.battery
def test_a_suite_that_is_run_until_it_passes_does_not_where_its_runs_are_pooled(
    suite: Workplace, stack: Stack, tmp_path: Path
) -> None:
    """The agent is the same each time, but for its luck."""

    def tried(gate: str, *arguments: str | Path) -> tuple[list[int], str]:
        suite.suite.write_text(SUITE.replace("GATE", gate), encoding="utf-8")
        codes = []
        for unlucky in (9, 3):
            (suite.folder / "unlucky").write_text(str(unlucky), encoding="utf-8")
            done = suite.run(*arguments, "--overwrite")
            codes.append(done.returncode)
        return codes, " ".join(done.stdout.split())

    codes, shown = tried("")
    assert codes == [4, 0]
    assert "The 2nd run of version 1.4: of the others, 1 inconclusive." in shown
    assert "! 1 of 2 runs of version 1.4 did not pass. A gate that is tried until it passes passes more often" in shown

    files = [tmp_path / f"report.{ending}" for ending in ("json", "xml", "html")]
    codes, shown = tried(", looks: pooled", *(part for file in files for part in ("-o", file)))
    assert codes == [4, 4]
    words = "The 2nd run of version 1.4: of the others, 1 inconclusive. 2 runs are judged together at a confidence of "
    assert words in shown
    assert "INCONCLUSIVE right: 0.94 (99.24 % interval" in shown
    assert "n = 200 in 100 test cases" in shown
    contents = [file.read_text(encoding="utf-8") for file in files]
    looks = json.loads(contents[0])["metadata"]["verdict"]["looks"]
    assert (looks["number"], looks["version"], looks["inconclusive"], len(looks["pooled"])) == (2, "1.4", 1, 1)
    for report in contents[1:]:
        assert words in report
    assert "all runs of this version: 0.94" in contents[2]
    record = suite.record
    body = {"flow_runs": {"id": {"any_": [record.flow_run_id]}}}
    artifacts = stack.api.post("/artifacts/filter", json=body).raise_for_status().json()
    (page,) = [artifact["data"] for artifact in artifacts if artifact["key"] == "verdict-refunds"]
    assert "2 runs are judged together at a confidence of" in page
    assert "| 0.94 (" in page
    assert (record.version, record.outcome) == ("1.4", "inconclusive")
    assert words in " ".join(suite.fepflow("show", "latest").stdout.split())
