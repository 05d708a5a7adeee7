"""Whether runs are worse than a first one, by margins that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fepflow.errors import UserError
from fepflow.statistics.binomial_tests import holm
from fepflow.suite.models import Gate
from fepflow.verdict.regression_rules import judge_differences
from fepflow.verdict.verdict import Outcome, RuleOutcome
from tasks.analysis.run_comparison import RunComparison


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
    rules = [
        judge_differences(each.metrics, found, "the base", Gate(confidence=each.confidence), family)
        for each, found in zip(comparisons, wanted, strict=True)
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


def _margins(
    comparison: RunComparison, margin: float | None, margins: Mapping[str, float], *, asked: bool
) -> dict[str, float]:
    metrics = {metric.id: metric for metric in comparison.metrics}
    if unknown := [name for name in margins if name not in metrics]:
        raise UserError(f"There is no metric {unknown[0]} to give a margin: there is {', '.join(metrics)}.")
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
