"""EVALUATE: test cases, their outputs and checks into results (FEP 3.1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import Any
from uuid import uuid4

from fepflow.checks.core.compiled import CompiledCheck, compile_checks
from fepflow.checks.core.inputs import read_checks, read_limit, read_metadata, read_outputs, read_test_cases
from fepflow.checks.core.partial_outputs import reads_only_completed_steps
from fepflow.errors import InputError, Problem, TargetError, TargetTimeoutError
from fepflow.json.limits import is_large
from fepflow.models.model_requests import ModelRequests, nested_or_own
from fepflow.protocol.check import AnyCheck
from fepflow.protocol.model import construct_fast, utc_now
from fepflow.protocol.results import (
    CheckResult,
    EvaluationRunResult,
    ExecutionContext,
    ExperimentMetadata,
    TestCaseResult,
    status_of,
    summarize_case,
    summarize_run,
)
from fepflow.protocol.test_case import Output, TestCase, evaluation_context

logger = logging.getLogger("fepflow.checks")

GivenCheck = AnyCheck | dict[str, Any]
GivenChecks = Sequence[GivenCheck | Sequence[GivenCheck]]
"""For all cases, or a sequence for each; in a union of two sequences mypy finds no type for a list of several kinds."""

MAX_WAITING = 64
"""Test cases whose waiting checks are under way at once."""

_OF_CONTEXT = set(ExecutionContext.model_fields)
_OF_CASE = set(TestCaseResult.model_fields) - {"metadata"}

YIELD_INTERVAL = 0.001
"""Seconds of checking after which other work on the event loop gets its turn."""


def evaluate(
    test_cases: Sequence[Any],
    outputs: Sequence[Any],
    checks: GivenChecks | None = None,
    metadata: dict[str, Any] | ExperimentMetadata | None = None,
    max_async_concurrent: int | None = None,
    *,
    experiment_metadata: ExperimentMetadata | dict[str, Any] | None = None,
) -> EvaluationRunResult:
    """Evaluate from synchronous code; see `evaluate_async`. Works inside a running event loop, too (a notebook)."""
    results: list[EvaluationRunResult] = []

    async def run() -> None:
        # The result is not returned: asyncio.run would spell it out, in a message that is never shown.
        results.append(
            await evaluate_async(
                test_cases, outputs, checks, metadata, max_async_concurrent, experiment_metadata=experiment_metadata
            )
        )

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(run())
    else:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, run()).result()
    return results[0]


async def evaluate_async(
    test_cases: Sequence[Any],
    outputs: Sequence[Any],
    checks: GivenChecks | None = None,
    metadata: dict[str, Any] | ExperimentMetadata | None = None,
    max_async_concurrent: int | None = None,
    *,
    experiment_metadata: ExperimentMetadata | dict[str, Any] | None = None,
) -> EvaluationRunResult:
    """Run checks against the output of each test case (FEP 3.1).

    `outputs[i]` belongs to `test_cases[i]`. A test case is a TestCase, a dict with `input` (FEP 2.1), or the input
    itself; an output an Output, a dict with `value` (FEP 2.2), or the value itself, which may be any other dict.
    `checks` are shared by all cases, or one list a case; a case's own checks come before them. What goes wrong inside a
    check is in its result.

    `metadata` is any dict, and is kept in the result; FEP's experiment (3.2), a name and metadata, is given as
    `experiment_metadata`, or as `metadata` if it is an ExperimentMetadata. `max_async_concurrent` bounds the checks
    that wait for something at once.

    Raises InputError for what cannot be evaluated, before any check runs: no cases, lengths that differ, ids that stand
    twice, metadata that JSON cannot say.
    """
    metadata, experiment = read_metadata(metadata, experiment_metadata)
    limit = read_limit(max_async_concurrent)
    shared, per_case = read_checks(checks)
    test_cases, outputs = read_test_cases(test_cases), read_outputs(outputs)
    require_match(test_cases, outputs, per_case)
    started_at = utc_now()
    compiled_shared = compile_checks(shared)
    for warning in (warning for check in compiled_shared for warning in check.warnings):
        logger.warning(warning)
    with_checks = (
        (case, output, checks_of([*(case.checks or ()), *(per_case[index] if per_case else ())], compiled_shared))
        for index, (case, output) in enumerate(zip(test_cases, outputs, strict=True))
    )
    async with nested_or_own() as requests:
        results = await case_results(with_checks, requests, limit=limit)
    return run_result(str(uuid4()), results, started_at, experiment, metadata=metadata)


async def case_results(
    with_checks: Iterable[tuple[TestCase, Output, Sequence[CompiledCheck]]],
    requests: ModelRequests,
    tell: Callable[[TestCaseResult], None] | None = None,
    limit: asyncio.Semaphore | None = None,
) -> list[TestCaseResult]:
    """The results of test cases, in their order; a bounded number of them waits for something at once.

    `tell` is called with each as it comes, which may be in another order. `limit` bounds the single checks that wait.
    """
    results: dict[int, TestCaseResult] = {}
    waiting: set[asyncio.Task[None]] = set()
    last_yield = perf_counter()

    def add(index: int, result: TestCaseResult) -> None:
        results[index] = result
        if tell is not None:
            tell(result)

    async def finish(index: int, pending: Awaitable[TestCaseResult]) -> None:
        add(index, await pending)

    try:
        for index, (case, output, checks) in enumerate(with_checks):
            result = evaluate_case(case, output, checks, requests, limit)
            if isinstance(result, TestCaseResult):
                add(index, result)
            else:
                waiting.add(asyncio.create_task(finish(index, result)))
                if len(waiting) >= MAX_WAITING:
                    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    await asyncio.gather(*done)  # a fault of ours raises; no result is missing without a word
            if perf_counter() - last_yield > YIELD_INTERVAL:
                await asyncio.sleep(0)
                last_yield = perf_counter()
        await asyncio.gather(*waiting)
    finally:
        for task in waiting:
            task.cancel()  # the evaluation failed, or was cancelled
    return [results[index] for index in range(len(results))]


def checks_of(own: Sequence[AnyCheck], shared: Sequence[CompiledCheck]) -> list[CompiledCheck]:
    """A case's own checks, then the shared ones, whose ids are taken."""
    return [*compile_checks(own, [check.check_id for check in shared]), *shared] if own else list(shared)


def evaluate_case(
    case: TestCase,
    output: Output,
    checks: Sequence[CompiledCheck],
    requests: ModelRequests | None = None,
    limit: asyncio.Semaphore | None = None,
) -> TestCaseResult | Awaitable[TestCaseResult]:
    """The result of one test case; awaitable only if one of its checks has to wait for something."""
    results = run_checks(case, output, checks, requests, limit)
    return case_result(case, output, results) if isinstance(results, list) else _await_case(case, output, results)


def run_checks(
    case: TestCase,
    output: Output,
    checks: Sequence[CompiledCheck],
    requests: ModelRequests | None = None,
    limit: asyncio.Semaphore | None = None,
) -> list[CheckResult] | Awaitable[list[CheckResult]]:
    """The results of the checks, in their order; awaitable only if one of them has to wait for something.

    An output that stands for a failed call cannot be checked: each check ends in a recoverable error with the cause,
    but for those that read steps which were completed before.
    """
    seen = CheckedOutput(case, output)
    if limit is not None:
        return _answer_within(limit, [partial(seen.answer, check, requests) for check in checks])
    answers = [seen.answer(check, requests) for check in checks]
    ready = [answer for answer in answers if isinstance(answer, CheckResult)]
    return ready if len(ready) == len(answers) else _await_all(answers)


class CheckedOutput:
    """One output as its checks see it, see `run_checks`."""

    def __init__(self, case: TestCase, output: Output) -> None:
        self._output = output
        self._failure = failure_of(output)
        self._context = evaluation_context(case, output)
        self._is_large = is_large(self._context)

    def answer(
        self, check: CompiledCheck, requests: ModelRequests | None = None
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return the result of one check; awaitable only if it has to wait for something."""
        if self._failure is None or (self._output.is_partial and reads_only_completed_steps(check.check, self._output)):
            return check.run(self._context, requests, large=self._is_large)
        return check.failed(self._failure, None, perf_counter())


def failure_of(output: Output) -> TargetError | None:
    """Why there is no answer, or only a part of one, if this output stands for a call that failed."""
    error = output.failure
    if error is None:
        return None
    what = "only a part of the output" if output.is_partial else "no output"
    message = f"the target gave {what}: {error['message']}"
    if error.get("type") == "timeout_error":
        return TargetTimeoutError(message)
    return TargetError(message, kind=str(error.get("kind", "unknown")), retryable=True)


async def _await_all(answers: Sequence[CheckResult | Awaitable[CheckResult]]) -> list[CheckResult]:
    return list(await asyncio.gather(*map(_result_of, answers)))


async def _result_of(answer: CheckResult | Awaitable[CheckResult]) -> CheckResult:
    return answer if isinstance(answer, CheckResult) else await answer


async def _answer_within(
    limit: asyncio.Semaphore, answers: Sequence[Callable[[], CheckResult | Awaitable[CheckResult]]]
) -> list[CheckResult]:
    """As `_await_all`, where a check begins only when there is a place for it: none is begun in vain."""

    async def result_of(answer: Callable[[], CheckResult | Awaitable[CheckResult]]) -> CheckResult:
        async with limit:
            return await _result_of(answer())

    return list(await asyncio.gather(*map(result_of, answers)))


async def _await_case(case: TestCase, output: Output, results: Awaitable[list[CheckResult]]) -> TestCaseResult:
    return case_result(case, output, await results)


def case_result(case: TestCase, output: Output, results: list[CheckResult]) -> TestCaseResult:
    """The result of a test case (FEP 4.1) from those of its checks."""
    seen = construct_fast(ExecutionContext, {"test_case": case, "output": output}, _OF_CONTEXT)
    fields = {
        "status": status_of([result.status for result in results]),
        "execution_context": seen,
        "check_results": results,
        "summary": summarize_case(results),
        "metadata": None,
    }
    return construct_fast(TestCaseResult, fields, _OF_CASE)


def run_result(
    evaluation_id: str,
    results: list[TestCaseResult],
    started_at: datetime,
    experiment: ExperimentMetadata | None,
    completed_at: datetime | None = None,
    metadata: dict[str, Any] | None = None,
) -> EvaluationRunResult:
    """The result of a run (FEP 4.2), which ends now unless it has ended."""
    fields: dict[str, Any] = {} if experiment is None else {"experiment": experiment}
    if metadata is not None:
        fields["metadata"] = metadata
    return EvaluationRunResult(
        evaluation_id=evaluation_id,
        started_at=started_at,
        completed_at=completed_at or utc_now(),
        status=status_of(result.status for result in results),
        summary=summarize_run(results),
        results=results,
        **fields,
    )


def require_match(
    test_cases: Sequence[TestCase], outputs: Sequence[Output], per_case: Sequence[Sequence[AnyCheck]]
) -> None:
    """Raises InputError where there is no test case, where not each has its output (and checks), for an id twice."""
    if not test_cases:
        raise InputError(Problem("there are no test cases", path="test_cases", advice="give at least one"))
    if len(test_cases) != len(outputs):
        message = f"{len(test_cases)} test cases but {len(outputs)} outputs"
        raise InputError(Problem(message, path="outputs", advice="outputs[i] belongs to test_cases[i]"))
    if per_case and len(per_case) != len(test_cases):
        message = f"{len(test_cases)} test cases but {len(per_case)} lists of checks"
        raise InputError(Problem(message, path="checks", advice="checks[i] belongs to test_cases[i]"))
    first: dict[str, int] = {}
    for index, case in enumerate(test_cases):
        if case.id in first:
            message = f"the id {case.id!r} stands twice: test_cases[{first[case.id]}] and test_cases[{index}]"
            raise InputError(Problem(message, path=f"test_cases[{index}].id", advice="ids are unique"))
        first[case.id] = index
