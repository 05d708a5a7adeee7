"""Finds suites with too few test cases for what their gate asks, before anything is called."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fepflow.analysis.accumulation import is_of_passes, is_share_that_passed
from fepflow.analysis.classification import ExpectedLabels, class_interval
from fepflow.analysis.dependence import is_clustered
from fepflow.analysis.sampling import sample_size
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.errors import DocumentPath
from fepflow.statistics.classification import LabelledUnit, LabelPair, classification_estimate
from fepflow.statistics.estimate import RANGE_ADVICE, RANGE_UNKNOWN, Counts, Scale
from fepflow.statistics.planning import cases_for_power
from fepflow.statistics.proportions import interval_of, minimum_sample, z_score
from fepflow.statistics.sequential import nominal_confidence, passes_in_a_row
from fepflow.suite.models import Gate, Impact, Metric, Slices, TopUp
from fepflow.text import plural
from fepflow.verdict.requirements import ImpactAtMost, kind_of_requirements

MOST_TRIED = 200
"""Numbers of passes that are tried to find one that a gate on impacts lets pass."""

USUAL_CONFIDENCE = 0.95
USUAL_POWER = 0.8
MEANS = ("mean", "rate", "error_rate")


class _Units(NamedTuple):
    """The units that a run's intervals count: so many test cases, or clusters of equal size."""

    number: int
    noun: str

    def __str__(self) -> str:
        return plural(self.number, self.noun)


def _sample_size(validation: SuiteValidation) -> int:
    return sample_size(len(validation.cases), validation.limit)


def _units(validation: SuiteValidation) -> _Units:
    cases, clusters = _sample_size(validation), validation.clusters
    if clusters is None:
        return _Units(cases, "test case")
    sizes = clusters.sizes(range(len(validation.cases)))
    return _Units(min(cases, int(sizes.worth)), sizes.noun)


def warn_of_sample_size(
    validation: SuiteValidation,
    gate: Gate,
    max_impact: Impact | None,
    metrics: Sequence[Metric],
    scales: Mapping[str, Scale | None],
) -> None:
    """Warn of limits and impacts that the cases cannot show, whatever the target answers. `scales` are by metric."""
    units = _units(validation)
    if gate.verdict == "point" or not units.number:
        return
    for metric in metrics:
        for bound, limit in (("min", gate.min.get(metric.id)), ("max", gate.max.get(metric.id))):
            if limit is not None:
                _warn_of_limit(validation, gate, metric, scales[metric.id], bound, limit, units)
    if max_impact is None or validation.thresholds is None:
        return
    field = "max_impact" in (validation.loaded.snapshot.get("gate") or {})
    for name, ranges in validation.thresholds.thresholds.items():
        scale = scales.get(name)
        if scale is not None and not _can_pass(ImpactAtMost(max_impact, ranges), gate, scale, units.number):
            message = f"{units} cannot show that {name} has an impact of {max_impact} at most"
            reach = f"whatever passes, the {gate.pass_confidence:.0%} interval reaches a worse one"
            location = ("gate", "max_impact") if field else ("thresholds",)
            validation.warn(location, message, f"{reach}: more cases, or wider ranges")


def warn_of_unbounded_means(
    validation: SuiteValidation, gate: Gate, judges_impact: bool, metrics: Sequence[Metric], scales: Mapping[str, Any]
) -> None:
    """Warn of limits, thresholds and margins on means whose range is not known: they are inconclusive in every run."""
    margins = gate.regression.margin if gate.regression else None
    is_inline = isinstance(validation.loaded.snapshot.get("thresholds"), dict)
    thresholds = validation.thresholds.thresholds if validation.thresholds and judges_impact else ()
    for metric in metrics:
        if scales[metric.id] is not None or metric.aggregated.kind == "quantile":
            continue
        limits: dict[DocumentPath, Collection[str]] = {
            ("gate", "min", metric.id): gate.min,
            ("gate", "max", metric.id): gate.max,
            ("gate", "regression", "margin", metric.id): margins if isinstance(margins, dict) else (),
            (("thresholds", metric.id) if is_inline else ("thresholds",)): thresholds,
        }
        for location, names in limits.items():
            if metric.id in names:
                verdict = "its value alone decides" if gate.verdict == "point" else "it will be neither pass nor fail"
                validation.warn(location, f"{metric.id}: {verdict}; {RANGE_UNKNOWN}", RANGE_ADVICE)


def warn_of_confidence(validation: SuiteValidation, gate: Gate) -> None:
    """Warn of Wilson's interval at a low confidence: on average it is right as often as promised, but not always."""
    if gate.confidence < USUAL_CONFIDENCE and gate.interval == "wilson" and gate.verdict == "interval":
        message = f"at {gate.confidence:.0%} the intervals let wrong agents pass more often than that promises"
        advice = "leave out gate.interval, or take clopper-pearson"
        validation.warn(("gate", "confidence"), message, advice)


def warn_of_regression_margin(validation: SuiteValidation, gate: Gate, margin: float) -> None:
    """Warn if the cases cannot show a regression of at most `margin` even if none changes.

    Then the low end of Tango's interval is -z² / (n + z²).
    """
    units = _units(validation)
    needed = None if margin == 0 else math.ceil(z_score(gate.pass_confidence) ** 2 * (1 - margin) / margin)
    if units.number and gate.verdict == "interval" and (needed is None or units.number < needed):
        message = f"{units} cannot show a regression of at most {margin:.15g}, even if none changes"
        advice = "no number of them shows a margin of 0" if needed is None else f"it takes {needed}"
        validation.warn(("gate", "regression", "margin"), message, advice)


def _warn_of_limit(
    validation: SuiteValidation,
    gate: Gate,
    metric: Metric,
    scale: Scale | None,
    bound: str,
    limit: float,
    units: _Units,
) -> None:
    if metric.aggregated.of_labels:
        return  # it depends on the labels, see warn_of_classes
    needed = _cases_needed(gate, metric, scale, bound, limit)
    if needed is not None and needed > units.number:
        best = "even if all pass" if is_of_passes(metric) and bound == "min" else "whatever their values are"
        message = f"{units} cannot show {_limit_in_words(metric.id, bound, limit)}, {best}"
        more = _more_to_expect(gate, metric, limit) if bound == "min" and validation.clusters is None else ""
        validation.warn(("gate", bound, metric.id), message, f"it takes {needed} at {gate.confidence:.0%}{more}")


def warn_of_classes(validation: SuiteValidation, gate: Gate, metric: Metric, expected: ExpectedLabels) -> None:
    """Warn of a minimum of precision, recall or F1 that the test cases cannot show, even if all answers are right."""
    limit, label = gate.min.get(metric.id), expected.known_as(metric.aggregated.label)
    units = [LabelledUnit([LabelPair(name, name)]) for name in expected.counted.elements()]
    if limit is None or not 0 < limit < 1 or not units or (label is not None and label not in expected.counted):
        return
    counts, measure, kind = Counts(len(units), len(units)), metric.aggregated.kind, class_interval(gate)
    best = classification_estimate(units, counts, measure, label, gate.pass_confidence, kind)  # type: ignore[arg-type]  # one of three, see of_labels
    if best.low is not None and best.low < limit:
        cases = plural(len(units) if label is None else expected.counted[label], "test case")
        of_class = "" if label is None else f" that expect {label}"
        message = f"{cases}{of_class} cannot show {_limit_in_words(metric.id, 'min', limit)}, even if all pass"
        validation.warn(
            ("gate", "min", metric.id), message, f"they show {best.low:.2f} at most: more cases of each label"
        )


def _limit_in_words(metric: str, bound: str, limit: float) -> str:
    return f"{metric} of at {'least' if bound == 'min' else 'most'} {limit:.15g}"


def _more_to_expect(gate: Gate, metric: Metric, minimum: float) -> str:
    """Say how many cases it takes if not all pass, but half as many fail as are allowed to."""
    expected = (1 + minimum) / 2
    if not is_share_that_passed(metric):
        return ""
    cases = cases_for_power(minimum, expected, USUAL_POWER, gate.pass_confidence, gate.interval)
    return f", and {cases} if {expected:.15g} do, to pass 4 times out of 5: see fepflow plan" if cases else ""


def _cases_needed(gate: Gate, metric: Metric, scale: Scale | None, bound: str, limit: float) -> int | None:
    """Return how many cases it takes if all values are as good as can be; None if one is enough, or it is not known."""
    if scale is not None and not scale.low < limit < scale.high:
        return None
    if metric.aggregated.kind == "quantile":
        level = metric.aggregated.level
        return minimum_sample(level if bound == "max" else 1 - level, gate.pass_confidence, "clopper-pearson")
    if scale is None:
        return None
    share = scale.share(limit) if bound == "min" else 1 - scale.share(limit)
    return None if share >= 1 else minimum_sample(share, gate.pass_confidence, gate.interval)  # 1 by rounding


def _can_pass(requirement: ImpactAtMost, gate: Gate, scale: Scale, cases: int) -> bool:
    kind = kind_of_requirements(gate, [requirement], scale, cases)
    for passed in {round(cases * step / MOST_TRIED) for step in range(MOST_TRIED + 1)}:
        low, high = interval_of(kind, passed / cases, cases, gate.pass_confidence)
        if requirement.judge(scale.value(low), scale.value(high)) == "pass":
            return True
    return False


def validate_top_up(
    validation: SuiteValidation, gate: Gate, metrics: Sequence[Metric], scales: Mapping[str, Scale | None]
) -> None:
    """Find what cannot be judged at every look, and limits that cannot be shown even with all that may be added."""
    assert gate.top_up is not None
    _validate_rules(validation, gate)
    ranges = validation.thresholds.thresholds if validation.thresholds else {}
    for metric in metrics:
        if metric.id in gate.min or metric.id in gate.max or metric.id in ranges:
            _validate_topped_up(validation, metric, scales[metric.id])
    _validate_most(validation, gate.top_up)
    for bound, limits in (("min", gate.min), ("max", gate.max)):
        for name, limit in limits.items():
            if (scale := scales.get(name)) is not None:
                _warn_of_most(validation, gate, gate.top_up, scale, (bound, name), limit)


def _validate_rules(validation: SuiteValidation, gate: Gate) -> None:
    """Find rules that do not decide by intervals that hold at every look."""
    if not (gate.min or gate.max or gate.max_impact or validation.thresholds):
        message = "there is no limit that more results could decide"
        validation.error(("gate", "top_up"), message, "give gate: {min: …}")
    slices: Slices | None = validation.loaded.section("slices")
    excluded = {
        "regression": gate.regression is not None,
        "judge": gate.judge == "corrected",
        "verdict": gate.verdict == "point",
        "fail": gate.fail == "value",
        "interval": gate.interval == "clopper-pearson" and (gate.top_up is None or gate.top_up.looks is None),
    }
    for name in (name for name, is_set in excluded.items() if is_set):
        message = f"{name} is not judged by an interval that may be looked at again and again, as top_up does"
        validation.error(("gate", name), message, f"leave out {name}, or top_up")
    if slices is not None and slices.min is not None:
        message = "minima of slices are not judged by intervals that may be looked at again and again, as top_up does"
        validation.error(("slices", "min"), message, "leave out min, or gate.top_up")
    if is_clustered(validation.loaded.section("cluster")) and gate.top_up and gate.top_up.max_repeats:
        message = "the verdict is about these test cases only, so that it does not matter what they have in common"
        validation.warn(("cluster",), message, "give max_cases for a verdict about all such test cases")
    if (validation.loaded.section("shards") or 1) > 1:
        message = "a run that is topped up is executed whole"
        validation.error(("shards",), message, "leave out shards, or gate.top_up")


def _validate_topped_up(validation: SuiteValidation, metric: Metric, scale: Scale | None) -> None:
    location = ("gate", "top_up")
    if metric.aggregated.kind not in MEANS:
        message = f"{metric.id} is a {metric.aggregate}, and top_up is for means and rates"
        advice = "a limit on p95 is aggregate: rate, at_most: the limit, with a minimum of 0.95"
        validation.error(location, message, advice if metric.aggregated.kind == "quantile" else "leave out top_up")
    elif scale is None:
        message = f"the range of {metric.id} is not known, and top_up takes one"
        validation.error(location, message, "declare range: [least, most] of the metric")


def _validate_most(validation: SuiteValidation, top_up: TopUp) -> None:
    repeats, cases = validation.loaded.section("repeats") or 1, _sample_size(validation)
    if top_up.max_repeats is not None and repeats >= top_up.max_repeats:
        message = f"the suite begins with {repeats} repeats, so {top_up.max_repeats} at most leave nothing to add"
        validation.error(("gate", "top_up", "max_repeats"), message, "give more of them, or fewer repeats")
    if top_up.max_cases is not None and cases < top_up.max_cases:
        message = f"there are {cases} test cases, so there cannot be {top_up.max_cases}"
        validation.warn(("gate", "top_up", "max_cases"), message, "the run ends with all of them, if it has to")


def _warn_of_most(
    validation: SuiteValidation, gate: Gate, top_up: TopUp, scale: Scale, location: tuple[str, str], limit: float
) -> None:
    bound, name = location
    share = scale.share(limit) if bound == "min" else 1 - scale.share(limit)
    cases, units = _sample_size(validation), _units(validation)
    most, words = cases * (top_up.max_repeats or 1), f"results of {plural(cases, 'test case')}"
    if top_up.max_cases:
        most = min(cases, top_up.max_cases) * units.number // max(cases, 1)
        words = plural(most, units.noun).partition(" ")[2]
    if cases and 0 < share < 1 and (needed := _best_results_needed(gate, top_up, share)) > most:
        message = f"{most} {words} cannot show {_limit_in_words(name, bound, limit)}, however good they are"
        validation.warn(("gate", bound, name), message, f"it takes {needed} at {gate.confidence:.0%}")


def _best_results_needed(gate: Gate, top_up: TopUp, share: float) -> int:
    """Return how many results show a limit at this share of the scale, if all are as good as can be."""
    if top_up.looks is None:
        return passes_in_a_row(share, gate.pass_confidence)
    last = nominal_confidence(top_up.looks, top_up.looks, gate.pass_confidence)
    return minimum_sample(share, last, gate.interval or "clopper-pearson")
