"""Values of metrics as reports have them: what can be used, and what is wrong with the rest.

A report of EvalGuard has a number for each metric. A metric whose value is none stays known by an entry in its task's
`metadata`, `no_value.METRIC: reason`, so that nothing is judged as if it had not been there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fepflow.text import brief

NO_VALUE = "no_value."
"""Prefix of the entries of `metadata` that say why a metric has no value."""

MISSING = "missing."
"""Prefix of the entries of `metadata` that say how many results of a metric are missing, as in `3 of 120`."""

EVALUATOR = "fepflow"
"""The `evaluator` in the `metadata` of a report that was made of a run of ours."""

NOT_AVAILABLE = "N/A"
"""What lm-evaluation-harness writes where there is no standard error."""


def why_no_number(value: Any) -> str | None:
    """Why a value is no finite number, in words; None if it is one."""
    if value is None:
        return "there is none"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return f"{brief(repr(value), 40)} is no number"
    if isinstance(value, str):
        return f"{brief(repr(value), 40)} is a text, and no number"
    try:
        return None if math.isfinite(value) else f"{value} is no finite number"
    except OverflowError:
        return "it is too large for a number"


def usable_results(raw: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Metrics with `value` and `stderr` as they came: those with a value, why the others have none, and warnings."""
    results: dict[str, Any] = {}
    no_value: dict[str, str] = {}
    warnings = []
    for metric, fields in raw.items():
        if problem := why_no_number(fields.get("value")):
            no_value[f"{NO_VALUE}{metric}"] = problem
            warnings.append(f"{metric} has no value: {problem}")
            continue
        results[metric] = {name: value for name, value in fields.items() if name != "stderr"}
        stderr = fields.get("stderr")
        if stderr is None or stderr == NOT_AVAILABLE:
            continue
        problem = why_no_number(stderr) or ("it is negative" if stderr < 0 else None)
        if problem:
            warnings.append(f"the standard error of {metric} is not used: {problem}")
        else:
            results[metric]["stderr"] = stderr
    return results, no_value, warnings
