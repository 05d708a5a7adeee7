"""Static validation of a gate's regression: margins of metrics that there are, and enough cases to show them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fepflow.analysis.ranges import is_share_that_passed
from fepflow.analysis.sampling import sample_size
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.statistics.proportions import z_score
from fepflow.suite.models import Gate, Metric
from fepflow.text import known_names


def validate_regression(found: SuiteValidation, gate: Gate, metrics: Sequence[Metric]) -> None:
    """Find margins without a metric, and warn where the cases cannot show one even if nothing changes."""
    if gate.regression is None:
        return
    margin = gate.regression.margin
    location = ("gate", "regression", "margin")
    shares = {metric.id for metric in metrics if is_share_that_passed(metric)}
    if isinstance(margin, dict):
        names = [metric.id for metric in metrics]
        for name in margin:
            if name not in names:
                found.error((*location, name), f"there is no metric {name}", f"there is {known_names(names)}")
        margins = {name: each for name, each in margin.items() if name in shares}
    else:
        margins = dict.fromkeys(shares, margin)
    if not margin or (not isinstance(margin, dict) and not shares):
        found.error(location, "there is no metric that it is for", "give margins by metric, as in margin: {score: 0.3}")
    cases = sample_size(len(found.cases), found.limit)
    for small in sorted(set(margins.values()))[:1]:
        needed = _cases_needed(small, gate.confidence)
        if cases and gate.verdict == "interval" and (needed is None or cases < needed):
            message = f"{cases} test cases cannot show a regression of at most {small:g}, even if none changes"
            advice = "no number of them shows a margin of 0" if needed is None else f"it takes {needed}"
            found.warn(location, message, advice)


def _cases_needed(margin: float, confidence: float) -> int | None:
    """How many cases put the low end of Tango's interval within the margin if none changes: it is -z² / (n + z²)."""
    return None if margin == 0 else math.ceil(z_score(confidence) ** 2 * (1 - margin) / margin)
