"""Checks that the gate of a suite judges, as far as the suite says it."""

from __future__ import annotations

from fepflow.analysis.ranges import is_share_that_passed
from fepflow.evalguard.models import Thresholds
from fepflow.suite.models import Gate, Metric, Suite


def judged_checks(suite: Suite) -> frozenset[str] | None:
    """Return the ids of the checks that the gate judges, by themselves or by a metric of them; None for all."""
    gate = suite.gate or Gate()
    thresholds = Thresholds.model_validate(suite.thresholds) if isinstance(suite.thresholds, dict) else None
    slices = suite.slices.min if suite.slices else None
    margin = gate.regression.margin if gate.regression else None
    names = {*gate.min, *gate.max, *(thresholds.thresholds if thresholds else ())}
    of_shares = False  # a number holds for all shares that passed
    for limits in (slices, margin):
        if isinstance(limits, dict):
            names |= limits.keys()
        elif limits is not None:
            of_shares = True
    if gate.checks == "all" or not (names or of_shares or thresholds or gate.max_impact):
        return None
    if suite.metrics is None:  # each check has a metric of its name
        return None if of_shares else frozenset(names)
    return frozenset(
        metric.check
        for metric in suite.metrics
        if metric.check is not None and _is_judged(metric, names, of_shares=of_shares)
    )


def _is_judged(metric: Metric, names: set[str], *, of_shares: bool) -> bool:
    by_name = metric.id in names and metric.aggregated.kind != "error_rate"
    return by_name or (of_shares and is_share_that_passed(metric))
