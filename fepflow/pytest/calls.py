"""The calls of a decorated test: planned while pytest collects, made for every sample of every case, and checked."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter
from typing import Any, get_args

import pytest

from fepflow.asyncio_helpers import gather_or_raise
from fepflow.calls.python.worker import first_cause
from fepflow.checks.core.checked_output import checks_of
from fepflow.checks.core.compiled import compile_checks
from fepflow.checks.engine import (
    CONCURRENCY,
    copied,
    described,
    evaluate,
    evaluate_async,
    failed_output,
    is_cancelled,
    message_on_one_line,
    output_of,
    read_checks,
    require_count,
    require_list,
)
from fepflow.errors import InputError, Problem
from fepflow.protocol.check import AnyCheck, CheckForm
from fepflow.protocol.results import CheckResult, EvaluationRunResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.verdict.pass_rule import CaseClusters, PassRule, SampleOutcome, SampleResult, outcome_of

_RULES_OF_FLEX_EVALS: dict[str, PassRule] = {"per_test_case": "each_case", "sample": "sample"}


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls of a decorated test, and the conditions for a pass.

    `samples` is the number of the first calls for each case. If `shown`, more follow while the verdict is open.
    `clusters` are those of the cases, by the path `cluster` unless a function named them.
    `concurrency` bounds the calls under way at once, None where the test does not say.
    """

    cases: list[TestCase]
    checks: list[AnyCheck]
    samples: int
    threshold: float
    rule: PassRule
    concurrency: int | None
    shown: bool = False
    clusters: CaseClusters | None = None
    cluster: str | None = None


def make_plan(
    test_cases: Sequence[TestCase],
    checks: Sequence[AnyCheck],
    samples: int,
    threshold: float,
    rule: PassRule,
    concurrency: int | None,
    *,
    shown: bool = False,
) -> Plan:
    """Return the plan. Raises InputError for what cannot be evaluated: no cases, no checks, a bad threshold."""
    __tracebackhide__ = True
    require_count(samples, "samples", "evaluate: samples")
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise invalid_argument(
            "success_threshold", f"{threshold!r} is not a share", "give a number from 0 to 1, such as 0.9"
        )
    if shown and threshold in (0, 1):
        advice = "give a success_threshold between 0 and 1, such as 0.9"
        raise invalid_argument("shown", f"no sample can show that a rate reaches or misses {threshold:g}", advice)
    if rule not in get_args(PassRule):
        raise invalid_argument("pass_rule", f"there is no {rule!r}", f"known are {', '.join(get_args(PassRule))}")
    if concurrency is not None:
        require_count(concurrency, "calls", "evaluate: max_concurrency")
    if callable(test_cases):
        raise invalid_argument(
            "test_cases", "is a function", "write @evaluate(test_cases=[...], checks=[...]) above it"
        )
    require_list(test_cases, "evaluate: test_cases")
    require_list(checks, "evaluate: checks")
    cases = _usable_cases(test_cases)
    checks, per_case = read_checks(checks)
    if per_case:
        raise invalid_argument("checks[0]", "is a list, not a check", "give the checks of a case in the case")
    _require_usable_checks(cases, checks)
    return Plan(cases, list(checks), samples, threshold, rule, concurrency, shown)


def rule_of_flex_evals(
    pass_threshold: float | None, pass_mode: str | None, threshold: float, rule: PassRule
) -> tuple[float, PassRule]:
    """Return threshold and rule from the names of flex-evals 0.4, whose defaults are 1.0 and per_test_case."""
    __tracebackhide__ = True
    if threshold != 1.0:
        raise invalid_argument(
            "success_threshold", "pass_threshold and pass_mode go without it", "give pass_threshold alone"
        )
    if rule != "case":
        raise invalid_argument(
            "pass_rule", "pass_threshold and pass_mode go without it", "give pass_mode, or rename both"
        )
    rule_of_mode = _RULES_OF_FLEX_EVALS.get(str(pass_mode or "per_test_case"))
    if rule_of_mode is None:
        raise invalid_argument(
            "pass_mode", f"there is no {pass_mode!r}", f"known are {', '.join(_RULES_OF_FLEX_EVALS)}"
        )
    return (1.0 if pass_threshold is None else pass_threshold), rule_of_mode


def invalid_argument(path: str, message: str, advice: str | None = None) -> InputError:
    """Return the exception for one argument of the decorator."""
    return InputError(Problem(message, path=f"evaluate: {path}", advice=advice))


def _usable_cases(test_cases: Sequence[TestCase]) -> list[TestCase]:
    __tracebackhide__ = True
    cases = list(test_cases)
    if not cases:
        raise invalid_argument("test_cases", "there are no test cases", "give at least one")
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        if not isinstance(case, TestCase):
            message = f"is a {type(case).__name__}, not a TestCase"
            raise invalid_argument(f"test_cases[{index}]", message, "write TestCase(input=..., expected=...)")
        if first.setdefault(case.id, index) != index:
            message = f"the id {case.id!r} is that of test_cases[{first[case.id]}] too"
            raise invalid_argument(f"test_cases[{index}]", message, "ids are unique")
    return cases


def _require_usable_checks(cases: list[TestCase], checks: Sequence[AnyCheck]) -> None:
    __tracebackhide__ = True
    for number, declared in enumerate(checks):
        if not isinstance(declared, CheckForm):
            message = f"is a {type(declared).__name__}, not a check"
            raise invalid_argument(
                f"checks[{number}]", message, "give ContainsCheck(...) or Check(type=...), for example"
            )
    shared = compile_checks(checks)
    for index, case in enumerate(cases):
        compiled = checks_of(case.checks or (), shared)
        if not compiled:
            advice = "give `checks`, or the case `checks` of its own"
            raise invalid_argument(f"test_cases[{index}]", f"no check judges {case.id!r}", advice)
        for check in compiled:
            if check.error is not None:
                raise invalid_argument(f"check {check.check_id}", str(check.error))


logger = logging.getLogger("fepflow.pytest")

Call = Callable[[TestCase], Any]
AsyncCall = Callable[[TestCase], Awaitable[Any]]

_OF_THE_WHOLE_TEST = (KeyboardInterrupt, GeneratorExit, pytest.exit.Exception, pytest.xfail.Exception)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one call. `outcome` is None if the checks decide, `output` if there is nothing to check."""

    case_index: int
    sample: int
    output: Output | None
    outcome: SampleOutcome | None = None
    why: str | None = None


def run_samples(call: Call, plan: Plan, samples: range) -> list[SampleResult]:
    """Call once for each of these samples of each case, one after another, and check what came."""
    answers: list[_Answer] = []
    for case_index, sample in _units(plan, samples):
        with _answering(answers, case_index, sample) as answer_with:
            answer_with(call(copied(plan.cases[case_index])))
    results: list[SampleResult] = []
    for group in _by_sample(answers):
        checked = evaluate(*_to_check(group, plan)) if any(answer.output for answer in group) else None
        results += _joined(group, checked)
    return results


async def run_samples_async(call: AsyncCall, plan: Plan, samples: range) -> list[SampleResult]:
    """Call like `run_samples`, with a bounded number of calls under way at once."""
    units = _units(plan, samples)
    answers: list[_Answer] = []

    async def work() -> None:
        try:
            for case_index, sample in units:
                with _answering(answers, case_index, sample) as answer_with:
                    answer_with(await call(copied(plan.cases[case_index])))
        except BaseException:
            units.close()  # it was about the whole test: the others, which may never wait, take no more
            raise

    await gather_or_raise(work() for _ in range(plan.concurrency or CONCURRENCY))
    if len(answers) < len(samples) * len(plan.cases):
        pytest.fail("A call cancelled its own asyncio task, so its answer is missing.", pytrace=False)
    results: list[SampleResult] = []
    for group in _by_sample(sorted(answers, key=lambda answer: (answer.sample, answer.case_index))):
        checked = await evaluate_async(*_to_check(group, plan)) if any(answer.output for answer in group) else None
        results += _joined(group, checked)
    return results


def _units(plan: Plan, samples: range) -> Generator[tuple[int, int]]:
    """Yield the (case index, sample) of each call."""
    return ((case_index, sample) for sample in samples for case_index in range(len(plan.cases)))


@contextmanager
def _answering(answers: list[_Answer], case_index: int, sample: int) -> Iterator[Callable[[Any], None]]:
    """Add the answer of the body's call: the value that it passes on, or its exception."""
    started = perf_counter()
    try:
        yield lambda value: answers.append(_Answer(case_index, sample, output_of(value, started)))
    except _OF_THE_WHOLE_TEST:
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise  # it is us who are stopped; else something inside the function was
        answers.append(_raised(error, case_index, sample, started))


def _raised(raised: BaseException, case_index: int, sample: int, started: float) -> _Answer:
    cause, others = first_cause(raised)
    error = raised if others else cause  # a skip beside an error is no skip
    if isinstance(error, pytest.skip.Exception):
        return _Answer(case_index, sample, None, "skipped", f"skipped: {message_on_one_line(error.msg or '')}")
    if _is_time_limit(error) or isinstance(error, _OF_THE_WHOLE_TEST):
        raise error
    logger.debug("the call for test_cases[%d] raised", case_index, exc_info=error)
    judged = isinstance(error, AssertionError | pytest.fail.Exception)
    message = described(raised, "failed" if isinstance(error, pytest.fail.Exception) else None)
    output = failed_output(error, message, started)
    return _Answer(case_index, sample, output, "failed" if judged else "error", message)


def _is_time_limit(error: BaseException) -> bool:
    """Return whether pytest-timeout raised it, which is about the whole test."""
    frames = traceback.walk_tb(error.__traceback__)
    return isinstance(error, pytest.fail.Exception) and any(
        frame.f_globals.get("__name__") == "pytest_timeout" for frame, _ in frames
    )


def _by_sample(answers: Sequence[_Answer]) -> Iterator[list[_Answer]]:
    return (list(group) for _, group in groupby(answers, key=lambda answer: answer.sample))


def _to_check(group: Sequence[_Answer], plan: Plan) -> tuple[list[TestCase], list[Output], Any]:
    pairs = [(plan.cases[answer.case_index], answer.output) for answer in group if answer.output is not None]
    return [case for case, _ in pairs], [output for _, output in pairs], plan.checks


def _joined(group: Sequence[_Answer], checked: EvaluationRunResult | None) -> Iterator[SampleResult]:
    checks = iter(checked.results if checked else ())
    for answer in group:
        check_results: list[CheckResult] = next(checks).check_results if answer.output is not None else []
        outcome = answer.outcome or outcome_of(check_results)
        yield SampleResult(answer.case_index, answer.sample, answer.output, check_results, outcome, answer.why)
