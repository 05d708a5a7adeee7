"""The RPCs of FEP: evaluations whose caller waits, batches, and operations (FEP 5.2)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, cast
from uuid import UUID

from fepflow.api.evaluations.bodies import MAX_KEY
from fepflow.api.evaluations.check_process import Source
from fepflow.api.evaluations.fep import (
    STATUSES,
    EvaluationProgress,
    FepService,
    OperationStatus,
    Pending,
    cancel_operation,
    find_operation,
    start_operation,
    status_of,
)
from fepflow.api.grpc.calls import Call, PendingError, ResultTooLargeError, current_call, fep_error, known
from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from fepflow.api.grpc.messages import progress_message, read_message, result_message, sendable, write_struct
from fepflow.errors import InputError, Problem
from fepflow.protocol.model import utc_now
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import brief

MAX_EVALUATIONS = 100
MAX_CONCURRENT = 16
DEFAULT_CONCURRENT = 4
MAX_TIMEOUT_MS = 86_400_000

_FOR_ERRORS = 300_000
"""Bytes of a response that results leave to errors."""


class _FailedFastError(Exception):
    """An evaluation ended in an error, and the caller wants no further evaluation."""


async def carry_out_batch(
    service: FepService, request: fep_pb2.BatchEvaluationRequest, call: Call, max_message: int
) -> fep_pb2.BatchEvaluationResponse:
    """Carry out all evaluations. Those that are not done in time, or after a first failure, are errors, too.

    Raises InputError for invalid options.
    """
    if problems := list(_problems(request)):
        raise InputError(problems)
    options, started_at, count = request.options, utc_now(), len(request.evaluations)
    workers = options.max_concurrent if options.HasField("max_concurrent") else DEFAULT_CONCURRENT
    waiting = iter(enumerate(request.evaluations))
    room = max_message - _FOR_ERRORS
    results: dict[int, fep_pb2.EvaluationRunResult] = {}
    errors: dict[int, fep_pb2.FepError] = {}

    async def evaluate(index: int, evaluation: fep_pb2.EvaluationRequest) -> None:
        nonlocal room
        if index:
            call.count()
        result = await service.evaluate(Source(read_message, evaluation.SerializeToString()), call.caller)
        message = await asyncio.to_thread(result_message, result)
        size = message.ByteSize()
        if size > room:
            raise ResultTooLargeError(size, max_message, result.evaluation_id)
        room -= size
        results[index] = message

    async def work() -> None:
        for index, evaluation in waiting:
            try:
                await evaluate(index, evaluation)
            except Exception as error:
                errors[index] = fep_error(known(error, f"evaluation {index} of a batch"), evaluation=index)
                if options.fail_fast:
                    raise _FailedFastError from None

    code, reason = "", ""
    try:
        async with (
            asyncio.timeout(options.timeout_ms / 1_000 if options.HasField("timeout_ms") else None),
            asyncio.TaskGroup() as group,
        ):
            for _ in range(min(workers, count)):
                group.create_task(work())
    except* _FailedFastError:
        code, reason = "cancelled", "Another evaluation failed before this one was done (fail_fast)."
    except* TimeoutError:
        code, reason = "timeout_error", "The timeout_ms of the batch was over before this evaluation was done."
    for index in set(range(count)) - results.keys() - errors.keys():
        errors[index] = fep_pb2.FepError(code=code, message=reason)
        write_struct({"evaluation": index}, errors[index].details)
    summary = fep_pb2.BatchSummary(
        total_evaluations=count, successful_evaluations=len(results), failed_evaluations=len(errors)
    )
    summary.started_at.FromDatetime(started_at)
    summary.completed_at.FromDatetime(utc_now())
    return fep_pb2.BatchEvaluationResponse(
        results=[results[index] for index in sorted(results)],
        result_indexes=sorted(results),
        errors=[errors[index] for index in sorted(errors)],
        summary=summary,
    )


def _problems(request: fep_pb2.BatchEvaluationRequest) -> Iterator[Problem]:
    count, options = len(request.evaluations), request.options
    if not 1 <= count <= MAX_EVALUATIONS:
        yield Problem(f"there are {count}", path="evaluations", advice=f"give 1 to {MAX_EVALUATIONS}")
    for name, most in (("max_concurrent", MAX_CONCURRENT), ("timeout_ms", MAX_TIMEOUT_MS)):
        value = getattr(options, name)
        if options.HasField(name) and not 1 <= value <= most:
            yield Problem(f"{value} cannot be", path=f"options.{name}", advice=f"give 1 to {most}, or leave it out")


class EvaluationServicer(fep_pb2_grpc.EvaluationServiceServicer):
    """The evaluation service. Messages are read and written in threads, because they may be large."""

    def __init__(self, service: FepService, max_message: int) -> None:
        self._service = service
        self._max_message = max_message

    async def RunEvaluation(self, request: bytes, context: Any) -> fep_pb2.EvaluationRunResult:
        """Carry out an evaluation."""
        result = await self._service.evaluate(Source(read_message, request), current_call().caller)
        current_call().resource = result.evaluation_id
        return await asyncio.to_thread(result_message, result)

    async def GetEvaluation(self, request: fep_pb2.GetEvaluationRequest, context: Any) -> fep_pb2.EvaluationRunResult:
        """Return the result of an evaluation."""
        current_call().resource = request.evaluation_id
        result = await self._service.find(request.evaluation_id)
        if isinstance(result, Pending):
            raise PendingError(result)
        return await asyncio.to_thread(result_message, result)

    async def HealthCheck(self, request: fep_pb2.HealthCheckRequest, context: Any) -> fep_pb2.HealthCheckResponse:
        """Return that the service works. Raises InfrastructureError without its store."""
        await self._service.ping()
        return fep_pb2.HealthCheckResponse(status="healthy", version=version("fepflow"))

    async def StreamEvaluation(self, request: bytes, context: Any) -> AsyncIterator[fep_pb2.EvaluationProgress]:
        """Carry out an evaluation, with a message for each test case."""
        evaluation = await self._service.begin(Source(read_message, request), current_call().caller)
        stream = cast(AsyncGenerator[EvaluationProgress, None], self._service.stream(evaluation))
        async with aclosing(stream):  # a caller who leaves ends the evaluation
            async for progress in stream:
                current_call().resource = progress.evaluation_id
                message = await asyncio.to_thread(progress_message, progress)
                if message.HasField("final_result") and message.ByteSize() > self._max_message:
                    del message.final_result.results[:]
                    message.results_omitted = True
                yield message

    async def BatchEvaluation(
        self, request: fep_pb2.BatchEvaluationRequest, context: Any
    ) -> fep_pb2.BatchEvaluationResponse:
        """Carry out several evaluations."""
        return await carry_out_batch(self._service, request, current_call(), self._max_message)


PAGE, MAX_PAGE = 50, 500


class OperationServicer(fep_pb2_grpc.AsyncEvaluationServiceServicer):
    """The service of operations. They live in the store, so they outlive the process."""

    def __init__(self, store: Store, service: FepService, max_message: int) -> None:
        self._store = store
        self._service = service
        self._max_message = max_message

    async def StartEvaluation(self, request: bytes, context: Any) -> fep_pb2.EvaluationOperation:
        """Start an evaluation."""
        key, call = _idempotency_key(context), current_call()
        read = await self._service.pool.read(Source(read_message, request))
        started = await asyncio.to_thread(start_operation, self._store, read, call.caller, key)
        call.resource = started.id
        return _message(started)

    async def GetOperation(self, request: fep_pb2.GetOperationRequest, context: Any) -> fep_pb2.EvaluationOperation:
        """Return an operation, with its result if it is completed."""
        current_call().resource = request.operation_id
        operation = await asyncio.to_thread(find_operation, self._store, request.operation_id)
        message = _message(operation)
        if message.status in ("pending", "running"):
            message.progress.evaluation_id = operation.id
            message.progress.status = "running"
            done = await asyncio.to_thread(self._store.results.cases_with_results, operation.id)
            message.progress.completed_test_cases = done
            message.progress.total_test_cases = operation.n_cases
        if operation.status == "completed":
            result = await self._service.find(operation.id)
            if not isinstance(result, Pending):
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
        """Return a page of operations."""
        size, status, after = _size(request), _status(request), _after(request)
        statuses = STATUSES[status] if status else ()
        operations = await asyncio.to_thread(self._store.requests.operations, size + 1, statuses, after)
        response = fep_pb2.ListOperationsResponse(operations=[_message(operation) for operation in operations[:size]])
        if len(operations) > size:
            response.next_page_token = _token(operations[size - 1], request.filter)
        return response

    async def CancelOperation(
        self, request: fep_pb2.CancelOperationRequest, context: Any
    ) -> fep_pb2.CancelOperationResponse:
        """Ask an operation to stop."""
        current_call().resource = request.operation_id
        cancelled = await asyncio.to_thread(cancel_operation, self._store, request.operation_id)
        return fep_pb2.CancelOperationResponse(cancelled=cancelled)


def _message(operation: RunRecord) -> fep_pb2.EvaluationOperation:
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


def _token(last: RunRecord, shown: str) -> str:
    text = json.dumps([last.created_at.isoformat(), last.id, shown])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _after(request: fep_pb2.ListOperationsRequest) -> tuple[datetime, str] | None:
    """Return the last operation of the previous page."""
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
