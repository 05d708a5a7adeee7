"""The decorator `evaluate`: it calls a test function for test cases, many times, and judges the rate of passes.

Before it, what it needs: the dependence of a test's cases on one another (clusters that its author names, and cases
of the same content), and the report of a failed test for a terminal (the verdict, then the failed cases, worst first).
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial, wraps
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import Any, TypeVar

import pytest

from fepflow.analysis.causes import Causes
from fepflow.analysis.dependence import ClusteredCases, Duplicates, clusters_by
from fepflow.checks.explanation import complaint
from fepflow.errors import FepflowError, InputError, JSONPathError, Problem
from fepflow.jsonpath.path import compile_path
from fepflow.protocol.check import AnyCheck
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.pytest.calls import Plan, invalid_argument, make_plan, rule_of_flex_evals, run_samples, run_samples_async
from fepflow.pytest.plugin import EVALUATION, RUN, STORE, VERDICT
from fepflow.text import as_json, cut, percent, plural, printable
from fepflow.verdict.pass_rule import (
    CaseClusters,
    PassRule,
    SampleOutcome,
    SampleResult,
    chance_of_each_case,
    judge_samples,
)
from fepflow.verdict.verdict import Verdict

Cluster = str | Callable[[TestCase], Any]
"""A path like `$.test_case.metadata.document`, or a function of the case. Cases of the same value belong together."""

_BY_FUNCTION = "$.test_case.metadata.cluster"


def dependence_of(cases: Sequence[TestCase], cluster: Cluster | None) -> tuple[CaseClusters | None, list[str]]:
    """Return the clusters of the cases, None where no `cluster` is asked for, and what to warn of.

    Duplicates are in one cluster. Raises InputError for a `cluster` that tells nothing of these cases.
    """
    # The test function may read all of a case, so cases of different metadata are different ones.
    duplicates = Duplicates({"target": "$.test_case"})
    for case in cases:
        duplicates.add(case)
    remarks = [f"{duplicates.sentence}; the rate counts each of them."] if duplicates.sentence else []
    if cluster is None:
        return None, remarks
    clusters = _clusters(cases, cluster)
    if clusters is not None and clusters.warning is not None:
        remarks.append(clusters.warning.replace(_BY_FUNCTION, "cluster"))
    joined = duplicates.joined(clusters)
    if joined is None:
        return CaseClusters(range(len(cases)), None), remarks
    return CaseClusters(joined.numbers, joined.noun), remarks


def _clusters(cases: Sequence[TestCase], cluster: Cluster) -> ClusteredCases | None:
    """Return the clusters; None if each case stands alone."""
    if isinstance(cluster, str):
        _require_path_of_case(cluster)
        clusters = clusters_by(cluster, cases)
    elif callable(cluster):
        values = [TestCase(id=case.id, input=None, metadata={"cluster": _value(cluster, case)}) for case in cases]
        clusters = clusters_by(_BY_FUNCTION, values)
    else:
        raise _invalid(f"{cluster!r} is neither a path nor a function", _ADVICE)
    if clusters is not None and clusters.without == len(cases):
        of = f"has a {cluster}" if isinstance(cluster, str) else "gets a value from the function, each gets None"
        raise _invalid(f"no test case {of}", "name what several cases have in common, or leave it out")
    return clusters


def _require_path_of_case(path: str) -> None:
    if not path.startswith("$.test_case."):
        raise _invalid(f"{path!r} is not a path of a test case", _ADVICE)
    try:
        compile_path(path)
    except JSONPathError as error:
        raise _invalid(str(error), _ADVICE) from None


def _value(cluster: Callable[[TestCase], Any], case: TestCase) -> Any:
    try:
        value = cluster(case)
    except Exception as error:
        message = f"the function raised {type(error).__name__} for the case {case.id!r}: {error}"
        raise _invalid(message, "return None for a case that stands alone") from error
    try:
        json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        message = f"the function returned {type(value).__name__}, which names no cluster, for the case {case.id!r}"
        raise _invalid(message, "return a text or a number that cases of one cluster share") from None
    return value


_ADVICE = "give a path such as $.test_case.metadata.document, or a function of the test case"


def _invalid(message: str, advice: str) -> InputError:
    return InputError(Problem(message, path="evaluate: cluster", advice=advice))


MAX_CASES = 10
MAX_LINE = 300
MAX_INPUT = 80
MAX_SAMPLES = 20


def failure_report(plan: Plan, results: Sequence[SampleResult], verdict: Verdict) -> str:
    """Return several lines of text; the first says it all. What agents wrote is escaped and cut."""
    blocks = [
        *_block("failed", "Failed", plan, results),
        *_block("error", "Errors: no answer, which is neither a pass nor a fail", plan, results),
        *_block("skipped", "Skipped", plan, results),
    ]
    head = [verdict.reasons[0]]
    if plan.rule == "sample":
        head.append("A sample passes if all its test cases do.")
    return "\n".join([*head, *_all_causes(plan, results), *blocks])


def _all_causes(plan: Plan, results: Sequence[SampleResult]) -> Iterator[str]:
    """Yield what kept results from passing, each cause once; a single result says so itself."""
    without = [result for result in results if result.outcome in ("failed", "error")]
    if len(without) < 2:
        return
    causes = Causes()
    for result in without:
        causes.add(plan.cases[result.case_index].id, result.output, result.checks)
    if lines := causes.summary().lines():
        yield from ["", "Causes:", *(cut(printable(f"  {line}"), MAX_LINE) for line in lines)]


def _block(outcome: SampleOutcome, title: str, plan: Plan, results: Sequence[SampleResult]) -> Iterator[str]:
    by_case: dict[int, list[SampleResult]] = defaultdict(list)
    for result in results:
        if result.outcome == outcome:
            by_case[result.case_index].append(result)
    if not by_case:
        return
    total = sum(map(len, by_case.values()))
    yield ""
    yield f"{title}: {plural(total, 'result')} of {plural(len(by_case), 'test case')}"
    worst_first = sorted(by_case.items(), key=lambda item: (-len(item[1]), item[0]))
    for case_index, results_of_case in worst_first[:MAX_CASES]:
        yield from _case(plan, case_index, sorted(results_of_case, key=lambda result: result.sample))
    if len(worst_first) > MAX_CASES:
        names = ", ".join(plan.cases[case_index].id for case_index, _ in worst_first[MAX_CASES:])
        yield cut(f"  ... and {plural(len(worst_first) - MAX_CASES, 'more test case')}: {printable(names)}", MAX_LINE)


def _case(plan: Plan, case_index: int, results: Sequence[SampleResult]) -> Iterator[str]:
    case = plan.cases[case_index]
    which = f" in {len(results)} of {plan.samples} samples" if plan.samples > 1 else ""
    yield f"  {cut(printable(case.id), MAX_INPUT)}{which}, input: {cut(printable(as_json(case.input)), MAX_INPUT)}"
    causes: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for result in results:
        for name, line in _causes(plan, result):
            causes[name].append((result.sample + 1, line))
    for name, examples in causes.items():
        yield f"    {cut(printable(name), MAX_INPUT)}{_where(plan, examples)}: {examples[0][1]}"


def _causes(plan: Plan, result: SampleResult) -> Iterator[tuple[str, str]]:
    """Yield what kept this result from passing: its kind (a check, an exception), and how it was this time."""
    if result.why is not None:
        kind, _, message = result.why.partition(": ")
        yield (kind, cut(printable(message), MAX_LINE)) if message else ("reason", cut(printable(kind), MAX_LINE))
        return
    for check in result.checks:
        if (text := complaint(check)) is not None:
            yield check.check_id, text


def _where(plan: Plan, examples: Sequence[tuple[int, str]]) -> str:
    if plan.samples == 1:
        return ""
    numbers = [str(sample) for sample, _ in examples]
    if len(numbers) == 1:
        return f", sample {numbers[0]}"
    more = ", ..." if len(numbers) > MAX_SAMPLES else ""
    return f", samples {', '.join(numbers[:MAX_SAMPLES])}{more}; the first"


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
            pytest.fail(
                "An evaluation needs pytest's fixtures: let pytest call it, and decorate it once.", pytrace=False
            )
        request = fixtures["request"] if wants_request else fixtures.pop("request")

        def call(case: TestCase) -> Any:
            return function(*instance, **fixtures, **({case_name: case} if case_name else {}))

        return request, call

    if iscoroutinefunction(function):

        @wraps(function)
        async def test(*instance: Any, request: Any, **fixtures: Any) -> None:
            # `request` is named: without it, the call raises. unittest awaits nothing, and would pass.
            request, call = bind(instance, {**fixtures, "request": request})
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
    # A test that is run again has those of its first try, which belong to that one's report.
    properties = [item for item in request.node.user_properties if item[0] not in (VERDICT, RUN)]
    request.node.user_properties = properties
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
