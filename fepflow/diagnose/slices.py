"""Static validation of a suite's slices: is there such a field, and can each slice show its minimum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fepflow.analysis.slices import NONE, minima_of, slice_of
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.documents.did_you_mean import did_you_mean
from fepflow.statistics.estimate import Scale
from fepflow.suite.models import Gate, Metric, Slices
from fepflow.text import known_names
from fepflow.verdict.slice_rules import cases_needed

MOST_SLICES = 200

NAMED = 5
"""Slices that a sentence names."""


def validate_slices(found: SuiteValidation, metrics: Sequence[Metric], scales: Mapping[str, Scale | None]) -> None:
    """Find a field that no case has, minima that no metric can reach, and slices that are too small for theirs."""
    slices: Slices | None = found.loaded.section("slices")
    if slices is None:
        return
    sizes = _validate_field(found, slices)
    minima, gate = minima_of(slices, metrics), found.loaded.section("gate") or Gate()
    if slices.min is not None and not minima:
        found.error(("slices", "min"), "there is no metric that it is for", "name the metrics, as in min: {score: 3.5}")
    for name, minimum in minima.items():
        location = ("slices", "min", name) if isinstance(slices.min, dict) else ("slices", "min")
        if name not in scales:
            found.error(location, f"there is no metric {name}", f"there is {known_names(scales)}")
        elif not _is_testable(metrics, name) or (scale := scales[name]) is None:
            message = f"slices of {name} cannot be compared with a minimum"
            found.error(location, message, "it takes a share, or a mean of scores with a range")
        elif not scale.low < minimum <= scale.high:
            message = f"{name} lies between {scale.low:g} and {scale.high:g}, so {minimum:g} is no minimum for it"
            found.error(location, message, "give a value within")
        else:
            _warn_of_small_slices(found, slices, sizes, name, cases_needed(minimum, scale, gate))


def _validate_field(found: SuiteValidation, slices: Slices) -> Counter[str]:
    sizes, names = Counter[str](), Counter[str]()
    for case in found.cases:
        sizes[slice_of(case, slices.by)] += 1
        names.update(case.metadata or {})
    if sizes and set(sizes) == {NONE}:
        advice = did_you_mean(slices.by, list(names)) if names else "the test cases have no metadata"
        found.error(("slices", "by"), f"no test case has {slices.by} in its metadata", advice)
    elif sizes[NONE]:
        message = f"{sizes[NONE]:,} of {sizes.total():,} test cases have no {slices.by} in their metadata"
        found.warn(("slices", "by"), message, f"they are a slice of their own: {NONE}")
    if len(sizes) > MOST_SLICES:
        message = f"{slices.by} has {len(sizes):,} different values, and there can be {MOST_SLICES} slices"
        found.error(("slices", "by"), message, "slices are groups of test cases")
    return sizes


def _is_testable(metrics: Sequence[Metric], name: str) -> bool:
    return all(metric.aggregated.kind != "quantile" for metric in metrics if metric.id == name)


def _warn_of_small_slices(found: SuiteValidation, slices: Slices, sizes: Counter[str], name: str, needed: int) -> None:
    small = [value for value, size in sorted(sizes.items()) if size < needed]
    if not small:
        return
    listed = ", ".join(small[:NAMED]) + (f" and {len(small) - NAMED} more" if len(small) > NAMED else "")
    message = f"{len(small)} of {len(sizes)} slices have fewer than {needed} test cases: {listed}"
    found.warn(("slices", "min"), message, f"whether {name} reaches its minimum there is not judged")
