"""Runs that are requested over the network and continue without their caller; FEP 5.2 calls them operations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from fepflow.access.caller import Caller
from fepflow.analysis.comparison import suite_hash
from fepflow.api.evaluations.fep import asked, canonical, name_of
from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.documents.loader import Document
from fepflow.errors import InputError, NotFoundError, UserError
from fepflow.protocol.check import to_check
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import Output, TestCase
from fepflow.settings import settings
from fepflow.store.records import OPERATION, NewOutput, RunRecord, RunRequest, RunStatus
from fepflow.store.store import Store
from fepflow.suite.reader import read_suite
from fepflow.text import brief, printable


def request_run(
    store: Store,
    document: dict[str, Any],
    cases: Sequence[TestCase],
    *,
    kind: str,
    caller: Caller,
    idempotency_key: str | None,
    request: dict[str, Any],
    details: dict[str, Any] | None = None,
    outputs: Sequence[Output] | None = None,
) -> RunRecord:
    """Create a pending run of test cases with different ids, and return it; all of it is stored, or nothing.

    `document` is a suite without test cases, whose target is an HTTP address, or nothing where there are `outputs`,
    one for each case: these are stored with the run, which only checks them. `request` is what the caller has asked:
    the same again under the same `idempotency_key` gives the run that there is, another is a ConflictError. `details`
    are stored beside it. `kind` is the interface. Raises InputError for an invalid suite.
    """
    document = {**document, "test_cases": []}
    if outputs is not None:
        document["target"] = {"given": {}}
    loaded = read_suite(Document(document, "the request", ""), Path.cwd(), {})
    if errors := [problem for problem in loaded.problems if problem.severity == "error"]:
        raise InputError(errors)
    run = RunRecord(
        id=uuid4().hex,
        name=document["name"],
        suite=document,
        repeats=1,
        tags=list(document.get("tags", [])),
        suite_hash=suite_hash(document, 1, Path()),
        cause="network",
        takeovers_left=settings().takeovers,
    )
    key = None if idempotency_key is None else unique_key(kind, caller, idempotency_key)
    asked = RunRequest(
        run_id=run.id,
        kind=kind,
        caller=caller.name,
        idempotency_key=key,
        request_hash=content_hash(request),
        request={**request, **(details or {})},
        created_at=utc_now(),
    )
    return store.requests.create(run, cases, asked, _rows(cases, outputs or ()))


def unique_key(kind: str, caller: Caller, idempotency_key: str) -> str:
    """Return an idempotency key, which is a caller's own, among those of all callers and interfaces."""
    return content_hash(kind, caller.name, idempotency_key)


def _rows(cases: Sequence[TestCase], outputs: Sequence[Output]) -> list[NewOutput]:
    return [
        NewOutput(index, 0, content_hash("given", case.id, output.model_dump()), output)
        for index, (case, output) in enumerate(zip(cases, outputs, strict=bool(outputs)))
    ]


OperationStatus = Literal["pending", "running", "completed", "failed", "cancelled"]

STATUSES: dict[OperationStatus, Sequence[RunStatus]] = {
    "pending": ("pending",),
    "running": ("running",),
    "completed": ("completed",),
    "failed": ("failed", "interrupted"),
    "cancelled": ("cancelled",),
}
"""Statuses of runs, by that of their operation. An interrupted run has failed to those who wait for its result."""


MAX_NAME = 150
"""Characters of a run's name; an experiment's may be longer."""


def start_operation(store: Store, request: EvaluationRequest, caller: Caller, idempotency_key: str | None) -> RunRecord:
    """Request a run of these outputs, which a flow run executes. The same key returns the earlier request's run.

    Blocks. Raises ConflictError for a key of another request.
    """
    document = {
        # As it is shown in Prefect; a reference to a variable would be one to a suite's reader.
        "name": brief(printable(name_of(request)).replace("${", "$ {"), MAX_NAME),
        "checks": [to_check(check).model_dump() for check in request.checks],
        "tags": [OPERATION],
    }
    run = request_run(
        store,
        document,
        request.cases_with_checks(),
        kind=OPERATION,
        caller=caller,
        idempotency_key=idempotency_key,
        request={"content": content_hash(request.model_dump())},
        details=asked(request, caller),
        outputs=request.outputs,
    )
    return store.requests.operation(run.id)


def find_operation(store: Store, operation_id: str) -> RunRecord:
    """Return an operation. Blocks. Raises NotFoundError."""
    try:
        return store.requests.operation(canonical(operation_id))
    except NotFoundError:
        raise NotFoundError(f"There is no operation {operation_id[:100]!r}.") from None


def cancel_operation(store: Store, operation_id: str) -> bool:
    """Ask an operation to stop, which takes seconds. Returns False if it is over. Blocks. Raises NotFoundError."""
    operation = find_operation(store, operation_id)
    try:
        store.runs.request_cancel(operation.id)
    except NotFoundError:
        raise
    except UserError:  # it is over
        return False
    return True


def status_of(operation: RunRecord) -> OperationStatus:
    """Return FEP's status of an operation's run."""
    return next(status for status, statuses in STATUSES.items() if operation.status in statuses)
