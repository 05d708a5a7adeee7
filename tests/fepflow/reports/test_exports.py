"""Runs in the forms of other tools: their ids are stable, an error is no fail, inconclusive is not false."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output
from fepflow.reports import langfuse
from fepflow.store.records import RunRecord
from tests.fepflow.conftest import NASTY, NO_ANSWER, Cli, FillRun, check

METRIC = {
    "id": "says_so",
    "check": "says_so",
    "value": 0.5,
    "low": 0.1,
    "high": 0.9,
    "confidence": 0.95,
    "n_expected": 5,
    "n_completed": 2,
    "n_error": 2,
    "n_skipped": 0,
    "method": "wilson",
}
NO_VALUE = {"id": "empty", "check": "empty", "n_expected": 5, "n_completed": 0, "n_error": 5, "n_skipped": 0}


def scored(score: float, passed: bool | None = None) -> CheckResult:
    results = {"score": score} if passed is None else {"score": score, "passed": passed}
    return check(True).model_copy(update={"results": results})


@pytest.fixture
def run(fill_run: FillRun) -> RunRecord:
    rows = [
        (
            "passes",
            Output(value="yes", metadata={"latency_ms": 20.0, "tokens": 7, "usd": 0.5, "model": "m"}),
            scored(0.9, True),
        ),
        ("fails", Output(value="no"), check(False, text="no")),
        ("no answer", NO_ANSWER, check(None, error="the target gave no output: no answer within 2 s")),
        ("check error", Output(value="yes"), check(None, error="the judge did not answer")),
        ("not got to", None, None),
    ]
    return fill_run(rows, metrics=[METRIC, NO_VALUE], outcome="inconclusive")


def exported(cli: Cli, *arguments: str) -> str:
    result = cli("export", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def events_of(text: str) -> list[dict[str, Any]]:
    return [event for line in text.splitlines() for event in json.loads(line).get("batch", ())]


def test_a_csv_has_a_row_for_each_case_with_columns_for_each_check(cli: Cli, run: RunRecord) -> None:
    rows = list(csv.DictReader(exported(cli, "--to", "csv").lstrip("\ufeff").splitlines()))
    assert [(row["test_case_id"], row["status"], row["passed"], row["says_so.passed"]) for row in rows] == [
        ("passes", "completed", "true", "true"),
        ("fails", "completed", "false", "false"),
        ("no answer", "error", "", ""),
        ("check error", "error", "", ""),
        ("not got to", "missing", "", ""),
    ]
    assert [row["says_so.score"] for row in rows] == ["0.9", "", "", "", ""]
    assert rows[2]["error"] == "no answer within 2 s"
    assert rows[3]["says_so.error"] == "the judge did not answer"


def test_no_cell_of_the_csv_is_a_formula(cli: Cli, fill_run: FillRun) -> None:
    fill_run([(name, Output(value=text), check(False, text=text)) for name, text in NASTY.items()])
    rows = list(csv.DictReader(exported(cli, "--to", "csv").lstrip("\ufeff").splitlines()))
    cells = [cell.lstrip(" \ufeff\u200b") for row in rows for cell in row.values() if isinstance(cell, str)]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "＝")]


def test_langfuse_gets_a_trace_a_call_and_scores_of_each_output(cli: Cli, run: RunRecord) -> None:
    events = events_of(exported(cli, "--to", "langfuse"))
    traces = [event["body"] for event in events if event["type"] == "trace-create"]
    assert [trace["metadata"]["test_case_id"] for trace in traces] == [
        *("passes", "fails", "no answer", "check error", "not got to")
    ]
    assert traces[0]["metadata"]["expected"] == "yes"
    assert {trace["sessionId"] for trace in traces} == {run.id}
    scores = [event["body"] for event in events if event["type"] == "score-create"]
    by_trace = {trace["id"]: trace["metadata"]["test_case_id"] for trace in traces}
    assert [(by_trace.get(score.get("traceId")), score["name"], score["value"]) for score in scores] == [
        ("passes", "says_so", 1),
        ("passes", "says_so.score", 0.9),
        ("fails", "says_so", 0),
        (None, "verdict", "inconclusive"),
    ]
    call = next(event["body"] for event in events if event["type"] == "generation-create")
    assert (call["usageDetails"], call["costDetails"], call["model"]) == ({"total": 7}, {"total": 0.5}, "m")


def test_what_ended_in_an_error_is_one_in_langfuse_and_has_no_score(cli: Cli, run: RunRecord) -> None:
    events = events_of(exported(cli, "--to", "langfuse"))
    told = [(body["name"], body.get("level"), body.get("statusMessage")) for body in (each["body"] for each in events)]
    assert [each for each in told if each[1]] == [
        ("call", "ERROR", "no answer within 2 s"),
        ("says_so", "ERROR", "the target gave no output: no answer within 2 s"),
        ("says_so", "ERROR", "the judge did not answer"),
        ("call", "WARNING", "the run did not get to it"),
    ]


def test_an_answer_without_a_form_in_json_is_a_text_in_langfuse(cli: Cli, fill_run: FillRun) -> None:
    metadata = {"tokens": math.inf, "usd": 10**400, "latency_ms": math.nan}
    fill_run([("odd", Output(value=[math.nan, -math.inf, 1.5], metadata=metadata), check(True))])
    (output,) = [event["body"]["output"] for event in events_of(exported(cli, "--to", "langfuse", "--dataset", "d"))
                 if event["type"] == "trace-create"]  # fmt: skip
    assert output == ["NaN", "-Infinity", 1.5]


def test_a_second_export_has_the_same_ids_and_no_id_twice(cli: Cli, run: RunRecord) -> None:
    first, second = (exported(cli, "--to", "langfuse", "--dataset", "refunds") for _ in range(2))
    assert first == second
    events = events_of(first)
    assert len({event["id"] for event in events}) == len(events)
    bodies = [event["body"]["id"] for event in events]
    assert len(set(bodies)) == len(bodies)


def test_a_dataset_is_created_before_the_traces_and_linked_after_them(cli: Cli, run: RunRecord) -> None:
    lines = [json.loads(line) for line in exported(cli, "--to", "langfuse", "--dataset", "refunds").splitlines()]
    paths = [line.get("path", "batch").rpartition("/")[2] for line in lines]
    assert paths == ["datasets", *["dataset-items"] * 5, "batch", *["dataset-run-items"] * 4]
    items = {line["body"]["id"] for line in lines[1:6]}
    traces = {event["body"]["id"] for event in lines[6]["batch"] if event["type"] == "trace-create"}
    assert all(line["body"]["datasetItemId"] in items and line["body"]["traceId"] in traces for line in lines[7:])


def test_no_request_to_langfuse_is_larger_than_it_takes(
    cli: Cli, fill_run: FillRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(langfuse, "MAX_BATCH", 30_000)
    fill_run([(f"c{number}", Output(value="x" * 10_000), check(True)) for number in range(5)])
    lines = exported(cli, "--to", "langfuse").splitlines()
    assert len(lines) == 3
    assert all(len(line) < langfuse.MAX_BATCH + 100 for line in lines)


def test_eval_hub_gets_the_metrics_that_have_a_value_with_their_counts(cli: Cli, run: RunRecord) -> None:
    results = json.loads(exported(cli, "--to", "evalhub"))
    assert {name: results[name] for name in ("id", "benchmark_id", "model_name", "num_examples_evaluated")} == {
        "id": run.id,
        "benchmark_id": "refunds",
        "model_name": "refunds",
        "num_examples_evaluated": 2,
    }
    (metric,) = results["results"]
    assert (metric["metric_name"], metric["metric_value"], metric["confidence_interval"]) == (
        "says_so",
        0.5,
        [0.1, 0.9],
    )
    assert (metric["num_samples"], metric["metadata"]["n_expected"], metric["metadata"]["n_error"]) == (2, 5, 2)
    about = results["evaluation_metadata"]
    assert about["outcome"] == "inconclusive"
    assert about["without_value"] == {"empty": "5 of 5 results are errors"}


def test_eval_hub_gets_nothing_of_a_run_that_was_cut_off(cli: Cli, fill_run: FillRun, home: Path) -> None:
    cut_off = fill_run([("a", Output(value="yes"), check(True))], outcome=None, verdict=None)
    result = cli("export", cut_off.id, "--to", "evalhub", "-o", home / "out.json")
    assert result.exit_code == 2
    assert "takes results of completed jobs only" in result.stderr
    assert not (home / "out.json").exists()


def test_a_secret_of_the_environment_is_in_no_export(
    cli: Cli, fill_run: FillRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct-horse-battery")
    error = CheckError(type="timeout_error", message="key correct-horse-battery is wrong")
    result = check(None, error="x").model_copy(update={"error": error})
    fill_run([("a", Output(value={"echo": "correct-horse-battery"}), result)])
    for target in ("csv", "langfuse", "evalhub"):
        assert "correct-horse" not in exported(cli, "--to", target)


def test_a_file_that_is_there_is_not_replaced_unasked(cli: Cli, run: RunRecord, home: Path) -> None:
    (home / "out.csv").write_text("mine")
    assert cli("export", "--to", "csv", "-o", home / "out.csv").exit_code == 2
    assert (home / "out.csv").read_text() == "mine"
    assert cli("export", "--to", "csv", "-o", home / "out.csv", "--overwrite").exit_code == 0
    assert (home / "out.csv").stat().st_mode & 0o077 == 0o644 & 0o077
