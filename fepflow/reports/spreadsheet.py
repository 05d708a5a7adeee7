"""A run as CSV, to be opened by people: with Excel, a notebook, or a text editor."""

from __future__ import annotations

import csv
import json
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from fepflow.checks.explanation import explain
from fepflow.protocol.results import CheckResult, score_of
from fepflow.protocol.tables import NOT_REACHED
from fepflow.protocol.test_case import Output
from fepflow.reports.text import printable
from fepflow.store.records import CaseResult, RunRecord
from fepflow.store.store import Store
from fepflow.text import cut

COLUMNS = (
    "test_case_id",
    "repeat",
    "check_id",
    "check_type",
    "status",
    "passed",
    "score",
    "reason",
    "error",
    "input",
    "expected",
    "output",
    "metadata",
    "output_metadata",
    "latency_ms",
    "attempts",
)

MAX_CELL = 32_000
"""Excel takes 32,767 characters, and spreads the rest over other cells."""

BYTE_ORDER_MARK = "\ufeff"
"""By it Excel knows UTF-8; pandas and others read past it."""

_FORMULA = frozenset("=+-@＝＋－＠")  # full-width signs begin a formula, too
_OF_THE_CALL = ("error", "attempts", "attempt_log", "latency_ms")


def write_csv(store: Store, run: RunRecord, file: TextIO) -> None:
    """One row for each check; one for a call without checks, and for a case that the run did not get to."""
    file.write(BYTE_ORDER_MARK)
    table = csv.writer(file)
    table.writerow(COLUMNS)
    for result in store.results(run.id):
        about = _about_the_call(result)
        rows = [_of_check(check) for check in result.checks] or list(_of_call(result.output))
        for row in rows:
            row_values = {"test_case_id": result.case.id, "repeat": result.repeat + 1, **about, **row}
            table.writerow([harmless(row_values.get(column)) for column in COLUMNS])


def _of_check(check: CheckResult) -> dict[str, Any]:
    passed = check.passed
    return {
        "check_id": check.check_id,
        "check_type": check.check_type,
        "status": check.status,
        "passed": passed,
        "score": score_of(check),
        "reason": None if check.error or passed else explain(check) or None,
        "error": explain(check) if check.error else None,
    }


def _of_call(output: Output | None) -> Iterator[dict[str, Any]]:
    if output is None:
        yield {"status": "skip", "reason": NOT_REACHED}
    elif output.failure is not None:
        yield {"status": "error", "error": output.failure["message"]}
    else:
        yield {"status": "completed"}


def _about_the_call(result: CaseResult) -> dict[str, Any]:
    case, output = result.case, result.output
    metadata = (output.metadata if output else None) or {}
    attempts: Sequence[dict[str, Any]] = metadata.get("attempt_log") or ()
    return {
        "input": case.input,
        "expected": case.expected,
        "metadata": case.metadata or None,
        "output": None if output is None else output.value,
        "output_metadata": {name: value for name, value in metadata.items() if name not in _OF_THE_CALL} or None,
        "latency_ms": metadata.get("latency_ms", attempts[-1].get("latency_ms") if attempts else None),
        "attempts": metadata.get("attempts"),
    }


def harmless(value: Any) -> Any:
    """A cell: nothing is empty, numbers stay numbers, and a text that would be taken for a formula is quoted.

    In front of a formula a spreadsheet overlooks white space and what has no width, such as a byte order mark.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(cut(text, MAX_CELL))
    return f"'{text}" if _first_sign(text) in _FORMULA or text[:1] in tuple("\t\r\n\ufeff") else text


def _first_sign(text: str) -> str:
    return next((sign for sign in text if not sign.isspace() and unicodedata.category(sign) != "Cf"), "")
