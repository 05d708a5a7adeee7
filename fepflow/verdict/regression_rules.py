"""The rule about regressions: a metric must not be worse than in another run of the same test cases by more than a
margin.

The difference is judged as a metric is (`metric_rules`): no regression if its whole interval is within the margin, a
regression if its whole interval is beyond it, with what is missing at its worst and best, else inconclusive.
Regressions are decided by Holm's method for all metrics that are judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fepflow.statistics.estimate import USUAL_CONFIDENCE, Counts, Estimate
from fepflow.statistics.planning import detectable_regression
from fepflow.suite.models import Gate
from fepflow.text import number, plural
from fepflow.verdict.metric_rules import Bound, MetricRules, Requirement, as_judged, warnings_of_judge
from fepflow.verdict.verdict import MetricEstimate, RegressionVerdict, RuleOutcome


@dataclass(frozen=True, slots=True)
class MetricDifference(MetricEstimate):
    """A metric in two runs, over their matched test cases; its estimate is that of new minus base.

    `improved` and `worsened` count cases whose value is larger or smaller now; the other way round if `less_is_better`,
    which is None where it is not known. `is_share` if the metric is a share that passed. No difference is larger than
    `largest`, if the metric's range is known. `why_not` says why the values are not compared; then there is no value.
    """

    base: float | None = None
    new: float | None = None
    p: float | None = None
    improved: int = 0
    worsened: int = 0
    less_is_better: bool | None = False
    is_share: bool = True
    largest: float | None = None
    why_not: str | None = None

    @classmethod
    def not_compared(cls, name: str, check_id: str | None, why_not: str, *, is_share: bool = True) -> MetricDifference:
        """Return a metric that is not compared."""
        estimate = Estimate.unknown(USUAL_CONFIDENCE, Counts(0, 0), why_not)
        return cls(name, check_id, estimate, is_share=is_share, why_not=why_not)


@dataclass(frozen=True, slots=True)
class Regression:
    """The rules of a gate's `regression`, and what they rest on."""

    rules: list[RuleOutcome]
    verdict: RegressionVerdict


@dataclass(frozen=True)
class NotWorse(Bound):
    """A Requirement: a difference from the baseline `name` is not for the worse by more than a margin."""

    name: str = ""

    @classmethod
    def by(cls, margin: float, name: str, *, less_is_better: bool) -> NotWorse:
        """Return the requirement on the difference, new minus base."""
        return cls(margin if less_is_better else -margin, less_is_better, name)

    @property
    def _worse(self) -> str:
        return f"worse than {self.name}{f' by more than {number(abs(self.limit))}' if self.limit else ''}"

    @property
    def rule(self) -> str:
        """The requirement in a few words."""
        return f"not {self._worse}"

    def standing(self, value: float | None) -> str:
        """Implement `Requirement.standing`."""
        if value is None:
            return f"cannot be compared with {self.name}: no test case has a value in both"
        if self.judge(value, value) == "fail":
            return f"is {self._worse}"
        within = f"within the margin of {number(abs(self.limit))}" if self.limit else "no worse"
        return f"is {within}, against {self.name}"


def judge_differences(
    differences: Sequence[MetricDifference], margins: Mapping[str, float], name: str, gate: Gate, family: int = 0
) -> tuple[list[RuleOutcome], list[str]]:
    """Judge differences: one rule for each metric with a margin, and warnings about judges. `name` is the other run's.

    `family` is the number of differences that are judged together, if these are not all.
    """
    by_id = {difference.id: difference for difference in differences}
    rules = MetricRules(gate, max(family, len(margins)))
    outcomes: list[RuleOutcome] = []
    judged: list[tuple[MetricEstimate, list[Requirement]]] = []
    for metric, margin in margins.items():
        difference = by_id.get(metric)
        if difference is None:
            outcomes.append(_not_compared(metric, None, margin, name, "it was not computed"))
        elif difference.why_not is not None or difference.less_is_better is None:
            why = difference.why_not or "whether more or less of it is worse is not known"
            outcomes.append(_not_compared(metric, difference.check_id, margin, name, why))
        else:
            judged.append((difference, [NotWorse.by(margin, name, less_is_better=difference.less_is_better)]))
    by_metric = rules.outcomes(judged)
    warnings = [
        warning
        for metric, required in judged
        for warning in warnings_of_judge(metric, gate, required, by_metric[metric.id])
    ]
    return [*outcomes, *(rule for outcomes_of_metric in by_metric.values() for rule in outcomes_of_metric)], warnings


def detectable(metric: MetricDifference, margin: float, gate: Gate, family: int) -> float | None:
    """Return the least regression that such a comparison, of `family` metrics, shows to be beyond the margin in 80 % of
    cases; None where there is no interval, or it is not known which way is worse."""
    if metric.why_not is not None or metric.less_is_better is None:
        return None
    estimate = as_judged(metric, gate.judge).estimate.at(1 - (1 - gate.confidence) / family)
    return detectable_regression(estimate, margin, less_is_better=metric.less_is_better)


def in_words(metric: MetricDifference, least: float, margin: float) -> str:
    """Return what `detectable` has found, as a sentence."""
    cases = plural(metric.estimate.counts.expected, "test case")
    beyond = f" to be beyond the margin of {number(margin)}" if margin else ""
    if least <= margin:  # of an interval without width, or at the end of its scale, no power can be told
        return f"{metric.id}: how large a regression {cases} would show is not known: all of them differ alike."
    if (metric.is_share and least >= 1) or (metric.largest is not None and least >= metric.largest):
        return f"{metric.id}: {cases} cannot be relied on to show any regression{beyond}."
    regression = f"a regression of {number(least)} or more"
    return f"{metric.id}: with {cases} like these, {regression} is shown{beyond} in 80 % of such comparisons."


def _not_compared(metric: str, check_id: str | None, margin: float, name: str, why: str) -> RuleOutcome:
    return RuleOutcome(
        rule=f"{metric}: {NotWorse.by(margin, name, less_is_better=False).rule}",
        metric=metric,
        check=check_id,
        outcome="inconclusive",
        reason=f"{metric}: not compared with {name}: {why}.",
    )
