"""Whether a run will have enough test cases for what its gate asks, known before anything is called."""

from __future__ import annotations

from collections.abc import Mapping

from fepflow.documents.loader import DocumentPath
from fepflow.statistics.intervals import interval_of, minimum_sample
from fepflow.statistics.scale import Scale
from fepflow.suite.models import Gate, Impact
from fepflow.verdict.requirements import ImpactAtMost
from tasks.analysis.sampling import sample_size
from tasks.validation.suite_validation import SuiteValidation

MOST_TRIED = 200
"""Numbers of passes that are tried to find one that a gate on impacts lets pass."""

USUAL = 0.95


def warn_of_sample_size(
    found: SuiteValidation, gate: Gate, max_impact: Impact | None, scales: Mapping[str, Scale | None]
) -> None:
    """Warn of minima and impacts that the cases cannot show, whatever the target answers. `scales` are by metric."""
    cases = sample_size(len(found.cases), found.limit)
    if gate.verdict == "point" or not cases:
        return
    for name, minimum in gate.min.items():
        scale = scales.get(name)
        if scale is not None and scale.low < minimum < scale.high:
            _warn_of_minimum(found, gate, name, minimum, scale.share(minimum), cases)
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


def _warn_of_minimum(found: SuiteValidation, gate: Gate, name: str, minimum: float, share: float, cases: int) -> None:
    needed = minimum_sample(share, gate.confidence, gate.interval)
    if needed > cases:
        message = f"{cases} test cases cannot show {name} of at least {minimum:g}, even if all pass"
        found.warn(("gate", "min", name), message, f"it takes {needed} at {gate.confidence:.0%}")


def _can_pass(requirement: ImpactAtMost, gate: Gate, scale: Scale, cases: int) -> bool:
    tried = {round(cases * step / MOST_TRIED) for step in range(MOST_TRIED + 1)}
    return any(_passes(requirement, gate, scale, passed / cases, cases) for passed in tried)


def _passes(requirement: ImpactAtMost, gate: Gate, scale: Scale, share: float, cases: int) -> bool:
    low, high = interval_of(gate.interval, share, cases, gate.confidence)
    return requirement.judge(scale.value(low), scale.value(high)) == "pass"


def _location(found: SuiteValidation, field: str) -> DocumentPath:
    return ("gate", field) if field in (found.loaded.snapshot.get("gate") or {}) else ("thresholds",)
