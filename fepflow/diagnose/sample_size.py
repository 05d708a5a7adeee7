"""Whether a run will have enough test cases for what its gate asks, known before anything is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fepflow.analysis.ranges import is_of_passes, is_share_that_passed
from fepflow.analysis.sampling import sample_size
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.errors import DocumentPath
from fepflow.statistics.estimate import Scale
from fepflow.statistics.planning import cases_for_power
from fepflow.statistics.proportions import interval_of, minimum_sample
from fepflow.suite.models import Gate, Impact, Metric
from fepflow.verdict.requirements import ImpactAtMost

MOST_TRIED = 200
"""Numbers of passes that are tried to find one that a gate on impacts lets pass."""

USUAL = 0.95

USUAL_POWER = 0.8


def warn_of_sample_size(
    found: SuiteValidation,
    gate: Gate,
    max_impact: Impact | None,
    metrics: Sequence[Metric],
    scales: Mapping[str, Scale | None],
) -> None:
    """Warn of limits and impacts that the cases cannot show, whatever the target answers. `scales` are by metric."""
    cases = sample_size(len(found.cases), found.limit)
    if gate.verdict == "point" or not cases:
        return
    for metric in metrics:
        for bound, limit in (("min", gate.min.get(metric.id)), ("max", gate.max.get(metric.id))):
            if limit is not None:
                _warn_of_limit(found, gate, metric, scales[metric.id], bound, limit, cases)
    for name, ranges in (found.thresholds.thresholds if found.thresholds and max_impact else {}).items():
        scale = scales.get(name)
        if max_impact and scale is not None and not _can_pass(ImpactAtMost(max_impact, ranges), gate, scale, cases):
            message = f"{cases} test cases cannot show that {name} has an impact of {max_impact} at most"
            advice = (
                f"whatever passes, the {gate.confidence:.0%} interval reaches a worse one: more cases, or wider ranges"
            )
            found.warn(_location(found, "max_impact"), message, advice)


def warn_of_confidence(found: SuiteValidation, gate: Gate) -> None:
    """Wilson's interval is right as often as promised on average; at low confidences, far from always."""
    if gate.confidence < USUAL and gate.interval == "wilson" and gate.verdict == "interval":
        message = f"at {gate.confidence:.0%} the intervals let wrong agents pass more often than that promises"
        advice = "leave it at 0.95, or take gate: {interval: clopper-pearson}"
        found.warn(("gate", "confidence"), message, advice)


def _warn_of_limit(
    found: SuiteValidation, gate: Gate, metric: Metric, scale: Scale | None, bound: str, limit: float, cases: int
) -> None:
    needed = _cases_needed(gate, metric, scale, bound, limit)
    if needed is not None and needed > cases:
        said = f"{metric.id} of at {'least' if bound == 'min' else 'most'} {limit:g}"
        best = "even if all pass" if is_of_passes(metric) and bound == "min" else "whatever their values are"
        message = f"{cases} test cases cannot show {said}, {best}"
        more = _more_to_expect(gate, metric, limit) if bound == "min" else ""
        found.warn(("gate", bound, metric.id), message, f"it takes {needed} at {gate.confidence:.0%}{more}")


def _more_to_expect(gate: Gate, metric: Metric, minimum: float) -> str:
    """How many cases it takes if not all pass, but half as many fail as are allowed to."""
    expected = (1 + minimum) / 2
    if not is_share_that_passed(metric):
        return ""
    cases = cases_for_power(minimum, expected, USUAL_POWER, gate.confidence, gate.interval)
    return f", and {cases} if {expected:g} do, to pass 4 times out of 5: see fepflow plan" if cases else ""


def _cases_needed(gate: Gate, metric: Metric, scale: Scale | None, bound: str, limit: float) -> int | None:
    """How many cases it takes where all values are as good as can be; None if that is not known, or one is enough."""
    if scale is not None and not scale.low < limit < scale.high:
        return None
    if metric.aggregated.kind == "quantile":
        level = metric.aggregated.level
        return minimum_sample(level if bound == "max" else 1 - level, gate.confidence, "clopper-pearson")
    if scale is None:
        return None
    share = scale.share(limit)
    return minimum_sample(share if bound == "min" else 1 - share, gate.confidence, gate.interval)


def _can_pass(requirement: ImpactAtMost, gate: Gate, scale: Scale, cases: int) -> bool:
    tried = {round(cases * step / MOST_TRIED) for step in range(MOST_TRIED + 1)}
    return any(_passes(requirement, gate, scale, passed / cases, cases) for passed in tried)


def _passes(requirement: ImpactAtMost, gate: Gate, scale: Scale, share: float, cases: int) -> bool:
    low, high = interval_of(gate.interval, share, cases, gate.confidence)
    return requirement.judge(scale.value(low), scale.value(high)) == "pass"


def _location(found: SuiteValidation, field: str) -> DocumentPath:
    return ("gate", field) if field in (found.loaded.snapshot.get("gate") or {}) else ("thresholds",)
