"""How a run is judged by its gate: pass, fail, or inconclusive where the data cannot tell.

One rule is applied, whichever the suite asks for:

- *impact*: every metric with thresholds has an impact of at most `max_impact` (`low` unless the gate says otherwise);
- *minimum*: every metric named in `min` is at least that large;
- neither: *every check passes*, the gate of a test suite.

Impact and minimum may be asked for together; the worst outcome wins, fail before inconclusive before pass. A metric
fails by its point value and passes by its whole interval: what the interval leaves open is inconclusive. In `point`
mode the value alone decides. Absence is never a pass: no value, no range that holds it, or nothing judged at all is
inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fepflow.evalguard.impact import Finding, Reach, assess, reach, scale_mismatch, severity, worst
from fepflow.evalguard.models import Range, Thresholds
from fepflow.evalguard.verdict import CheckTotals, MetricEstimate, MetricVerdict, Mode, Outcome, Verdict
from fepflow.evalguard.wording import describe, listed, number, plural
from fepflow.statistics.estimate import Estimate, minimum_sample
from fepflow.suite import Gate, Impact

DEFAULT_MAX_IMPACT: Impact = "low"
_FROM_BEST: tuple[Outcome, ...] = ("pass", "inconclusive", "fail")


class Ruling(NamedTuple):
    """An outcome and the sentence that explains it."""

    outcome: Outcome
    reason: str


def decide(
    metrics: Sequence[MetricEstimate],
    gate: Gate | None,
    thresholds: Thresholds | None,
    check_counts: CheckTotals,
    mode: Mode = "interval",
) -> Verdict:
    """Judge a run by its gate, or by the default gate if there is neither a gate nor thresholds."""
    gate = gate or Gate()
    max_impact = gate.max_impact or (DEFAULT_MAX_IMPACT if thresholds else None)
    if max_impact is None and not gate.min:
        return _verdict_by_checks(metrics, check_counts)
    ranges = thresholds.thresholds if thresholds else {}
    rulings: list[Ruling] = []
    judged: list[MetricVerdict] = []
    warnings: list[str] = []
    for metric in metrics:
        own = _rulings(metric, ranges.get(metric.id), max_impact, gate.min.get(metric.id), mode)
        rulings += own
        judged.append(_metric_verdict(metric, ranges.get(metric.id), gate.min.get(metric.id), own))
        warnings += _metric_warnings(metric, ranges.get(metric.id), bool(own), mode)
    computed = [metric.id for metric in metrics]
    rulings += _rulings_on_absence(computed, ranges, max_impact, gate)
    warnings += _warnings_on_absence(computed, ranges, gate)
    return Verdict(
        outcome=_worst_outcome(ruling.outcome for ruling in rulings),
        gate=_gate_sentence(max_impact, gate, mode),
        reasons=[ruling.reason for ruling in sorted(rulings, key=_badness, reverse=True)],
        metrics=judged,
        warnings=warnings,
    )


def _rulings(
    metric: MetricEstimate, ranges: Sequence[Range] | None, max_impact: Impact | None, minimum: float | None, mode: Mode
) -> list[Ruling]:
    rulings = []
    if ranges is not None and max_impact is not None:
        rulings.append(_rule_on_impact(metric, ranges, max_impact, mode))
    if minimum is not None:
        rulings.append(_rule_on_minimum(metric, minimum, mode))
    return rulings


def _rule_on_impact(metric: MetricEstimate, ranges: Sequence[Range], max_impact: Impact, mode: Mode) -> Ruling:
    estimate = metric.estimate
    finding = assess(estimate.value, ranges)
    said = f"{metric.id}: {describe(estimate)}"
    if finding.impact is None:
        return Ruling("inconclusive", f"{said} has no impact: {finding.reason}.")
    if severity(finding.impact) > severity(max_impact):
        return Ruling("fail", f"{said} has the impact {finding.impact}; {max_impact} is the worst allowed.")
    doubt = _doubt(reach(estimate.low, estimate.high, ranges), max_impact) if mode == "interval" else None
    if doubt:
        bounded = estimate.low is not None and estimate.high is not None
        reaches = "its interval reaches" if bounded else "without an interval it could reach"
        return Ruling("inconclusive", f"{said} has the impact {finding.impact}, but {reaches} {doubt}.")
    return Ruling("pass", f"{said} has the impact {finding.impact}; {max_impact} is the worst allowed.")


def _doubt(reached: Reach, max_impact: Impact) -> str | None:
    """What an interval reaches that keeps a metric from passing."""
    worse = worst(impact for impact in reached.impacts if severity(impact) > severity(max_impact))
    if worse:
        return f"{worse}; {max_impact} is the worst allowed"
    return "values that no range holds" if reached.gap else None


def _rule_on_minimum(metric: MetricEstimate, minimum: float, mode: Mode) -> Ruling:
    value, low = metric.estimate.value, metric.estimate.low
    said, least = f"{metric.id}: {describe(metric.estimate, minimum)}", number(minimum)
    if value is None:
        return Ruling("inconclusive", f"{said} cannot be compared with the minimum of {least}.")
    if not value >= minimum:
        return Ruling("fail", f"{said} is below the minimum of {least}.")
    reaches = f"{said} reaches the minimum of {least}"
    if mode == "point":
        return Ruling("pass", f"{reaches}.")
    if low is None:
        return Ruling("inconclusive", f"{reaches}, but has no interval to show it.")
    if not low >= minimum:
        advice = _advice_on_perfection(metric.estimate, minimum)
        return Ruling("inconclusive", f"{reaches}, but its interval begins below{advice}.")
    return Ruling("pass", f"{reaches}.")


def _advice_on_perfection(estimate: Estimate, minimum: float) -> str:
    """When everything passed and it still was not enough: how much would be."""
    if estimate.value != 1 or estimate.counts.missing or not estimate.method.startswith("wilson"):
        return ""
    if minimum >= 1:
        return " (no sample can show a proportion of 1; lower the minimum, or judge by point values)"
    needed = minimum_sample(minimum, estimate.confidence)
    return f" ({number(minimum)} takes at least {needed} test cases, all passed)"


def _rulings_on_absence(
    computed: Sequence[str], ranges: dict[str, list[Range]], max_impact: Impact | None, gate: Gate
) -> list[Ruling]:
    rulings = [
        Ruling("inconclusive", f"{name}: the gate asks for at least {number(minimum)}, but it was not computed.")
        for name, minimum in gate.min.items()
        if name not in computed
    ]
    if max_impact is not None and not any(name in ranges for name in computed):
        metrics = listed(computed) or "none"
        rulings.append(
            Ruling("inconclusive", f"No impact was judged: no metric has thresholds (metrics computed: {metrics}).")
        )
    return rulings


def _warnings_on_absence(computed: Sequence[str], ranges: dict[str, list[Range]], gate: Gate) -> list[str]:
    skipped = [name for name in ranges if name not in computed]
    unjudged = [name for name in computed if name not in ranges and name not in gate.min]
    warnings = []
    if skipped:
        warnings.append(f"Skipped, for there are thresholds but no such metric: {listed(skipped)}.")
    if unjudged:
        warnings.append(f"Not judged, for neither thresholds nor a minimum name it: {listed(unjudged)}.")
    return warnings


def _metric_warnings(metric: MetricEstimate, ranges: Sequence[Range] | None, judged: bool, mode: Mode) -> list[str]:
    estimate, value = metric.estimate, metric.estimate.value
    if not judged or value is None:
        return []
    warnings = []
    if ranges is not None:
        if assess(value, ranges).overlapping:
            warnings.append(f"{metric.id}: several ranges hold {number(value)}; the worst impact counts.")
        if mismatch := scale_mismatch(value, ranges, estimate.method.startswith("wilson")):
            warnings.append(f"{metric.id}: {mismatch}")
    if mode == "point" and estimate.counts.missing:
        missing = plural(estimate.counts.missing, "missing result")
        warnings.append(f"{metric.id}: judged by its point value, in spite of {missing}.")
    if mode == "interval" and estimate.stderr == 0 and estimate.method.startswith("t"):
        n = plural(estimate.counts.completed, "value")
        warnings.append(f"{metric.id}: {n}, all equal, so the interval has no width; that is no proof of certainty.")
    return warnings


def _verdict_by_checks(metrics: Sequence[MetricEstimate], totals: CheckTotals) -> Verdict:
    ruling = _rule_on_checks(totals, sum(map(_never_came, metrics)))
    return Verdict(
        outcome=ruling.outcome,
        gate="Every check must pass.",
        reasons=[ruling.reason],
        metrics=[_metric_verdict(metric, None, None, []) for metric in metrics],
    )


def _never_came(metric: MetricEstimate) -> int:
    counts = metric.estimate.counts
    return counts.missing - counts.error - counts.skipped


def _rule_on_checks(totals: CheckTotals, never_came: int) -> Ruling:
    judged = totals.passed + totals.failed
    absent = [(totals.error, "ended in an error"), (totals.skipped, "skipped"), (never_came, "never came")]
    gaps = listed([f"{count} {what}" for count, what in absent if count])
    if totals.failed:
        return Ruling("fail", f"{totals.failed} of {judged} checks failed{f', and {gaps}' if gaps else ''}.")
    if gaps:
        return Ruling("inconclusive", f"No check failed and {totals.passed} passed, but {gaps}.")
    if not judged:
        return Ruling("inconclusive", "Nothing was judged: no check gave a pass or a fail.")
    return Ruling("pass", f"{totals.passed} of {judged} checks passed.")


def _metric_verdict(
    metric: MetricEstimate, ranges: Sequence[Range] | None, minimum: float | None, rulings: Sequence[Ruling]
) -> MetricVerdict:
    estimate = metric.estimate
    finding = assess(estimate.value, ranges) if ranges is not None else Finding(None)
    reached = reach(estimate.low, estimate.high, ranges) if ranges is not None else None
    return MetricVerdict.of(
        metric,
        impact=finding.impact,
        worst_impact=worst(reached.impacts) if reached else None,
        interpretation=finding.interpretation,
        threshold=minimum,
        outcome=_worst_outcome(ruling.outcome for ruling in rulings) if rulings else None,
        reason=" ".join(ruling.reason for ruling in sorted(rulings, key=_badness, reverse=True)) or None,
    )


def _gate_sentence(max_impact: Impact | None, gate: Gate, mode: Mode) -> str:
    rules = [f"no metric's impact may be worse than {max_impact}"] if max_impact else []
    rules += [f"{name} must be at least {number(minimum)}" for name, minimum in gate.min.items()]
    measure = "point values" if mode == "point" else f"{gate.confidence * 100:g} % intervals"
    sentence = listed(rules)
    return f"{sentence[0].upper() if max_impact else sentence[0]}{sentence[1:]} ({measure})."


def _badness(ruling: Ruling) -> int:
    return _FROM_BEST.index(ruling.outcome)


def _worst_outcome(outcomes: Iterable[Outcome]) -> Outcome:
    return max(outcomes, key=_FROM_BEST.index)
