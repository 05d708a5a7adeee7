"""`fepflow import`: a report of what came over, a run of results, and clear refusals."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fepflow.cli.main import fepflow
from fepflow.datasets.records import MAX_LINE_BYTES
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import InputError
from fepflow.services.imports import read_import
from fepflow.services.run_service import open_store

RUN = {
    "testCases": [
        {"input": "a", "actualOutput": "b", "metricsData": [{"name": "Polite", "score": 0.9, "success": True}]},
        {"input": "c", "actualOutput": "d", "metricsData": [{"name": "Polite", "success": False, "error": "down"}]},
    ],
    "testPassed": 1,
}


pytestmark = pytest.mark.usefixtures("home")


def command(*arguments: str) -> Result:
    return CliRunner().invoke(fepflow, list(arguments))


def test_results_become_a_run_that_show_and_compare_work_on(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    first, second = command("import", "run.json"), command("import", "run.json")
    assert first.exit_code == 0, first.output
    assert "(deepeval test run): 2 test cases, 2 outputs, 1 run" in first.output
    assert "INCONCLUSIVE" in second.output
    with open_store() as store:
        new, base = store.runs.newest(2)
    assert new.tags == ["import", "deepeval"]
    shown = command("show", new.id)
    assert shown.exit_code == 0, shown.output
    assert "Polite" in shown.output
    assert "imported from run.json (deepeval test run, sha256 " in shown.output
    compared = command("compare", base.id, new.id)
    assert "all 2 test cases matched" in compared.output


def test_the_scorer_of_an_import_is_compared_with_people_and_corrected_in_that_run_only(tmp_path: Path) -> None:
    scores = [{"name": "Polite", "score": 0.9, "success": True}, {"name": "Polite", "score": 0.2, "success": False}]
    cases = [{"input": f"q{n}", "actualOutput": str(n), "metricsData": [scores[n >= 24]]} for n in range(40)]
    (tmp_path / "run.json").write_text(json.dumps({"testCases": cases, "testPassed": 24}))
    assert command("import", "run.json").exit_code == 0
    assert "judge" not in command("show", "latest").output, "a scorer may be no model at all"
    Path("suite.yaml").write_text("name: another")
    drawn = command("calibrate", "--run", "latest", "--sample", "20", "--labels", "sheet.csv", "--seed", "1")
    assert "fepflow calibrate --run" in drawn.output, drawn.exception
    assert "has changed since" not in drawn.output
    with Path("sheet.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert "0.9" not in str(rows), "what the scorer said would sway them"
    labels = [f"{row['id']},{'yes' if int(row['output']) < 20 else 'no'}" for row in rows]
    Path("labels.csv").write_text("\n".join(["id,label", *labels]))
    compared = command("calibrate", "--run", "latest", "--labels", "labels.csv")
    assert "judge Polite (deepeval), passed" in compared.output
    wrong = sum(20 <= int(row["output"]) < 24 for row in rows)
    right = sum(int(row["output"]) < 20 for row in rows)
    assert wrong > 0
    assert [line.split() for line in compared.output.splitlines() if line.startswith("  pass ")] == [
        ["pass", str(right), "0"]
    ]
    shown = command("show", "latest").output
    assert "judge Polite (deepeval): TPR 1 and TNR 0." in shown
    assert "corrected for the judge" in shown
    by_scores = command("calibrate", "--run", "latest", "--labels", "labels.csv", "--field", "score")
    assert "is not a number, as Polite gives score" in str(by_scores.exception)
    assert command("import", "run.json").exit_code == 0
    again = command("show", "latest").output
    assert "judge" not in again, "nobody knows whether it is the same scorer"


def test_a_suite_of_results_has_the_time_and_cost_that_were_recorded(tmp_path: Path) -> None:
    slow = {"input": "a", "actualOutput": "b", "completionTime": 90, "tokenCost": 0.5}
    (tmp_path / "run.json").write_text(
        json.dumps({"testCases": [slow, {"input": "c", "actualOutput": "d"}], "testPassed": 1})
    )
    assert command("import", "run.json", "--no-run", "-o", "suite").exit_code == 0
    assert command("validate", "suite/suite.yaml").exit_code == 0
    target = validate_suite(Path("suite/suite.yaml"), {}).loaded.section("target")
    paths = {name: f"$.metadata.{name}" for name in ("latency_ms", "usd")}
    assert target.recorded.metadata == paths
    first, second = map(json.loads, Path("suite/outputs.jsonl").read_text().splitlines())
    assert (first["metadata"]["latency_ms"], first["metadata"]["usd"]) == (90_000, 0.5)
    assert "latency_ms" not in second["metadata"]


def test_all_repeats_of_results_are_written(tmp_path: Path) -> None:
    rows = [
        {"span_id": n, "root_span_id": n, "input": n[0], "output": n, "scores": {"s": 1}} for n in ("a1", "a2", "b1")
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert command("import", "rows.jsonl", "--as", "braintrust", "--no-run", "-o", "suite").exit_code == 0
    assert command("validate", "suite/suite.yaml").exit_code == 0
    loaded = validate_suite(Path("suite/suite.yaml"), {}).loaded
    assert (loaded.suite.repeats, loaded.section("target").recorded.repeat) == (2, "$.repeat")
    records = map(json.loads, Path("suite/outputs.jsonl").read_text().splitlines())
    assert [(record["value"], record["repeat"]) for record in records] == [("a1", 1), ("a2", 2), ("b1", 1)]


def test_a_run_can_be_compared_with_one_of_the_suite_that_was_written(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    assert command("import", "run.json", "--run", "-o", "suite").exit_code == 0
    cases = validate_suite(Path("suite/suite.yaml"), {}).cases
    with open_store() as store:
        (run,) = store.runs.newest(1)
        stored = store.runs.cases(run.id)
    assert [case.model_dump_json(exclude_unset=True) for case in stored] == [
        case.model_dump_json(exclude_unset=True) for case in cases
    ]


def test_results_written_as_a_suite_are_valid(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    written = command("import", "run.json", "--no-run", "-o", "suite")
    assert written.exit_code == 0, written.output
    validated = command("validate", "suite/suite.yaml")
    assert validated.exit_code == 0, validated.output
    with open_store() as store:
        assert store.runs.newest(1) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cases.json", "--run"], "has no results"),
        (["cases.json", "--as", "promptfo"], "did you mean promptfoo"),
        (["gone.json"], "there is no such file"),
        (["deep.json"], "nested deeper than 100 levels"),
        (["text.json"], "is not valid JSON"),
        (["half.json.gz"], "not a complete gzip file"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_in_a_sentence(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "cases.json").write_text('[{"input": "a", "expected_output": "b"}]')
    (tmp_path / "deep.json").write_text("[" * 500 + "]" * 500)
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "half.json.gz").write_bytes(gzip.compress(b"[1, 2, 3]" * 100)[:20])
    result = command("import", *arguments)
    assert message in str(result.exception)


def test_a_run_whose_calls_all_failed_has_no_outputs_to_write(tmp_path: Path) -> None:
    case = {"input": "a", "metricsData": [{"name": "Polite", "success": True, "score": 1}]}
    (tmp_path / "run.json").write_text(json.dumps({"testCases": [case], "testPassed": 1}))
    assert "every call failed" in str(command("import", "run.json", "--no-run", "-o", "suite").exception)
    assert "INCONCLUSIVE" in command("import", "run.json").output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": "é"}\n'.encode("latin-1"), "rows.jsonl:1: is not UTF-8"),
        (b"\n" + b"[" * 5000 + b"]" * 5000, "rows.jsonl:2: "),
        (b'{"a": "' + b"x" * MAX_LINE_BYTES + b'"}', "rows.jsonl:1: this line is larger than"),
    ],
)
def test_a_first_line_that_cannot_be_read_is_told_and_not_an_unknown_format(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_import(path, "rows.jsonl")
    assert message in str(raised.value.problems[0])
    assert "in no format" not in str(raised.value.problems[0])
