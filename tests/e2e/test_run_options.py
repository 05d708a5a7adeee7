"""What a person can ask of a run on the command line, and what stdout is for."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from .conftest import Workplace
from .endpoint import Endpoint

pytestmark = pytest.mark.e2e

SCHEMAS = Path(__file__).parents[1] / "conformance" / "fep_schemas.json"
CASES: list[dict[str, Any]] = [
    {"id": f"{topic} {number}", "input": f"{topic} {number}", "expected": expected, "metadata": {"topic": topic}}
    for topic in ("refunds", "delivery")
    for number, expected in enumerate(["refunds 0", "refunds 1", "wrong", "never asked"])
]


def test_a_run_can_be_filtered_repeated_throttled_and_its_failures_run_again(
    workplace: Workplace, endpoint: Endpoint
) -> None:
    workplace.write_suite(CASES, tags=["nightly"], target={"concurrency": 16})
    # 3 of the 4 cases about refunds (a sample that leaves out the last), twice each, one call at a time.
    narrowed = [
        "--filter-metadata",
        "topic=refunds",
        "--limit",
        "0.75",
        "--seed",
        "3",
        "--epochs",
        "2",
        "--max-concurrency",
        "1",
        "--tag",
        "mine",
    ]
    first = workplace.run("--json", *narrowed)

    assert first.returncode == 1
    result = json.loads(first.stdout)
    Draft202012Validator(json.loads(SCHEMAS.read_text(encoding="utf-8"))).validate(result)
    assert endpoint.questions == {"refunds 0": 2, "refunds 1": 2, "refunds 2": 2}
    assert [row["metadata"]["repeat"] for row in result["results"]] == [1, 2, 1, 2, 1, 2]
    assert result["metadata"]["outcome"] == "fail"
    assert result["metadata"]["tags"] == ["nightly", "mine"]
    assert result["metadata"]["metrics"][0]["n_expected"] == 6
    assert "FAIL" in first.stderr, "what is for people goes to stderr"

    endpoint.asked.clear()
    again = workplace.run("--quiet", "--filter-failing", result["evaluation_id"][:8])
    assert again.returncode == 1
    assert endpoint.questions == {"refunds 2": 1}
    assert again.stdout == "FAIL  exact_match: 1 of 1 result failed.\n"
    assert again.stderr == ""

    workplace.write_suite([{**case, "expected": case["input"]} for case in CASES], tags=["nightly"])
    xml, document = workplace.folder / "run.xml", workplace.folder / "run.json"
    mended = workplace.run("--filter-failing", result["evaluation_id"][:8], "-o", xml, "-o", document)
    assert mended.returncode == 4, "one case is no verdict of the suite"
    chosen = f"1 of 8 test cases (--filter-failing {result['evaluation_id'][:8]})"
    words = f"{chosen} were run, and meet the gate. This is no verdict of the suite: run it whole for one."
    assert f"INCONCLUSIVE {words}" in " ".join(mended.stdout.split())
    stored = json.loads(document.read_text(encoding="utf-8"))["metadata"]
    assert stored["verdict"]["reasons"] == [words, "exact_match: 1 of 1 result passed."]
    assert f'<error message="{words}"' in xml.read_text(encoding="utf-8")
    refused = workplace.fepflow("baseline", "set", "main", "latest")
    assert (refused.returncode, f"cannot be a baseline: it has only {chosen}" in refused.stderr) == (2, True)


@pytest.mark.battery
def test_what_other_tools_call_it_works_on_values_of_this_run_only(workplace: Workplace, endpoint: Endpoint) -> None:
    workplace.write_suite(["refund 1", "refund 2", "other"], http={"url": "http://127.0.0.1:9/"})
    before = workplace.suite.read_text(encoding="utf-8")
    options = ["--case", "refund*", "--repeat", "2", "--set", f"target.http.url={workplace.env['AGENT_URL']}"]
    variables = {"FEPFLOW_RUN_TAG": "mine", "FEPFLOW_RUN_REPAETS": "3"}
    done = workplace.fepflow("eval", workplace.suite, *options, "--set", "gate.inconclusive=allow", **variables)
    assert (done.returncode, endpoint.questions) == (0, {"refund 1": 2, "refund 2": 2})
    assert "options by the environment: FEPFLOW_RUN_TAG" in done.stderr
    assert "FEPFLOW_RUN_REPAETS is not an option of this command" in done.stderr
    assert workplace.record.tags == ["mine"]
    assert workplace.suite.read_text(encoding="utf-8") == before
    endpoint.asked.clear()
    resumed = workplace.fepflow("run", "--resume", FEPFLOW_RUN_TAG="mine")
    assert (resumed.returncode, list(endpoint.asked)) == (0, []), "the latest run has its verdict already"


@pytest.mark.battery
def test_a_verdict_by_points_passes_where_the_interval_is_too_wide(workplace: Workplace) -> None:
    gate = {"min": {"exact_match": 0.5}}
    workplace.write_suite([*(case for case in CASES if case["expected"].startswith("refunds"))], gate=gate)
    done = workplace.run("--json", "--verdict", "point", "--filter-metadata", "topic=refunds")
    assert done.returncode == 0, done.stderr
    metric = json.loads(done.stdout)["metadata"]["metrics"][0]
    assert (metric["value"], metric["low"] < 0.5) == (1, True), "by its interval it were inconclusive"


def test_a_suite_against_an_agent_that_is_down_is_inconclusive(workplace: Workplace) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and never listened on: nobody else gets the port either
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/ask"
        workplace.write_suite(["one", "two", "three"], target={"retries": 1})
        report = workplace.folder / "results.json"
        done = workplace.run("-o", report, AGENT_URL=address)
    assert done.returncode == 4
    assert "INCONCLUSIVE" in done.stdout
    result = json.loads(report.read_text(encoding="utf-8"))
    assert result["status"] == "completed", "the run was, whatever became of its calls"
    messages = {check["error"]["message"] for row in result["results"] for check in row["check_results"]}
    assert len(messages) == 1
    assert "connection refused by 127.0.0.1" in messages.pop()
