"""Between which values a metric's numbers lie: as the suite declares it, or as it is known of the check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fepflow.protocol.check import Check
from fepflow.statistics.estimate import PROPORTION, Scale
from fepflow.suite.models import Metric

PASSED = ("$.passed", "$.response.passed")


def is_of_passes(metric: Metric) -> bool:
    """Whether a metric is the share of results that passed."""
    return metric.value is None or metric.value in PASSED


def is_share_that_passed(metric: Metric) -> bool:
    """Whether a metric is the plain share of results that passed."""
    return is_of_passes(metric) and metric.aggregated.kind in ("mean", "rate")


def range_of(metric: Metric, checks: Iterable[Check]) -> Scale | None:
    """The scale of the single values that a metric is made of; None if it is not known.

    `checks` are all of the metric's check id.
    """
    if is_of_passes(metric) or metric.aggregated.kind in ("rate", "majority", "pass_at_k", "pass_hat_k"):
        return PROPORTION
    if metric.range is not None:
        return Scale(metric.range[0], metric.range[1])
    known = [_known(check, metric.value or "") for check in checks]
    found = [scale for scale in known if scale is not None]
    if not found or len(found) < len(known):
        return None
    return Scale(min(scale.low for scale in found), max(scale.high for scale in found))


def scale_of_aggregate(metric: Metric, scale: Scale | None) -> Scale | None:
    """The scale of a metric whose single values have a `scale`."""
    return Scale(0.0, 1.0) if metric.aggregated.kind in ("pass_at_k", "pass_hat_k") else scale


def _known(check: Check, path: str) -> Scale | None:
    if check.type == "semantic_similarity" and path == "$.response.score":
        return Scale(0.0, 1.0)
    if check.type == "llm_judge":
        return _declared(check.arguments.get("response_format"), path.removeprefix("$.response.").split("."))
    return None


def _declared(schema: Any, members: list[str]) -> Scale | None:
    """What a judge's response format says of a member of its responses."""
    for member in members:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        schema = properties.get(member) if isinstance(properties, dict) else None
    if not isinstance(schema, dict):
        return None
    if schema.get("type") == "boolean":
        return Scale(0.0, 1.0)
    low, high = schema.get("minimum"), schema.get("maximum")
    numbers = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high))
    return Scale(float(low), float(high)) if numbers and low < high else None  # type: ignore[arg-type, operator]
