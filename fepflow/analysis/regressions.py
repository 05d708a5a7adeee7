"""The baseline of a run, and the judgement whether runs are worse than it by more than a margin.

Runs are compared only if they have the same suite (requests, checks, gate) and the same test cases. `previous` is the
newest such run with the same cause, so a manual run is never the baseline of a nightly one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fepflow.analysis.accumulation import MetricAccumulator
from fepflow.analysis.comparison import RunComparison, base_of, compare_results, results_of, results_of_base, why_not
from fepflow.analysis.judge_reliability import LabelsByMetric
from fepflow.errors import UserError
from fepflow.statistics.estimate import FIGURES
from fepflow.statistics.proportions import holm
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate
from fepflow.suite.values import PREVIOUS
from fepflow.text import known_names
from fepflow.verdict.regression_rules import Regression, detectable, in_words, judge_differences
from fepflow.verdict.verdict import (
    Comparison,
    CorrectedShare,
    DifferenceVerdict,
    MetricChange,
    Outcome,
    RegressionVerdict,
    RuleOutcome,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class JudgedComparison:
    """A run beside the base: the rules about it, and the p-values of its metrics, adjusted by Holm's method over all
    compared runs.

    `detectable` are the least regressions that such a comparison shows, by metric; `power` says so in sentences.
    """

    comparison: RunComparison
    rules: list[RuleOutcome]
    p_values: dict[str, float]
    detectable: dict[str, float]
    power: list[str]


@dataclass(frozen=True, slots=True)
class JudgedComparisons:
    """Runs beside the same base, in order, and the worst outcome.

    Without margins that were `asked` for there is no pass: the outcome is None where no regression is shown, which does
    not show that there is none.
    """

    runs: list[JudgedComparison]
    asked: bool
    outcome: Outcome | None

    @property
    def comparisons(self) -> list[RunComparison]:
        """The comparison of each run with the base."""
        return [run.comparison for run in self.runs]


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
    runs = []
    for comparison, by_metric, p_values in zip(comparisons, wanted, adjusted_p_values(comparisons), strict=True):
        gate = Gate(confidence=comparison.gate.confidence, judge=comparison.gate.judge)
        rules, warnings = judge_differences(comparison.metrics, by_metric, "the base", gate, family)
        judged = [(metric, by_metric[metric.id]) for metric in comparison.metrics if metric.id in by_metric]
        least = {metric.id: detectable(metric, accepted, gate, family) for metric, accepted in judged}
        known = {name: regression for name, regression in least.items() if regression is not None}
        power = [in_words(metric, known[metric.id], accepted) for metric, accepted in judged if metric.id in known]
        comparison = replace(comparison, warnings=[*comparison.warnings, *warnings])
        runs.append(JudgedComparison(comparison, rules, p_values, known, power))
    outcomes = {rule.outcome for run in runs for rule in run.rules}
    outcome: Outcome | None
    if "fail" in outcomes:
        outcome = "fail"
    elif asked:
        outcome = "inconclusive" if "inconclusive" in outcomes else "pass"
    else:
        values = [metric.estimate.value for compared in comparisons for metric in compared.metrics]
        outcome = None if any(value is not None for value in values) else "inconclusive"
    return JudgedComparisons(runs, asked, outcome)


def judge_regression(
    store: Store, run: RunRecord, gate: Gate, accumulators: Sequence[MetricAccumulator], labels: LabelsByMetric
) -> Regression:
    """Judge a gate's `regression`: inconclusive without a baseline that can be compared with.

    `accumulators` are the run's metrics, whose results have been added one by one, `labels` what is known of judges.
    """
    asked = gate.regression
    assert asked is not None
    name = asked.baseline
    margin, margins = (None, asked.margin) if isinstance(asked.margin, dict) else (asked.margin, {})
    try:
        then = results_of_base(store, base_of(store, run, name))
        comparison = compare_results(then, results_of(store, run, (accumulators, labels)))
        wanted = _margins(comparison, margin, margins, asked=True)
        if not wanted:
            raise UserError("no metric is a share that passed: give margins by metric.")
    except UserError as error:
        reason = f"Not compared with the baseline {name}: {error}"
        rule = RuleOutcome(rule=f"no regression against {name}", outcome="inconclusive", reason=reason)
        return Regression([rule], RegressionVerdict(baseline=name))
    rules, warnings = judge_differences(comparison.metrics, wanted, name, gate)
    comparison = replace(comparison, warnings=[*comparison.warnings, *warnings])
    return Regression(rules, _verdict(comparison, name, wanted, rules, gate))


def _verdict(
    comparison: RunComparison, name: str, margins: Mapping[str, float], rules: Sequence[RuleOutcome], gate: Gate
) -> RegressionVerdict:
    outcomes = {rule.metric: rule.outcome for rule in rules}
    differences = [
        DifferenceVerdict(
            metric=metric.id,
            baseline=metric.base,
            value=metric.new,
            difference=metric.estimate.value,
            **metric.estimate.figures(*FIGURES, "n_clusters"),
            p=metric.p,
            improved=metric.improved,
            worsened=metric.worsened,
            margin=margins.get(metric.id),
            detectable=detectable(metric, margins[metric.id], gate, len(margins)) if metric.id in margins else None,
            corrected=CorrectedShare.of(metric.corrected),
            outcome=outcomes.get(metric.id),
        )
        for metric in comparison.metrics
        if metric.why_not is None
    ]
    matched, base = comparison.matched.sentence, comparison.base.id
    pooled = [base, *(run.id for run in comparison.pooled)] if comparison.pooled else []
    warnings = [] if comparison.matched.is_complete else [f"Compared with {name} ({_base(comparison)}): {matched}."]
    return RegressionVerdict(
        baseline=name,
        run_id=base,
        pooled=pooled,
        matched=matched,
        metrics=differences,
        warnings=[*warnings, *comparison.warnings],
    )


def _base(comparison: RunComparison) -> str:
    others = len(comparison.pooled)
    return f"run {comparison.base.id[:8]}{f' and {others} more' if others else ''}"


def _margins(
    comparison: RunComparison, margin: float | None, margins: Mapping[str, float], *, asked: bool
) -> dict[str, float]:
    metrics = {metric.id: metric for metric in comparison.metrics}
    if unknown := [name for name in margins if name not in metrics]:
        raise UserError(f"There is no metric {unknown[0]} to give a margin: name one of {known_names(metrics)}.")
    if not asked:
        return {name: 0.0 for name, each in metrics.items() if each.why_not is None and each.less_is_better is not None}
    shares = {} if margin is None else {name: margin for name, each in metrics.items() if each.is_share}
    return {**shares, **margins}


def adjusted_p_values(comparisons: Sequence[RunComparison]) -> list[dict[str, float]]:
    """Return the p-values of all differences by metric, adjusted by Holm's method over all comparisons."""
    known = [
        (index, metric.id, metric.p)
        for index, comparison in enumerate(comparisons)
        for metric in comparison.metrics
        if metric.p is not None
    ]
    adjusted: list[dict[str, float]] = [{} for _ in comparisons]
    for (index, name, _), p in zip(known, holm([p for _, _, p in known]), strict=True):
        adjusted[index][name] = p
    return adjusted


def find_baseline(store: Store, run: RunRecord, named: str) -> RunRecord | None:
    """Return the run that a suite's `baseline` names; None if it is `previous` and no run can be compared.

    Raises NotFoundError for an unknown id, and UserError for a run that cannot be compared.
    """
    if named == PREVIOUS:
        return store.runs.before(run)
    baseline = base_of(store, run, named).runs[0]
    if baseline.id == run.id:
        raise UserError(f"The run {run.id} is its own baseline.")
    if reason := why_not(store, run, baseline):
        raise UserError(f"Not compared with {_named(baseline)}: {reason}.")
    return baseline


def why_none(store: Store, run: RunRecord) -> str:
    """Return why there is no `previous` run to compare with."""
    newest = store.runs.before(run, alike=False)
    if newest is None:
        return "There is no earlier run of the suite to compare with."
    why = why_not(store, run, newest) or f"it was started another way ({newest.cause}, and this one: {run.cause})"
    return f"No earlier run can be compared with. The newest is {_named(newest)}: {why}."


def compare(verdict: Verdict, baseline: RunRecord) -> Comparison:
    """Compare a verdict with that of a run with an outcome and the same cases.

    Only a fail counts as worse: between pass and inconclusive, outcomes change by chance.
    """
    assert baseline.outcome is not None
    then = {metric["id"]: metric.get("value") for metric in baseline.metrics or ()}
    cases = f"{baseline.n_cases} of {baseline.n_cases} cases"
    return Comparison(
        run_id=baseline.id,
        outcome=baseline.outcome,
        worsened=verdict.outcome == "fail" and baseline.outcome != "fail",
        summary=f"compared with {_named(baseline)}, same suite, {cases}",
        metrics=[_change(metric.id, metric.value, then.get(metric.id)) for metric in verdict.metrics],
    )


def _named(run: RunRecord) -> str:
    return f"run {run.id[:8]} of {run.created_at:%Y-%m-%d}"


def _change(name: str, value: float | None, then: float | None) -> MetricChange:
    difference = None if value is None or then is None else value - then
    finite = difference if difference is not None and math.isfinite(difference) else None
    return MetricChange(id=name, value=value, baseline=then, difference=finite)
