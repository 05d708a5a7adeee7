"""EvaluationService: evaluations that are carried out while their caller waits (FEP 5.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from importlib.metadata import version
from typing import Any, cast

from fepflow.api.evaluations.check_process import Source
from fepflow.api.evaluations.fep import EvaluationProgress, FepService, Pending
from fepflow.api.grpc.batch import Batch
from fepflow.api.grpc.calls import current_call
from fepflow.api.grpc.errors import PendingError
from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from fepflow.api.grpc.messages import progress_message, result_message
from fepflow.api.grpc.requests import read_message


class EvaluationServicer(fep_pb2_grpc.EvaluationServiceServicer):
    """The service; messages are read and written in threads, as they may be large."""

    def __init__(self, service: FepService, max_message: int) -> None:
        self._service = service
        self._max_message = max_message

    async def RunEvaluation(self, request: bytes, context: Any) -> fep_pb2.EvaluationRunResult:
        """Carry out an evaluation."""
        result = await self._service.evaluate(Source(read_message, request), current_call().caller)
        current_call().resource = result.evaluation_id
        return await asyncio.to_thread(result_message, result)

    async def GetEvaluation(self, request: fep_pb2.GetEvaluationRequest, context: Any) -> fep_pb2.EvaluationRunResult:
        """The result of an evaluation."""
        current_call().resource = request.evaluation_id
        found = await self._service.find(request.evaluation_id)
        if isinstance(found, Pending):
            raise PendingError(found)
        return await asyncio.to_thread(result_message, found)

    async def HealthCheck(self, request: fep_pb2.HealthCheckRequest, context: Any) -> fep_pb2.HealthCheckResponse:
        """Whether the store is there."""
        await self._service.ping()
        return fep_pb2.HealthCheckResponse(status="healthy", version=version("fepflow"))

    async def StreamEvaluation(self, request: bytes, context: Any) -> AsyncIterator[fep_pb2.EvaluationProgress]:
        """Carry out an evaluation, telling of each test case."""
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
        return await Batch(self._service, request, current_call(), self._max_message).run()
