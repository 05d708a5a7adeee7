"""The decorator `evaluate`: it calls a test function for test cases, many times, and judges the rate of passes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial, wraps
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import Any, TypeVar

import pytest

from fepflow.errors import FepflowError
from fepflow.protocol.check import AnyCheck
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.pytest.calls import Plan, invalid_argument, make_plan, rule_of_flex_evals, run_samples, run_samples_async
from fepflow.pytest.dependence import Cluster, dependence_of
from fepflow.pytest.plugin import EVALUATION, RUN, STORE, VERDICT
from fepflow.pytest.report import failure_report
from fepflow.text import percent
from fepflow.verdict.pass_rule import PassRule, SampleResult, chance_of_each_case, judge_samples
from fepflow.verdict.verdict import Verdict

Test = TypeVar("Test", bound=Callable[..., Any])

MOST_TIMES = 5
"""The most samples of a test with `shown=True`, as a multiple of `samples`."""


class InconclusiveWarning(UserWarning):
    """A test with `shown=True` that passed, although its rate is not shown to reach the threshold."""


def evaluate(
    test_cases: Sequence[TestCase],
    checks: Sequence[AnyCheck] | None = None,
    samples: int = 1,
    *,
    success_threshold: float = 1.0,
    pass_rule: PassRule = "case",  # noqa: S107  # no password
    shown: bool = False,
    cluster: Cluster | None = None,
    max_concurrency: int | None = None,
    pass_threshold: float | None = None,
    pass_mode: str | None = None,
) -> Callable[[Test], Test]:
    """Make a test of a function that answers test cases.

    pytest calls the function `samples` times for every test case, with the case as `test_case` (or, if no parameter
    has this name, as the first one) and with its fixtures, which are the same objects each time. What it returns is the
    output's value; an `Output` is taken as it is. The checks, and those that a case carries, judge each output. What
    the function raises is no output, and never a pass.

    The test passes if at least `success_threshold` (0 to 1) passed: of all results (`pass_rule="case"`), or of the
    samples, each of which passes only with all its cases (`"sample"`); or if every case for itself reaches it over its
    samples (`"each_case"`). If `shown`, it fails only when the rate is shown to be below, and calls go on, up to five
    times `samples`, until it is shown to be above or below; if it never is, it passes with an InconclusiveWarning.
    `cluster` says which cases belong together, a path such as `$.test_case.metadata.document` or a function of the test
    case; then the interval for all such cases is shown, too, and counts clusters. It decides nothing.
    `max_concurrency` bounds the calls of an async function that are under way at once (default 16); a sync function's
    come one after another.

    `pass_threshold` and `pass_mode` are flex-evals 0.4's names, with its default `"per_test_case"`: `"each_case"`.
    Raises InputError, while pytest collects, for what cannot be evaluated.
    """
    __tracebackhide__ = True
    if pass_threshold is not None or pass_mode is not None:
        success_threshold, pass_rule = rule_of_flex_evals(pass_threshold, pass_mode, success_threshold, pass_rule)
    plan = make_plan(test_cases, checks or (), samples, success_threshold, pass_rule, max_concurrency, shown=shown)
    if cluster is not None and plan.rule == "sample":
        message = "a sample is of all test cases, so it counts no clusters"
        raise invalid_argument("cluster", message, 'leave it out, or take pass_rule="case"')
    clusters, remarks = dependence_of(plan.cases, cluster)
    plan = replace(plan, clusters=clusters, cluster=cluster if isinstance(cluster, str) else None)
    if advice := _strictness_of_each_case(plan):
        remarks.append(advice)
    for remark in remarks:
        warnings.warn(remark, stacklevel=2)
    return partial(_decorated, plan)


def _strictness_of_each_case(plan: Plan) -> str | None:
    """Return a warning if an agent that is well above the threshold in every case would mostly fail, by chance."""
    rate = min(plan.threshold + 0.1, (1 + plan.threshold) / 2)
    if plan.rule != "each_case" or plan.shown:
        return None
    chance = chance_of_each_case(len(plan.cases), plan.samples, plan.threshold, rate)
    if chance >= 0.5:
        return None
    return (
        f"each_case is strict here: an agent that passes in {rate:.4g} of the samples of every test case fails "
        f"{percent(round(1 - chance, 3))} of the time, as each of {len(plan.cases)} cases must pass in "
        f"{plan.threshold:g} of only {plan.samples} samples. Take shown=True (a case fails only if it is shown to be "
        'below), more samples, a lower threshold, or pass_rule="case".'
    )


def _decorated(plan: Plan, function: Test) -> Test:
    __tracebackhide__ = True
    if not callable(function) or isinstance(function, type):
        raise invalid_argument("test", f"{function!r} is not a function", "decorate a test function or method")
    takes = signature(function)
    case_name = _case_parameter(takes)
    wants_request = "request" in takes.parameters

    def bind(instance: tuple[Any, ...], fixtures: dict[str, Any]) -> tuple[pytest.FixtureRequest, Callable[..., Any]]:
        if "request" not in fixtures:
            pytest.fail("An evaluation gets fixtures, but this was called without any.", pytrace=False)
        request = fixtures["request"] if wants_request else fixtures.pop("request")

        def call(case: TestCase) -> Any:
            return function(*instance, **fixtures, **({case_name: case} if case_name else {}))

        return request, call

    if iscoroutinefunction(function):

        @wraps(function)
        async def test(*instance: Any, **fixtures: Any) -> None:
            request, call = bind(instance, fixtures)
            started_at = utc_now()
            results: list[SampleResult] = []
            while samples := _next_samples(plan, results):
                results += await run_samples_async(call, plan, samples)
            _conclude(plan, request, results, started_at)

    else:
        if plan.concurrency is not None:
            message = f"max_concurrency: {function.__name__} is not async, so its calls come one after another"
            warnings.warn(message, stacklevel=2)

        @wraps(function)
        def test(*instance: Any, **fixtures: Any) -> None:
            request, call = bind(instance, fixtures)
            started_at = utc_now()
            results: list[SampleResult] = []
            while samples := _next_samples(plan, results):
                results += run_samples(call, plan, samples)
            _conclude(plan, request, results, started_at)

    test.__dict__.update({EVALUATION: True, "__signature__": _for_pytest(takes, case_name)})
    return test  # type: ignore[return-value]  # pytest calls it as it would have called the function


def _case_parameter(takes: Signature) -> str | None:
    """Return the parameter for the test case: `test_case`, else the first; None for a function without parameters."""
    if "test_case" in takes.parameters:
        return "test_case"
    return next((name for name in takes.parameters if name != "self"), None)


def _for_pytest(takes: Signature, case_name: str | None) -> Signature:
    """Return the signature for pytest: the fixtures to provide, and its `request`."""
    wanted = [parameter for name, parameter in takes.parameters.items() if name != case_name]
    if "request" not in takes.parameters:
        wanted.append(Parameter("request", Parameter.KEYWORD_ONLY))
    return takes.replace(parameters=sorted(wanted, key=lambda parameter: parameter.kind))


def _next_samples(plan: Plan, results: Sequence[SampleResult]) -> range:
    """Return which samples of each case to call next; an empty range once the verdict is clear, or all are made."""
    made, most = len(results) // len(plan.cases), MOST_TIMES * plan.samples
    if not made:
        return range(plan.samples)
    if not plan.shown or all(result.outcome == "skipped" for result in results):
        return range(0)
    verdict = _judge(plan, results)
    is_open = verdict.outcome == "inconclusive" and not verdict.blocks
    return range(made, min(made + max(made // 4, 1), most)) if is_open else range(0)


def _judge(plan: Plan, results: Sequence[SampleResult]) -> Verdict:
    samples = len(results) // len(plan.cases)
    return judge_samples(results, samples, plan.rule, plan.threshold, shown=plan.shown, clusters=plan.clusters)


def _conclude(plan: Plan, request: pytest.FixtureRequest, results: list[SampleResult], started_at: datetime) -> None:
    if all(result.outcome == "skipped" for result in results):
        pytest.skip((results[0].why or "").removeprefix("skipped: "))
    plan = replace(plan, samples=len(results) // len(plan.cases))
    verdict = _judge(plan, results)
    properties = request.node.user_properties
    properties.append((VERDICT, f"{verdict.outcome}, {verdict.reasons[0]}"))
    run_id = _store(plan, request, results, verdict, started_at)
    if run_id is not None:
        properties.append((RUN, run_id))
    if verdict.blocks:
        pytest.fail(failure_report(plan, results, verdict), pytrace=False)
    if verdict.outcome == "inconclusive":
        warnings.warn(f"passed, but inconclusive: {verdict.reasons[0]}", InconclusiveWarning, stacklevel=1)


def _store(
    plan: Plan, request: pytest.FixtureRequest, results: list[SampleResult], verdict: Verdict, started_at: datetime
) -> str | None:
    """Keep the results, if `--fepflow-store` says so. A store that fails is warned of, and changes no outcome."""
    store = request.config.stash.get(STORE, None)
    if store is None:
        return None
    from fepflow.analysis.recorded_runs import new_run, record_run

    try:
        if plan.clusters is not None and plan.cluster is None:
            message = "cluster= is a function, which is not stored, so comparisons of stored runs count test cases"
            warnings.warn(f"{message}; give a path.", stacklevel=1)
        run = new_run(
            "pytest", request.node.nodeid, plan.checks, started_at, samples=plan.samples, cluster=plan.cluster
        )
        record_run(store, run, plan.cases, results, verdict)
        return run.id
    except FepflowError as error:
        warnings.warn(f"the results of {request.node.nodeid} are not stored: {error}", stacklevel=1)
        return None
