"""deepeval: goldens and datasets as JSON, JSONL and CSV, and the results of test runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fepflow.documents.loader import parse_json
from fepflow.errors import InputError, Problem
from fepflow.imports.imported import (
    JUDGE_MODEL,
    Imported,
    ImportedOutput,
    ImportedRun,
    Notes,
    Score,
    add_models,
    finite_number,
    known,
    listed,
    mapping,
    milliseconds,
    rubric,
    run_of_all,
    text_or_none,
    unique_names,
)
from fepflow.imports.source import Source

_MARKS = frozenset(
    ("expected_output", "actual_output", "retrieval_context", "expected_tools", "tools_called", "expected_outcome")
)
"""Members that tell a golden from the records of other tools."""

_JSON_CELLS = ("tools_called", "expected_tools", "additional_metadata", "custom_column_key_values", "turns")
_LISTS = ("context", "retrieval_context")
_DELIMITER = "|"
"""Between the items of a context in a cell of CSV, and in JSONL, as deepeval writes them."""

_METADATA = ("context", "retrieval_context", "expected_tools", "comments", "source_file", "tags")
_CASES = ("test_cases", "conversational_test_cases")


def looks_like(source: Source) -> bool:
    """Return whether the file holds goldens, or the test cases of a test run, by the names of their members."""
    if _run_of(source.data) is not None or _is_link(source.data):
        return True
    record = _snake(mapping(source.first_of()))
    return bool(_MARKS & record.keys()) and bool({"input", "scenario", "expected_outcome"} & record.keys())


def read(source: Source) -> Imported:
    """Read goldens as test cases, with recorded outputs if they have some; a test run as a run."""
    if _is_link(source.data):
        advice = "export it there, or log out (deepeval logout) and evaluate again"
        raise InputError(Problem("holds only a link to the test run on Confident AI", source.name, advice=advice))
    run = _run_of(source.data)
    return _read_run(source, run) if run is not None else _read_goldens(source)


def _is_link(data: Any) -> bool:
    """Return whether a file is the `.latest_test_run.json` of a test run that deepeval has sent away."""
    return isinstance(data, dict) and data.keys() == {"testRunLink"}


def _run_of(data: Any) -> dict[str, Any] | None:
    """Return the test run in a document: deepeval writes it by itself, and inside of `testRunData`."""
    data = mapping(data)
    run = _snake(mapping(data.get("testRunData", data.get("test_run_data", data))))
    is_run = {"metrics_scores", "test_passed", "test_failed", "conversational_test_cases"} & run.keys()
    return run if is_run and any(isinstance(run.get(kind), list) for kind in _CASES) else None


def _read_run(source: Source, run: dict[str, Any]) -> Imported:
    notes = Notes(source.name)
    cases: list[dict[str, Any]] = []
    outputs: list[ImportedOutput] = []
    for kind in _CASES:
        for index, item in enumerate(listed(run.get(kind))):
            record = _snake(mapping(item))
            if not {"input", "turns"} & record.keys():
                notes.by_hand("a test case without input and turns is left out", path=f"{kind}[{index}]")
                continue
            cases.append(_case(record))
            outputs.append(_output(len(cases) - 1, record))
    notes.came(test_case=len(cases), output=len(outputs), run=1)
    name = text_or_none(run.get("identifier") or run.get("test_file")) or source.stem
    return Imported("deepeval", "test run", name[:150], notes, cases, runs=[ImportedRun(outputs)] if cases else ())


def _output(case: int, record: Mapping[str, Any]) -> ImportedOutput:
    metrics = [_snake(item) for item in listed(record.get("metrics_data")) if isinstance(item, dict)]
    names = unique_names([text_or_none(item.get("name")) or "metric" for item in metrics])
    scores = {name: _score(item) for name, item in zip(names, metrics, strict=True)}
    tools = record.get("tools_called")
    calls = [
        {"name": tool.get("name"), "arguments": tool.get("input_parameters") or {}}
        for tool in map(_snake, filter(None, map(mapping, listed(tools))))
    ]
    metadata = known(
        latency_ms=milliseconds(record.get("completion_time")),
        usd=finite_number(record.get("token_cost")),
        tool_calls=calls if isinstance(tools, list) else None,
    )
    value = record.get("actual_output")
    if value is None and record.get("turns"):
        value = {"turns": record["turns"]}
    error = "the test case has no actual output" if value is None else None
    return ImportedOutput(case, value, 0, error, metadata, scores)


def _score(metric: Mapping[str, Any]) -> Score:
    """Return the score of a metric. A metric that raised has `success: false` and an error, which is not a fail."""
    error = text_or_none(metric.get("error"))
    if error is None and metric.get("skipped") is True:
        error = "the metric was skipped"
    score = Score.of(metric.get("success"), metric.get("score"), metric.get("reason"), error)
    return score if error is not None or score.score is not None else replace(score, error="the metric has no score")


def _read_goldens(source: Source) -> Imported:
    notes = Notes(source.name)
    cases: list[dict[str, Any]] = []
    outputs: list[ImportedOutput] = []
    if source.is_document and source.listed("goldens") is None:
        raise InputError(Problem("holds no list of goldens and no test run", source.name))
    for line, item in source.items("goldens"):
        record = _plain_cells(_snake(mapping(item)), notes, line)
        if text_or_none(record.get("scenario")) is not None and "input" not in record:
            cases.append(_conversation(record, notes, line))
        elif record.get("input") is None:
            notes.by_hand("a record without input is left out", line)
            continue
        else:
            cases.append(_case(record))
            if record.get("actual_output") is not None:
                outputs.append(_output(len(cases) - 1, record))
        if record.get("expectations"):
            notes.by_hand("expectations have no counterpart", line, advice="write checks for them")
    notes.came(test_case=len(cases))
    runs = run_of_all(outputs, cases, notes)
    suite: dict[str, Any] = {}
    if any("user" in case for case in cases):
        suite["user"] = {"model_config": {"model": JUDGE_MODEL}}
        notes.by_hand(f"suite.yaml has {JUDGE_MODEL} as the model that plays the users", advice="name the one you want")
        if all("expected" in case for case in cases):
            suite["checks"] = [rubric("The conversation ends with this outcome: {{$.test_case.expected}}")]
            add_models(suite, {"rubric"}, notes)
    if any(mapping(case.get("metadata")).get("expected_tools") for case in cases):
        notes.by_hand("expected tools are in the metadata of the test cases", advice="add a check tool_usage")
    return Imported("deepeval", "goldens", source.stem, notes, cases, suite, runs)


def _case(record: Mapping[str, Any]) -> dict[str, Any]:
    case_input = record.get("input")
    if case_input is None:  # a conversation that took place
        case_input = text_or_none(record.get("scenario")) or record.get("turns")
    metadata = {name: record[name] for name in _METADATA if record.get(name) not in (None, [], "")}
    metadata |= known(name=text_or_none(record.get("name")))
    for more in ("custom_column_key_values", "additional_metadata", "metadata"):
        metadata |= mapping(record.get(more))
    expected = record.get("expected_output", record.get("expected_outcome"))
    return {"input": case_input, **known(expected=expected, metadata=metadata or None)}


def _conversation(record: Mapping[str, Any], notes: Notes, line: int | None) -> dict[str, Any]:
    """Return a golden of a conversation as a case with a simulated user."""
    if record.get("turns"):
        notes.by_hand("turns that a conversation begins with are left out", line)
    case = _case({**record, "turns": None})
    del case["input"]
    persona = text_or_none(record.get("user_description"))
    goal = str(record["scenario"])[:20_000]
    return {**case, "user": known(goal=goal, persona=persona and persona[:20_000])}


def _plain_cells(record: dict[str, Any], notes: Notes, line: int | None) -> dict[str, Any]:
    """Return a record in which cells of CSV and JSONL hold lists and objects, and empty cells are left out."""
    plain = {name: value for name, value in record.items() if value != ""}
    for name in _LISTS:
        if isinstance(text := plain.get(name), str):
            parts = text.replace(";", _DELIMITER).split(_DELIMITER) if _DELIMITER in text else [text]
            plain[name] = [part.strip() for part in parts]
    for name in _JSON_CELLS:
        if isinstance(plain.get(name), str):
            try:
                plain[name] = parse_json(plain[name], notes.file, nan=True)
            except InputError:
                notes.by_hand(f"{name} is not JSON, and is left out", line)
                del plain[name]
    return plain


def _snake(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with names such as `actual_output`; deepeval writes `actualOutput`, too."""
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name): value
        for name, value in record.items()
    }
