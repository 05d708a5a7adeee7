"""FEP's REST API (FEP 5.1) under `/v1`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from importlib.metadata import version
from itertools import chain
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response, StreamingResponse

from fepflow.api.evaluations.check_process import Source
from fepflow.api.evaluations.fep import EvaluationProgress, FepService, Pending
from fepflow.api.evaluations.requests import EvaluationRequest, EvaluationRequestBody, example
from fepflow.api.rest.http import Admitted, documented, error_response, json_bytes
from fepflow.errors import FepflowError
from fepflow.protocol.results import EvaluationRunResult, TestCaseResult

_AT_ONCE = 100
"""Check results that are written as JSON in one go."""

_CHUNK = 32_000

JSON, NDJSON, EVENTS = "application/json", "application/x-ndjson", "text/event-stream"


class ErrorResponse(BaseModel):
    """An error (FEP 5.1)."""

    error: str = Field(description="Type of the error.")
    message: str = Field(description="What was wrong, where, and what to do about it.")
    details: dict[str, Any] | None = Field(None, description="`problems`: the path of each, and what is wrong there.")


class Health(BaseModel):
    """Health of the service (FEP 5.1), and its version."""

    status: Literal["healthy"]
    version: str


class Progress(BaseModel):
    """A line or event of a stream. The last one has the whole result, or the error that ended it."""

    evaluation_id: str
    status: Literal["running", "completed", "failed"]
    completed_test_cases: int = Field(ge=0)
    total_test_cases: int = Field(ge=0)
    result: dict[str, Any] | None = Field(None, description="The TestCaseResult of the test case just done.")
    final_result: EvaluationRunResult | None = None
    error: ErrorResponse | None = None


ERRORS = documented(ErrorResponse)
BODY = {
    "requestBody": {
        "required": True,
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/EvaluationRequestBody"}, "example": example()}},
    }
}
LINKS = {
    "links": {
        "result": {"operationId": "getEvaluation", "parameters": {"evaluation_id": "$response.body#/evaluation_id"}}
    }
}
COMPONENTS = (EvaluationRequestBody, Progress)
"""Models that the document of the API refers to, but no handler takes or gives."""


def fep_router(service: FepService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=["FEP"])

    @router.post(
        "/evaluate",
        operation_id="runEvaluation",
        summary="Run checks against test cases and their outputs.",
        response_class=Response,
        responses={
            200: {"model": EvaluationRunResult, "description": "The results, which are stored.", **LINKS},
            **ERRORS,
        },
        openapi_extra=BODY,
    )
    async def evaluate(request: Request, caller: Admitted) -> Response:
        return await _streamed(_run_parts(await service.evaluate(await _source(request), caller)))

    @router.post(
        "/evaluate/stream",
        operation_id="streamEvaluation",
        summary="The same, one line (NDJSON) or event (SSE, as Accept says) for each test case as it is done.",
        response_class=Response,
        responses={
            200: {
                "description": "Progress, one object a line or event.",
                "content": {kind: {"schema": {"$ref": "#/components/schemas/Progress"}} for kind in (NDJSON, EVENTS)},
            },
            **ERRORS,
        },
        openapi_extra=BODY,
    )
    async def stream(request: Request, caller: Admitted) -> Response:
        evaluation = await service.begin(await _source(request), caller)
        as_events = EVENTS in request.headers.get("accept", "")
        lines = _lines(service.stream(evaluation), as_events=as_events)
        return StreamingResponse(
            lines, media_type=EVENTS if as_events else NDJSON, headers={"Cache-Control": "no-store"}
        )

    @router.get(
        "/evaluations/{evaluation_id}",
        operation_id="getEvaluation",
        summary="An evaluation by its id, also one that a flow run carries out.",
        response_class=Response,
        responses={
            200: {"model": EvaluationRunResult, "description": "Its result."},
            202: {"model": Pending, "description": "It is not over yet."},
            404: {"model": ErrorResponse, "description": "There is no such evaluation."},
            **ERRORS,
        },
    )
    async def get(evaluation_id: str) -> Response:
        stored = await service.find_json(evaluation_id)
        if isinstance(stored, Pending):
            return JSONResponse(stored.model_dump(), 202)
        return await _streamed(stored)

    @router.get(
        "/health",
        operation_id="healthCheck",
        summary="Whether the service works. Asks for no key.",
        response_class=Response,
        responses={200: {"model": Health, "description": "It does."}, **{code: ERRORS[code] for code in (500, 503)}},
    )
    async def health() -> Response:
        await service.ping()
        return JSONResponse({"status": "healthy", "version": version("fepflow")})

    return router


async def _source(request: Request) -> Source[EvaluationRequest]:
    return Source(EvaluationRequest.read_json, await json_bytes(request))


async def _streamed(parts: Iterator[str]) -> Response:
    """Return a response of JSON in pieces, because a large one as a whole would be copied and would delay others."""
    chunks = _chunks(parts)
    first = await asyncio.to_thread(next, chunks)  # a fault of the store is an error of the request
    second = await asyncio.to_thread(next, chunks, None)
    if second is None:
        return Response(first, media_type=JSON)
    return StreamingResponse(chain([first, second], chunks), media_type=JSON)


def _chunks(parts: Iterable[str]) -> Iterator[str]:
    """Yield short texts together in one chunk."""
    waiting, length = [], 0
    for part in parts:
        waiting.append(part)
        length += len(part)
        if length >= _CHUNK:
            yield "".join(waiting)
            waiting, length = [], 0
    if waiting:
        yield "".join(waiting)


def _run_parts(result: EvaluationRunResult) -> Iterator[str]:
    """Yield the JSON of a result in pieces."""
    yield f'{result.model_copy(update={"results": []}).model_dump_json(exclude={"results"})[:-1]},"results":['
    for index, case in enumerate(result.results):
        yield "," if index else ""
        yield from _case_parts(case)
    yield "]}"


def _case_parts(case: TestCaseResult) -> Iterator[str]:
    if len(case.check_results) <= _AT_ONCE:
        yield case.model_dump_json()
        return
    yield f'{case.model_dump_json(exclude={"check_results"})[:-1]},"check_results":['
    for start in range(0, len(case.check_results), _AT_ONCE):
        parts = [check.model_dump_json() for check in case.check_results[start : start + _AT_ONCE]]
        yield f"{',' if start else ''}{','.join(parts)}"
    yield "]}"


_COUNTS = ("evaluation_id", "status", "completed_test_cases", "total_test_cases")


async def _lines(evaluation: AsyncIterator[EvaluationProgress], *, as_events: bool) -> AsyncIterator[str]:
    counts: dict[str, Any] = {"evaluation_id": "", "completed_test_cases": 0, "total_test_cases": 0}
    try:
        async for progress in evaluation:
            counts = {name: getattr(progress, name) for name in _COUNTS}
            before, after = _line(progress.status, json.dumps(counts)[1:-1], as_events=as_events)
            parts: list[Iterable[str]] = [[before]]
            if progress.result is not None:
                parts += [[',"result":'], _case_parts(progress.result)]
            if progress.final_result is not None:
                parts += [[',"final_result":'], _run_parts(progress.final_result)]
            for chunk in _chunks(chain(*parts, [after])):
                yield chunk
                await asyncio.sleep(0)
    except FepflowError as error:  # the status has gone out: the stream itself says how it ended
        body = bytes(error_response(error.http_status, error).body).decode()
        text = ",".join([json.dumps({**counts, "status": "failed"})[1:-1], f'"error":{body}'])
        yield "".join(_line("failed", text, as_events=as_events))


def _line(event: str, members: str, *, as_events: bool) -> tuple[str, str]:
    """Return the beginning of a line or event, with its first members, and its end."""
    return (f"event: {event}\ndata: {{{members}", "}\n\n") if as_events else (f"{{{members}", "}\n")
