"""What comes out: results of checks, test cases and runs (FEP 2.3.4, 4.1, 4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from fepflow.errors import ErrorType
from fepflow.protocol.model import FepModel, Result, Timestamp, unvalidated
from fepflow.protocol.test_case import Output, TestCase

Status = Literal["completed", "error", "skip"]
Count = Annotated[int, Field(ge=0)]


class CheckError(FepModel):
    """Why a check has no answer; `recoverable` says whether trying again may help."""

    type: ErrorType
    message: str
    recoverable: bool = False


class CheckResult(Result):
    """The answer of one check about one output (FEP 2.3.4).

    `results` is `{}` on error and skip; its shape otherwise is the check type's. `resolved_arguments` maps an
    argument to `{value}`, with `jsonpath` where it came from a path.
    """

    check_type: str
    status: Status
    results: dict[str, Any]
    evaluated_at: Timestamp
    resolved_arguments: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    error: CheckError | None = None

    @property
    def check_id(self) -> str:
        """The check's name in its suite; its type where it was given none."""
        return str((self.metadata or {}).get("check_id", self.check_type))

    @property
    def grounds(self) -> dict[str, Any]:
        """What the result rests on: what a model responded, with its reasons, or else what was compared."""
        response = self.results.get("response")
        if isinstance(response, dict):
            return response
        return {name: shown["value"] for name, shown in (self.resolved_arguments or {}).items()}


class ExecutionContext(Result):
    """What the checks saw (FEP 4.1)."""

    test_case: TestCase
    output: Output


class TestCaseSummary(Result):
    """Counts over the checks of one test case."""

    __test__ = False

    total_checks: Count
    completed_checks: Count
    error_checks: Count
    skipped_checks: Count


_OF_SUMMARY = set(TestCaseSummary.model_fields)


class TestCaseResult(Result):
    """All check results of one output of one test case (FEP 4.1)."""

    __test__ = False

    status: Status
    execution_context: ExecutionContext
    check_results: list[CheckResult]
    summary: TestCaseSummary
    metadata: dict[str, Any] | None = None


class ExperimentMetadata(FepModel):
    """What the evaluation was for (FEP 3.2)."""

    name: str | None = None
    metadata: dict[str, Any] | None = None


class EvaluationSummary(FepModel):
    """Counts over a run, of test cases and of checks (FEP 4.2, which counts test cases only)."""

    total_test_cases: Count
    completed_test_cases: Count
    error_test_cases: Count
    skipped_test_cases: Count
    total_checks: Count = 0
    completed_checks: Count = 0
    error_checks: Count = 0
    skipped_checks: Count = 0


class EvaluationRunResult(FepModel):
    """A whole run (FEP 4.2)."""

    evaluation_id: str
    started_at: Timestamp
    completed_at: Timestamp
    status: Status
    summary: EvaluationSummary
    results: list[TestCaseResult]
    experiment: ExperimentMetadata | None = None
    metadata: dict[str, Any] | None = None


def status_of(statuses: Iterable[Status]) -> Status:
    """FEP 4.1's precedence: any error is an error, else any skip is a skip, else completed."""
    seen = set(statuses)
    if "error" in seen:
        return "error"
    return "skip" if "skip" in seen else "completed"


def summarize_case(check_results: list[CheckResult]) -> TestCaseSummary:
    """Count the results of one test case's checks."""
    statuses = [result.status for result in check_results]
    completed, error = statuses.count("completed"), statuses.count("error")
    counts = {
        "total_checks": len(statuses),
        "completed_checks": completed,
        "error_checks": error,
        "skipped_checks": len(statuses) - completed - error,
    }
    return unvalidated(TestCaseSummary, counts, _OF_SUMMARY)


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
