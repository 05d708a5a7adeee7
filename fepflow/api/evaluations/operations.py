"""Evaluations that go on when their caller has left: started as runs, found by their ids, cancelled (FEP 5.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from fepflow.access.caller import Caller
from fepflow.api.evaluations.check_process import Source
from fepflow.api.evaluations.fep import FepService, Pending, asked, canonical, name_of
from fepflow.api.evaluations.request_run import request_run
from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.errors import NotFoundError, UserError
from fepflow.protocol.check import to_check
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.results import EvaluationRunResult
from fepflow.store.records import OPERATION, RunRecord, RunStatus, RunSummary
from fepflow.store.store import Store
from fepflow.text import brief, printable

OperationStatus = Literal["pending", "running", "completed", "failed", "cancelled"]

STATUSES: dict[OperationStatus, Sequence[RunStatus]] = {
    "pending": ("pending",),
    "running": ("running",),
    "completed": ("completed",),
    "failed": ("failed", "interrupted"),
    "cancelled": ("cancelled",),
}
"""What runs are called that are so. One that was interrupted has failed to those who wait for its result."""


MAX_NAME = 150
"""Characters of a run's name; an experiment's may be longer."""


class Operations:
    """All that there is of operations is in the store, so they outlive the process."""

    def __init__(self, store: Store, service: FepService) -> None:
        self._store = store
        self._service = service

    async def start(self, source: Source[EvaluationRequest], caller: Caller, idempotency_key: str | None) -> RunSummary:
        """Request a run of these outputs, which a flow run executes; that of an earlier request with the same key.

        Raises ConflictError for a key that belongs to another request, InputError for one that no run can have.
        """
        request = await self._service.read(source)
        run = await asyncio.to_thread(self._request, request, caller, idempotency_key)
        return await asyncio.to_thread(self._store.requests.operation, run.id)

    def _request(self, request: EvaluationRequest, caller: Caller, idempotency_key: str | None) -> RunRecord:
        document = {
            # As it is shown in Prefect; a reference to a variable would be one to a suite's reader.
            "name": brief(printable(name_of(request)).replace("${", "$ {"), MAX_NAME),
            "checks": [to_check(check).model_dump() for check in request.checks],
            "tags": [OPERATION],
        }
        return request_run(
            self._store,
            document,
            request.cases_with_checks(),
            kind=OPERATION,
            caller=caller,
            idempotency_key=idempotency_key,
            request={"content": content_hash(request.model_dump())},
            details=asked(request, caller),
            outputs=request.outputs,
        )

    async def get(self, operation_id: str) -> RunSummary:
        """An operation. Raises NotFoundError."""
        try:
            return await asyncio.to_thread(self._store.requests.operation, canonical(operation_id))
        except NotFoundError:
            raise NotFoundError(f"There is no operation {operation_id[:100]!r}.") from None

    async def result(self, operation: RunSummary) -> EvaluationRunResult | None:
        """The result of an operation that is completed."""
        if operation.status != "completed":
            return None
        found = await self._service.find(operation.id)
        return None if isinstance(found, Pending) else found

    async def cases_done(self, operation: RunSummary) -> int:
        """How many test cases have results."""
        return await asyncio.to_thread(self._store.results.cases_with_results, operation.id)

    async def page(
        self, size: int, status: OperationStatus | None, after: tuple[datetime, str] | None
    ) -> list[RunSummary]:
        """The newest first, of one status, or all; those after the one that was created then and has this id."""
        statuses = STATUSES[status] if status else ()
        return await asyncio.to_thread(self._store.requests.operations, size, statuses, after)

    async def cancel(self, operation_id: str) -> bool:
        """Have an operation stop, which takes seconds; False if it is over. Raises NotFoundError."""
        operation = await self.get(operation_id)
        try:
            await asyncio.to_thread(self._store.runs.request_cancel, operation.id)
        except NotFoundError:
            raise
        except UserError:  # it is over
            return False
        return True


def status_of(operation: RunSummary) -> OperationStatus:
    """What FEP calls the status of its run."""
    return next(status for status, statuses in STATUSES.items() if operation.status in statuses)
