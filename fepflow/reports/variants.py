"""The variants of a suite beside each other, as JSON data."""

from __future__ import annotations

from typing import Any

from fepflow.analysis.variants import VariantDifference, VariantTable
from fepflow.reports.fep import run_summary
from fepflow.statistics.estimate import FIGURES


def as_json(table: VariantTable) -> dict[str, Any]:
    """Return the table as JSON data: each run with its variant and metrics, each difference from the first one."""
    return {
        "variants": table.id,
        "suite": table.suite,
        "outcome": table.outcome,
        "summary": table.summary,
        "sentences": table.sentences,
        "runs": [{"variant": run.variant, **run_summary(run), "error": run.error} for run in table.runs],
        "confidence": table.confidence,
        "compared": table.compared,
        "differences": [_difference(difference) for difference in table.differences],
    }


def _difference(difference: VariantDifference) -> dict[str, Any]:
    metric, estimate = difference.metric, difference.estimate
    names = {"run_id": difference.run.id, "variant": difference.run.variant, "metric": metric.id}
    if estimate is None:
        return {**names, "shown": None, "why_not_compared": metric.why_not}
    return {
        **names,
        "shown": difference.way,
        "sentence": difference.sentence,
        "first": metric.base,
        "value": metric.new,
        "difference": estimate.value,
        **estimate.figures(*FIGURES),
        "p": metric.p,
        "p_adjusted": difference.p_adjusted,
    }
