"""Several evaluations in one call. One that fails is an error of its own, and the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from fepflow.api.evaluations.check_process import Source
from fepflow.api.evaluations.fep import FepService
from fepflow.api.grpc.calls import Call
from fepflow.api.grpc.errors import ResultTooLargeError, fep_error, known
from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.api.grpc.messages import result_message
from fepflow.api.grpc.requests import read_message
from fepflow.api.grpc.values import write_struct
from fepflow.errors import InputError, Problem
from fepflow.protocol.model import utc_now

MAX_EVALUATIONS = 100
MAX_CONCURRENT = 16
DEFAULT_CONCURRENT = 4
MAX_TIMEOUT_MS = 86_400_000

_FOR_ERRORS = 300_000
"""Bytes of a response that results leave to errors."""


class _FailedFastError(Exception):
    """An evaluation ended in an error, and the caller wants no further one."""


class Batch:
    """A batch of evaluations. Raises InputError for options that cannot be."""

    def __init__(
        self, service: FepService, request: fep_pb2.BatchEvaluationRequest, call: Call, max_message: int
    ) -> None:
        problems = list(_problems(request))
        if problems:
            raise InputError(problems)
        options = request.options
        self._service = service
        self._call = call
        self._evaluations = request.evaluations
        self._waiting = iter(range(len(request.evaluations)))
        self._workers = options.max_concurrent if options.HasField("max_concurrent") else DEFAULT_CONCURRENT
        self._seconds = options.timeout_ms / 1_000 if options.HasField("timeout_ms") else None
        self._fail_fast = options.fail_fast
        self._max_message = max_message
        self._room = max_message - _FOR_ERRORS
        self._results: dict[int, fep_pb2.EvaluationRunResult] = {}
        self._errors: dict[int, fep_pb2.FepError] = {}

    async def run(self) -> fep_pb2.BatchEvaluationResponse:
        """Carry all of them out; what was not done in time, or when one failed first, is an error, too."""
        started_at = utc_now()
        code, reason = "", ""
        try:
            async with asyncio.timeout(self._seconds):
                if await self._failed_fast():
                    code, reason = "cancelled", "Another evaluation failed before this one was done (fail_fast)."
        except TimeoutError:
            code, reason = "timeout_error", "The timeout_ms of the batch was over before this evaluation was done."
        for index in range(len(self._evaluations)):
            if index not in self._results and index not in self._errors:
                self._errors[index] = fep_pb2.FepError(code=code, message=reason)
                write_struct({"evaluation": index}, self._errors[index].details)
        return self._response(started_at)

    async def _failed_fast(self) -> bool:
        failed = False
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._workers, len(self._evaluations))):
                    group.create_task(self._work())
        except* _FailedFastError:
            failed = True
        return failed

    async def _work(self) -> None:
        for index in self._waiting:
            try:
                await self._evaluate(index)
            except Exception as error:
                self._errors[index] = fep_error(known(error, f"evaluation {index} of a batch"), evaluation=index)
                if self._fail_fast:
                    raise _FailedFastError from None

    async def _evaluate(self, index: int) -> None:
        if index:
            self._call.count()
        result = await self._service.evaluate(
            Source(read_message, self._evaluations[index].SerializeToString()), self._call.caller
        )
        message = await asyncio.to_thread(result_message, result)
        size = message.ByteSize()
        if size > self._room:
            raise ResultTooLargeError(size, self._max_message, result.evaluation_id)
        self._room -= size
        self._results[index] = message

    def _response(self, started_at: datetime) -> fep_pb2.BatchEvaluationResponse:
        done = sorted(self._results)
        response = fep_pb2.BatchEvaluationResponse(
            results=[self._results[index] for index in done],
            result_indexes=done,
            errors=[self._errors[index] for index in sorted(self._errors)],
            summary=fep_pb2.BatchSummary(
                total_evaluations=len(self._evaluations),
                successful_evaluations=len(self._results),
                failed_evaluations=len(self._errors),
            ),
        )
        response.summary.started_at.FromDatetime(started_at)
        response.summary.completed_at.FromDatetime(utc_now())
        return response


def _problems(request: fep_pb2.BatchEvaluationRequest) -> Iterator[Problem]:
    count, options = len(request.evaluations), request.options
    if not 1 <= count <= MAX_EVALUATIONS:
        yield Problem(f"there are {count}", path="evaluations", advice=f"give 1 to {MAX_EVALUATIONS}")
    for name, most in (("max_concurrent", MAX_CONCURRENT), ("timeout_ms", MAX_TIMEOUT_MS)):
        value = getattr(options, name)
        if options.HasField(name) and not 1 <= value <= most:
            yield Problem(f"{value} cannot be", path=f"options.{name}", advice=f"give 1 to {most}, or leave it out")
