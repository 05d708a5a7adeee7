"""Static validation of a gate that tops up: by which rules, of which metrics, and can the most of it show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fepflow.analysis.sampling import sample_size
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.statistics.estimate import Scale
from fepflow.statistics.sequential import passes_in_a_row
from fepflow.suite.models import Gate, Metric, Slices, TopUp

MEANS = ("mean", "rate", "error_rate")


def validate_top_up(
    found: SuiteValidation, gate: Gate, metrics: Sequence[Metric], scales: Mapping[str, Scale | None]
) -> None:
    """Find what cannot be judged at every look, and limits that cannot be shown even with all that may be added."""
    assert gate.top_up is not None
    _validate_rules(found, gate)
    ranges = found.thresholds.thresholds if found.thresholds else {}
    for metric in metrics:
        if metric.id in gate.min or metric.id in gate.max or metric.id in ranges:
            _validate_metric(found, metric, scales[metric.id])
    _validate_size(found, gate.top_up)
    for bound, limits in (("min", gate.min), ("max", gate.max)):
        for name, limit in limits.items():
            if (scale := scales.get(name)) is not None:
                _warn_of_limit(found, gate, scale, (bound, name), limit)


def _validate_rules(found: SuiteValidation, gate: Gate) -> None:
    """Only intervals that hold at every look may decide."""
    if not (gate.min or gate.max or gate.max_impact or found.thresholds):
        found.error(("gate", "top_up"), "there is no limit that more results could decide", "give gate: {min: …}")
    slices: Slices | None = found.loaded.section("slices")
    excluded = {
        "regression": gate.regression is not None,
        "judge": gate.judge == "corrected",
        "verdict": gate.verdict == "point",
        "fail": gate.fail == "value",
        "interval": gate.interval != "wilson",
    }
    for name in (name for name, is_there in excluded.items() if is_there):
        message = f"{name} is not judged by an interval that may be looked at again and again, as top_up does"
        found.error(("gate", name), message, f"leave out {name}, or top_up")
    if slices is not None and slices.min is not None:
        message = "minima of slices are not judged by intervals that may be looked at again and again, as top_up does"
        found.error(("slices", "min"), message, "leave out min, or gate.top_up")
    if (found.loaded.section("shards") or 1) > 1:
        found.error(("shards",), "a run that is topped up is executed whole", "leave out shards, or gate.top_up")


def _validate_metric(found: SuiteValidation, metric: Metric, scale: Scale | None) -> None:
    location = ("gate", "top_up")
    if metric.aggregated.kind not in MEANS:
        message = f"{metric.id} is a {metric.aggregate}, and top_up is for means and rates"
        advice = "a limit on p95 is aggregate: rate, at_most: the limit, with a minimum of 0.95"
        found.error(location, message, advice if metric.aggregated.kind == "quantile" else "leave out top_up")
    elif scale is None:
        message = f"the range of {metric.id} is not known, and top_up takes one"
        found.error(location, message, "declare range: [least, most] of the metric")


def _validate_size(found: SuiteValidation, top_up: TopUp) -> None:
    repeats = found.loaded.section("repeats") or 1
    if top_up.max_repeats is not None and repeats >= top_up.max_repeats:
        message = f"the suite begins with {repeats} repeats, so {top_up.max_repeats} at most leave nothing to add"
        found.error(("gate", "top_up", "max_repeats"), message, "give more of them, or fewer repeats")
    cases = sample_size(len(found.cases), found.limit)
    if top_up.max_cases is not None and cases < top_up.max_cases:
        message = f"there are {cases} test cases, so there cannot be {top_up.max_cases}"
        found.warn(("gate", "top_up", "max_cases"), message, "the run ends with all of them, if it has to")


def _warn_of_limit(found: SuiteValidation, gate: Gate, scale: Scale, location: tuple[str, str], limit: float) -> None:
    assert gate.top_up is not None
    bound, name = location
    share = scale.share(limit) if bound == "min" else 1 - scale.share(limit)
    cases = sample_size(len(found.cases), found.limit)
    most = min(cases, gate.top_up.max_cases) if gate.top_up.max_cases else cases * (gate.top_up.max_repeats or 1)
    if cases and 0 < share < 1 and (needed := passes_in_a_row(share, gate.confidence)) > most:
        what = "test cases" if gate.top_up.max_cases else f"results of {cases} test cases"
        said = f"{name} of at {'least' if bound == 'min' else 'most'} {limit:g}"
        message = f"{most} {what} cannot show {said}, however good they are"
        found.warn(("gate", bound, name), message, f"it takes {needed} at {gate.confidence:.0%}")
