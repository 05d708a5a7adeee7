"""A stored run as a report of EvalGuard's (4.4), and as results of a job of Eval Hub (eval-hub.github.io).

Both have the run's metrics with their standard errors, as one task, and no single results.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TextIO

from fepflow.documents.loader import dump_yaml
from fepflow.errors import UserError
from fepflow.evalguard.models import EVALUATOR, MISSING, NO_VALUE, RANGE
from fepflow.security.redaction import known_secrets, redact, redact_json, secrets_in_address
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.target import KINDS

_NAMES = ("model", "card", "app", "url", "function", "command", "path")


def report_of_run(run: RunRecord) -> dict[str, Any]:
    """Return the report as a document. All that is not a number is under `metadata`, as texts."""
    results, notes = _results(run.metrics or ())
    for metric in run.suite.get("metrics") or ():
        if metric["id"] in results and metric.get("range") and metric.get("aggregate", "mean") == "mean":
            notes[f"{RANGE}{metric['id']}"] = "{:g} to {:g}".format(*metric["range"])
    task: dict[str, Any] = {"task_ref": run.suite.get("task") or run.name}
    test_cases = run.suite.get("test_cases")
    path = test_cases.get("path") if isinstance(test_cases, Mapping) else test_cases
    if isinstance(path, str):
        task["dataset_path"] = path
    options = run.options or {}
    original = options.get("suite_cases") or options.get("sample", {}).get("of") or run.n_cases
    task["repeats"] = run.repeats
    task["n_samples"] = {"original": original, "effective": run.n_cases}
    if notes:
        task["metadata"] = notes
    return {
        "id": run.id,
        "metadata": _metadata(run),
        "context": _context(run),
        "tasks": [task],
        "results": [results],
    }


def write_evalguard_json(store: Store, run: RunRecord, file: TextIO) -> None:
    """Write the report as JSON."""
    file.write(json.dumps(report_of_run(run), indent=2, allow_nan=False) + "\n")


def write_evalguard_yaml(store: Store, run: RunRecord, file: TextIO) -> None:
    """Write the report as YAML."""
    file.write(dump_yaml(report_of_run(run)))


def _results(metrics: Any) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    results: dict[str, dict[str, float]] = {}
    notes = {}
    for metric in metrics:
        name, value, stderr = metric["id"], metric.get("value"), metric.get("stderr")
        missing = metric["n_expected"] - metric["n_completed"]
        if missing:
            notes[f"{MISSING}{name}"] = f"{missing} of {metric['n_expected']}"
        if value is None:
            notes[f"{NO_VALUE}{name}"] = metric.get("reason") or "no result has a value"
        else:
            results[name] = {"value": value} if stderr is None else {"value": value, "stderr": stderr}
    return results, notes


def _metadata(run: RunRecord) -> dict[str, str]:
    verdict = run.verdict or {}
    known = {
        "evaluator": EVALUATOR,
        "suite": run.name,
        "status": run.status,
        "outcome": run.outcome,
        "gate": verdict.get("gate"),
        "thresholds_digest": verdict.get("thresholds_digest"),
        "suite_hash": run.suite_hash,
        "cases_hash": run.cases_hash,
        "sample": run.part,
        "tags": ", ".join(run.tags) or None,
    }
    return {name: text for name, text in known.items() if text is not None}


def _context(run: RunRecord) -> dict[str, Any]:
    kind, name = target_of(run.suite.get("target"))
    known = {"model_name": name, "model_source": kind}
    moment = run.completed_at or run.started_at or run.created_at
    try:
        tools = {"fepflow": {"version": version("fepflow")}}
    except PackageNotFoundError:  # a copy that is not installed
        tools = {"fepflow": {}}
    return {**{name: text for name, text in known.items() if text}, "date": moment.timestamp(), "tools": tools}


def target_of(target: Any) -> tuple[str | None, str | None]:
    """Return the kind of target and its name, without credentials and arguments."""
    parts = target if isinstance(target, Mapping) else {}
    for kind in KINDS:
        what = parts.get(kind)
        if isinstance(what, Mapping):
            what = next((what[name] for name in _NAMES if what.get(name)), None)
        if isinstance(what, list):
            what = what[0] if what else None
        elif kind in ("ecp", "mcp") and isinstance(what, str) and "://" not in what:
            what = next(iter(shlex.split(what)), None)
        if isinstance(what, str):
            return kind, redact(what, secrets_in_address(what)) if "://" in what else what
    return None, None


_EVALHUB_CONFIDENCE = 0.95
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
    """Return Eval Hub's JobResults: one for each metric that has a value. What has none is named in the metadata."""
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
        "results": [_evalhub_result(metric) for metric in metrics if metric.get("value") is not None],
        "num_examples_evaluated": max((metric["n_completed"] for metric in metrics), default=0),
        "duration_seconds": max(0.0, seconds),
        "completed_at": ended.isoformat(),
        "evaluation_metadata": {key: value for key, value in about.items() if value is not None},
    }


def _evalhub_result(metric: dict[str, Any]) -> dict[str, Any]:
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
        if metric.get("confidence") == _EVALHUB_CONFIDENCE:
            result["confidence_interval"] = [low, high]
        else:
            result["metadata"]["interval"] = [low, high]
    return result
