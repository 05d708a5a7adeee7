"""Results as a table of pandas, which is not one of fepflow's dependencies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fepflow.errors import UserError
from fepflow.protocol.results import TestCaseResult

_COLUMNS = ("case_id", "repeat", "input", "expected", "output", "error", "latency_ms", "passed")


def to_dataframe(results: Iterable[TestCaseResult]) -> Any:
    """See `ResultsView.to_dataframe`."""
    try:
        import pandas
    except ImportError:
        raise UserError("to_dataframe() needs pandas: pip install pandas") from None
    rows = list(map(_row, results))
    checks = dict.fromkeys(name for row in rows for name in row if name not in _COLUMNS)
    # Objects as they are: pandas would make NaN of a missing yes or no, and floats of whole numbers.
    frame = pandas.DataFrame(rows, columns=[*_COLUMNS, *checks], dtype=object)
    return frame.where(frame.notna(), None).astype({"repeat": int, "passed": bool})


def _row(result: TestCaseResult) -> dict[str, Any]:
    case, output = result.execution_context.test_case, result.execution_context.output
    metadata = output.metadata or {}
    error = metadata.get("error")
    row = {
        "case_id": case.id,
        "repeat": (result.metadata or {}).get("repeat", 1),
        "input": case.input,
        "expected": case.expected,
        "output": output.value,
        "error": error.get("message") if isinstance(error, dict) and output.value is None else None,
        "latency_ms": metadata.get("latency_ms"),
        "passed": result.passed,
    }
    for check in result.check_results:
        name = f"check:{check.check_id}" if check.check_id in _COLUMNS else check.check_id
        row[name] = check.passed if check.status == "completed" else None
    return row
