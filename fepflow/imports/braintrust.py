"""Braintrust: rows of experiments and of datasets, as its API and its pages export them (JSON, JSONL, CSV)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import (
    CaseList,
    Imported,
    ImportedOutput,
    ImportedRun,
    Notes,
    Score,
    ScorerValues,
    cell,
    known,
    mapping,
    member,
    milliseconds,
    moment,
    number_of,
)
from fepflow.imports.source import Source
from fepflow.json.values import json_key, with_named_floats

_ITS_NAMES = frozenset(
    ("_xact_id", "_pagination_key", "experiment_id", "root_span_id", "span_attributes", "dataset_record_id")
)
_SCORE_COLUMNS = ("scores.", "scores/", "Scores.")
_SCORER_ERRORS = "scorer_errors"
"""Member of a row's metadata: the errors of scorers, by name."""

_OF_RESULTS = ("experiment_id", "span_id", "root_span_id", "scores", "output")


def looks_like(source: Source) -> bool:
    """Return whether the rows have Braintrust's names, or `scores` beside `input`, `output` and `expected`."""
    row = source.first_row()
    scored = isinstance(cell(row.get("scores")), dict) or any(name.startswith(_SCORE_COLUMNS) for name in row)
    return "input" in row and (bool(_ITS_NAMES & row.keys()) or (scored and {"output", "expected"} <= row.keys()))


def read(source: Source) -> Imported:
    """Read root spans as cases with their outputs and scores; rows of the same input are repeats of one case."""
    reader = _Reader(source)
    spans = 0
    for line, row in source.rows():
        if _is_root(row):
            reader.add(line, row)
        else:
            spans += 1
    imported = reader.imported()
    if spans and not imported.cases:
        raise InputError(Problem("holds spans, but no root span", source.name, advice="export traces, not spans"))
    return imported


def _is_root(row: dict[str, Any]) -> bool:
    """Return whether a row is a case: the spans below it are in the same export."""
    if (is_root := row.get("is_root")) in (True, False, "true", "false"):
        return is_root in (True, "true")
    if row.get("span_parents"):
        return False
    return row.get("span_id") is None or row.get("root_span_id") in (None, row["span_id"])


def _record_id(row: dict[str, Any]) -> str | None:
    """Return the id of the dataset's record. The id of a row is a new one in each experiment."""
    origin = mapping(row.get("origin"))
    record = member(row, "dataset_record_id") or (origin.get("id") if origin.get("object_type") == "dataset" else None)
    if record is None and not any(row.get(name) is not None for name in _OF_RESULTS):
        record = row.get("id")
    return str(record) if isinstance(record, str | int) and record != "" else None


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._notes = Notes(source.name)
        self._values = ScorerValues(self._notes)
        self._cases = CaseList()
        self._run = ImportedRun()

    def add(self, line: int | None, row: dict[str, Any]) -> None:
        """Add a row; one without an output and scores is a case of a dataset."""
        if "input" not in row:
            self._notes.by_hand("a row without input is left out", line)
            return
        index = self._case(row)
        scores = dict(self._scores(row))
        output, error = row.get("output"), row.get("error")
        is_result = output is not None or error is not None or scores
        if not is_result and ("dataset_id" in row or not {"output", "scores", "experiment_id"} & row.keys()):
            return
        repeat = self._run.next_repeat(index)
        self._run.times.append(moment(row.get("created")))
        failure = None if error is None else str(member(mapping(error), "message", "error") or error)
        if failure is None and output is None and not scores:
            failure = "the row has neither an output nor a score: the evaluation may not have got to it"
        if failure is not None and scores:
            self._notes.by_hand("a row with an error has scores: they are left out, and it is an error", line)
        if failure is not None:
            output, scores = None, {}
        output = ImportedOutput(index, with_named_floats(output), repeat, failure, _metadata(row), scores)
        self._run.outputs.append(output)

    def _case(self, row: dict[str, Any]) -> int:
        record = _record_id(row)
        content = with_named_floats([row["input"], row.get("expected")])
        key = record if record is not None else json_key(content)
        metadata = {name: value for name, value in mapping(row.get("metadata")).items() if name != _SCORER_ERRORS}
        if isinstance(row.get("tags"), list) and row["tags"]:
            metadata.setdefault("tags", row["tags"])
        about = with_named_floats(metadata) or None
        case = {**known(id=record), "input": content[0], **known(expected=content[1], metadata=about)}
        index = self._cases.place(key, case)
        if self._cases[index]["input"] != content[0]:
            raise InputError(Problem(f"the dataset record {key} appears twice with other inputs", self._source.name))
        return index

    def _scores(self, row: dict[str, Any]) -> Iterator[tuple[str, Score]]:
        scores = dict(mapping(row.get("scores")))
        scores |= {name[7:]: value for name, value in row.items() if name.startswith(_SCORE_COLUMNS)}
        for name, error in mapping(mapping(row.get("metadata")).get(_SCORER_ERRORS)).items():
            self._values.read(str(name), None)
            yield str(name), Score(error=f"the scorer failed: {error}")
            scores.pop(name, None)
        for name, value in scores.items():
            yield str(name), self._values.read(str(name), value.get("score") if isinstance(value, dict) else value)

    def imported(self) -> Imported:
        """Return the suite, with a run if there are outputs."""
        run, results = self._run, self._run.results
        run.checks = self._values.settle(run.outputs, "the row has no score of this name")
        self._notes.came(test_case=len(self._cases), output=len(run.outputs), scorer=len(run.checks))
        if len(set(results.values())) > 1 or (results and len(results) < len(self._cases)):
            self._notes.by_hand("not every case has the same number of rows: what is missing is missing in the run")
        runs = [run] if run.outputs else []
        return Imported("braintrust", None, self._source.path.stem, self._notes, self._cases, runs=runs)


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    metrics = mapping(row.get("metrics"))
    start, end = number_of(metrics.get("start")), number_of(metrics.get("end"))
    seconds = end - start if start is not None and end is not None else number_of(metrics.get("duration"))
    model = mapping(row.get("metadata")).get("model")
    return known(
        latency_ms=milliseconds(seconds),
        tokens=number_of(member(metrics, "tokens", "total_tokens")),
        usd=number_of(metrics.get("estimated_cost")),
        model=model if isinstance(model, str) else None,
    )
