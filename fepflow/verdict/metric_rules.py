"""The rules about metrics and checks: intervals against requirements, with missing results at their worst or best.

A requirement judges all values from `low` to `high` at once: *pass* if every one of them meets it, *fail* if none does,
*inconclusive* where that depends on which one is the true one. A metric passes when its whole interval, with the
missing at their worst, meets the requirement, and fails when its whole interval, with the missing at their best, does
not. Everything between is inconclusive.

Passing needs no correction for several metrics, since all of them must pass. Failing does: of ten agents' metrics at
their minimum one in three would fail by chance. So fails are decided by the step-down method of Holm (1979): of m
judged metrics, the interval at confidence 1 - (1 - c) / m has to violate the requirement, after each that does, the
one at 1 - (1 - c) / (m - 1), and so on. No p-values are needed, and every form of interval and gate is treated alike.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Protocol

from fepflow.evalguard.models import Range, assess, impact_range, severity, worst
from fepflow.statistics.estimate import Estimate, Scale, describe
from fepflow.statistics.means import Sums
from fepflow.statistics.proportions import IntervalKind, interval_of, kind_for, z_score
from fepflow.suite.models import Gate, Impact, JudgeValue
from fepflow.text import listed, number, percent, plural
from fepflow.verdict.verdict import CheckTotals, MetricEstimate, Mode, Outcome, RuleOutcome


class Requirement(Protocol):
    """A condition on a metric's true value."""

    @property
    def rule(self) -> str:
        """The requirement in a few words, the same in every run."""

    @property
    def limit(self) -> float | None:
        """The number that values are compared with, if it has one."""

    def judge(self, low: float, high: float) -> Outcome:
        """Judge all values from `low` to `high`, both included."""

    def standing(self, value: float | None) -> str:
        """Return how one value compares with the requirement, in words; also for no value (None)."""

    def crossing(self, value: float, low: float, high: float) -> str:
        """Return which part of the interval around `value` is judged differently, in words."""


@dataclass(frozen=True)
class Bound:
    """A Requirement: the value is at least as large as the limit; if `is_maximum` at most."""

    limit: float
    is_maximum: bool = False

    @property
    def rule(self) -> str:
        """The requirement in a few words."""
        return f"at {'most' if self.is_maximum else 'least'} {number(self.limit)}"

    def judge(self, low: float, high: float) -> Outcome:
        """Implement `Requirement.judge`."""
        if self.is_maximum:
            return "pass" if high <= self.limit else "fail" if low > self.limit else "inconclusive"
        return "pass" if low >= self.limit else "fail" if high < self.limit else "inconclusive"

    def standing(self, value: float | None) -> str:
        """Implement `Requirement.standing`."""
        bound = f"the {'maximum' if self.is_maximum else 'minimum'} of {number(self.limit)}"
        if value is None:
            return f"cannot be compared with {bound}"
        holds, violates = ("keeps to", "is above") if self.is_maximum else ("reaches", "is below")
        return f"{holds if self.judge(value, value) == 'pass' else violates} {bound}"

    def crossing(self, value: float, low: float, high: float) -> str:
        """Implement `Requirement.crossing`."""
        passes = self.judge(value, value) == "pass"
        return "its interval begins below" if passes is not self.is_maximum else "its interval ends above"


@dataclass(frozen=True)
class ImpactAtMost:
    """A Requirement: the value's impact is at most `worst_allowed`.

    A value that no range holds neither meets nor violates it.
    """

    worst_allowed: Impact
    ranges: Sequence[Range]

    @property
    def rule(self) -> str:
        """The requirement in a few words."""
        return f"impact at most {self.worst_allowed}"

    @property
    def limit(self) -> None:
        """No single number: impacts are compared."""

    def judge(self, low: float, high: float) -> Outcome:
        """Implement `Requirement.judge`."""
        impacts = impact_range(low, high, self.ranges)
        allowed = {self._allows(impact) for impact in impacts.impacts}
        if impacts.gap or len(allowed) != 1:
            return "inconclusive"
        return "pass" if allowed == {True} else "fail"

    def standing(self, value: float | None) -> str:
        """Implement `Requirement.standing`."""
        assessment = assess(value, self.ranges)
        if assessment.impact is None:
            return f"has no impact: {assessment.reason}"
        return f"has the impact {assessment.impact}; {self.worst_allowed} is the worst allowed"

    def crossing(self, value: float, low: float, high: float) -> str:
        """Implement `Requirement.crossing`."""
        impacts = impact_range(low, high, self.ranges)
        impact = assess(value, self.ranges).impact
        others = [
            other for other in impacts.impacts if impact is None or self._allows(other) is not self._allows(impact)
        ]
        parts = [str(worst(others))] if others else []
        if impacts.gap:
            parts.append("values that no range holds")
        return f"its interval reaches {listed(parts)}"

    def _allows(self, impact: Impact) -> bool:
        return severity(impact) <= severity(self.worst_allowed)


def kind_of_requirements(gate: Gate, requirements: Sequence[Requirement], scale: Scale, n: float) -> IntervalKind:
    """Return the kind of interval by which `n` observations are judged by all of these requirements."""
    least = min((share for requirement in requirements for share in _shares_to_show(requirement, scale)), default=1.0)
    return kind_for(gate.interval, least, n, gate.pass_confidence)


def _shares_to_show(requirement: Requirement, scale: Scale) -> Iterator[float]:
    """Yield what values are to reach for a pass, as a share of the scale; for a maximum their distance from its top."""
    limits = {requirement.limit} if requirement.limit is not None else set()
    if isinstance(requirement, ImpactAtMost):
        limits = {bound for item in requirement.ranges for bound in (item.min, item.max) if bound is not None}
    for limit in limits:
        below, above = (math.nextafter(limit, end) for end in (-math.inf, math.inf))
        passes_below, passes_above = (requirement.judge(value, value) == "pass" for value in (below, above))
        if passes_below is not passes_above:
            yield scale.share(limit) if passes_above else 1 - scale.share(limit)


MOST_CASES = 1_000_000
"""The largest number of test cases that is advised to settle a verdict."""

POWER = 0.8
"""The share of reruns that the advised number of test cases settles."""


@dataclass(frozen=True)
class MetricRules:
    """The judgement of metrics by a gate; `family` is how many metrics it judges in all, computed or not."""

    gate: Gate
    family: int

    @property
    def exact_fails(self) -> bool:
        """True if fails take the exact interval, as they do where several metrics are judged.

        A minimum is mostly a large share, and to be below one is to fail a small share of cases, of which Wilson's
        interval shows too much at the high confidence that Holm's method asks for.
        """
        return self.family > 1 and self.gate.interval != "wilson"

    def outcomes(self, judged: Sequence[tuple[MetricEstimate, Sequence[Requirement]]]) -> dict[str, list[RuleOutcome]]:
        """Judge each requirement; return the outcomes by metric."""
        deciding = {metric.id: as_judged(metric, self.gate.judge) for metric, _ in judged}
        by_metric = {metric.id: (deciding[metric.id].estimate, requirements) for metric, requirements in judged}
        confidence = self._fail_confidence(by_metric)
        return {
            metric.id: [
                doubted(
                    self._rule(deciding[metric.id], requirement, confidence),
                    doubt_of_pass(metric, self.gate.judge, requirement, self.gate.verdict),
                )
                for requirement in requirements
            ]
            for metric, requirements in judged
        }

    def _fail_confidence(self, judged: Mapping[str, tuple[Estimate, Sequence[Requirement]]]) -> float:
        """Return the confidence at which Holm's method ends: metrics whose interval violates their requirement there
        fail."""
        failing: set[str] = set()
        while True:
            confidence = 1 - (1 - self.gate.confidence) / max(self.family - len(failing), 1)
            violating = {
                name
                for name, (estimate, requirements) in judged.items()
                if any(self._violates(estimate, needed, confidence) for needed in requirements)
            }
            if len(violating) <= len(failing) or len(violating) >= self.family:
                return confidence
            failing = violating

    def _rule(self, metric: MetricEstimate, requirement: Requirement, fail_confidence: float) -> RuleOutcome:
        outcome, words = self._outcome(metric.estimate, requirement, fail_confidence)
        tipping = (
            "" if outcome == "fail" or self.gate.verdict == "point" else _tipping_point(metric.estimate, requirement)
        )
        return RuleOutcome(
            rule=f"{metric.id}: {requirement.rule}",
            metric=metric.id,
            check=metric.check_id,
            outcome=outcome,
            reason=f"{metric.id}: {describe(metric.estimate, requirement.limit)} {words}{tipping}.",
        )

    def _outcome(self, estimate: Estimate, requirement: Requirement, fail_confidence: float) -> tuple[Outcome, str]:
        if estimate.problem:
            return "inconclusive", f"cannot be computed: {estimate.problem}"
        if estimate.value is None:
            return "inconclusive", requirement.standing(None)
        stands = requirement.standing(estimate.value)
        if self._passes(estimate, requirement):
            return "pass", stands
        if self._fails(estimate, requirement, fail_confidence):
            return "fail", stands
        return "inconclusive", f"{stands}{self._why_open(estimate, requirement, fail_confidence)}"

    def _passes(self, estimate: Estimate, requirement: Requirement) -> bool:
        if requirement.judge(-math.inf, math.inf) == "pass":
            return True  # whatever the value is
        if self.gate.verdict == "point":
            return requirement.judge(*estimate.point_range) == "pass"
        return requirement.judge(*estimate.interval) == "pass"

    def _fails(self, estimate: Estimate, requirement: Requirement, confidence: float) -> bool:
        if self.gate.verdict == "point" or self.gate.fail == "value":
            return requirement.judge(*estimate.point_range) == "fail"
        return self._violates(estimate, requirement, confidence)

    def _violates(self, estimate: Estimate, requirement: Requirement, confidence: float) -> bool:
        """Return whether the whole interval, at the confidence that a fail takes, is beyond the requirement."""
        value = estimate.value
        if value is None or requirement.judge(value, value) != "fail":
            return False  # it lies in its interval
        return requirement.judge(*self._for_fail(estimate).at(confidence).interval) == "fail"

    def _for_fail(self, estimate: Estimate) -> Estimate:
        return with_kind(estimate, "clopper-pearson") if self.exact_fails else estimate

    def _why_open(self, estimate: Estimate, requirement: Requirement, fail_confidence: float) -> str:
        """Say why it is neither a pass nor a fail, which way it leans, and how many test cases would settle it."""
        value = estimate.value
        assert value is not None
        lean = requirement.judge(value, value)
        if lean == "inconclusive":  # no range holds the value: standing has said so
            return ""
        if self.gate.verdict == "point" or (self.gate.fail == "value" and lean == "fail"):
            return ", but what is missing could turn that"
        low, high = estimate.interval
        leans = f"it leans towards a {lean}"
        if math.isinf(low) and math.isinf(high):
            return f", but {estimate.warning or 'there is no interval to show it'}; {leans}"
        if requirement.judge(low, high) == "inconclusive":
            why = requirement.crossing(value, low, high)
        else:
            among = f" where {self.family} metrics are judged" if self.family > 1 else ""
            kind = "exact " if self.exact_fails else ""
            why = f"that may be chance{among}: a fail takes the {kind}{percent(fail_confidence)} interval"
        settled = self._settled_by(estimate, requirement, lean, fail_confidence)
        return f", but {why}; {leans}, and {settled}"

    def _settled_by(self, estimate: Estimate, requirement: Requirement, lean: Outcome, fail_confidence: float) -> str:
        """Return, in words, how many test cases like these would show what the verdict leans to, in most reruns."""
        confidence = estimate.confidence if lean == "pass" else fail_confidence
        estimate = estimate if lean == "pass" else self._for_fail(estimate)
        sample, value = estimate.sample, estimate.value
        if sample is None or value is None or sample.with_cases(2 * sample.cases, confidence) == (None, None):
            return "more test cases are needed"
        low, high = estimate.at(confidence).interval
        # A rerun's value may be worse than this one: in one of five by more than this part of the interval's half.
        bad_luck = NormalDist().inv_cdf(POWER) / z_score(confidence) if estimate.stderr != 0 else 0.0
        luck_of_low = bad_luck if requirement.judge(low, value) != lean else 0.0
        luck_of_high = bad_luck if requirement.judge(value, high) != lean else 0.0

        def shows(cases: int, of_low: float, of_high: float) -> bool:
            low, high = sample.with_cases(cases, confidence)
            least = -math.inf if low is None else low - of_low * (value - low)
            most = math.inf if high is None else high + of_high * (high - value)
            return requirement.judge(least, most) == lean

        if estimate.counts.missing and shows(sample.cases, 0.0, 0.0):
            if estimate.is_difference and estimate.counts.missing > estimate.counts.error:
                return "a baseline with the same test cases would settle it, if they come out as the rest"
            return "the results that are missing would settle it, if they come out as the rest"
        few = many = sample.cases
        while not shows(many, luck_of_low, luck_of_high):
            if many == MOST_CASES:
                return _no_number(estimate, requirement)
            few, many = many, min(many * 2, MOST_CASES)
        needed = bisect_left(range(many), True, lo=few + 1, key=lambda n: shows(n, luck_of_low, luck_of_high))
        units = plural(needed, estimate.counts.clusters.noun if estimate.counts.clusters else "test case")
        complete = ", without missing results," if estimate.counts.missing else ""
        true_value = _true(estimate, requirement)
        return f"about {units} like these{complete} would settle it in 4 of 5 runs, if {true_value}"


_SETTLES = re.compile(r"about (\d+) test cases like these")


def settling_cases(reason: str) -> int | None:
    """Return how many test cases would mostly settle a verdict, by the sentence of the rule that decided; None if it
    says nothing of it."""
    match = _SETTLES.search(reason)
    return int(match[1]) if match else None


def _tipping_point(estimate: Estimate, requirement: Requirement) -> str:
    """Return at how many fails among the missing results of a share a pass would be none, as a part of a sentence;
    empty if nothing is missing."""
    sums = estimate.sample
    if not isinstance(sums, Sums) or not sums.counts.missing or sums.scale is None or not sums.scale.binary:
        return ""
    more_is_better, less_is_better = (requirement.judge(end, end) == "pass" for end in (1.0, 0.0))
    if more_is_better is less_is_better:
        return ""
    missing, n = sums.counts.missing, sums.effective(estimate.confidence)
    every_one = "the missing result" if missing == 1 else f"all {missing} missing results"
    bad, good = ("failed", "passed") if more_is_better else ("passed", "failed")

    def is_no_pass(bad_ones: int) -> bool:
        passed = missing - bad_ones if more_is_better else bad_ones
        share = min(sums.least_share + passed / sums.counts.expected, 1.0)
        return requirement.judge(*interval_of(sums.kind, share, n, estimate.confidence)) != "pass"

    first = bisect_left(range(missing + 1), True, key=is_no_pass)
    if first > missing:
        return f", even if {every_one} {bad}"
    if first == 0:
        return f"; it would be no pass even if {every_one} {good}"
    return f"; it passes unless {first} of the {missing} missing {bad}"


def with_kind(estimate: Estimate, kind: IntervalKind) -> Estimate:
    """Return the estimate with another kind of interval, if it is a share or a mean of scores with a range."""
    sample = estimate.sample
    if not isinstance(sample, Sums) or sample.scale is None or sample.kind == kind:
        return estimate
    return replace(replace(sample, kind=kind).estimate(estimate.confidence), counts=estimate.counts)


def with_judging_kind(estimate: Estimate, requirements: Sequence[Requirement], gate: Gate) -> Estimate:
    """Return the estimate with the kind of interval by which these requirements judge it."""
    sample = estimate.sample
    if not requirements or not isinstance(sample, Sums) or sample.scale is None:
        return estimate
    n = sample.scores[0].number if sample.scores else sample.effective(estimate.confidence)
    kind = kind_of_requirements(gate, requirements, sample.scale, n)
    return with_kind(estimate, "skewed" if sample.scores and kind != gate.interval and kind == "wilson" else kind)


def doubted(rule: RuleOutcome, doubt: str | None) -> RuleOutcome:
    """Return the rule's outcome; a pass becomes inconclusive if there is a doubt, in a sentence, of what its value
    means."""
    if doubt is None or rule.outcome != "pass":
        return rule
    return rule.model_copy(
        update={"outcome": "inconclusive", "reason": f"{rule.reason.rstrip('.')}, but {doubt.rstrip('.')}."}
    )


def _no_number(estimate: Estimate, requirement: Requirement) -> str:
    if estimate.is_proportion and requirement.limit is not None and requirement.limit >= 1:
        return (
            "no number of test cases would settle it (no sample can show a proportion of 1; lower the minimum, or "
            "judge by point values)"
        )
    if estimate.is_corrected:
        return "no number of test cases would settle it (it takes more labels of the judge, too)"
    return f"up to {MOST_CASES:,} test cases would not settle it in 4 of 5 runs, if {_true(estimate, requirement)}"


def _true(estimate: Estimate, requirement: Requirement) -> str:
    assert estimate.value is not None
    return f"{number(estimate.value, requirement.limit)} is its true value"


GATE = "every check must pass"

UNCHECKED = "no check, so nothing judges their answers"
"""End of a sentence about test cases that have no check, of themselves or of the suite."""


def unchecked_cases(unchecked: int, cases: int) -> str:
    """Return a sentence, without its full stop, about the cases that have no check."""
    return f"{unchecked:,} of {cases:,} test cases {'has' if unchecked == 1 else 'have'} {UNCHECKED}"


def check_rules(checks: Sequence[CheckTotals]) -> list[RuleOutcome]:
    """Judge each check that gives passes and fails, or may; the run as a whole if there is none."""
    rules = [_rule(check) for check in checks if not scores_only(check)]
    if rules:
        return rules
    only = listed([check.check_id for check in checks if check.unjudged and scores_only(check)])
    advice = f" Give {only} pass_at, or a metric a minimum." if only else ""
    reason = f"Nothing was judged: no check gave a pass or a fail.{advice}"
    return [RuleOutcome(rule="every check passes", outcome="inconclusive", reason=reason)]


def scores_only(check: CheckTotals) -> bool:
    """Return whether all results came, and none is a pass or a fail."""
    return check.expected == check.unjudged


def absences(check: CheckTotals) -> list[str]:
    """Return what happened to the results that are neither a pass nor a fail, as parts of a sentence."""
    parts = [
        (check.error, "ended in an error"),
        (check.skipped, "skipped" if check.skipped == 1 else "were skipped"),
        (check.unjudged, "gave neither pass nor fail"),
        (check.never_came, "never came"),
    ]
    return [f"{count} {what}" for count, what in parts if count]


def _rule(check: CheckTotals) -> RuleOutcome:
    gaps, judged = listed(absences(check)), check.passed + check.failed
    outcome: Outcome
    if check.failed:
        outcome = "fail"
        summary = f"{check.failed} of {plural(judged, 'result')} failed{f', and {gaps}' if gaps else ''}"
    elif gaps:
        outcome = "inconclusive"
        passed = f"{check.passed} of {check.expected} passed" if check.passed else "no result passed or failed"
        summary = f"{passed}, but {gaps}" if check.passed else f"{passed}: {gaps}"
    else:
        outcome = "pass"
        summary = f"{check.passed} of {plural(judged, 'result')} passed"
    return RuleOutcome(
        rule=f"{check.check_id}: every case passes",
        check=check.check_id,
        outcome=outcome,
        reason=f"{check.check_id}: {summary}.",
    )


NOT_CALIBRATED = "its judge is not calibrated, so its errors are not known (fepflow calibrate)"


def as_judged(metric: MetricEstimate, judge: JudgeValue | None) -> MetricEstimate:
    """Return the metric as the gate judges it: corrected for its judge's errors if the labels can tell them, unless the
    gate says `raw`.

    A run that is topped up is decided by an interval that holds at every look, which a corrected one does not.
    """
    if judge == "raw" or not metric.by_judge:
        return metric
    if judge is None and (metric.corrected is None or metric.estimate.method.startswith("sequential")):
        return metric
    if metric.corrected is not None:
        return replace(metric, estimate=metric.corrected)
    counts, confidence = metric.estimate.counts, metric.estimate.confidence
    unknown = Estimate.unknown(confidence, counts, problem=metric.doubt or NOT_CALIBRATED)
    return replace(metric, estimate=unknown)


def doubt_of_pass(metric: MetricEstimate, judge: JudgeValue | None, requirement: Requirement, mode: Mode) -> str | None:
    """Return why a metric that passes by what its judge says does not pass, as a part of a sentence: it would not if it
    were corrected, or its labels cannot tell. None if there is no such reason, or if the corrected value decides."""
    if not metric.by_judge or as_judged(metric, judge) is not metric:
        return None
    corrected = metric.corrected
    if corrected is None:
        return None if metric.doubt is None or judge == "raw" else f"that is what its judge says: {metric.doubt}"
    bounds = corrected.point_range if mode == "point" else corrected.interval
    if requirement.judge(*bounds) == "pass" and corrected.warning is None:
        return None
    words = corrected.problem or describe(corrected, requirement.limit)
    if corrected.warning is not None:
        words = f"{words}: {corrected.warning}"
    return f"that is what its judge says, and corrected for the judge's errors it is not shown: {words}"


def warnings_of_judge(
    metric: MetricEstimate, gate: Gate, requirements: Sequence[Requirement], rules: Sequence[RuleOutcome]
) -> Iterator[str]:
    """Warn of a metric judged by its raw value whose judge is not calibrated, or by labels that cannot correct it."""
    if gate.judge == "corrected" or not metric.by_judge or not requirements or metric.corrected is not None:
        return
    if metric.doubt is None or not any(metric.doubt in rule.reason for rule in rules):
        yield f"{metric.id}: {metric.doubt or NOT_CALIBRATED}."
