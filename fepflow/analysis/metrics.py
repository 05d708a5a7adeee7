"""The metrics and the verdict of a run, computed from the results in the store, with the usage of models by checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from fepflow.analysis.accumulation import SlicedCases, accumulate, is_share_that_passed, minima_of, suite_of
from fepflow.analysis.judge_reliability import labels_by_metric, warnings_of_own_model, with_correction
from fepflow.analysis.regressions import judge_regression
from fepflow.checks.core.data_checks import model_check_types
from fepflow.evalguard.models import Thresholds
from fepflow.protocol.results import USAGE
from fepflow.store.records import CheckCounts, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate, Metric, Suite
from fepflow.verdict.estimates import CheckTotals
from fepflow.verdict.gate import decide
from fepflow.verdict.verdict import ModelCosts, Verdict


def compute_verdict(store: Store, run: RunRecord, suite: Suite) -> Verdict:
    """Metrics and verdict of all that the store has of a run, whether or not it is complete."""
    gate = suite.gate or Gate()
    sliced = SlicedCases(suite.slices.by) if suite.slices else None
    one_by_one = sliced is not None or gate.regression is not None
    carriers, accumulators, counted, clusters = accumulate(store, run, suite, sliced, one_by_one=one_by_one)
    metrics = [accumulator.metric for accumulator in accumulators]
    labels = labels_by_metric(store, run, accumulators, {name: found.declared for name, found in carriers.items()})
    estimates = [with_correction(accumulator.estimate(gate), labels) for accumulator in accumulators]
    of_models = warnings_of_own_model(store, run)
    estimates = [
        replace(metric, warnings=[*metric.warnings, of_models[metric.check_id]])
        if metric.check_id in of_models
        else metric
        for metric in estimates
    ]
    regression = judge_regression(store, run, gate, accumulators, labels) if gate.regression else None
    thresholds = Thresholds.model_validate(suite.thresholds) if isinstance(suite.thresholds, dict) else None
    totals = [
        _totals(check_id, len(found.case_indices) * run.repeats, counted.get(check_id))
        for check_id, found in carriers.items()
    ]
    minima, of_slices = {}, []
    ignore_small = suite.slices is not None and suite.slices.small == "ignore"
    if suite.slices is not None and sliced is not None:
        minima = minima_of(suite.slices, metrics)
        of_slices = [
            replace(each, metric=with_correction(each.metric, labels, of_part=True))
            for each in sliced.estimates(accumulators, gate)
        ]
    verdict = decide(
        estimates, suite.gate, thresholds, totals, of_slices, minima, regression, ignore_small_slices=ignore_small
    )
    if clusters is None or clusters.warning is None:
        return verdict
    return verdict.model_copy(update={"warnings": [clusters.warning, *verdict.warnings]})


def metrics_so_far(store: Store, run: RunRecord) -> list[dict[str, Any]]:
    """The metrics of all that is there of a run, as `decide_run` stores them; nothing is ruled on them yet."""
    return [
        metric.model_dump(mode="json", exclude={"outcome", "reason"}, exclude_none=True)
        for metric in compute_verdict(store, run, suite_of(run)).metrics
    ]


def metrics_corrected_now(store: Store, run: RunRecord) -> list[dict[str, Any]]:
    """The metrics of a run with a verdict, as they are stored, but corrected by what is known of its judges by now."""
    found = {metric.id: metric.corrected for metric in compute_verdict(store, run, suite_of(run)).metrics}
    return [
        {**metric, "corrected": corrected.model_dump(mode="json", exclude_none=True)}
        if (corrected := found.get(metric["id"]))
        else metric
        for metric in run.metrics or ()
    ]


def _totals(check_id: str, expected: int, counts: CheckCounts | None) -> CheckTotals:
    if counts is None:
        return CheckTotals(check_id, expected)
    return CheckTotals(check_id, expected, counts.passed, counts.failed, counts.error, counts.skipped, counts.unjudged)


def judged_checks(suite: Suite) -> frozenset[str] | None:
    """Return the ids of the checks that the gate judges, by themselves or by a metric of them; None for all."""
    gate = suite.gate or Gate()
    thresholds = Thresholds.model_validate(suite.thresholds) if isinstance(suite.thresholds, dict) else None
    slices = suite.slices.min if suite.slices else None
    margin = gate.regression.margin if gate.regression else None
    names = {*gate.min, *gate.max, *(thresholds.thresholds if thresholds else ())}
    of_shares = False  # a number holds for all shares that passed
    for limits in (slices, margin):
        if isinstance(limits, dict):
            names |= limits.keys()
        elif limits is not None:
            of_shares = True
    if gate.checks == "all" or not (names or of_shares or thresholds or gate.max_impact):
        return None
    if suite.metrics is None:  # each check has a metric of its name
        return None if of_shares else frozenset(names)
    return frozenset(
        metric.check
        for metric in suite.metrics
        if metric.check is not None and _is_judged(metric, names, of_shares=of_shares)
    )


def _is_judged(metric: Metric, names: set[str], *, of_shares: bool) -> bool:
    by_name = metric.id in names and metric.aggregated.kind != "error_rate"
    return by_name or (of_shares and is_share_that_passed(metric))


class CheckUsage(NamedTuple):
    """The usage of one check result."""

    case_index: int
    repeat: int
    usage: dict[str, Any]


def usages(store: Store, run_id: str) -> Iterator[CheckUsage]:
    """The usage of all check results of a run, by case index and repeat."""
    for row in store.results.check_rows(run_id, types=model_check_types()):
        usage = ((row.result or {}).get("metadata") or {}).get(USAGE)
        if usage is not None:
            yield CheckUsage(row.case_index, row.repeat, usage)


def costs_of(store: Store, run_id: str) -> ModelCosts:
    """Total model cost of a run."""
    costs = ModelCosts()
    for _, _, usage in usages(store, run_id):
        costs = ModelCosts(
            requests=costs.requests + usage["requests"],
            answers=costs.answers + usage["answers"],
            tokens=costs.tokens + (usage["tokens"] or 0),
            usd=costs.usd + (usage["usd"] or 0.0),
            without_usd=costs.without_usd + usage.get("without_usd", 0),
        )
    return costs
