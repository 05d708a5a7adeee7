"""A run as requests to Langfuse's API: one line of JSON for each, with ids that are the same at every export.

Each output is a trace, each check a score of it, and the run a session. What Langfuse has under an id it updates, so
exporting and sending a run again doubles nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, TextIO
from uuid import UUID, uuid5

from fepflow.checks.explanation import explain
from fepflow.json.values import finite
from fepflow.protocol.results import NOT_REACHED, CheckResult, score_of
from fepflow.reports.fep import dumps
from fepflow.security.redaction import known_secrets, redact_json
from fepflow.store.records import CaseResult, RunRecord
from fepflow.store.store import Store
from fepflow.text import cut

MAX_BATCH = 3_000_000
"""Characters of the events of one request; Langfuse takes 3.5 MB."""

_MAX_COMMENT = 2_000
_NAMESPACE = UUID("6f1c8b4e-9d0a-5a3f-8f57-3f6f0a1f2c11")
_OF_THE_CALL = ("error", "attempt_log", "last_attempt_ms")


def write_langfuse(store: Store, run: RunRecord, file: TextIO, dataset: str | None = None) -> None:
    """Write bodies of `POST /api/public/ingestion`, one a line: `{"batch": [...]}`.

    With a `dataset`, lines `{"path": …, "body": …}` create it with its items before, and link the traces to them after.
    """
    secrets = known_secrets()
    if dataset is not None:
        _write_items(store, run, file, dataset)
    batch: list[str] = []
    size = 0
    for event in _events(store, run):
        text = dumps(redact_json(event, secrets))
        if batch and size + len(text) > MAX_BATCH:
            file.write(f'{{"batch": [{", ".join(batch)}]}}\n')
            batch, size = [], 0
        batch.append(text)
        size += len(text) + 2
    if batch:
        file.write(f'{{"batch": [{", ".join(batch)}]}}\n')
    if dataset is not None:
        _write_links(store, run, file, dataset)


def _events(store: Store, run: RunRecord) -> Iterator[dict[str, Any]]:
    started = run.started_at or run.created_at
    for result in store.results.by_case(run.id):
        for kind, body in _of_result(run, result, started):
            yield _event(kind, body, started)
    if run.outcome is not None:
        reasons = (run.verdict or {}).get("reasons") or []
        body = {
            "id": _id(run, "verdict"),
            "sessionId": run.id,
            "name": "verdict",
            "value": run.outcome,
            "dataType": "CATEGORICAL",
            "comment": cut("; ".join(reasons), _MAX_COMMENT) or None,
        }
        yield _event("score-create", body, run.completed_at or started)


def _event(kind: str, body: dict[str, Any], moment: datetime) -> dict[str, Any]:
    # The event's id is what Langfuse leaves out a second time by; the body's id is the one of the trace or score.
    plain = {name: value for name, value in body.items() if value is not None}
    return {
        "id": str(uuid5(_NAMESPACE, f"{kind} {body['id']}")),
        "type": kind,
        "timestamp": _time(moment),
        "body": plain,
    }


def _of_result(run: RunRecord, result: CaseResult, started: datetime) -> Iterator[tuple[str, dict[str, Any]]]:
    case, output = result.case, result.output
    failure = output.failure if output else None
    metadata = (output.metadata if output else None) or {}
    errors = {check.check_id: explain(check) for check in result.checks if check.error}
    trace = _trace_id(run, result)
    about = {
        "run_id": run.id,
        "test_case_id": case.id,
        "repeat": result.repeat + 1,
        "expected": case.expected,
        "test_case": case.metadata or None,
        "output": {name: value for name, value in metadata.items() if name not in _OF_THE_CALL} or None,
        "error": failure["message"] if failure is not None else NOT_REACHED if output is None else None,
        "check_errors": errors or None,
    }
    yield (
        "trace-create",
        {
            "id": trace,
            "timestamp": _time(started),
            "name": run.name,
            "sessionId": run.id,
            "input": case.input,
            "output": None if output is None else output.value,
            "version": run.version,
            "tags": [*run.tags, "fepflow"],
            "metadata": {name: value for name, value in about.items() if value is not None},
        },
    )
    yield _call(run, result, metadata, about["error"], started)
    for check in result.checks:
        yield from _of_check(run, result, trace, check, started)


def _call(
    run: RunRecord, result: CaseResult, metadata: dict[str, Any], error: Any, started: datetime
) -> tuple[str, dict[str, Any]]:
    """Return the observation of the call: a generation if tokens or costs are known, else a span."""
    latency, tokens, usd = (_number(metadata.get(name)) for name in ("latency_ms", "tokens", "usd"))
    is_model = tokens is not None or usd is not None
    model = metadata.get("model")
    body = {
        "id": _id(run, "call", result.case_index, result.repeat),
        "traceId": _trace_id(run, result),
        "name": "call",
        "startTime": _time(started),
        "endTime": None if latency is None else _time(started + timedelta(milliseconds=min(latency, 1e10))),
        "level": None if error is None else "ERROR" if result.output is not None else "WARNING",
        "statusMessage": error,
        "model": model if is_model and isinstance(model, str) else None,
        "usageDetails": None if tokens is None else {"total": int(tokens)},
        "costDetails": None if usd is None else {"total": usd},
    }
    return ("generation-create" if is_model else "span-create"), body


def _of_check(
    run: RunRecord, result: CaseResult, trace: str, check: CheckResult, started: datetime
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the scores of a check. One that ended in an error is an event with the level ERROR, and no score."""
    place = (check.check_id, result.case_index, result.repeat)
    if check.error:
        body = {"id": _id(run, "check", *place), "traceId": trace, "name": check.check_id, "startTime": _time(started)}
        message = cut(explain(check) or "", _MAX_COMMENT)
        yield "event-create", {**body, "level": "ERROR", "statusMessage": message}
        return
    passed, score = check.passed, score_of(check)
    comment = None if passed else cut(explain(check) or "", _MAX_COMMENT) or None
    if passed is not None:
        body = {"id": _id(run, "check", *place), "traceId": trace, "name": check.check_id}
        yield "score-create", {**body, "value": int(passed), "dataType": "BOOLEAN", "comment": comment}
    if score is not None:
        name = check.check_id if passed is None else f"{check.check_id}.score"
        body = {"id": _id(run, "score", *place), "traceId": trace, "name": name}
        yield "score-create", {**body, "value": score, "dataType": "NUMERIC"}


def _write_items(store: Store, run: RunRecord, file: TextIO, dataset: str) -> None:
    secrets = known_secrets()
    file.write(dumps({"path": "/api/public/v2/datasets", "body": {"name": dataset}}) + "\n")
    for result in store.results.by_case(run.id):
        if result.repeat == 0:
            case = result.case
            body = {"id": _item_id(dataset, case.id), "datasetName": dataset, "input": case.input}
            more = {"expectedOutput": case.expected, "metadata": {**(case.metadata or {}), "test_case_id": case.id}}
            file.write(
                dumps(redact_json({"path": "/api/public/dataset-items", "body": {**body, **more}}, secrets)) + "\n"
            )


def _write_links(store: Store, run: RunRecord, file: TextIO, dataset: str) -> None:
    for result in store.results.by_case(run.id):
        if result.output is not None:
            body = {
                "runName": f"{run.name} {run.id[:8]}",
                "datasetItemId": _item_id(dataset, result.case.id),
                "traceId": _trace_id(run, result),
                "metadata": {"run_id": run.id, "outcome": run.outcome},
            }
            file.write(dumps({"path": "/api/public/dataset-run-items", "body": body}) + "\n")


def _item_id(dataset: str, case_id: str) -> str:
    """Return the id of a test case in a dataset: the same for all runs."""
    return str(uuid5(_NAMESPACE, dumps(["item", dataset, case_id])))


def _trace_id(run: RunRecord, result: CaseResult) -> str:
    return uuid5(_NAMESPACE, dumps(["trace", run.id, result.case_index, result.repeat])).hex


def _id(run: RunRecord, *parts: Any) -> str:
    return str(uuid5(_NAMESPACE, dumps([run.id, *parts])))


def _number(value: Any) -> float | None:
    known = None if isinstance(value, bool) else finite(value)
    return value if known is not None and known >= 0 else None


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
