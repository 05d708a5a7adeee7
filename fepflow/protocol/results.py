"""Results of checks, test cases and runs, their statuses (FEP 2.3.4, 4.1, 4.2), and results as a table.

pandas is not one of fepflow's dependencies; the extra `dataframe` installs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from fepflow.errors import FepErrorType, JSONPathError
from fepflow.extras import require
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import FepModel, Result, Timestamp, to_json_data, to_jsonable
from fepflow.protocol.test_case import Output, TestCase, evaluation_context
from fepflow.statistics.estimate import PROPORTION, Counts, Estimate
from fepflow.text import is_unicode

if TYPE_CHECKING:
    import fepflow


class Status(StrEnum):
    """The statuses as constants; each equals its string."""

    COMPLETED = "completed"
    ERROR = "error"
    SKIP = "skip"


class ErrorType(StrEnum):
    """The types of a check's error, as constants; each equals its string."""

    JSONPATH_ERROR = "jsonpath_error"
    VALIDATION_ERROR = "validation_error"
    TIMEOUT_ERROR = "timeout_error"
    UNKNOWN_ERROR = "unknown_error"


if TYPE_CHECKING:  # a constant may be given, and be compared with
    StatusText = Literal["completed", "error", "skip"] | Status
    ErrorTypeText = FepErrorType | ErrorType
else:
    StatusText = Literal["completed", "error", "skip"]
    ErrorTypeText = FepErrorType
"""Both as results hold them: always the string."""


Count = Annotated[int, Field(ge=0)]

USAGE = "spent"
"""The field of a check result's metadata that holds its usage of models in this run; see `RequestContext.usage`."""


class CheckError(FepModel):
    """The reason why a check has no result; `recoverable` says whether a retry may help."""

    type: ErrorTypeText
    message: str
    recoverable: bool = False


class CheckResult(Result):
    """The result of one check of one output (FEP 2.3.4).

    `results` is `{}` on error and skip. Otherwise its form depends on the check type. `resolved_arguments` maps each
    argument to `{value}`, with `jsonpath` if it came from a path.
    """

    check_type: str
    status: StatusText
    results: dict[str, Any]
    evaluated_at: Timestamp
    resolved_arguments: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    error: CheckError | None = None

    @property
    def check_id(self) -> str:
        """The check's name in its suite, by default its type."""
        return str((self.metadata or {}).get("check_id", self.check_type))

    @property
    def check_version(self) -> str | None:
        """The version of the check type that ran; None if no version was found."""
        version = (self.metadata or {}).get("check_version")
        return None if version is None else str(version)

    @property
    def passed(self) -> bool | None:
        """The check's yes or no, or None."""
        for results in (self.results, self.results.get("response")):
            if isinstance(results, dict) and isinstance(results.get("passed"), bool):
                return bool(results["passed"])
        return None


def score_of(result: CheckResult) -> float | None:
    """Return the number in a check's results, `score` or else `value`, or None."""
    return score_in(result.results)


def score_in(results: Mapping[str, Any]) -> float | None:
    """Return the number in results of a check, as `score_of` does."""
    for name in ("score", "value"):
        for part in (results, results.get("response")):
            score = part.get(name) if isinstance(part, dict) else None
            if isinstance(score, int | float) and not isinstance(score, bool):
                return score
    return None


class ExecutionContext(Result):
    """Context that the checks saw (FEP 4.1)."""

    test_case: TestCase
    output: Output


class TestCaseSummary(Result):
    """Counts over the checks of one test case."""

    __test__ = False

    total_checks: Count
    completed_checks: Count
    error_checks: Count
    skipped_checks: Count


class TestCaseResult(Result):
    """All check results of one output of one test case (FEP 4.1)."""

    __test__ = False

    status: StatusText
    execution_context: ExecutionContext
    check_results: list[CheckResult]
    summary: TestCaseSummary
    metadata: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """True if it has checks and all of them passed. An error, or a result without yes or no, is no pass."""
        return bool(self.check_results) and all(
            check.status == "completed" and check.passed for check in self.check_results
        )


class ResultsView:
    """Methods on all results together, in memory or in the store."""

    if TYPE_CHECKING:

        @property
        def results(self) -> Iterable[TestCaseResult]:
            """The results, one for each repeat of each test case."""

    @property
    def expected_results(self) -> int:
        """The expected number of results."""
        raise NotImplementedError

    @property
    def pass_rate(self) -> float | None:
        """The share of the expected results of which every check passed; None if nothing was checked.

        Errors, and cases that a run did not reach, are in the denominator: a missing result is never a pass.
        """
        counts = [result.passed for result in self.results if result.check_results]
        return sum(counts) / self.expected_results if counts else None

    def estimate(self, cluster: str | Callable[[TestCase], Any] | None = None, confidence: float = 0.95) -> Estimate:
        """Return the share of results that passed, with its interval (`low`, `high`) for all such test cases.

        `cluster` says which cases belong together: a path like `$.test_case.metadata.document`, or a function of the
        test case. Cases without a cluster, and all cases without `cluster`, are grouped by their content, because
        repeats and the same case under several ids tell little more than once. Results in error count as either at the
        ends of the interval.
        """
        from fepflow.jsonpath.path import compile_path  # results are read without estimates, too
        from fepflow.statistics.means import mean_estimate

        path = compile_path(cluster) if isinstance(cluster, str) else None
        units: dict[str, list[float]] = {}
        expected = completed = 0
        for result in self.results:
            case = result.execution_context.test_case
            key = None
            if path is not None:
                with suppress(JSONPathError):
                    key = path.resolve(evaluation_context(case, Output(value=None)))
            elif callable(cluster):
                key = cluster(case)
            content = case.id if case.input in (None, "", [], {}) else [case.input, case.expected, case.checks]
            values = units.setdefault(content_hash(0, content) if key is None else content_hash(1, key), [])
            expected += 1
            if result.status == "completed" and result.check_results:
                values.append(float(result.passed))
                completed += 1
        counts = Counts(expected, completed, error=expected - completed)
        return mean_estimate(list(units.values()), counts, confidence, PROPORTION)

    @property
    def failed(self) -> list[TestCaseResult]:
        """The results that did not pass, including errors, in their order."""
        return [result for result in self.results if not result.passed]

    def compare(self, base: Any, **options: Any) -> fepflow.Comparison:
        """Compare these results with those of `base`, over the test cases that both have.

        `base` is the result of `evaluate` or `run`, the id of a run, or a file of results. The options are those of
        `fepflow.compare`, for example `margin=0.02`.
        """
        import fepflow  # its face loads what compares, which knows results

        return fepflow.compare(base, self, **options)

    def _rows(self) -> Iterable[dict[str, Any]]:
        """Return a row for each check of each output, see `rows_of`."""
        raise NotImplementedError

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame with a row for each check of each output, and one for an output without any.

        Columns: `run_id`, `suite`, `case_id`, `case_index` (from 0), `repeat` (from 1), `check_id`, `check_type`,
        `status`, `passed`, `score`, `results` (JSON), `error_type` and `error_message` (of the check), `input`,
        `expected`, `output` (texts as they are, anything else as JSON), `output_error`, `latency_ms`, `attempts`,
        `evaluated_at`, `judge_tokens`, `judge_cost_usd`, `metadata` (of the test case, JSON). Raises UserError without
        pandas.
        """
        return to_dataframe(self._rows())

    def __repr__(self) -> str:
        rate = self.pass_rate
        shown = "nothing was checked" if rate is None else f"pass_rate={rate:.4g}"
        failed = sum(not result.passed for result in self.results)
        return f"{type(self).__name__}({self.expected_results} results, {shown}, {failed} failed)"


class ExperimentMetadata(FepModel):
    """Purpose of the evaluation (FEP 3.2)."""

    name: str | None = None
    metadata: dict[str, Any] | None = None


class EvaluationSummary(FepModel):
    """Counts over a run, of test cases and of checks (FEP 4.2 counts only test cases)."""

    total_test_cases: Count
    completed_test_cases: Count
    error_test_cases: Count
    skipped_test_cases: Count
    total_checks: Count = 0
    completed_checks: Count = 0
    error_checks: Count = 0
    skipped_checks: Count = 0


class EvaluationRunResult(FepModel, ResultsView):
    """A whole run (FEP 4.2)."""

    evaluation_id: str
    started_at: Timestamp
    completed_at: Timestamp
    status: StatusText
    summary: EvaluationSummary
    results: list[TestCaseResult]
    experiment: ExperimentMetadata | None = None
    metadata: dict[str, Any] | None = None

    if TYPE_CHECKING:  # as pydantic has it, but that a time may be text, too, which a type checker would not know

        def __init__(
            self,
            *,
            evaluation_id: str,
            started_at: datetime | str,
            completed_at: datetime | str,
            status: StatusText,
            summary: EvaluationSummary,
            results: list[TestCaseResult],
            experiment: ExperimentMetadata | None = None,
            metadata: dict[str, Any] | None = None,
        ) -> None: ...

    @property
    def expected_results(self) -> int:
        """The number of results, of which none is left out here."""
        return len(self.results)

    def to_dict_list(self) -> list[dict[str, Any]]:
        """Return a dict for each check of each output, with the keys of flex-evals.

        The values are Python objects, not texts; `to_dataframe` returns the table of reports.
        """
        return flat_dicts(self)

    def _rows(self) -> Iterable[dict[str, Any]]:
        return rows_of_results(self.results, self.evaluation_id, self.experiment.name if self.experiment else None)

    __repr__ = ResultsView.__repr__
    __str__ = ResultsView.__repr__


def status_of(statuses: Iterable[StatusText]) -> StatusText:
    """Return the common status (FEP 4.1): error if any is an error, else skip if any is a skip, else completed."""
    seen = set(statuses)
    if "error" in seen:
        return "error"
    return "skip" if "skip" in seen else "completed"


def summarize_case(check_results: list[CheckResult]) -> TestCaseSummary:
    """Count the results of one test case's checks."""
    statuses = [result.status for result in check_results]
    counts = {
        "total_checks": len(statuses),
        "completed_checks": statuses.count("completed"),
        "error_checks": statuses.count("error"),
        "skipped_checks": statuses.count("skip"),
    }
    return TestCaseSummary.trusted(counts)


def summarize_run(results: list[TestCaseResult]) -> EvaluationSummary:
    """Count the results of a run, by test case and by check."""
    statuses = [result.status for result in results]
    return EvaluationSummary(
        total_test_cases=len(statuses),
        completed_test_cases=statuses.count("completed"),
        error_test_cases=statuses.count("error"),
        skipped_test_cases=statuses.count("skip"),
        total_checks=sum(result.summary.total_checks for result in results),
        completed_checks=sum(result.summary.completed_checks for result in results),
        error_checks=sum(result.summary.error_checks for result in results),
        skipped_checks=sum(result.summary.skipped_checks for result in results),
    )


# --- results as a table, for pandas and Parquet ----------------------------------------------------------------------


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
