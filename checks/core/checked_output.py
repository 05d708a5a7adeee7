"""The checks of one output, as runs, `evaluate` and callers over the network run them.

Checks that do not wait are answered at once; only the others cost a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from time import perf_counter

from fepflow.calls.models.client import ModelRequests
from fepflow.checks.core.compiled import CompiledCheck, compile_checks, result_of
from fepflow.checks.core.declarations import paths_of
from fepflow.errors import SIMULATED_USER, SimulatedUserError, TargetError, TargetTimeoutError
from fepflow.json.values import is_large
from fepflow.jsonpath.path import leading_keys
from fepflow.protocol.check import AnyCheck, Check
from fepflow.protocol.results import CheckResult, ExecutionContext, TestCaseResult, status_of, summarize_case
from fepflow.protocol.test_case import Output, TestCase, evaluation_context

MAX_WAITING = 64
"""Test cases whose waiting checks are under way at once."""

YIELD_INTERVAL = 0.001
"""Seconds of checking after which other work on the event loop gets its turn."""


def checks_of(own: Sequence[AnyCheck], shared: Sequence[CompiledCheck]) -> list[CompiledCheck]:
    """Return a case's own checks, then the shared ones. No own check may have the id of a shared one."""
    return [*compile_checks(own, [check.check_id for check in shared]), *shared] if own else list(shared)


def run_checks(
    case: TestCase,
    output: Output,
    checks: Sequence[CompiledCheck],
    requests: ModelRequests | None = None,
    limit: asyncio.Semaphore | None = None,
) -> list[CheckResult] | Awaitable[list[CheckResult]]:
    """Return the results of the checks, in their order; awaitable only if one of them has to wait.

    The output of a failed call cannot be checked: each check ends in a recoverable error with the cause, except checks
    that read only completed steps.
    """
    seen = CheckedOutput(case, output)
    if limit is not None:
        return _await_within(limit, seen, checks, requests)
    answers = [seen.answer(check, requests) for check in checks]
    ready = [answer for answer in answers if isinstance(answer, CheckResult)]
    return ready if len(ready) == len(answers) else _results_of(answers)


class CheckedOutput:
    """An output as its checks see it, see `run_checks`. `in_place`: a large one is not passed to a thread."""

    def __init__(self, case: TestCase, output: Output, *, in_place: bool = False) -> None:
        self._output = output
        self._failure = failure_of(output)
        self._context = evaluation_context(case, output)
        self._is_large = not in_place and is_large(self._context)

    def answer(
        self, check: CompiledCheck, requests: ModelRequests | None = None
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return the result of one check; awaitable only if it has to wait."""
        if self._failure is None or (self._output.is_partial and reads_only_completed_steps(check.check, self._output)):
            return check.run(self._context, requests, large=self._is_large)
        return check.failed(self._failure, None, perf_counter())


def failure_of(output: Output) -> TargetError | None:
    """Return the error of a failed call, which gave no output or only a part of one."""
    error = output.failure
    if error is None:
        return None
    what = "only a part of the output" if output.is_partial else "no output"
    message = f"the target gave {what}: {error['message']}"
    if error.get("kind") == SIMULATED_USER:
        return SimulatedUserError(error["message"])
    if error.get("type") == "timeout_error":
        return TargetTimeoutError(message)
    return TargetError(message, kind=str(error.get("kind", "unknown")), retryable=True)


async def _results_of(answers: Iterable[CheckResult | Awaitable[CheckResult]]) -> list[CheckResult]:
    return list(await asyncio.gather(*map(result_of, answers)))


async def _await_within(
    limit: asyncio.Semaphore, seen: CheckedOutput, checks: Sequence[CompiledCheck], requests: ModelRequests | None
) -> list[CheckResult]:
    """Await the results of checks, each of which starts when a place is free."""

    async def limited(check: CompiledCheck) -> CheckResult:
        async with limit:
            return await result_of(seen.answer(check, requests))

    return await _results_of(map(limited, checks))


def case_result(case: TestCase, output: Output, results: list[CheckResult]) -> TestCaseResult:
    """Return the result of a test case (FEP 4.1) from the results of its checks."""
    return TestCaseResult.trusted(
        {
            "status": status_of([result.status for result in results]),
            "execution_context": ExecutionContext.trusted({"test_case": case, "output": output}),
            "check_results": results,
            "summary": summarize_case(results),
        }
    )


_STEPS = ("output", "value", "steps")


def reads_only_completed_steps(check: Check, output: Output) -> bool:
    """Return whether a check would see the same in the whole output.

    It must read only completed steps, at least one, each by its number from the beginning.
    """
    steps = output.value.get("steps") if isinstance(output.value, dict) else None
    if check.turn is not None:
        return isinstance(steps, list) and check.turn <= len(steps)
    paths = [leading_keys(use.expression) for use in paths_of(check)]
    of_output = [keys for keys in paths if keys[:1] != ("test_case",)]
    return bool(of_output) and all(_is_completed(keys, steps) for keys in of_output)


def _is_completed(keys: tuple[str | int, ...], steps: object) -> bool:
    if keys[:3] != _STEPS or len(keys) < 4 or not isinstance(steps, list):
        return False
    return isinstance(keys[3], int) and 0 <= keys[3] < len(steps)
