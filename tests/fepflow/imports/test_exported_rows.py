"""Exports of Langfuse and Braintrust: rows of several files belong together, and what is unclear is no pass."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.errors import InputError
from fepflow.imports.imported import Imported, Score
from fepflow.protocol.test_case import Output
from fepflow.services.imports import read_import
from tests.fepflow.conftest import Cli, FillRun, check

TIME = "2026-01-02T03:04:05Z"
ITEMS = [
    {
        "id": f"i{n}",
        "status": "ACTIVE",
        "input": {"q": n},
        "expectedOutput": str(n),
        "datasetId": "d",
        "datasetName": "sums",
    }
    for n in (1, 2)
]
RUN = [{"datasetItemId": f"i{n}", "traceId": f"t{n}", "datasetRunName": "first"} for n in (1, 2)]
TRACES = [
    {
        "id": f"t{n}",
        "timestamp": "2026-01-02T03:04:05Z",
        "input": {"q": n},
        "output": str(n),
        "userId": None,
        "public": False,
    }
    for n in (1, 2)
]


def score(trace: str, name: str, value: Any, kind: str = "NUMERIC", **fields: Any) -> dict[str, Any]:
    return {"id": f"{trace}{name}", "traceId": trace, "name": name, "value": value, "dataType": kind, **fields}


def folder_of(tmp_path: Path, **files: list[dict[str, Any]]) -> Path:
    folder = tmp_path / "export"
    folder.mkdir()
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def imported(path: Path) -> Imported:
    return read_import(path).imported


def hands(result: Imported) -> str:
    return "\n".join(map(str, result.notes.problems()))


def test_dataset_items_traces_and_scores_of_several_files_become_a_run(tmp_path: Path) -> None:
    scores = [
        score("t1", "ok", 1, "BOOLEAN", comment="fine"),
        score("t1", "close", 0.5),
        score("t2", "ok", 0, "BOOLEAN"),
    ]
    result = imported(folder_of(tmp_path, items=ITEMS, run=RUN, traces=TRACES, scores=scores))
    assert (result.format, result.name) == ("langfuse", "sums")
    assert result.cases[0] == {"id": "i1", "expected": "1", "input": {"q": 1}}
    assert [(output.case, output.value) for output in result.runs[0].outputs] == [(0, "1"), (1, "2")]
    assert result.runs[0].outputs[0].scores == {"ok": Score(True, 1.0, "fine"), "close": Score(None, 0.5)}
    assert result.runs[0].outputs[1].scores["close"].error == "the trace has no score of this name"
    assert result.notes.is_complete


def test_a_trace_that_ended_in_an_error_or_has_no_output_is_an_error(tmp_path: Path) -> None:
    traces = [{**TRACES[0], "level": "ERROR", "output": None}, {**TRACES[1], "output": None}]
    broken = {
        "id": "o",
        "traceId": "t1",
        "startTime": "2026-01-02T03:04:05Z",
        "level": "ERROR",
        "statusMessage": "no key",
    }
    files = folder_of(tmp_path, traces=traces, observations=[broken], scores=[score("t1", "ok", 1, "BOOLEAN")])
    outputs = imported(files).runs[0].outputs
    assert [(output.error, output.scores) for output in outputs] == [("no key", {}), ("no output", {})]


def test_scores_of_one_name_that_differ_and_categories_are_no_pass(tmp_path: Path) -> None:
    scores = [
        score("t1", "ok", 1, "BOOLEAN"),
        score("t1", "ok", 0, "BOOLEAN"),
        score("t1", "tone", None, "CATEGORICAL"),
    ]
    scores[-1]["stringValue"] = "polite"
    result = imported(folder_of(tmp_path, traces=TRACES[:1], scores=scores))
    assert result.runs[0].outputs[0].scores == {"ok": Score(error="the trace has 2 scores of this name, which differ")}
    assert "the scores of 'tone' are left out: they are labels such as 'polite'" in hands(result)


def test_a_table_of_traces_has_its_scores_in_columns(tmp_path: Path) -> None:
    path = tmp_path / "traces.csv"
    row = {**TRACES[0], "input": '{"q": 1}', "correct": "[1]", "comments": "[]", "tags": '["a"]', "latency": "1.5"}
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(row))
        table.writeheader()
        table.writerow(row)
    result = imported(path)
    assert result.cases == [{"id": "t1", "input": {"q": 1}}]
    assert result.runs[0].outputs[0].scores == {"correct": Score(None, 1.0)}
    assert result.runs[0].outputs[0].metadata["latency_ms"] == 1500.0


def test_traces_that_are_not_in_the_export_and_archived_items_need_a_hand(tmp_path: Path) -> None:
    items = [*ITEMS, {**ITEMS[0], "id": "old", "status": "ARCHIVED", "datasetName": ["no", "text"]}]
    result = imported(folder_of(tmp_path, items=items, run=RUN, traces=TRACES[:1]))
    assert [len(result.cases), len(result.runs[0].outputs)] == [2, 1]
    assert "not in the export, and missing in the run: 1 trace of a dataset run" in hands(result)
    assert "left out of the dataset: 1 archived item" in hands(result)


def test_scores_alone_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds scores, which no test case can be made of"):
        imported(folder_of(tmp_path, scores=[score("t1", "ok", 1)]))


def test_what_was_exported_for_langfuse_can_be_imported(cli: Cli, fill_run: FillRun, tmp_path: Path) -> None:
    fill_run([("a", Output(value="yes"), check(True)), ("b", Output(value="no"), check(False))])
    assert cli("export", "--to", "langfuse", "-o", tmp_path / "run.json").exit_code == 0
    result = imported(tmp_path / "run.json")
    assert [output.value for output in result.runs[0].outputs] == ["yes", "no"]
    assert [output.scores["says_so"].passed for output in result.runs[0].outputs] == [True, False]


def test_runs_without_names_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    run = [{"datasetItemId": "i1", "traceId": f"t{n}", "datasetRunId": f"r{n}"} for n in (1, 2)]
    result = imported(folder_of(tmp_path, items=ITEMS, run=run, traces=TRACES))
    assert [(run.variant, run.repeats) for run in result.runs] == [({"run": "r1"}, 1), ({"run": "r2"}, 1)]
    assert "do not name their run" not in hands(result)


def test_items_that_say_no_run_at_all_need_a_hand(tmp_path: Path) -> None:
    run = [{"datasetItemId": "i1", "traceId": f"t{n}"} for n in (1, 2)]
    result = imported(folder_of(tmp_path, items=ITEMS, run=run, traces=TRACES))
    assert "items of dataset runs do not name their run" in hands(result)


def experiment(number: int, **fields: Any) -> dict[str, Any]:
    span = f"s{number}"
    return {
        "id": f"r{number}",
        "_xact_id": "1",
        "experiment_id": "e",
        "created": "2026-01-02T03:04:05Z",
        "span_id": span,
        "root_span_id": span,
        "is_root": True,
        "input": {"q": 1},
        "output": "1",
        "expected": "1",
        "scores": {"exact": 1},
        **fields,
    }


def jsonl(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "experiment.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_root_spans_of_an_experiment_are_outputs_and_the_same_input_is_a_repeat(tmp_path: Path) -> None:
    child = experiment(2, is_root=False, root_span_id="s1", span_parents=["s1"])
    metrics = {"start": 1.0, "end": 2.5, "tokens": 12}
    result = imported(jsonl(tmp_path, experiment(1, metrics=metrics), child, experiment(3, scores={"exact": None})))
    assert (result.format, result.cases) == ("braintrust", [{"input": {"q": 1}, "expected": "1"}])
    assert [(output.repeat, output.scores["exact"]) for output in result.runs[0].outputs] == [
        (0, Score(None, 1.0)),
        (1, Score(error="the scorer gave no score")),
    ]
    metadata = result.runs[0].outputs[0].metadata
    assert (metadata["latency_ms"], metadata["tokens"]) == (1500.0, 12)


def test_errors_of_tasks_and_of_scorers_stay_errors(tmp_path: Path) -> None:
    failed = experiment(1, output=None, error="RuntimeError: boom")
    scorer = experiment(2, input={"q": 2}, scores={}, metadata={"scorer_errors": {"exact": "KeyError"}})
    result = imported(jsonl(tmp_path, failed, scorer))
    assert [output.error for output in result.runs[0].outputs] == ["RuntimeError: boom", None]
    assert result.runs[0].outputs[1].scores == {"exact": Score(error="the scorer failed: KeyError")}
    assert "a row with an error has scores" in hands(result)


def test_records_of_a_dataset_are_test_cases_by_their_ids(tmp_path: Path) -> None:
    rows = [{"id": name, "_xact_id": "1", "dataset_id": "d", "input": "q", "expected": "a"} for name in ("x", "y")]
    result = imported(jsonl(tmp_path, *rows))
    assert [case["id"] for case in result.cases] == ["x", "y"]
    assert not result.runs
