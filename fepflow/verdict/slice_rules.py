"""The rule about slices: a metric must reach its minimum in every slice of the test cases, for example in each topic.

A slice passes when its whole interval is at or above the minimum, with what is missing at its worst; of a pass all of
them have to, so it needs no correction for their number. A fail does: it takes a mid-p-value, with what is missing at
its best, that stays small enough by Holm's method over all slices of all metrics with a minimum. Where judges are
corrected, it is the p-value of the corrected interval. A slice with too few cases to show the minimum, even if all
pass, can only fail: else it is inconclusive, or where the suite says so (`small: ignore`) described and not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fepflow.statistics.estimate import USUAL_CONFIDENCE, Estimate, Scale, describe
from fepflow.statistics.judges import CorrectedSample
from fepflow.statistics.means import Sums
from fepflow.statistics.proportions import boundary, holm, mid_p_below, minimum_sample, shrunk_shares
from fepflow.suite.models import Gate
from fepflow.text import listed_first, number, plural
from fepflow.verdict.metric_rules import Bound, as_judged, doubt_of_pass, warnings_of_judge, with_judging_kind
from fepflow.verdict.verdict import MetricEstimate, Outcome, RuleOutcome, SliceVerdict

NAMED = 5
"""Slices that a sentence names."""


@dataclass(frozen=True, slots=True)
class SliceEstimate:
    """A metric over the `cases` test cases whose metadata has one value of the field `by`; `scale` is the metric's.

    Where test cases belong to clusters, `cases` is how many of these of equal size they stand for.
    """

    metric: MetricEstimate
    by: str
    value: str
    cases: int
    scale: Scale | None


@dataclass(frozen=True, slots=True)
class SliceOutcomes:
    """The rules about slices, how each slice fared, and what to warn of."""

    rules: list[RuleOutcome]
    slices: list[SliceVerdict]
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class _Judged:
    """A slice with its outcome; None if it is described only. `p` is adjusted for the number of slices.

    `slice` is what is judged, `shown` the metric as its results are. `doubt` says why a slice that its judge passes
    does not pass. `is_small` if it has too few cases to pass.
    """

    slice: SliceEstimate
    shown: MetricEstimate
    outcome: Outcome | None = None
    p: float | None = None
    doubt: str | None = None
    is_small: bool = False

    @property
    def words(self) -> str:
        estimate = self.slice.metric.estimate
        problem = f": {estimate.problem}" if estimate.problem else f", but {self.doubt}" if self.doubt else ""
        return f"{self.slice.value} {describe(estimate)}{problem}"


def judge_slices(
    slices: Sequence[SliceEstimate], minima: Mapping[str, float], gate: Gate, *, ignore_small: bool = False
) -> SliceOutcomes:
    """Judge slices: one rule for each metric with a minimum. Slices of other metrics are described only."""
    slices = [
        replace(each, metric=replace(each.metric, estimate=with_judging_kind(each.metric.estimate, limits, gate)))
        for each in slices
        for limits in ([Bound(minima[each.metric.id])] if each.metric.id in minima else [],)
    ]
    shown = [each.metric for each in slices]
    slices = [replace(each, metric=as_judged(each.metric, gate.judge)) for each in slices]
    judged = [_Judged(each, metric) for each, metric in zip(slices, shown, strict=True)]
    of_rules = [index for index, each in enumerate(slices) if each.metric.id in minima]
    p_values = holm([_p_value(slices[index], minima[slices[index].metric.id]) for index in of_rules])
    for index, p in zip(of_rules, p_values, strict=True):
        each, minimum = slices[index], minima[slices[index].metric.id]
        outcome: Outcome | None = _outcome(each, minimum, p, gate)
        limit = Bound(minimum)
        doubt = doubt_of_pass(shown[index], gate.judge, limit, gate.verdict) if outcome == "pass" else None
        outcome = "inconclusive" if doubt else outcome
        is_small = each.scale is not None and each.cases < cases_needed(minimum, each.scale, gate)
        if is_small and ignore_small and outcome == "inconclusive":
            outcome = None
        judged[index] = replace(judged[index], outcome=outcome, p=p, doubt=doubt, is_small=is_small)
    rules, warnings = [], []
    for name, minimum in minima.items():
        found = [each for each in judged if each.slice.metric.id == name]
        rules.append(_rule(name, minimum, found))
        if few := [each.slice.value for each in found if each.outcome is None]:
            warnings.append(
                f"NOT JUDGED (small: ignore), as so few cases cannot show a minimum of {number(minimum)}: "
                f"{name} of {found[0].slice.by} {listed_first(few, NAMED, None)}."
            )
        if by_rule := [each.shown for each in found if each.outcome is not None]:
            warnings += warnings_of_judge(by_rule[0], gate, [Bound(minimum)], [rules[-1]])
    shrunk = _shrunk(shown, slices)
    verdicts = [
        SliceVerdict.of(
            each.shown,
            by=each.slice.by,
            slice=each.slice.value,
            threshold=minima.get(each.shown.id),
            p=each.p,
            shrunk=shrunk.get((each.shown.id, each.slice.value)),
            outcome=each.outcome,
        )
        for each in sorted(judged, key=_badness)
    ]
    return SliceOutcomes(rules, verdicts, warnings)


def _shrunk(metrics: Sequence[MetricEstimate], slices: Sequence[SliceEstimate]) -> dict[tuple[str, str], float]:
    """Return the values of slices drawn towards that of all, by metric and slice."""
    by_metric: dict[str, list[tuple[str, Sums, Scale]]] = {}
    for metric, slice_ in zip(metrics, slices, strict=True):
        sums = metric.estimate.sample
        if isinstance(sums, Sums) and sums.scale is not None:
            by_metric.setdefault(metric.id, []).append((slice_.value, sums, sums.scale))
    values: dict[tuple[str, str], float] = {}
    for name, of_slices in by_metric.items():
        sizes = [sums.effective(USUAL_CONFIDENCE) for _, sums, _ in of_slices]
        shares = shrunk_shares([sums.share for _, sums, _ in of_slices], sizes)
        for (value, _, scale), share in zip(of_slices, shares or (), strict=False):
            values[name, value] = scale.value(share)
    return values


def cases_needed(minimum: float, scale: Scale, gate: Gate) -> int:
    """Return how many cases a slice needs to show its minimum if all pass; one if it is the end of the scale, which no
    number shows."""
    share = scale.share(minimum)
    return 1 if share >= 1 else minimum_sample(share, gate.pass_confidence, gate.interval)


def _p_value(slice_: SliceEstimate, minimum: float) -> float:
    estimate = slice_.metric.estimate
    if isinstance(estimate.sample, CorrectedSample):
        return _p_of_interval(estimate, minimum)
    if slice_.scale is None or not isinstance(estimate.sample, Sums):
        return 1.0
    n = estimate.sample.effective(estimate.confidence)
    return mid_p_below(estimate.sample.most_share * n, n, slice_.scale.share(minimum))


def _p_of_interval(estimate: Estimate, minimum: float) -> float:
    """Return the one-sided p-value at which the interval ends below the minimum; nearly a half where none does."""
    return boundary(lambda p: estimate.at(1 - 2 * p).interval[1] < minimum, 0.49, 0.0)


def _outcome(slice_: SliceEstimate, minimum: float, p: float, gate: Gate) -> Outcome:
    estimate = slice_.metric.estimate
    if slice_.scale is None or not isinstance(estimate.sample, Sums | CorrectedSample):
        return "inconclusive"  # there are no values whose mean has an interval that the tests agree with
    low, high = estimate.point_range
    if (low if gate.verdict == "point" else estimate.interval[0]) >= minimum:
        return "pass" if estimate.warning is None else "inconclusive"
    by_value = gate.verdict == "point" or gate.fail == "value"
    fails = high < minimum if by_value else p <= (1 - gate.confidence) / 2
    return "fail" if fails else "inconclusive"


def _rule(name: str, minimum: float, judged: Sequence[_Judged]) -> RuleOutcome:
    by = judged[0].slice.by if judged else "slice"
    outcome, summary = _summary(minimum, judged)
    return RuleOutcome(
        rule=f"{name}: at least {number(minimum)} in each {by}",
        metric=name,
        check=judged[0].slice.metric.check_id if judged else None,
        outcome=outcome,
        reason=f"{name} by {by}: {summary}.",
    )


def _summary(minimum: float, slices: Sequence[_Judged]) -> tuple[Outcome, str]:
    limit = f"the minimum of {number(minimum)}"
    judged = [each for each in slices if each.outcome is not None]
    if not judged:
        return "inconclusive", f"no slice has enough cases to be compared with {limit}"
    outcome: Outcome
    for outcome, words in (("fail", "below"), ("inconclusive", "not shown to reach")):
        named = sorted((each for each in judged if each.outcome == outcome), key=_value)
        if named:
            are = "is" if len(named) == 1 else "are"
            which = f"{len(named)} of {plural(len(judged), 'slice')} {are} {words} {limit}"
            small = [each.slice.value for each in named if each.is_small] if outcome == "inconclusive" else []
            why = f"; so few cases cannot show it even if all pass: {listed_first(small, NAMED, None)}" if small else ""
            return outcome, f"{which}: {listed_first([each.words for each in named], NAMED, None)}{why}"
    least = min(judged, key=_value)
    of = "slice" if len(judged) == 1 else "slices"
    of = f"{of} with enough cases" if len(judged) < len(slices) else of
    all_of = f"the only {of} reaches" if len(judged) == 1 else f"all {len(judged)} {of} reach"
    return "pass", f"{all_of} {limit}; the least is {least.words}"


def _value(judged: _Judged) -> float:
    value = judged.slice.metric.estimate.value
    return float("inf") if value is None else value


def _badness(judged: _Judged) -> tuple[int, float]:
    order: tuple[Outcome | None, ...] = ("fail", "inconclusive", "pass", None)
    return order.index(judged.outcome), _value(judged)
