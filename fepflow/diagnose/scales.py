"""The suite's metrics against the results that they are made of: is there a number, and can it meet the gate?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fepflow.analysis.ranges import range_of, scale_of_aggregate
from fepflow.checks.core.result_shapes import OTHER, result_shape
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.documents.did_you_mean import did_you_mean
from fepflow.evalguard.models import Range
from fepflow.jsonpath.path import SingularPath, compile_path, leading_keys
from fepflow.protocol.check import Check
from fepflow.statistics.estimate import Scale
from fepflow.suite.models import Gate, Metric


def validate_scales(found: SuiteValidation, checks: Mapping[str, Sequence[Check]]) -> None:
    """Find metrics of values that no result has, and minimums and thresholds beyond a metric's range.

    `checks` are all of the suite and its cases, by id.
    """
    given: Sequence[Metric | None] = found.loaded.section("metrics") or ()
    for index, metric in enumerate(given):
        if metric is not None:
            _validate_value(found, index, metric, checks.get(metric.check or "", []))
    metrics = [metric for metric in given if metric] or [Metric(id=name, check=name) for name in checks]
    for metric in metrics:
        scale = scale_of_aggregate(metric, range_of(metric, checks.get(metric.check or "", ())))
        if scale is not None:
            _validate_limits(found, metric, scale)
            _validate_ranges(found, metric, scale)


def _validate_value(found: SuiteValidation, index: int, metric: Metric, checks: Sequence[Check]) -> None:
    shapes = [result_shape(check) for check in checks]
    if metric.aggregated.kind == "error_rate":
        return
    if len(shapes) != 1 or shapes[0] is None:
        return  # none that is known, or several, of which one may have it
    if metric.value is None:
        if not _has(shapes[0], ("passed",)) and not _has(shapes[0], ("response", "passed")):
            message = f"{metric.check} gives no passed, so there is nothing to count"
            advice = (
                f"name what it gives, as in value: $.{'.'.join(_numbers(shapes[0])[0])}"
                if _numbers(shapes[0])
                else None
            )
            found.error(("metrics", index), message, advice)
        return
    _validate_path(found, ("metrics", index, "value"), metric.value, shapes[0])


def _validate_path(
    found: SuiteValidation, location: tuple[str | int, ...], expression: str, shape: Mapping[str, Any]
) -> None:
    inside: Any = shape
    for number, key in enumerate(keys := leading_keys(expression)):
        if not isinstance(inside, Mapping):
            return
        if key not in inside:
            before = "".join(f"{step}." for step in keys[:number])
            advice = did_you_mean(str(key), list(inside)).replace("did you mean ", f"did you mean $.{before}")
            found.error(location, f"the results have nothing at {expression}", advice)
            return
        inside = inside[key]
    if inside == OTHER and isinstance(compile_path(expression), SingularPath):
        names = ", ".join(f"$.{'.'.join(path)}" for path in _numbers(shape))
        found.error(location, f"{expression} is no number", f"a metric counts {names}")


def _has(shape: Any, keys: tuple[str, ...]) -> bool:
    """Whether there may be something at these keys."""
    for key in keys:
        if not isinstance(shape, Mapping):
            return True
        if key not in shape:
            return False
        shape = shape[key]
    return True


def _numbers(shape: Mapping[str, Any], before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, part in shape.items():
        if isinstance(part, Mapping):
            found += _numbers(part, (*before, name))
        elif part == "number":
            found.append((*before, name))
    return found


def _validate_limits(found: SuiteValidation, metric: Metric, scale: Scale) -> None:
    gate: Gate | None = found.loaded.section("gate")
    for bound, limits in (("min", gate.min), ("max", gate.max)) if gate is not None else ():
        limit = limits.get(metric.id)
        if limit is not None and not scale.low <= limit <= scale.high:
            message = f"{metric.id} lies between {scale.low:g} and {scale.high:g}, never at {limit:g}"
            found.error(("gate", bound, metric.id), message, _cure(limit, scale))


def _cure(value: float, scale: Scale) -> str:
    is_percentage = (scale.low, scale.high) == (0, 1) and 1 < value <= 100
    return f"did you mean {value / 100:g}?" if is_percentage else "give a value in that range"


def _validate_ranges(found: SuiteValidation, metric: Metric, scale: Scale) -> None:
    """Thresholds of which no bound lies in the metric's range are on another scale."""
    ranges: list[Range] = (found.thresholds.thresholds if found.thresholds else {}).get(metric.id, [])
    bounds = [bound for item in ranges for bound in (item.min, item.max) if bound is not None]
    beyond = [bound for bound in bounds if not scale.low <= bound <= scale.high]
    inside = [bound for bound in bounds if scale.low < bound < scale.high]
    if beyond and not inside:
        message = f"the thresholds of {metric.id} are at {min(beyond):g} to {max(beyond):g}, but it lies between"
        advice = (
            "they are percentages, it is a fraction" if max(beyond) <= 100 and scale.high == 1 else "see metrics.range"
        )
        inline = isinstance(found.loaded.section("thresholds"), dict)
        location = ("thresholds", metric.id) if inline else ("thresholds",)
        found.error(location, f"{message} {scale.low:g} and {scale.high:g}", advice)
