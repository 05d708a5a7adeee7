"""Events for automations: `fepflow.verdict.<outcome>`, `fepflow.verdict.worsened`, and `fepflow.drift`.

The events' payload is a contract, documented in docs/prefect.md.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from prefect.events import emit_event

from fepflow.analysis.drift import Series
from fepflow.page_links import run_page
from fepflow.store.records import RunRecord
from fepflow.text import one_line, slug
from fepflow.verdict.verdict import Comparison, MetricVerdict, Outcome, Verdict

Change = Literal["failed", "still failing", "recovered", "none"]

WORSENED = "fepflow.verdict.worsened"
DRIFT = "fepflow.drift"
CHANGE = "fepflow.change"
"""The label of the resource of a verdict's event that says what the outcome changes."""
RESOURCE = "fepflow.suite"

MAX_METRICS = 100
MAX_REASONS = 10
MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Happening:
    """A verdict's place in the history of its suite: where it was given, and whether it is news.

    `before` is the suite's last pass or fail, or None. `deployment` is a name like `evaluate/nightly`, or None for a
    run that was started manually.
    """

    before: Outcome | None = None
    deployment: str | None = None
    machine: str = field(default_factory=socket.gethostname)

    def change(self, outcome: Outcome) -> Change:
        """Return how the outcome changes; nothing if it is inconclusive, because that may be chance."""
        if outcome == "fail":
            return "still failing" if self.before == "fail" else "failed"
        return "recovered" if outcome == "pass" and self.before == "fail" else "none"


def emit_verdict(run: RunRecord, verdict: Verdict, compared: Comparison | None, happening: Happening) -> None:
    """Emit the verdict's event, and another if it is worse than the baseline's.

    Prefect adds the flow run, its task run, flow, deployment and tags as related resources. It sends in a thread of
    its own, which the process waits for at its end.
    """
    resource = {**_resource_of(run), CHANGE: happening.change(verdict.outcome)}
    payload = payload_of(run, verdict, compared, happening)
    if run.rescored_from is not None:  # nothing has happened to the agent
        emit_event(f"fepflow.rescored.{verdict.outcome}", _resource_of(run), payload=payload)
        return
    emit_event(f"fepflow.verdict.{verdict.outcome}", resource, payload=payload)
    if compared is not None and compared.worsened:
        emit_event(WORSENED, resource, payload=payload)


def emit_drift(run: RunRecord, verdict: Verdict, drifted: Sequence[Series]) -> None:
    """Emit one event of the metrics that have drifted in a run."""
    emit_event(DRIFT, _resource_of(run), payload=drift_payload(run, verdict, drifted))


def _resource_of(run: RunRecord) -> dict[str, str]:
    """Return the suite that an event is about; an alert for it covers all its variants."""
    suite = run.name if run.variant is None else str(run.suite["name"])
    return {"prefect.resource.id": resource_id(suite), "prefect.resource.name": suite}


def drift_payload(run: RunRecord, verdict: Verdict, drifted: Sequence[Series]) -> dict[str, Any]:
    """Return the payload of the event of drift."""
    return {
        **_about(run, verdict),
        "metrics": [
            {"id": series.metric, "value": series.points[-1].value, "rate": series.rate, "agreed_by": series.agreed_by}
            for series in drifted[:MAX_METRICS]
        ],
        "reasons": [one_line(series.sentence, MAX_REASON) for series in drifted[:MAX_REASONS]],
    }


def payload_of(
    run: RunRecord, verdict: Verdict, compared: Comparison | None, happening: Happening | None = None
) -> dict[str, Any]:
    """Return the payload of the verdict's events, a few kilobytes; Prefect refuses events of more than 1.5 MB."""
    happening = happening or Happening()
    return {
        **_about(run, verdict),
        "change": happening.change(verdict.outcome),
        "deployment": happening.deployment,
        "machine": happening.machine,
        "baseline": compared and {"run_id": compared.run_id, "outcome": compared.outcome},
        "worsened": bool(compared and compared.worsened),
        "metrics": [_metric(metric) for metric in verdict.metrics[:MAX_METRICS]],
        "reasons": [one_line(reason, MAX_REASON) for reason in verdict.reasons[:MAX_REASONS]],
    }


def _about(run: RunRecord, verdict: Verdict) -> dict[str, Any]:
    page = run_page(run.id)
    about = {"run_id": run.id, "suite": run.name, "outcome": verdict.outcome}
    if run.rescored_from is not None:
        about["rescored_from"] = run.rescored_from
    return {**about, "page": page} if page else about


def _metric(metric: MetricVerdict) -> dict[str, Any]:
    return {
        "id": metric.id,
        "value": metric.value,
        "low": metric.low,
        "high": metric.high,
        "n": metric.n_completed,
        "impact": metric.impact,
    }


def resource_id(suite: str) -> str:
    """Return the Prefect resource of a suite of this name."""
    return f"{RESOURCE}.{slug(suite)}"
