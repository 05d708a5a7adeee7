"""The results of a request's test cases, put together from those of their checks as these come."""

from __future__ import annotations

from collections.abc import Callable

from fepflow.api.evaluations.check_process import Place
from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.checks.engine import case_result
from fepflow.protocol.results import CheckResult, TestCaseResult
from fepflow.protocol.test_case import TestCase

Tell = Callable[[TestCaseResult], None]


class CaseResults:
    """Check results by their places; a test case is done when all of its are there."""

    def __init__(self, request: EvaluationRequest) -> None:
        self._request = request
        self._checks: dict[Place, CheckResult] = {}
        shared = len(request.checks)
        self._counts = [shared + len(request.own_checks(index)) for index in range(len(request.test_cases))]
        self._missing = list(self._counts)
        self._results: dict[int, TestCaseResult] = {}
        self._tell: Tell | None = None
        for index, count in enumerate(self._counts):
            if not count:
                self._complete(index)

    def __contains__(self, place: Place) -> bool:
        return place in self._checks

    def put(self, place: Place, result: CheckResult) -> None:
        """Add the result of a check; the first one counts."""
        if place in self._checks:
            return
        self._checks[place] = result
        self._missing[place[0]] -= 1
        if not self._missing[place[0]]:
            self._complete(place[0])

    def tell(self, tell: Tell) -> None:
        """Have `tell` called with each test case that is done, at first with those that are done already."""
        self._tell = tell
        for result in list(self._results.values()):
            tell(result)

    def all(self) -> list[TestCaseResult]:
        """Return the results of all test cases, in their order, when all are done."""
        return [self._results[index] for index in range(len(self._counts))]

    def _complete(self, index: int) -> None:
        checks = [self._checks[index, number] for number in range(self._counts[index])]
        result = case_result(bare(self._request.test_cases[index]), self._request.outputs[index], checks)
        self._results[index] = result
        if self._tell is not None:
            self._tell(result)


def bare(case: TestCase) -> TestCase:
    """Return a test case as FEP 4.1 has it in results, without checks."""
    if case.checks is None:
        return case
    return TestCase.model_validate({name: getattr(case, name) for name in case.model_fields_set - {"checks"}})
