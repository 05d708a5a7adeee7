"""The gate of a run: pass, fail, or inconclusive where the data do not decide.

The rules that a gate can have, of which all that it asks for are applied:

- *impact*: every metric with thresholds has an impact of at most `max_impact` (`low` unless the gate says otherwise);
- *minimum*, *maximum*: every metric named in `min` is at least that large, in `max` at most;
- *regression*: a metric is not worse than in a baseline, by more than a margin (`regression_rules`);
- *slices*: a metric reaches a minimum in each slice of the cases, for example in each topic;
- *checks*: every check passes in every case. This is the gate of a suite that asks for none of the others, and
  `checks: all` adds it to them.

The worst outcome wins, fail before inconclusive before pass. `metric_rules` says how a metric is judged. Absence is
never a pass: no value, no range that holds it, or nothing judged at all is inconclusive, and checks and metrics that
no rule is about are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fepflow.evalguard.models import (
    ImpactAssessment,
    Range,
    Thresholds,
    assess,
    impact_range,
    scale_mismatch,
    thresholds_digest,
    worst,
)
from fepflow.statistics.estimate import USUAL_CONFIDENCE, Estimate, Scale, describe
from fepflow.statistics.judges import CorrectedSample
from fepflow.statistics.means import Sums
from fepflow.statistics.proportions import boundary, holm, mid_p_below, minimum_sample, shrunk_shares
from fepflow.statistics.sequential import confidence_of_look
from fepflow.suite.models import Gate, Impact
from fepflow.text import listed, listed_first, number, percent, plural
from fepflow.verdict.metric_rules import GATE as EVERY_CHECK
from fepflow.verdict.metric_rules import (
    Bound,
    ImpactAtMost,
    MetricRules,
    Requirement,
    absences,
    as_judged,
    check_rules,
    doubt_of_pass,
    doubted,
    scores_only,
    warnings_of_judge,
    with_judging_kind,
)
from fepflow.verdict.regression_rules import Regression
from fepflow.verdict.verdict import (
    CheckTotals,
    MetricEstimate,
    MetricVerdict,
    Outcome,
    RuleOutcome,
    SliceVerdict,
    Verdict,
)

DEFAULT_MAX_IMPACT: Impact = "low"
OF_JUDGES = "; judges corrected for their errors"
"""The part of a gate's sentence that also depends on the labels that there are."""

_FROM_BEST: tuple[Outcome, ...] = ("pass", "inconclusive", "fail")


def decide(
    metrics: Sequence[MetricEstimate],
    gate: Gate | None,
    thresholds: Thresholds | None,
    checks: Sequence[CheckTotals],
    slices: Sequence[SliceEstimate] = (),
    slice_minima: Mapping[str, float] | None = None,
    regression: Regression | None = None,
    advice: str | None = None,
    *,
    unchecked: str | None = None,
    ignore_small_slices: bool = False,
) -> Verdict:
    """Judge a run by its gate, or by the default gate if there is neither a gate nor thresholds.

    `checks` are all that the suite and its cases have, also those that no metric is computed from. `slices` are
    estimates by slice, `slice_minima` what metrics have to reach in each (but for small ones, if these are ignored);
    `regression` is what the gate's comes to.
    `advice` is what to do about metrics that no rule is about (default: about those of a suite). `unchecked` is a
    sentence about cases without any check, which may have been answered wrongly or not at all.
    """
    gate = gate or Gate()
    minima = slice_minima or {}
    max_impact = gate.max_impact or (DEFAULT_MAX_IMPACT if thresholds else None)
    by_checks = gate.checks == "all" or not (max_impact or gate.min or gate.max or minima or regression)
    ranges = thresholds.thresholds if thresholds and max_impact else {}
    required = {metric.id: _requirements(metric, gate, ranges, max_impact) for metric in metrics}
    metrics = [
        replace(metric, estimate=with_judging_kind(metric.estimate, required[metric.id], gate)) for metric in metrics
    ]
    by_metric = _metric_outcomes(metrics, gate, ranges, required)
    rules = [rule for outcomes in by_metric.values() for rule in outcomes]
    rules += _rules_on_absence([metric.id for metric in metrics], ranges, max_impact, gate)
    of_slices = judge_slices(slices, minima, gate, ignore_small=ignore_small_slices)
    others = [*of_slices.rules, *(regression.rules if regression else ())]
    rules += others
    rules += check_rules(checks) if by_checks else []
    if unchecked and by_checks:
        rules.append(RuleOutcome(rule="every case has a check", outcome="inconclusive", reason=unchecked))
    rules.sort(key=_badness, reverse=True)
    judged = [_metric_verdict(metric, ranges.get(metric.id), gate, by_metric.get(metric.id, [])) for metric in metrics]
    not_judged = _not_judged(metrics, checks, rules)
    if advice is None:
        advice = (
            "give a metric of them a minimum, or a check with a score pass_at"
            if by_checks
            else "gate: {checks: all} judges every check, too"
        )
    outcome = rules[0].outcome
    corrected = gate.judge == "corrected" or any(as_judged(metric, gate.judge) is not metric for metric in metrics)
    warnings = [
        *_warnings(metrics, gate, ranges, by_metric),
        *(
            warning
            for metric in metrics
            for warning in warnings_of_judge(metric, gate, required[metric.id], by_metric.get(metric.id, []))
        ),
        *of_slices.warnings,
        *(regression.verdict.warnings if regression else ()),
        *_loudly(not_judged, checks, advice),
        *([unchecked] if unchecked and not by_checks else ()),
    ]
    return Verdict(
        outcome=outcome,
        gate=_gate_sentence(max_impact, gate, others, by_checks=by_checks, corrected=corrected),
        reasons=[rule.reason for rule in rules],
        rules=rules,
        not_judged=not_judged,
        blocks=_blocks(outcome, gate),
        metrics=judged,
        slices=of_slices.slices,
        thresholds_digest=thresholds_digest([thresholds]) if thresholds else None,
        regression=regression.verdict if regression else None,
        warnings=list(dict.fromkeys(warnings)),
    )


def at_look(gate: Gate, look: int) -> Gate:
    """Return the gate for the run that is the `look`-th of its version: surer, if all of them are judged together."""
    if gate.looks is None:
        return gate
    return gate.model_copy(update={"confidence": confidence_of_look(gate.confidence, look)})


def with_rules(verdict: Verdict, rules: Sequence[RuleOutcome], gate: Gate) -> Verdict:
    """Add rules to a verdict; the worst outcome counts."""
    every = sorted([*verdict.rules, *rules], key=_badness, reverse=True)
    outcome = every[0].outcome
    changed = {"outcome": outcome, "rules": every, "reasons": [rule.reason for rule in every]}
    return verdict.model_copy(update={**changed, "blocks": _blocks(outcome, gate)})


def _blocks(outcome: Outcome, gate: Gate) -> bool:
    return outcome == "fail" or (outcome == "inconclusive" and gate.inconclusive == "block")


def _metric_outcomes(
    metrics: Sequence[MetricEstimate],
    gate: Gate,
    ranges: dict[str, list[Range]],
    required: Mapping[str, Sequence[Requirement]],
) -> dict[str, list[RuleOutcome]]:
    judged = [metric for metric in metrics if required[metric.id]]
    family = {metric.id for metric in judged} | {*gate.min, *gate.max}
    outcomes = MetricRules(gate, len(family)).outcomes([(metric, required[metric.id]) for metric in judged])
    doubts = {
        metric.id: _scale_doubt(as_judged(metric, gate.judge).estimate, ranges.get(metric.id)) for metric in judged
    }
    return {name: [doubted(rule, doubts[name]) for rule in rules] for name, rules in outcomes.items()}


def _scale_doubt(estimate: Estimate, ranges: Sequence[Range] | None) -> str | None:
    if ranges is None or estimate.value is None:
        return None
    return scale_mismatch(estimate.value, ranges, estimate.is_proportion)


def _requirements(
    metric: MetricEstimate, gate: Gate, ranges: dict[str, list[Range]], max_impact: Impact | None
) -> list[Requirement]:
    requirements: list[Requirement] = []
    if max_impact is not None and metric.id in ranges:
        requirements.append(ImpactAtMost(max_impact, ranges[metric.id]))
    return [*requirements, *(limit for name, limit in _limits(gate) if name == metric.id)]


def _limits(gate: Gate) -> list[tuple[str, Bound]]:
    """Return the least and largest values that the gate asks for, by metric."""
    return [
        *((name, Bound(least)) for name, least in gate.min.items()),
        *((name, Bound(most, is_maximum=True)) for name, most in gate.max.items()),
    ]


def _rules_on_absence(
    computed: Sequence[str], ranges: dict[str, list[Range]], max_impact: Impact | None, gate: Gate
) -> list[RuleOutcome]:
    rules = [
        RuleOutcome(
            rule=f"{name}: {limit.rule}",
            metric=name,
            outcome="inconclusive",
            reason=f"{name}: the gate asks for {limit.rule}, but it was not computed.",
        )
        for name, limit in _limits(gate)
        if name not in computed
    ]
    if max_impact is not None and not any(name in ranges for name in computed):
        reason = f"No impact was judged: no metric has thresholds (metrics computed: {listed(computed) or 'none'})."
        rules.append(RuleOutcome(rule=f"impact at most {max_impact}", outcome="inconclusive", reason=reason))
    return rules


def _not_judged(
    metrics: Sequence[MetricEstimate], checks: Sequence[CheckTotals], rules: Sequence[RuleOutcome]
) -> list[str]:
    """Return the metrics and checks that no rule is about. A share that passed is judged with its check, too."""
    metrics_judged = {rule.metric for rule in rules if rule.metric}
    checks_judged = {rule.check for rule in rules if rule.check and not rule.metric}
    names = [
        metric.id
        for metric in metrics
        if metric.id not in metrics_judged and not (metric.of_passes and metric.check_id in checks_judged)
    ]
    judging = [metric for metric in metrics if metric.id in metrics_judged and not metric.of_errors]
    covered = checks_judged | {metric.check_id for metric in judging}
    return list(dict.fromkeys([*names, *(check.check_id for check in checks if check.check_id not in covered)]))


def _loudly(names: Sequence[str], checks: Sequence[CheckTotals], advice: str) -> list[str]:
    if not names:
        return []
    seen = {check.check_id: check for check in checks}
    items = []
    for name in names:
        check = seen.get(name)
        gaps = absences(check) if check is not None and check.passed + check.failed else []
        failed = [f"{check.failed} failed"] if check is not None and check.failed else []
        if check is not None and check.unjudged and scores_only(check):
            gaps = ["scores only"]
        items.append(f"{name} ({listed([*failed, *gaps])})" if failed or gaps else name)
    return [f"NOT JUDGED, as no rule of the gate is about them: {listed(items)} ({advice})."]


def _warnings(
    metrics: Sequence[MetricEstimate],
    gate: Gate,
    ranges: dict[str, list[Range]],
    by_metric: dict[str, list[RuleOutcome]],
) -> list[str]:
    computed = [metric.id for metric in metrics]
    warnings = [warning for metric in metrics for warning in metric.warnings]
    for metric in metrics:
        if metric.id in by_metric:
            warnings += _metric_warnings(metric, gate, ranges.get(metric.id))
    if skipped := [name for name in ranges if name not in computed]:
        warnings.append(f"Skipped, for there are thresholds but no such metric: {listed(skipped)}.")
    return warnings


def _metric_warnings(metric: MetricEstimate, gate: Gate, ranges: Sequence[Range] | None) -> list[str]:
    estimate, value = metric.estimate, metric.estimate.value
    if value is None:
        return []
    warnings = []
    if ranges is not None:
        if assess(value, ranges).overlapping:
            warnings.append(f"{metric.id}: several ranges hold {number(value)}; the worst impact counts.")
        if mismatch := _scale_doubt(estimate, ranges):
            warnings.append(f"{metric.id}: {mismatch}")
    if gate.verdict == "point" and estimate.counts.missing:
        missing = plural(estimate.counts.missing, "missing result")
        warnings.append(f"{metric.id}: judged by its point value, in spite of {missing}.")
    if gate.verdict == "point" and estimate.warning:
        warnings.append(f"{metric.id}: judged by its point value; {estimate.warning}.")
    return warnings


def _metric_verdict(
    metric: MetricEstimate, ranges: Sequence[Range] | None, gate: Gate, rules: Sequence[RuleOutcome]
) -> MetricVerdict:
    estimate = metric.estimate
    assessment = assess(estimate.value, ranges) if ranges is not None else ImpactAssessment(None)
    impacts = impact_range(*estimate.interval, ranges) if ranges is not None else None
    worst_first = sorted(rules, key=_badness, reverse=True)
    return MetricVerdict.of(
        metric,
        impact=assessment.impact,
        worst_impact=worst(impacts.impacts) if impacts else None,
        interpretation=assessment.interpretation,
        threshold=gate.min.get(metric.id),
        maximum=gate.max.get(metric.id),
        outcome=worst_first[0].outcome if worst_first else None,
        reason=" ".join(rule.reason for rule in worst_first) or None,
    )


def _gate_sentence(
    max_impact: Impact | None, gate: Gate, others: Sequence[RuleOutcome], *, by_checks: bool, corrected: bool
) -> str:
    rules = [f"no metric's impact may be worse than {max_impact}"] if max_impact else []
    rules += [f"{name} must be {limit.rule}" for name, limit in _limits(gate)]
    rules += [rule.rule.replace(": ", " must be ", 1) for rule in others]
    measure = "point values" if gate.verdict == "point" else _measure(gate, corrected=corrected)
    sentence = listed([*rules, *([EVERY_CHECK] if by_checks else [])])
    named_first = not max_impact and rules
    whole = sentence if named_first else f"{sentence[0].upper()}{sentence[1:]}"
    return f"{whole} ({measure})." if rules else f"{whole}."


def _measure(gate: Gate, *, corrected: bool) -> str:
    kind = "Clopper-Pearson " if gate.interval == "clopper-pearson" else ""
    more = _looks(gate)
    more += "; a fail by value" if gate.fail == "value" else ""
    more += OF_JUDGES if corrected else ""
    if gate.sides == "one":
        most = "about" if gate.interval == "wilson" else "up to"
        more += f"; one-sided: an agent just below a limit passes in {most} {percent(1 - gate.confidence)} of its runs"
        more += f", and a fail takes the {percent(gate.confidence)} interval"
    more += "; what is missing is left out, as if by chance" if gate.missing == "random" else ""
    return f"{percent(gate.pass_confidence)} {kind}intervals{more}"


def _looks(gate: Gate) -> str:
    if gate.looks is not None:
        return " over all runs of this version"
    if gate.top_up is None:
        return ""
    if gate.top_up.looks is not None:
        return f" that hold at all {gate.top_up.looks} looks"
    return " that hold at every look" + (", about these test cases alone" if gate.top_up.max_repeats else "")


def _badness(rule: RuleOutcome) -> int:
    return _FROM_BEST.index(rule.outcome)


# --- the rule about slices -------------------------------------------------------------------------------------------


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
class _JudgedSlice:
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
    """Judge slices: one rule for each metric with a minimum. Slices of other metrics are described only.

    A slice passes when its whole interval is at or above the minimum, with what is missing at its worst; of a pass all
    of them have to, so it needs no correction for their number. A fail does: it takes a mid-p-value, with what is
    missing at its best, that stays small enough by Holm's method over all slices of all metrics with a minimum. Where
    judges are corrected, it is the p-value of the corrected interval. A slice with too few cases to show the minimum,
    even if all pass, can only fail: else it is inconclusive, or where the suite says so (`small: ignore`) described and
    not judged.
    """
    slices = [
        replace(each, metric=replace(each.metric, estimate=with_judging_kind(each.metric.estimate, limits, gate)))
        for each in slices
        for limits in ([Bound(minima[each.metric.id])] if each.metric.id in minima else [],)
    ]
    shown = [each.metric for each in slices]
    slices = [replace(each, metric=as_judged(each.metric, gate.judge)) for each in slices]
    judged = [_JudgedSlice(each, metric) for each, metric in zip(slices, shown, strict=True)]
    of_rules = [index for index, each in enumerate(slices) if each.metric.id in minima]
    p_values = holm([_p_value(slices[index], minima[slices[index].metric.id]) for index in of_rules])
    for index, p in zip(of_rules, p_values, strict=True):
        each, minimum = slices[index], minima[slices[index].metric.id]
        outcome: Outcome | None = _slice_outcome(each, minimum, p, gate)
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
        rules.append(_slice_rule(name, minimum, found))
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
        for each in sorted(judged, key=_slice_badness)
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


def _slice_outcome(slice_: SliceEstimate, minimum: float, p: float, gate: Gate) -> Outcome:
    estimate = slice_.metric.estimate
    if slice_.scale is None or not isinstance(estimate.sample, Sums | CorrectedSample):
        return "inconclusive"  # there are no values whose mean has an interval that the tests agree with
    low, high = estimate.point_range
    if (low if gate.verdict == "point" else estimate.interval[0]) >= minimum:
        return "pass" if estimate.warning is None else "inconclusive"
    by_value = gate.verdict == "point" or gate.fail == "value"
    fails = high < minimum if by_value else p <= (1 - gate.confidence) / 2
    return "fail" if fails else "inconclusive"


def _slice_rule(name: str, minimum: float, judged: Sequence[_JudgedSlice]) -> RuleOutcome:
    by = judged[0].slice.by if judged else "slice"
    outcome, summary = _slice_summary(minimum, judged)
    return RuleOutcome(
        rule=f"{name}: at least {number(minimum)} in each {by}",
        metric=name,
        check=judged[0].slice.metric.check_id if judged else None,
        outcome=outcome,
        reason=f"{name} by {by}: {summary}.",
    )


def _slice_summary(minimum: float, slices: Sequence[_JudgedSlice]) -> tuple[Outcome, str]:
    limit = f"the minimum of {number(minimum)}"
    judged = [each for each in slices if each.outcome is not None]
    if not judged:
        return "inconclusive", f"no slice has enough cases to be compared with {limit}"
    outcome: Outcome
    for outcome, words in (("fail", "below"), ("inconclusive", "not shown to reach")):
        named = sorted((each for each in judged if each.outcome == outcome), key=_slice_value)
        if named:
            are = "is" if len(named) == 1 else "are"
            which = f"{len(named)} of {plural(len(judged), 'slice')} {are} {words} {limit}"
            small = [each.slice.value for each in named if each.is_small] if outcome == "inconclusive" else []
            why = f"; so few cases cannot show it even if all pass: {listed_first(small, NAMED, None)}" if small else ""
            return outcome, f"{which}: {listed_first([each.words for each in named], NAMED, None)}{why}"
    least = min(judged, key=_slice_value)
    of = "slice" if len(judged) == 1 else "slices"
    of = f"{of} with enough cases" if len(judged) < len(slices) else of
    all_of = f"the only {of} reaches" if len(judged) == 1 else f"all {len(judged)} {of} reach"
    return "pass", f"{all_of} {limit}; the least is {least.words}"


def _slice_value(judged: _JudgedSlice) -> float:
    value = judged.slice.metric.estimate.value
    return float("inf") if value is None else value


def _slice_badness(judged: _JudgedSlice) -> tuple[int, float]:
    order: tuple[Outcome | None, ...] = ("fail", "inconclusive", "pass", None)
    return order.index(judged.outcome), _slice_value(judged)
