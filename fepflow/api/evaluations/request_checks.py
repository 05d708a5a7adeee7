"""The checks of a request by their places, their results put together, and those that run in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.calls.models.client import ModelRequests
from fepflow.calls.thread_pool import LOOKUPS
from fepflow.checks.core.compiled import LARGE_LIMIT, CompiledCheck
from fepflow.checks.core.declarations import REQUEST, CaseChecks, CheckDefaults, left_to_defaults
from fepflow.checks.engine import MAX_WAITING, CheckedOutput, case_result
from fepflow.checks.models.model_check import ModelCheck
from fepflow.checks.registry import CHECKS, others_checks, our_checks
from fepflow.errors import CheckTimeoutError, FepflowError
from fepflow.json.values import is_small
from fepflow.protocol.check import AnyCheck, Check, to_check
from fepflow.protocol.results import CheckResult, TestCaseResult
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.store.result_rows import LargeArguments

Place = tuple[int, int]
"""Indexes of a check result: the test case, and the check among its own and then the shared ones."""

Tell = Callable[[TestCaseResult], None]


def places_of(request: EvaluationRequest, is_wanted: Callable[[str], bool]) -> Iterator[Place]:
    """Yield the places of the checks of a request whose types are wanted."""
    shared = [is_wanted(to_check(check).type) for check in request.checks]
    for index in range(len(request.test_cases)):
        own = [is_wanted(to_check(check).type) for check in request.own_checks(index)]
        yield from ((index, number) for number, wanted in enumerate([*own, *shared]) if wanted)


class RequestChecks:
    """The checks of a request. Shared ones are made ready once; `refusal` says why a check may not be run."""

    def __init__(self, request: EvaluationRequest, refusal: Callable[[AnyCheck], str | None] = lambda _: None) -> None:
        self.request = request
        self._refusal = refusal
        self._shared_ids = request.shared_ids()
        self._shared: dict[int, CompiledCheck] = {}
        self._index = -1
        self._own: list[AnyCheck] = []
        self._ids: list[str] = []

    def at(self, place: Place) -> tuple[CheckedOutput, LargeArguments, CompiledCheck]:
        """Return what a check looks at, and the check."""
        check, check_id = self.declared(place)
        shared = place[1] - len(self._own)
        if shared < 0:
            return self._seen, self._large, CompiledCheck(check, check_id, self._why_not(check))
        if shared not in self._shared:
            self._shared[shared] = CompiledCheck(check, check_id, self._why_not(check))
        return self._seen, self._large, self._shared[shared]

    def _why_not(self, check: AnyCheck) -> str | None:
        return self._refusal(check) or left_to_defaults(to_check(check))

    def declared(self, place: Place) -> tuple[AnyCheck, str]:
        """Return a check as it was sent, and its id."""
        index, number = place
        if index != self._index:
            self._index = -1  # a time limit may end this before all of it is set
            self._own = list(self.request.own_checks(index))
            self._ids = self.request.own_ids(index, self._shared_ids)
            self._seen = CheckedOutput(self.request.test_cases[index], self.request.outputs[index])
            self._large = LargeArguments()
            self._index = index
        if number < len(self._own):
            return self._own[number], self._ids[number]
        return self.request.checks[number - len(self._own)], self._shared_ids[number - len(self._own)]

    def failed(self, place: Place, error: BaseException) -> CheckResult:
        """Return the result of a check that an error ended. It is not made ready: that may be what takes too long."""
        check, check_id = self.declared(place)
        bare = to_check(check).model_copy(update={"arguments": {}})
        return CompiledCheck(bare, check_id, "it was not run").failed(error)

    def late(self, place: Place, seconds: float) -> CheckResult:
        """Return the result of a check that took too long."""
        message = f"{self.declared(place)[1]} did not answer within {seconds:g} s"
        return self.failed(place, CheckTimeoutError(message))


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

    def put(self, place: Place, result: CheckResult) -> None:
        """Add the result of a check."""
        self._checks[place] = result
        self._missing[place[0]] -= 1
        if not self._missing[place[0]]:
            self._complete(place[0])

    def tell(self, tell: Tell) -> None:
        """Call `tell` with each test case that is done, beginning with those that are done already."""
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


MAX_FORMAT_NODES, MAX_FORMAT_CHARACTERS = 500, 20_000
"""Values in the schema of a judge's response, which is read in this process; a judgement has a dozen."""


def types_here() -> frozenset[str]:
    """Return the types of the checks that run in this process."""
    return frozenset({*_model_types(), *others_checks()})


@cache
def _model_types() -> frozenset[str]:
    return frozenset(name for name in CHECKS if any(issubclass(check, ModelCheck) for check in our_checks(name)))


class ChecksHere:
    """Runs checks of a request. One that may not ask its model is an error."""

    def __init__(self, request: EvaluationRequest, requests: ModelRequests, put: Callable[[Place, CheckResult], None]):
        policy = CaseChecks(CheckDefaults(), (), settings().allowed_models, from_data=True, source=REQUEST)
        self._ready = partial(RequestChecks, request, lambda check: _refusal(policy, to_check(check)))
        self._checks = self._ready()
        self._requests = requests
        self._put = put
        self._places = asyncio.Semaphore(MAX_WAITING)

    async def run(self, places: Sequence[Place]) -> None:
        """Run the checks; each result is put as it comes. What is wrong with a check is in its result."""
        async with asyncio.TaskGroup() as group:
            for place in places:
                await self._places.acquire()
                try:
                    making = partial(self._checks.at, place)
                    seen, large, check = await LOOKUPS.run(making, LARGE_LIMIT, "making the check ready")
                except FepflowError as error:
                    self._checks = self._ready()  # the thread that was given up still has the other one
                    self._put(place, self._checks.failed(place, error))
                    self._places.release()
                else:
                    group.create_task(self._finish(place, check, seen, large))

    async def _finish(self, place: Place, check: CompiledCheck, seen: CheckedOutput, large: LargeArguments) -> None:
        try:
            answer = seen.answer(check, self._requests)
            result = answer if isinstance(answer, CheckResult) else await answer
            self._put(place, large.left_out(result, check.check))
        finally:
            self._places.release()


def _refusal(policy: CaseChecks, check: Check) -> str | None:
    """Return why a check is not run here: it asks a model that it may not ask, or its response_format is too large."""
    if refusal := policy.refusal(check):
        return refusal
    if is_small(check.arguments.get("response_format"), MAX_FORMAT_NODES, MAX_FORMAT_CHARACTERS):
        return None
    most = f"{MAX_FORMAT_NODES} values, {MAX_FORMAT_CHARACTERS:,} characters"
    return f"response_format: in a request over the network it holds up to {most}"
