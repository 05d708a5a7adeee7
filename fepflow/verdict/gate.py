"""The gate of a run: pass, fail, or inconclusive where the data do not decide.

The rules that a gate can have, of which all that it asks for are applied:

- *impact*: every metric with thresholds has an impact of at most `max_impact` (`low` unless the gate says otherwise);
- *minimum*, *maximum*: every metric named in `min` is at least that large, in `max` at most;
- *regression*: a metric is not worse than in a baseline, by more than a margin (`regression_rules`);
- *slices*: a metric reaches a minimum in each slice of the cases (`slice_rules`);
- *checks*: every check passes in every case. This is the gate of a suite that asks for none of the others, and
  `checks: all` adds it to them.

The worst outcome wins, fail before inconclusive before pass. `metric_rules` says how a metric is judged. Absence is
never a pass: no value, no range that holds it, or nothing judged at all is inconclusive, and checks and metrics that
no rule is about are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from fepflow.statistics.estimate import Estimate
from fepflow.statistics.sequential import confidence_of_look
from fepflow.suite.models import Gate, Impact
from fepflow.text import listed, number, percent, plural
from fepflow.verdict.metric_rules import GATE as EVERY_CHECK
from fepflow.verdict.metric_rules import (
    Bound,
    ImpactAtMost,
    MetricRules,
    Requirement,
    absences,
    as_judged,
    check_rules,
    doubted,
    scores_only,
    warnings_of_judge,
    with_judging_kind,
)
from fepflow.verdict.regression_rules import Regression
from fepflow.verdict.slice_rules import SliceEstimate, judge_slices
from fepflow.verdict.verdict import CheckTotals, MetricEstimate, MetricVerdict, Outcome, RuleOutcome, Verdict

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
    ignore_small_slices: bool = False,
) -> Verdict:
    """Judge a run by its gate, or by the default gate if there is neither a gate nor thresholds.

    `checks` are all that the suite and its cases have, also those that no metric is computed from. `slices` are
    estimates by slice, `slice_minima` what metrics have to reach in each (but for small ones, if these are ignored);
    `regression` is what the gate's comes to.
    `advice` is what to do about metrics that no rule is about (default: about those of a suite).
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
