"""From what the store has of a run to metrics with intervals, and to the verdict. Needs no Prefect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fepflow.analysis.accumulation import accumulate, suite_of
from fepflow.analysis.judge_errors import labels_by_metric, with_correction
from fepflow.analysis.regressions import judge_regression
from fepflow.analysis.slices import SlicedCases, minima_of
from fepflow.evalguard.models import Thresholds
from fepflow.store.records import CheckCounts, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate, Suite
from fepflow.verdict.estimates import CheckTotals
from fepflow.verdict.gate import decide
from fepflow.verdict.verdict import Verdict


def compute_verdict(store: Store, run: RunRecord, suite: Suite) -> Verdict:
    """Metrics and verdict of all that the store has of a run, whether or not it is complete."""
    gate = suite.gate or Gate()
    sliced = SlicedCases(suite.slices.by) if suite.slices else None
    one_by_one = sliced is not None or gate.regression is not None
    carriers, accumulators, counted = accumulate(store, run, suite, sliced, one_by_one=one_by_one)
    metrics = [accumulator.metric for accumulator in accumulators]
    labels = labels_by_metric(store, run, metrics, {name: found.declared for name, found in carriers.items()})
    estimates = [with_correction(accumulator.estimate(gate), labels) for accumulator in accumulators]
    regression = judge_regression(store, run, gate, accumulators, labels) if gate.regression else None
    thresholds = Thresholds.model_validate(suite.thresholds) if isinstance(suite.thresholds, dict) else None
    totals = [
        _totals(check_id, len(found.case_indices) * run.repeats, counted.get(check_id))
        for check_id, found in carriers.items()
    ]
    if suite.slices is None or sliced is None:
        return decide(estimates, suite.gate, thresholds, totals, regression=regression)
    minima = minima_of(suite.slices, metrics)
    of_slices = [
        replace(each, metric=with_correction(each.metric, labels, of_part=True))
        for each in sliced.estimates(accumulators, gate)
    ]
    return decide(estimates, suite.gate, thresholds, totals, of_slices, minima, regression)


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
