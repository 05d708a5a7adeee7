"""The evaluations contract as routes under `/api`: the envelope, its codes and its pagination."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from fepflow.api.evaluations.cases import read_lines
from fepflow.api.evaluations.check_pool import CheckPool
from fepflow.api.evaluations.check_process import Source
from fepflow.api.evaluations.graders import read_grader
from fepflow.api.evaluations.service import EvaluationService
from fepflow.api.rest import evaluations_contract as contract
from fepflow.api.rest.errors import documented
from fepflow.api.rest.evaluations_contract import Envelope, ErrorEnvelope, links, page_parameters
from fepflow.api.rest.parameters import parse_query, query_schema
from fepflow.api.rest.request import caller_of, json_body, json_bytes, media_type, read_body, require_plain
from fepflow.errors import FepflowError, InvalidRequestError

Query = dict[str, Any]
Handler = Callable[[Request, Query], Awaitable[Any]]
"""Gives the `data` of the envelope; the query has been held against the parameters, and has their defaults."""

_BY_ID = [contract.ID_PARAMETER]
_EVALUATION_LINKS = links("/data/id", "getEvaluationRun", "getEvaluationResults")


def evaluations_router(service: EvaluationService, pool: CheckPool) -> APIRouter:
    """The routes of the contract, of stored test cases and of graders, over a service; `pool` reads large bodies."""
    router = APIRouter(prefix="/api", tags=["Evaluations"])

    def route(
        method: str,
        path: str,
        operation_id: str,
        data: Any,
        *refusals: int,
        parameters: Sequence[dict[str, Any]] = (),
        body: dict[str, Any] | None = None,
        next_operations: dict[str, Any] | None = None,
    ) -> Callable[[Handler], Handler]:
        status = 201 if method == "POST" else 200
        done = {"model": Envelope[data], "description": "Done.", "links": next_operations or {}}
        extra: dict[str, Any] = {"parameters": list(parameters)}
        if body is not None:
            extra["requestBody"] = {"required": True, "content": body}

        def add(handler: Handler) -> Handler:
            router.add_api_route(
                path,
                _endpoint(handler, status, query_schema(extra)),
                methods=[method],
                status_code=status,
                operation_id=operation_id,
                summary=handler.__doc__,
                response_class=Response,
                responses={status: done, **documented(ErrorEnvelope, *refusals)},
                openapi_extra=extra,
            )
            return handler

        return add

    @route(
        "POST",
        "/evaluations",
        "createEvaluationRun",
        contract.Evaluation,
        409,
        parameters=[contract.KEY_PARAMETER],
        body=_json(contract.EVALUATION_BODY),
        next_operations=_EVALUATION_LINKS,
    )
    async def create(request: Request, _: Query) -> Any:
        """Have an agent evaluated; the run goes on after the answer."""
        key = request.headers.get("Idempotency-Key")
        return await asyncio.to_thread(service.create, caller_of(request), await json_body(request, pool), key)

    @route(
        "GET",
        "/evaluations",
        "listEvaluationRuns",
        contract.Evaluations,
        parameters=[*page_parameters(50, 500), contract.STATUS_PARAMETER],
    )
    async def evaluations(request: Request, query: Query) -> Any:
        """The evaluations, the newest first."""
        status = query.get("status")
        return await asyncio.to_thread(service.evaluations, caller_of(request), *_page(query, 500), status)

    @route("GET", "/evaluations/{id}", "getEvaluationRun", contract.Evaluation, 404, parameters=_BY_ID)
    async def evaluation(request: Request, _: Query) -> Any:
        """An evaluation, and how far it is."""
        return await asyncio.to_thread(service.get, caller_of(request), request.path_params["id"])

    @route(
        "GET",
        "/evaluations/{id}/results",
        "getEvaluationResults",
        contract.Results,
        404,
        parameters=[*_BY_ID, *page_parameters(100, 1000)],
    )
    async def results(request: Request, query: Query) -> Any:
        """The results of an evaluation that there are by now."""
        evaluation_id = request.path_params["id"]
        return await asyncio.to_thread(service.results, caller_of(request), evaluation_id, *_page(query, 1000))

    @route(
        "POST",
        "/test-cases",
        "addTestCases",
        contract.StoredTestCase | contract.AddedTestCases,
        409,
        body={**_json(contract.TEST_CASES_BODY), **{kind: {"schema": {"type": "string"}} for kind in contract.LINES}},
        next_operations=links("/data/id", "getTestCase", "deleteTestCase"),
    )
    async def add_cases(request: Request, _: Query) -> Any:
        """Store a test case, or several: a list, `{test_cases}`, or JSON lines; all of them or none."""
        if media_type(request) in contract.LINES:
            require_plain(request)
            lines = await read_body(await request.body(), read_lines, pool)
            return await asyncio.to_thread(service.add_cases, caller_of(request), lines)
        document = await json_body(request, pool)
        if isinstance(document, dict) and "test_cases" in document:
            document = document["test_cases"]
        elif isinstance(document, dict):
            return await asyncio.to_thread(service.add_case, caller_of(request), document)
        return await asyncio.to_thread(service.add_cases, caller_of(request), document)

    @route("GET", "/test-cases", "listTestCases", contract.TestCases, parameters=page_parameters(50, 500))
    async def cases(request: Request, query: Query) -> Any:
        """The stored test cases, the oldest first."""
        return await asyncio.to_thread(service.cases, caller_of(request), *_page(query, 500))

    @route("GET", "/test-cases/{id}", "getTestCase", contract.StoredTestCase, 404, parameters=_BY_ID)
    async def case(request: Request, _: Query) -> Any:
        """A stored test case."""
        return await asyncio.to_thread(service.case, caller_of(request), request.path_params["id"])

    @route("DELETE", "/test-cases/{id}", "deleteTestCase", contract.Deleted, 404, parameters=_BY_ID)
    async def delete_case(request: Request, _: Query) -> Any:
        """Delete a test case; evaluations keep their copies."""
        return await asyncio.to_thread(service.delete_case, caller_of(request), request.path_params["id"])

    @route(
        "POST",
        "/graders",
        "addGrader",
        contract.StoredGrader,
        409,
        body=_json(contract.GRADER_BODY),
        next_operations=links("/data/id", "getGrader", "deleteGrader"),
    )
    async def add_grader(request: Request, _: Query) -> Any:
        """Store a grader."""
        caller_of(request).require("evaluate")
        grader = await pool.read(Source(read_grader, await json_bytes(request)))
        return await asyncio.to_thread(service.add_grader, caller_of(request), grader)

    @route("GET", "/graders", "listGraders", contract.Graders, parameters=page_parameters(50, 500))
    async def graders(request: Request, query: Query) -> Any:
        """The graders: those built in, then the stored ones, the oldest first."""
        return await asyncio.to_thread(service.graders, caller_of(request), *_page(query, 500))

    @route("GET", "/graders/{id}", "getGrader", contract.StoredGrader, 404, parameters=_BY_ID)
    async def grader(request: Request, _: Query) -> Any:
        """A grader, built in or stored."""
        return await asyncio.to_thread(service.grader, caller_of(request), request.path_params["id"])

    @route("DELETE", "/graders/{id}", "deleteGrader", contract.Deleted, 404, 409, parameters=_BY_ID)
    async def delete_grader(request: Request, _: Query) -> Any:
        """Delete a stored grader; evaluations keep their copies."""
        return await asyncio.to_thread(service.delete_grader, caller_of(request), request.path_params["id"])

    return router


def error_envelope(status: int, error: FepflowError) -> JSONResponse:
    """What went wrong with a request, in the contract's envelope; a fault of ours says no more than that."""
    message = str(error)
    if status >= 500:
        message = "The service is not available, try again later" if status == 503 else "Unexpected server error"
    code = error.code if isinstance(error, InvalidRequestError) else contract.code_of(status)
    return _Ascii({"success": False, "data": None, "error": {"code": code, "message": message}}, status)


class _Ascii(JSONResponse):
    """In ASCII: what agents answer may hold lone surrogates, which no encoding of Unicode has."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def _endpoint(handler: Handler, status: int, parameters: dict[str, Any]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        query = parse_query(request.scope["query_string"], parameters)
        return _Ascii({"success": True, "data": await handler(request, query), "error": None}, status)

    return endpoint


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _page(query: Query, most: int) -> tuple[int, int]:
    """How many are wanted, and after how many; more than there may be is as many as there may be."""
    return min(query["limit"], most), query["skip"]
