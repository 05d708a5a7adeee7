"""A completed run as results of a job of Eval Hub (eval-hub.github.io): the `JobResults` that its SDK reports."""

from __future__ import annotations

import json
from typing import Any, TextIO

from fepflow.errors import UserError
from fepflow.reports.evalguard import target_of
from fepflow.security.redaction import known_secrets, redact_json
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

_CONFIDENCE = 0.95
"""Confidence of the intervals in Eval Hub; one at another confidence stands in the metric's metadata."""


def write_evalhub(store: Store, run: RunRecord, file: TextIO) -> None:
    """Write the results as one JSON document. Raises UserError for a run that is not completed.

    Eval Hub takes these results for those of a job that has completed, so a run that was cut off has none.
    """
    if run.status != "completed" or run.verdict is None:
        advice = f"resume it first: fepflow run --resume {run.id[:8]}"
        raise UserError(
            f"Run {run.id[:8]} is {run.status}, and Eval Hub takes results of completed jobs only; {advice}"
        )
    file.write(json.dumps(redact_json(job_results(run), known_secrets()), indent=2, allow_nan=False) + "\n")


def job_results(run: RunRecord) -> dict[str, Any]:
    """Return the document: a result for each metric that has a value. What has none is named in the metadata."""
    metrics = run.metrics or []
    ended = run.completed_at or run.created_at
    seconds = (ended - (run.started_at or run.created_at)).total_seconds()
    verdict = run.verdict or {}
    about = {
        "framework": "fepflow",
        "run_id": run.id,
        "suite": run.name,
        "outcome": run.outcome,
        "gate": verdict.get("gate"),
        "reasons": verdict.get("reasons") or [],
        "cases": run.n_cases,
        "repeats": run.repeats,
        "without_value": {
            metric["id"]: metric.get("reason") or f"{metric['n_error']} of {metric['n_expected']} results are errors"
            for metric in metrics
            if metric.get("value") is None
        },
        "tags": run.tags,
    }
    kind, name = target_of(run.suite.get("target"))
    return {
        "id": run.id,
        "benchmark_id": run.suite.get("task") or run.name,
        "benchmark_index": 0,
        "model_name": run.version or name or kind or run.name,
        "results": [_result(metric) for metric in metrics if metric.get("value") is not None],
        "num_examples_evaluated": max((metric["n_completed"] for metric in metrics), default=0),
        "duration_seconds": max(0.0, seconds),
        "completed_at": ended.isoformat(),
        "evaluation_metadata": {key: value for key, value in about.items() if value is not None},
    }


def _result(metric: dict[str, Any]) -> dict[str, Any]:
    low, high = metric.get("low"), metric.get("high")
    counts = {name: metric[name] for name in ("n_expected", "n_completed", "n_error", "n_skipped")}
    known = {name: metric[name] for name in ("stderr", "method", "confidence") if metric.get(name) is not None}
    result = {
        "metric_name": metric["id"],
        "metric_value": metric["value"],
        "metric_type": "float",
        "num_samples": metric["n_completed"],
        "metadata": {**counts, **known},
    }
    if low is not None and high is not None:
        if metric.get("confidence") == _CONFIDENCE:
            result["confidence_interval"] = [low, high]
        else:
            result["metadata"]["interval"] = [low, high]
    return result
