"""Static validation of metrics, thresholds, gate and slices: their numbers must exist, and be able to pass.

A gate that asks more than the suite's test cases can show is found before anything is called.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from fepflow.analysis.accumulation import (
    NONE,
    is_of_passes,
    is_share_that_passed,
    minima_of,
    range_of,
    scale_of_aggregate,
    slice_of,
)
from fepflow.analysis.classification import ExpectedLabels, class_interval
from fepflow.analysis.dependence import is_clustered
from fepflow.analysis.sampling import sample_size
from fepflow.checks.registry import CheckType
from fepflow.checks.schemas import OTHER, result_shape
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.documents.messages import did_you_mean
from fepflow.errors import DocumentPath, InputError
from fepflow.evalguard.documents import load_thresholds, read_definition
from fepflow.evalguard.models import Range, Thresholds
from fepflow.evalguard.validation import Catalogue, catalogue_near, remarks
from fepflow.jsonpath.path import SingularPath, compile_path, leading_keys
from fepflow.protocol.check import Check
from fepflow.statistics.classification import LabelledUnit, LabelPair, classification_estimate
from fepflow.statistics.estimate import RANGE_ADVICE, RANGE_UNKNOWN, Counts, Scale
from fepflow.statistics.means import passes_needed
from fepflow.statistics.planning import cases_for_power
from fepflow.statistics.proportions import interval_of, minimum_sample, z_score
from fepflow.statistics.sequential import nominal_confidence, passes_in_a_row
from fepflow.suite.models import Gate, Impact, Metric, Slices, TopUp
from fepflow.text import known_names, listed_first, plural
from fepflow.verdict.gate import DEFAULT_MAX_IMPACT, at_look, cases_needed
from fepflow.verdict.metric_rules import ImpactAtMost, kind_of_requirements

MOST_SLICES = 200
NAMED_SLICES = 5
"""Slices that a sentence names."""


def validate_thresholds(validation: SuiteValidation) -> None:
    """Read the EvalGuard thresholds, and find what is wrong with them."""
    loaded, source = validation.loaded, validation.loaded.section("thresholds")
    if source is None:
        return
    task = loaded.section("task")
    catalogue = Catalogue()
    try:
        if isinstance(source, str):
            path = validation.file(source, ("thresholds",), or_folder=True)
            if path is not None:
                validation.thresholds = load_thresholds(path, task)
                catalogue = catalogue_near(path)
        else:
            whole, location = (source, ("thresholds",)) if "thresholds" in source else ({"thresholds": source}, ())
            data = {"task": task or "inline", **whole}
            validation.thresholds = read_definition(Thresholds, data, loaded.document, location)
    except InputError as error:
        validation.problems += error.problems
    if validation.thresholds is not None:
        validation.problems += remarks(validation.thresholds, catalogue)


def validate_metrics(validation: SuiteValidation, checks: Mapping[str, Sequence[Check]]) -> None:
    """Find metrics of unknown checks and values, and a gate that nothing can pass.

    `checks` are all of the suite and its cases, by id.
    """
    loaded, known = validation.loaded, list(checks)
    declared: Sequence[Metric | None] = loaded.section("metrics") or ()
    if loaded.snapshot.get("metrics") is not None:
        for index, metric in enumerate(declared):
            if metric is not None and metric.check is not None and metric.check not in known:
                message = f"the suite has no check with the id {metric.check}"
                validation.error(("metrics", index, "check"), message, f"its checks are {known_names(known)}")
    names = [metric.id for metric in declared if metric] if declared else known
    for name in {name for name in names if names.count(name) > 1}:
        validation.error(("metrics",), f"the metric {name} appears twice", "ids are unique")
    gate = validation.gate
    if gate is not None:
        _validate_gate(validation, gate, names)
        if gate.looks is not None:
            _validate_looks(validation, gate)
        warn_of_confidence(validation, gate)
    metrics = [metric for metric in declared if metric] or [Metric(id=name, check=name) for name in known]
    # The ranges of metrics, as they are aggregated, by id; None where they are not known.
    scales = {
        metric.id: scale_of_aggregate(metric, range_of(metric, checks.get(metric.check or "", ())))
        for metric in metrics
    }
    for index, metric in enumerate(declared):
        if metric is not None:
            _warn_of_repeats(validation, index, metric)
            _validate_value(validation, index, metric, checks.get(metric.check or "", []))
    for metric in metrics:
        if (scale := scales[metric.id]) is not None:
            _validate_limits(validation, metric, scale)
            _validate_ranges(validation, metric, scale)
    if gate is not None and gate.top_up is not None:
        validate_top_up(validation, gate, metrics, scales)
    else:
        max_impact = (gate.max_impact if gate else None) or (DEFAULT_MAX_IMPACT if validation.thresholds else None)
        warn_of_sample_size(validation, at_look(gate or Gate(), 1), max_impact, metrics, scales)
        warn_of_unbounded_means(validation, gate or Gate(), max_impact is not None, metrics, scales)
    _validate_slices(validation, metrics, scales)
    _validate_regression(validation, at_look(gate or Gate(), 1), metrics)


def _warn_of_repeats(validation: SuiteValidation, index: int, metric: Metric) -> None:
    repeats, needed = validation.loaded.section("repeats") or 1, metric.aggregated.k
    if metric.aggregated.kind == "each":
        _warn_of_share(validation, index, metric, repeats)
    if needed > repeats:
        message = f"{metric.aggregate} takes at least {needed} repeats of each case, not {repeats}"
        advice = f"set repeats: {needed}, or run with --repeats"
        validation.warn(("metrics", index, "aggregate"), message, advice)


def _warn_of_share(validation: SuiteValidation, index: int, metric: Metric, repeats: int) -> None:
    """Warn of a share of repeats that allows no failure, as `each@0.8` does not with 4 repeats."""
    share = metric.aggregated.level
    if share < 1 and passes_needed(share, repeats) == repeats:
        enough = next(number for number in count(repeats) if passes_needed(share, number) < number)
        all_of_them = "the only one" if repeats == 1 else f"all {repeats}"
        message = f"with {plural(repeats, 'repeat')} of each case, {metric.aggregate} asks for {all_of_them}"
        advice = f"from {enough} repeats on one may fail: set repeats: {enough}, or run with --repeats"
        validation.warn(("metrics", index, "aggregate"), message, advice)


def _validate_looks(validation: SuiteValidation, gate: Gate) -> None:
    """Find rules that do not go with judging the runs of a version together, and warn if no version is named."""
    location, target = ("gate", "looks"), validation.target
    if gate.top_up is not None:
        message = "a run that is topped up is looked at many times itself, and is not pooled with others"
        validation.error(location, message, "leave out looks, or top_up")
    if gate.verdict == "point":
        message = "runs are pooled so that their intervals hold, and verdict: point goes by values alone"
        validation.error(location, message, "leave out looks, or verdict")
    if target is not None and (validation.version or target.version) is None:
        message = "the runs of one version are judged together, and no version is named"
        validation.warn(location, message, "add version: ${GIT_SHA} to target, or run with --version NAME")


def _metrics_there_are(names: Collection[str]) -> str:
    return f"there is {known_names(names)}" if names else "the suite has no checks and no metrics"


def _validate_gate(validation: SuiteValidation, gate: Gate, metrics: Sequence[str]) -> None:
    for bound, limits in (("min", gate.min), ("max", gate.max)):
        for name in limits:
            if name not in metrics:
                advice = _metrics_there_are(metrics)
                validation.error(("gate", bound, name), f"there is no metric {name}", advice)
    for name in gate.min.keys() & gate.max.keys():
        if gate.min[name] > gate.max[name]:
            validation.error(("gate", "max", name), "the maximum is below the minimum", "no value can meet both")
    if gate.max_impact is not None and validation.thresholds is None and "thresholds" not in validation.loaded.snapshot:
        advice = "add thresholds:, an EvalGuard file or folder"
        validation.error(("gate", "max_impact"), "there are no thresholds that give an impact", advice)
    if gate.sides == "one" and gate.verdict == "point":
        message = "sides is of intervals, and verdict: point judges by values alone"
        validation.error(("gate", "sides"), message, "leave out sides, or verdict")
    limited = gate.min or gate.max or gate.max_impact or gate.regression or validation.thresholds
    if gate.missing == "random" and (gate.checks == "all" or not (limited or validation.loaded.section("slices"))):
        message = "missing: random is of metrics with a limit; if every check must pass, a missing result is not a pass"
        validation.warn(("gate", "missing"), message, "give gate: {min: …}, and leave out checks: all")


def _validate_value(validation: SuiteValidation, index: int, metric: Metric, checks: Sequence[Check]) -> None:
    """Find a metric's value that its check's results lack."""
    shapes = [result_shape(check) for check in checks]
    if metric.aggregated.kind == "error_rate":
        return
    if metric.aggregated.of_labels:
        _validate_labels(validation, index, metric, checks)
        return
    if len(shapes) != 1 or shapes[0] is None:
        return  # no result is known, or one of several checks may have it
    shape = shapes[0]
    if metric.value is not None:
        _validate_path(validation, ("metrics", index, "value"), metric.value, shape)
    elif not _may_have(shape, ("passed",)) and not _may_have(shape, ("response", "passed")):
        message = f"{metric.check} gives no passed, so there is nothing to count"
        numbers = _numbers(shape)
        advice = f"name what it gives, as in value: $.{'.'.join(numbers[0])}" if numbers else None
        validation.error(("metrics", index), message, advice)


def _validate_labels(validation: SuiteValidation, index: int, metric: Metric, checks: Sequence[Check]) -> None:
    """Find a measure of labels for a check without labels, or for a class that no test case expects."""
    location: DocumentPath = ("metrics", index, "aggregate")
    others = [check for check in checks if check.type != CheckType.CLASSIFICATION]
    if others:
        message = f"{metric.aggregate} is of labels, and {others[0].type} gives none"
        validation.error(location, message, "take a check of the type classification")
        return
    expected = ExpectedLabels()
    for number, case in enumerate(validation.cases):
        for check in checks[:1]:
            expected.add(number, case, check)
    label = expected.known_as(metric.aggregated.label)
    if label is not None and expected.counted.total() == len(validation.cases) > 0 and label not in expected.counted:
        advice = did_you_mean(label, list(expected.counted)) or f"they expect {expected.names}"
        validation.error(location, f"no test case expects the label {label}", advice)
        return
    gate = validation.gate
    if gate is not None and gate.verdict == "interval" and validation.limit is None:
        warn_of_classes(validation, at_look(gate, 1), metric, expected)


def _validate_path(
    validation: SuiteValidation, location: DocumentPath, expression: str, shape: Mapping[str, Any]
) -> None:
    inside: Any = shape
    for number, key in enumerate(keys := leading_keys(expression)):
        if not isinstance(inside, Mapping):
            return
        if key not in inside:
            before = "".join(f"{step}." for step in keys[:number])
            advice = did_you_mean(str(key), list(inside)).replace("did you mean ", f"did you mean $.{before}")
            validation.error(location, f"the results have nothing at {expression}", advice)
            return
        inside = inside[key]
    if inside == OTHER and isinstance(compile_path(expression), SingularPath):
        names = ", ".join(f"$.{'.'.join(path)}" for path in _numbers(shape))
        validation.error(location, f"{expression} is not a number", f"a metric counts {names}")


def _may_have(shape: Any, keys: tuple[str, ...]) -> bool:
    for key in keys:
        if not isinstance(shape, Mapping):
            return True
        if key not in shape:
            return False
        shape = shape[key]
    return True


def _numbers(shape: Mapping[str, Any], before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths = []
    for name, part in shape.items():
        if isinstance(part, Mapping):
            paths += _numbers(part, (*before, name))
        elif part == "number":
            paths.append((*before, name))
    return paths


def _validate_limits(validation: SuiteValidation, metric: Metric, scale: Scale) -> None:
    """Find a minimum or maximum of the gate beyond the metric's range, or one that every value keeps to."""
    gate = validation.gate or Gate()
    for bound, limits, end in (("min", gate.min, scale.low), ("max", gate.max, scale.high)):
        limit = limits.get(metric.id)
        if limit == end:
            message = f"every value of {metric.id} passes, as it lies between {scale.low:.15g} and {scale.high:.15g}"
            validation.warn(("gate", bound, metric.id), message, f"give another {bound}imum")
        if limit is not None and not scale.low <= limit <= scale.high:
            message = f"{metric.id} lies between {scale.low:.15g} and {scale.high:.15g}, never at {limit:.15g}"
            is_percentage = (scale.low, scale.high) == (0, 1) and 1 < limit <= 100
            advice = f"did you mean {limit / 100:.15g}?" if is_percentage else "give a value in that range"
            validation.error(("gate", bound, metric.id), message, advice)


def _validate_ranges(validation: SuiteValidation, metric: Metric, scale: Scale) -> None:
    """Find thresholds that are all outside of the metric's range: they are on another scale."""
    ranges: list[Range] = (validation.thresholds.thresholds if validation.thresholds else {}).get(metric.id, [])
    bounds = [bound for item in ranges for bound in (item.min, item.max) if bound is not None]
    beyond = [bound for bound in bounds if not scale.low <= bound <= scale.high]
    inside = [bound for bound in bounds if scale.low < bound < scale.high]
    if beyond and not inside:
        message = f"the thresholds of {metric.id} are at {min(beyond):.15g} to {max(beyond):.15g}, but it lies between"
        are_percentages = max(beyond) <= 100 and scale.high == 1
        advice = "they are percentages, it is a fraction" if are_percentages else "see metrics.range"
        is_inline = isinstance(validation.loaded.section("thresholds"), dict)
        location = ("thresholds", metric.id) if is_inline else ("thresholds",)
        validation.error(location, f"{message} {scale.low:.15g} and {scale.high:.15g}", advice)


def _validate_slices(
    validation: SuiteValidation, metrics: Sequence[Metric], scales: Mapping[str, Scale | None]
) -> None:
    """Find a field that no case has, minima that no metric can reach, and slices that are too small for a minimum."""
    slices: Slices | None = validation.loaded.section("slices")
    if slices is None:
        return
    sizes = _slice_sizes(validation, slices)
    minima, gate = minima_of(slices, metrics), validation.gate or Gate()
    if slices.min is not None and not minima:
        advice = "name the metrics, as in min: {score: 3.5}"
        validation.error(("slices", "min"), "there is no metric that it is for", advice)
    aggregates = {metric.id: metric.aggregated for metric in metrics}
    for name, minimum in minima.items():
        location = ("slices", "min", name) if isinstance(slices.min, dict) else ("slices", "min")
        if name not in scales:
            validation.error(location, f"there is no metric {name}", _metrics_there_are(scales))
        elif aggregates[name].kind == "quantile" or aggregates[name].of_labels or (scale := scales[name]) is None:
            message = f"slices of {name} cannot be compared with a minimum"
            validation.error(location, message, "it takes a share, or a mean of scores with a range")
        elif not scale.low < minimum <= scale.high:
            bounds = f"{scale.low:.15g} and {scale.high:.15g}"
            message = f"a minimum of {minimum:.15g} does not judge {name}, which lies between {bounds}"
            validation.error(location, message, "give a value in that range")
        else:
            needed = cases_needed(minimum, scale, gate)
            _warn_of_small_slices(validation, sizes, name, needed, is_ignored=slices.small == "ignore")
    if slices.small == "ignore" and slices.min is None:
        validation.warn(("slices", "small"), "without min no slice is judged", "give min, or leave out small")


def _slice_sizes(validation: SuiteValidation, slices: Slices) -> Counter[str]:
    """Return the number of test cases by slice, or of clusters where the suite has them."""
    by_slice, names = defaultdict[str, list[int]](list), Counter[str]()
    for index, case in enumerate(validation.cases):
        by_slice[slice_of(case, slices.by)].append(index)
        names.update(list(case.metadata or {}))  # of a mapping, its values would be added
    sizes = Counter({value: len(indices) for value, indices in by_slice.items()})
    location = ("slices", "by")
    if sizes and set(sizes) == {NONE}:
        advice = did_you_mean(slices.by, list(names)) if names else "the test cases have no metadata"
        validation.error(location, f"no test case has {slices.by} in its metadata", advice)
    elif sizes[NONE]:
        message = f"{sizes[NONE]:,} of {sizes.total():,} test cases have no {slices.by} in their metadata"
        validation.warn(location, message, f"they are a slice of their own: {NONE}")
    if len(sizes) > MOST_SLICES:
        message = f"{slices.by} has {len(sizes):,} different values, and there can be {MOST_SLICES} slices"
        validation.error(location, message, "slices are groups of test cases")
    if (clusters := validation.clusters) is None:
        return sizes
    return Counter({value: int(clusters.sizes(indices).worth) for value, indices in by_slice.items()})


def _warn_of_small_slices(
    validation: SuiteValidation, sizes: Counter[str], metric: str, needed: int, *, is_ignored: bool
) -> None:
    small = [value for value, size in sorted(sizes.items()) if size < needed]
    if small:
        units = plural(needed, validation.clusters.noun if validation.clusters else "test case")
        names = listed_first(small, NAMED_SLICES, None)
        message = f"{len(small)} of {len(sizes)} slices have fewer than {units}: {names}"
        unless = "is judged only if it fails" if is_ignored else "can fail and not pass: see slices.small"
        validation.warn(("slices", "min"), message, f"there {metric} {unless}")


def _validate_regression(validation: SuiteValidation, gate: Gate, metrics: Sequence[Metric]) -> None:
    """Find margins without a metric, and warn of margins that the cases cannot show even if nothing changes."""
    if gate.regression is None:
        return
    margin, location = gate.regression.margin, ("gate", "regression", "margin")
    shares = {metric.id for metric in metrics if is_share_that_passed(metric)}
    if isinstance(margin, dict):
        names = [metric.id for metric in metrics]
        for name in margin:
            if name not in names:
                validation.error((*location, name), f"there is no metric {name}", _metrics_there_are(names))
        margins = [value for name, value in margin.items() if name in shares]
    else:
        margins = [margin] if shares else []
    if not margin or not (isinstance(margin, dict) or shares):
        advice = "give margins by metric, as in margin: {score: 0.3}"
        validation.error(location, "there is no metric that it is for", advice)
    if margins:
        warn_of_regression_margin(validation, gate, min(margins))


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
