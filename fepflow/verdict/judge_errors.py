"""What is made of the errors of judges: which share a gate judges, and what is warned of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fepflow.evalguard.formatting import describe
from fepflow.statistics.estimate import Estimate
from fepflow.suite.models import Gate
from fepflow.verdict.estimates import MetricEstimate
from fepflow.verdict.requirements import Requirement
from fepflow.verdict.verdict import RuleOutcome

NOT_CALIBRATED = "its judge is not calibrated, so its errors are not known (fepflow calibrate)"


def as_judged(metric: MetricEstimate, gate: Gate) -> MetricEstimate:
    """The metric as the gate judges it: that of a judge corrected, if the gate says so."""
    if gate.judge == "raw" or not metric.by_judge:
        return metric
    if metric.corrected is not None:
        return replace(metric, estimate=metric.corrected)
    counts, confidence = metric.estimate.counts, metric.estimate.confidence
    unknown = Estimate(None, None, None, None, confidence, "none", counts, problem=NOT_CALIBRATED)
    return replace(metric, estimate=unknown)


def warnings_of_judge(
    metric: MetricEstimate, gate: Gate, requirements: Sequence[Requirement], rules: Sequence[RuleOutcome]
) -> Iterator[str]:
    """That a metric which the gate judges by its raw value rests on a judge whose errors are not known, or that it
    would not pass if they were corrected."""
    if gate.judge == "corrected" or not metric.by_judge or not requirements:
        return
    if metric.corrected is None:
        yield f"{metric.id}: {NOT_CALIBRATED}."
        return
    bounds = (-math.inf, math.inf) if metric.corrected.value is None else metric.corrected.interval
    if all(rule.outcome == "pass" for rule in rules) and any(each.judge(*bounds) != "pass" for each in requirements):
        found = metric.corrected.problem or describe(metric.corrected, requirements[0].limit)
        yield (
            f"{metric.id}: passes by what its judge says, but not when corrected for the judge's errors: {found} "
            "(gate: {judge: corrected} judges by that)."
        )
