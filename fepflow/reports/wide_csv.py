"""A run as a table with one row for each repeat of each test case, and columns for each check."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, TextIO

from fepflow.checks.explanation import explain
from fepflow.protocol.results import NOT_REACHED, CheckResult, score_of
from fepflow.reports.tables import BYTE_ORDER_MARK, about_the_call, harmless
from fepflow.security.redaction import known_secrets, redact_json
from fepflow.store.records import CaseResult, RunRecord
from fepflow.store.store import Store

_COLUMNS = (
    "test_case_id",
    "repeat",
    "status",
    "passed",
    "input",
    "expected",
    "output",
    "error",
    "latency_ms",
    "metadata",
)
_OF_CHECK = ("passed", "score", "error")


def write_wide_csv(store: Store, run: RunRecord, file: TextIO) -> None:
    """Write the rows in the order of the cases. A check that says nothing of a case leaves its cells empty."""
    check_ids = [counts.check_id for counts in store.results.check_totals(run.id)]
    secrets = known_secrets()
    file.write(BYTE_ORDER_MARK)
    table = csv.writer(file)
    names = [f"{check_id}.{name}" for check_id in check_ids for name in _OF_CHECK]
    table.writerow([*_COLUMNS, *map(harmless, names)])
    for result in store.results.by_case(run.id):
        cells = redact_json(_row(result), secrets)
        table.writerow([harmless(cells.get(column)) for column in (*_COLUMNS, *names)])


def _row(result: CaseResult) -> dict[str, Any]:
    output = result.output
    failure = output.failure if output else None
    has_error = failure is not None or any(check.status == "error" for check in result.checks)
    return {
        **about_the_call(result),
        "test_case_id": result.case.id,
        "repeat": result.repeat + 1,
        "status": "missing" if output is None else "error" if has_error else "completed",
        "passed": passed_all(result),
        "error": failure["message"] if failure is not None else NOT_REACHED if output is None else None,
        **{name: value for check in result.checks for name, value in _of_check(check)},
    }


def _of_check(check: CheckResult) -> Iterator[tuple[str, Any]]:
    yield f"{check.check_id}.passed", check.passed
    yield f"{check.check_id}.score", score_of(check)
    yield f"{check.check_id}.error", explain(check) if check.error else None


def passed_all(result: CaseResult) -> bool | None:
    """Return whether every check passed: False if one failed, None if that is not known, such as after an error."""
    if any(check.passed is False for check in result.checks):
        return False
    is_whole = result.output is not None and result.output.failure is None and bool(result.checks)
    return True if is_whole and all(check.status == "completed" and check.passed for check in result.checks) else None
