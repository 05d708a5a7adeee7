"""Results as a table: a row for each check of each output, for pandas and for Parquet.

pandas is not one of fepflow's dependencies; the extra `dataframe` installs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any, Literal

from fepflow.extras import require
from fepflow.protocol.model import to_json_data, to_jsonable
from fepflow.protocol.results import USAGE, CheckResult, EvaluationRunResult, TestCaseResult, score_of
from fepflow.protocol.test_case import Output, TestCase
from fepflow.text import is_unicode

Kind = Literal["text", "index", "int", "float", "bool", "time"]
"""Type of a column; only an index is in every row. Times have their zone, UTC."""

Row = dict[str, Any]

COLUMNS: Mapping[str, Kind] = {
    "run_id": "text",
    "suite": "text",
    "case_id": "text",
    "case_index": "index",
    "repeat": "index",
    "check_id": "text",
    "check_type": "text",
    "status": "text",
    "passed": "bool",
    "score": "float",
    "results": "text",
    "error_type": "text",
    "error_message": "text",
    "input": "text",
    "expected": "text",
    "output": "text",
    "output_error": "text",
    "latency_ms": "float",
    "attempts": "int",
    "evaluated_at": "time",
    "judge_tokens": "int",
    "judge_cost_usd": "float",
    "metadata": "text",
}

NOT_REACHED = "the run did not get to it"

_DTYPES: Mapping[Kind, str] = {
    "text": "string",
    "index": "int64",
    "int": "Int64",
    "float": "float64",
    "bool": "boolean",
    "time": "datetime64[us, UTC]",
}

_LARGEST_INT = 2**63 - 1


def rows_of(
    case: TestCase, output: Output | None, checks: Sequence[CheckResult], position: Mapping[str, str | int | None]
) -> Iterator[Row]:
    """Yield a row with all COLUMNS for each check of an output; without checks, one row whose check columns are None.

    `output` is None while it is missing. `position` has `run_id`, `suite`, `case_index` (from 0) and `repeat` (from 1).
    """
    metadata = (output.metadata if output else None) or {}
    attempts = metadata.get("attempt_log")
    last = attempts[-1] if isinstance(attempts, list) and attempts and isinstance(attempts[-1], dict) else {}
    failure = output.failure if output else {"message": NOT_REACHED}
    about = {
        **dict.fromkeys(COLUMNS),
        **{name: _clean(value) if isinstance(value, str) else value for name, value in position.items()},
        "case_id": _clean(case.id),
        "input": _text(case.input),
        "expected": _text(case.expected),
        "output": _text(output.value) if output else None,
        "output_error": _text(failure["message"]) if failure else None,
        "latency_ms": _float(metadata.get("latency_ms", last.get("latency_ms"))),
        "attempts": _int(metadata.get("attempts")),
        "metadata": _text(case.metadata),
    }
    if not checks:
        yield about
    for check in checks:
        yield {**about, **_of_check(check)}


def _of_check(check: CheckResult) -> Row:
    usage = (check.metadata or {}).get(USAGE)
    usage = usage if isinstance(usage, dict) else {}
    moment = check.evaluated_at
    return {
        "check_id": _clean(check.check_id),
        "check_type": _clean(check.check_type),
        "status": check.status,
        "passed": check.passed,
        "score": _float(score_of(check)),
        "results": _text(check.results),
        "error_type": str(check.error.type) if check.error else None,
        "error_message": _clean(check.error.message) if check.error else None,
        "evaluated_at": moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC),
        "judge_tokens": _int(usage.get("tokens")),
        "judge_cost_usd": _float(usage.get("usd")),
    }


def rows_of_results(results: Iterable[TestCaseResult], run_id: str, suite: str | None) -> Iterator[Row]:
    """Yield the rows of results in FEP's form."""
    indices: dict[str, int] = {}
    for result in results:
        case, output = result.execution_context.test_case, result.execution_context.output
        repeat = (result.metadata or {}).get("repeat")
        position: dict[str, str | int | None] = {
            "run_id": run_id,
            "suite": suite,
            "case_index": indices.setdefault(case.id, len(indices)),
            "repeat": _int(repeat) or 1,
        }
        yield from rows_of(case, output, result.check_results, position)


def flat_dicts(run: EvaluationRunResult) -> list[dict[str, Any]]:
    """Return a dict for each check of each output, with the keys of flex-evals' `to_dict_list`."""
    about_run = {
        "evaluation_id": run.evaluation_id,
        "started_at": run.started_at,
        "completed_at": run.completed_at,
        "evaluation_status": run.status,
    }
    return [
        {**about_run, **_about_case(result), **_metadata("evaluation_metadata", run.metadata), **_about_check(check)}
        for result in run.results
        for check in result.check_results
    ]


def _about_case(result: TestCaseResult) -> dict[str, Any]:
    case, output = result.execution_context.test_case, result.execution_context.output
    return {
        "test_case_id": case.id,
        "test_case_status": result.status,
        "input_data": case.input,
        "expected_output": case.expected,
        "actual_output": output.value,
        **result.summary.model_dump(),
        **_metadata("test_case_metadata", case.metadata),
        **_metadata("output_metadata", output.metadata),
        **_metadata("test_case_result_metadata", result.metadata),
    }


def _about_check(check: CheckResult) -> dict[str, Any]:
    error = {"error_type": check.error.type, "error_message": check.error.message} if check.error else {}
    return {
        "check_id": check.check_id,
        "check_type": check.check_type,
        "check_version": check.check_version,
        "check_status": check.status,
        "check_results": check.results,
        "check_results_passed": check.passed,
        "resolved_arguments": check.resolved_arguments or {},
        "evaluated_at": check.evaluated_at,
        **_metadata("check_metadata", check.metadata),
        **error,
    }


def _metadata(name: str, metadata: dict[str, Any] | None) -> dict[str, Any]:
    return {name: metadata} if metadata else {}


def to_dataframe(rows: Iterable[Row]) -> Any:
    """Return the rows as a pandas DataFrame. Raises MissingExtraError without pandas."""
    require("dataframe", "to_dataframe()", "pandas")
    import pandas

    columns = as_columns(rows)
    return pandas.DataFrame({name: pandas.Series(columns[name], dtype=_DTYPES[kind]) for name, kind in COLUMNS.items()})


def as_columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Return the values of each column."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row in rows:
        for name, values in columns.items():
            values.append(row[name])
    return columns


def _text(value: Any) -> str | None:
    """Return a text unchanged, other values as JSON, and None for a missing value."""
    if value is None or isinstance(value, str):
        return value and _clean(value)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # NaN and the infinities, or objects of Python
        text = _odd_json(value)
    return _clean(text)


def _odd_json(value: Any) -> str:
    try:
        return json.dumps(to_json_data(value), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # what has no JSON form
        try:
            return json.dumps(to_jsonable(value), ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            return json.dumps(f"({type(value).__name__})")


def _clean(text: str) -> str:
    r"""Return Unicode that any file can hold: half a pair becomes an escape, \ud83d, as it already is inside JSON."""
    return text if is_unicode(text) else text.encode(errors="backslashreplace").decode()


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _int(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INT
    return value if whole else None
