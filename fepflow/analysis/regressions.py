"""Whether runs are worse than a first one, by margins that are asked for, or by those of a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fepflow.analysis.accumulator import MetricAccumulator
from fepflow.analysis.baseline import regression_baseline
from fepflow.analysis.judge_errors import LabelsByMetric
from fepflow.analysis.run_comparison import RunComparison, compare_results, results_of
from fepflow.errors import UserError
from fepflow.statistics.proportions import holm
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate
from fepflow.text import known_names
from fepflow.verdict.regression_rules import Regression, judge_differences
from fepflow.verdict.verdict import CorrectedShare, DifferenceVerdict, Outcome, RegressionVerdict, RuleOutcome


@dataclass(frozen=True, slots=True)
class JudgedComparisons:
    """Runs beside the same base, in order, each with the rules about it, and all p-values adjusted by Holm's method.

    `outcome` is the worst. Without margins that were `asked` for there is no pass: it is None where no regression is
    shown, which does not show that there is none.
    """

    comparisons: list[RunComparison]
    rules: list[list[RuleOutcome]]
    p_values: list[dict[str, float]]
    asked: bool
    outcome: Outcome | None


def judge_comparisons(
    comparisons: Sequence[RunComparison], margin: float | None, margins: Mapping[str, float]
) -> JudgedComparisons:
    """Judge by `margin` the shares that passed, and metrics by their own `margins`; without any, whether anything is
    shown to be worse at all. Raises UserError for a margin of no metric."""
    asked = margin is not None or bool(margins)
    wanted = [_margins(comparison, margin, margins, asked=asked) for comparison in comparisons]
    if asked and not any(wanted):
        raise UserError("No metric is a share that passed: name the metric, as in --margin score=0.3.")
    family = sum(map(len, wanted))
    judged = [
        judge_differences(
            each.metrics, found, "the base", Gate(confidence=each.gate.confidence, judge=each.gate.judge), family
        )
        for each, found in zip(comparisons, wanted, strict=True)
    ]
    rules = [found for found, _ in judged]
    comparisons = [
        replace(each, warnings=[*each.warnings, *warnings])
        for each, (_, warnings) in zip(comparisons, judged, strict=True)
    ]
    outcomes = {rule.outcome for found in rules for rule in found}
    values = [metric.estimate.value for each in comparisons for metric in each.metrics if metric.estimate]
    outcome: Outcome | None
    if "fail" in outcomes:
        outcome = "fail"
    elif asked:
        outcome = "inconclusive" if "inconclusive" in outcomes else "pass"
    else:
        outcome = None if any(value is not None for value in values) else "inconclusive"
    return JudgedComparisons(list(comparisons), rules, _adjusted(comparisons), asked, outcome)


def judge_regression(
    store: Store, run: RunRecord, gate: Gate, accumulators: Sequence[MetricAccumulator], labels: LabelsByMetric
) -> Regression:
    """What a gate's `regression` comes to: without a baseline that can be compared with, inconclusive.

    `accumulators` are the run's metrics, whose results have been added one by one, `labels` what is known of judges.
    """
    asked = gate.regression
    assert asked is not None
    name = asked.baseline
    margin, margins = (None, asked.margin) if isinstance(asked.margin, dict) else (asked.margin, {})
    try:
        base = regression_baseline(store, run, name)
        comparison = compare_results(results_of(store, base), results_of(store, run, (accumulators, labels)))
        wanted = _margins(comparison, margin, margins, asked=True)
        if not wanted:
            raise UserError("no metric is a share that passed: give margins by metric.")
    except UserError as error:
        reason = f"Not compared with the baseline {name}: {error}"
        rule = RuleOutcome(rule=f"no regression against {name}", outcome="inconclusive", reason=reason)
        return Regression([rule], RegressionVerdict(baseline=name))
    rules, warnings = judge_differences(comparison.metrics, wanted, name, gate)
    comparison = replace(comparison, warnings=[*comparison.warnings, *warnings])
    return Regression(rules, _verdict(comparison, name, wanted, rules))


def _verdict(
    comparison: RunComparison, name: str, margins: Mapping[str, float], rules: Sequence[RuleOutcome]
) -> RegressionVerdict:
    outcomes = {rule.metric: rule.outcome for rule in rules}
    found = [
        DifferenceVerdict(
            metric=each.id,
            baseline=each.base,
            value=each.new,
            difference=each.estimate.value,
            low=each.estimate.low,
            high=each.estimate.high,
            confidence=each.estimate.confidence,
            method=each.estimate.method,
            p=each.p,
            improved=each.improved,
            worsened=each.worsened,
            n_expected=each.estimate.counts.expected,
            n_completed=each.estimate.counts.completed,
            margin=margins.get(each.id),
            corrected=CorrectedShare.of(each.corrected),
            outcome=outcomes.get(each.id),
        )
        for each in comparison.metrics
        if each.estimate is not None
    ]
    matched, base = comparison.matched.sentence, comparison.base.id
    warnings = [] if comparison.matched.is_complete else [f"Compared with {name} (run {base[:8]}): {matched}."]
    return RegressionVerdict(
        baseline=name, run_id=base, matched=matched, metrics=found, warnings=[*warnings, *comparison.warnings]
    )


def _margins(
    comparison: RunComparison, margin: float | None, margins: Mapping[str, float], *, asked: bool
) -> dict[str, float]:
    metrics = {metric.id: metric for metric in comparison.metrics}
    if unknown := [name for name in margins if name not in metrics]:
        raise UserError(f"There is no metric {unknown[0]} to give a margin: there is {known_names(metrics)}.")
    if not asked:
        return {name: 0.0 for name, each in metrics.items() if each.estimate and each.less_is_better is not None}
    shares = {} if margin is None else {name: margin for name, each in metrics.items() if each.is_share}
    return {**shares, **margins}


def _adjusted(comparisons: Sequence[RunComparison]) -> list[dict[str, float]]:
    known = [
        (index, metric.id, metric.p)
        for index, each in enumerate(comparisons)
        for metric in each.metrics
        if metric.p is not None
    ]
    found: list[dict[str, float]] = [{} for _ in comparisons]
    for (index, name, _), p in zip(known, holm([p for _, _, p in known]), strict=True):
        found[index][name] = p
    return found
