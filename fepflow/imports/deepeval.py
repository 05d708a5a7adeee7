"""deepeval: goldens and datasets as JSON, JSONL and CSV, and the results of test runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import Imported, Notes
from fepflow.imports.source import Source

_GOLDEN = (
    "expected_output",
    "expectedOutput",
    "actual_output",
    "actualOutput",
    "retrieval_context",
    "retrievalContext",
)


def looks_like(source: Source) -> bool:
    """Return whether the file holds goldens: records with an `input` and other names of deepeval's."""
    record = source.first_record
    if record is None and isinstance(source.data, list) and source.data:
        record = source.data[0]
    return isinstance(record, dict) and "input" in record and any(name in record for name in _GOLDEN)


def read(source: Source) -> Imported:
    """Read goldens as test cases."""
    notes = Notes(source.name)
    cases = []
    for line, record in _records(source):
        if not isinstance(record, dict) or "input" not in record:
            notes.by_hand("a record without input is left out", line)
            continue
        case = {"input": record["input"]}
        expected = record.get("expected_output", record.get("expectedOutput"))
        if expected is not None:
            case["expected"] = expected
        cases.append(case)
    notes.came("test case", len(cases))
    return Imported("deepeval", None, source.path.stem, notes, cases)


def _records(source: Source) -> Iterator[tuple[int | None, Any]]:
    if not source.is_document:
        yield from source.records()
        return
    if not isinstance(source.data, list):
        raise InputError(Problem("holds no list of goldens", source.name))
    for index, record in enumerate(source.data):
        yield source.document.line_of((index,)), record
