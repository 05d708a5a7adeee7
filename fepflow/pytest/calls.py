"""Calling a test function for every sample of every case, and having its answers checked."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from fepflow.checks.engine import evaluate, evaluate_async
from fepflow.protocol.results import CheckResult, EvaluationRunResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.pytest.plan import Plan
from fepflow.verdict.pass_rule import SampleOutcome, SampleResult, outcome_of

DEFAULT_CONCURRENCY = 16

logger = logging.getLogger("fepflow.pytest")

Call = Callable[[TestCase], Any]
AsyncCall = Callable[[TestCase], Awaitable[Any]]

_OF_THE_WHOLE_TEST = (KeyboardInterrupt, GeneratorExit, pytest.exit.Exception, pytest.xfail.Exception)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one call gave; `outcome` is None where the checks have the say, `output` where there is nothing to check."""

    case_index: int
    sample: int
    output: Output | None
    outcome: SampleOutcome | None = None
    why: str | None = None


def run_samples(call: Call, plan: Plan) -> list[SampleResult]:
    """Call once for each sample of each case, one after another, and check what came."""
    answers = [_call(call, plan.cases[case_index], case_index, sample) for case_index, sample in _units(plan)]
    results: list[SampleResult] = []
    for group in _by_sample(answers):
        checked = evaluate(*_to_check(group, plan)) if any(answer.output for answer in group) else None
        results += _joined(group, checked)
    return results


async def run_samples_async(call: AsyncCall, plan: Plan) -> list[SampleResult]:
    """As `run_samples`, with a bounded number of calls under way at once."""
    units = _units(plan)
    answers: list[_Answer] = []

    async def work() -> None:
        try:
            for case_index, sample in units:
                answers.append(await _call_async(call, plan.cases[case_index], case_index, sample))
        except BaseException:
            units.close()  # it was about the whole test: the others take no more
            raise

    await _all_or_none([asyncio.ensure_future(work()) for _ in range(plan.concurrency or DEFAULT_CONCURRENCY)])
    results: list[SampleResult] = []
    for group in _by_sample(sorted(answers, key=lambda answer: (answer.sample, answer.case_index))):
        checked = await evaluate_async(*_to_check(group, plan)) if any(answer.output for answer in group) else None
        results += _joined(group, checked)
    return results


def _units(plan: Plan) -> Generator[tuple[int, int]]:
    """The (case index, sample) of each call."""
    return ((case_index, sample) for sample in range(plan.samples) for case_index in range(len(plan.cases)))


def _call(call: Call, case: TestCase, case_index: int, sample: int) -> _Answer:
    started = perf_counter()
    try:
        return _answer(call(case), case_index, sample, started)
    except _OF_THE_WHOLE_TEST:
        raise
    except BaseException as error:
        return _raised(error, case_index, sample, started)


async def _call_async(call: AsyncCall, case: TestCase, case_index: int, sample: int) -> _Answer:
    started = perf_counter()
    try:
        return _answer(await call(case), case_index, sample, started)
    except _OF_THE_WHOLE_TEST:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # it is us who are stopped; else something inside the function was
        return _raised(error, case_index, sample, started)


async def _all_or_none(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Wait for all. The first exception stops the others, and is raised."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _answer(value: Any, case_index: int, sample: int, started: float) -> _Answer:
    if isinstance(value, Output):
        return _Answer(case_index, sample, value)
    return _Answer(case_index, sample, Output(value=_as_it_is_now(value), metadata=_latency(started)))


def _as_it_is_now(value: Any) -> Any:
    """A copy of what a later call might change: fixtures are shared, and so may be the list that is returned."""
    if not isinstance(value, list | dict):
        return value
    try:
        return deepcopy(value)
    except Exception:  # an object inside that cannot be copied
        return value


def _raised(error: BaseException, case_index: int, sample: int, started: float) -> _Answer:
    if isinstance(error, pytest.skip.Exception):
        return _Answer(case_index, sample, None, "skipped", f"skipped: {_one_line(error.msg or '')}")
    if _is_time_limit(error):
        raise error
    logger.debug("the call for test_cases[%d] raised", case_index, exc_info=error)
    judged = isinstance(error, AssertionError | pytest.fail.Exception)
    name = "failed" if isinstance(error, pytest.fail.Exception) else type(error).__name__
    message = f"{name}: {_one_line(str(error))}{_location(error)}"
    cause = {
        "type": "timeout_error" if isinstance(error, TimeoutError) else "unknown_error",
        "kind": "exception",
        "message": message,
        "recoverable": False,
    }
    output = Output(value=None, metadata={"error": cause, **_latency(started)})
    return _Answer(case_index, sample, output, "failed" if judged else "error", message)


def _is_time_limit(error: BaseException) -> bool:
    """Whether pytest-timeout raised it, wherever the function just was: it is about the whole test."""
    frames = traceback.walk_tb(error.__traceback__)
    return isinstance(error, pytest.fail.Exception) and any(
        frame.f_globals.get("__name__") == "pytest_timeout" for frame, _ in frames
    )


def _location(error: BaseException) -> str:
    """Where it was raised: the innermost line that is neither ours nor an installed package's."""
    ours = str(Path(__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "no message"


def _latency(started: float) -> dict[str, Any]:
    return {"latency_ms": round((perf_counter() - started) * 1000, 1)}


def _by_sample(answers: Sequence[_Answer]) -> Iterator[list[_Answer]]:
    return (list(group) for _, group in groupby(answers, key=lambda answer: answer.sample))


def _to_check(group: Sequence[_Answer], plan: Plan) -> tuple[list[TestCase], list[Output], Any]:
    pairs = [(plan.cases[answer.case_index], answer.output) for answer in group if answer.output is not None]
    return [case for case, _ in pairs], [output for _, output in pairs], plan.checks


def _joined(group: Sequence[_Answer], checked: EvaluationRunResult | None) -> Iterator[SampleResult]:
    checks = iter(checked.results if checked else ())
    for answer in group:
        found: list[CheckResult] = next(checks).check_results if answer.output is not None else []
        outcome = answer.outcome or outcome_of(found)
        yield SampleResult(answer.case_index, answer.sample, answer.output, found, outcome, answer.why)
