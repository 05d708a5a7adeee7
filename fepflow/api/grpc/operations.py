"""AsyncEvaluationService: evaluations that go on when their caller has left (FEP 5.2)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from fepflow.api.evaluations.check_process import Source
from fepflow.api.evaluations.operations import STATUSES, Operations, OperationStatus, status_of
from fepflow.api.evaluations.request_run import MAX_KEY
from fepflow.api.grpc.calls import current_call
from fepflow.api.grpc.errors import ResultTooLargeError
from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from fepflow.api.grpc.messages import result_message
from fepflow.api.grpc.requests import read_message
from fepflow.api.grpc.values import sendable, write_struct
from fepflow.errors import InputError, Problem
from fepflow.store.records import RunSummary
from fepflow.text import brief

PAGE, MAX_PAGE = 50, 500


class OperationServicer(fep_pb2_grpc.AsyncEvaluationServiceServicer):
    """The service."""

    def __init__(self, operations: Operations, max_message: int) -> None:
        self._operations = operations
        self._max_message = max_message

    async def StartEvaluation(self, request: bytes, context: Any) -> fep_pb2.EvaluationOperation:
        """Start an evaluation."""
        key = _idempotency_key(context)
        started = await self._operations.start(Source(read_message, request), current_call().caller, key)
        current_call().resource = started.id
        return _message(started)

    async def GetOperation(self, request: fep_pb2.GetOperationRequest, context: Any) -> fep_pb2.EvaluationOperation:
        """An operation, with its result once that is there."""
        current_call().resource = request.operation_id
        operation = await self._operations.get(request.operation_id)
        message = _message(operation)
        if message.status in ("pending", "running"):
            message.progress.evaluation_id = operation.id
            message.progress.status = "running"
            message.progress.completed_test_cases = await self._operations.cases_done(operation)
            message.progress.total_test_cases = operation.n_cases
        result = await self._operations.result(operation)
        if result is not None:
            await asyncio.to_thread(self._add_result, message, result)
        return message

    def _add_result(self, message: fep_pb2.EvaluationOperation, result: Any) -> None:
        message.result.CopyFrom(result_message(result))
        if (size := message.ByteSize()) > self._max_message:
            message.ClearField("result")
            error = ResultTooLargeError(size, self._max_message, message.operation_id)
            write_struct({"result_omitted": str(error)}, message.metadata)

    async def ListOperations(
        self, request: fep_pb2.ListOperationsRequest, context: Any
    ) -> fep_pb2.ListOperationsResponse:
        """One page of operations."""
        size, status, after = _size(request), _status(request), _after(request)
        found = await self._operations.page(size + 1, status, after)
        response = fep_pb2.ListOperationsResponse(operations=[_message(operation) for operation in found[:size]])
        if len(found) > size:
            response.next_page_token = _token(found[size - 1], request.filter)
        return response

    async def CancelOperation(
        self, request: fep_pb2.CancelOperationRequest, context: Any
    ) -> fep_pb2.CancelOperationResponse:
        """Have an operation stop."""
        current_call().resource = request.operation_id
        return fep_pb2.CancelOperationResponse(cancelled=await self._operations.cancel(request.operation_id))


def _message(operation: RunSummary) -> fep_pb2.EvaluationOperation:
    status = status_of(operation)
    message = fep_pb2.EvaluationOperation(operation_id=operation.id, status=status)
    for name in ("created_at", "started_at", "completed_at"):
        if (moment := getattr(operation, name)) is not None:
            getattr(message, name).FromDatetime(moment)
    if status == "failed":
        code = "interrupted" if operation.status == "interrupted" else "unknown_error"
        message.error.code = code
        message.error.message = sendable(brief(operation.error or f"The evaluation was {operation.status}.", 2_000))
    if operation.flow_run_id:
        write_struct({"flow_run_id": operation.flow_run_id}, message.metadata)
    return message


def _idempotency_key(context: Any) -> str | None:
    keys = [value for name, value in context.invocation_metadata() or () if name == "idempotency-key"]
    if not keys:
        return None
    if len(keys) > 1 or not 1 <= len(keys[0]) <= MAX_KEY:
        raise InputError(Problem(f"give one, of 1 to {MAX_KEY} characters", path="metadata idempotency-key"))
    return str(keys[0])


def _size(request: fep_pb2.ListOperationsRequest) -> int:
    if request.page_size < 0:
        raise InputError(Problem(f"{request.page_size} cannot be", path="page_size", advice=f"give 1 to {MAX_PAGE}"))
    return min(request.page_size or PAGE, MAX_PAGE)


def _status(request: fep_pb2.ListOperationsRequest) -> OperationStatus | None:
    if not request.filter:
        return None
    name, _, status = request.filter.partition("=")
    if name.strip() != "status" or status.strip() not in STATUSES:
        advice = f"write status= and one of {', '.join(STATUSES)}"
        raise InputError(Problem(f"{brief(request.filter, 100)!r} is no filter", path="filter", advice=advice))
    return cast(OperationStatus, status.strip())


def _token(last: RunSummary, shown: str) -> str:
    text = json.dumps([last.created_at.isoformat(), last.id, shown])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _after(request: fep_pb2.ListOperationsRequest) -> tuple[datetime, str] | None:
    """The last operation of the page before."""
    if not request.page_token:
        return None
    wrong = "is not one that this service has given for this filter"
    try:
        moment, run_id, shown = json.loads(base64.b64decode(request.page_token, b"-_", validate=True))
        created_at = datetime.fromisoformat(moment).astimezone(UTC)
        last = UUID(run_id).hex
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, binascii.Error):
        raise InputError(Problem(wrong, path="page_token")) from None
    if shown != request.filter:
        raise InputError(Problem(wrong, path="page_token"))
    return created_at, last
