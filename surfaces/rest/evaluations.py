"""The evaluations contract as routes under `/api`: the envelope, its codes and its pagination."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fepflow.errors import (
    AuthenticationError,
    ConflictError,
    FepflowError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
    TooLargeError,
)
from fepflow.json.parser import parse
from surfaces.access.caller import SCOPES, Caller
from surfaces.evaluations.cases import read_lines
from surfaces.evaluations.graders import INVALID
from surfaces.evaluations.service import EvaluationService

CODES: tuple[tuple[type[FepflowError], str], ...] = (
    (NotFoundError, "NOT_FOUND"),
    (AuthenticationError, "UNAUTHENTICATED"),
    (PermissionDeniedError, "FORBIDDEN"),
    (ConflictError, "CONFLICT"),
    (TooLargeError, "TOO_LARGE"),
    (RateLimitError, "RATE_LIMITED"),
)
"""The codes of errors, besides those that say theirs."""

LINES = ("application/jsonl", "application/x-ndjson", "application/jsonlines", "application/x-jsonlines")
"""Content types of JSON lines."""

logger = logging.getLogger("fepflow.rest")
T = TypeVar("T")


def evaluations_router(service: EvaluationService) -> APIRouter:
    """The routes of the contract, of stored test cases and of graders, over a service."""
    router = APIRouter(prefix="/api", tags=["evaluations"])

    def route(method: str, path: str, status: int = 200) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            endpoint = _endpoint(handler, status)
            router.add_api_route(path, endpoint, methods=[method], status_code=status, response_model=None)
            return handler

        return add

    @route("POST", "/evaluations", 201)
    async def create(request: Request) -> Any:
        key = request.headers.get("Idempotency-Key")
        return await _call(service.create, _caller(request), await _json(request), key)

    @route("GET", "/evaluations")
    async def evaluations(request: Request) -> Any:
        status = request.query_params.get("status")
        return await _call(service.evaluations, _caller(request), *_page(request, 50, 500), status)

    @route("GET", "/evaluations/{id}")
    async def evaluation(request: Request) -> Any:
        return await _call(service.get, _caller(request), request.path_params["id"])

    @route("GET", "/evaluations/{id}/results")
    async def results(request: Request) -> Any:
        page = _page(request, 100, 1000)
        return await _call(service.results, _caller(request), request.path_params["id"], *page)

    @route("POST", "/test-cases", 201)
    async def add_cases(request: Request) -> Any:
        if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() in LINES:
            return await _call(service.add_cases, _caller(request), read_lines(await _text(request)))
        document = await _json(request)
        if isinstance(document, dict) and "test_cases" in document:
            document = document["test_cases"]
        several = isinstance(document, list) or not isinstance(document, dict)
        return await _call(service.add_cases if several else service.add_case, _caller(request), document)

    @route("GET", "/test-cases")
    async def cases(request: Request) -> Any:
        return await _call(service.cases, _caller(request), *_page(request, 50, 500))

    @route("GET", "/test-cases/{id}")
    async def case(request: Request) -> Any:
        return await _call(service.case, _caller(request), request.path_params["id"])

    @route("DELETE", "/test-cases/{id}")
    async def delete_case(request: Request) -> Any:
        return await _call(service.delete_case, _caller(request), request.path_params["id"])

    @route("POST", "/graders", 201)
    async def add_grader(request: Request) -> Any:
        return await _call(service.add_grader, _caller(request), await _json(request))

    @route("GET", "/graders")
    async def graders(request: Request) -> Any:
        return await _call(service.graders, _caller(request), *_page(request, 50, 500))

    @route("GET", "/graders/{id}")
    async def grader(request: Request) -> Any:
        return await _call(service.grader, _caller(request), request.path_params["id"])

    @route("DELETE", "/graders/{id}")
    async def delete_grader(request: Request) -> Any:
        return await _call(service.delete_grader, _caller(request), request.path_params["id"])

    return router


def envelope(data: Any, status: int = 200) -> Response:
    """What a request came to."""
    return _response({"success": True, "data": data, "error": None}, status)


def envelope_error(error: Exception) -> Response:
    """What went wrong with a request, in the contract's envelope; a fault of ours says no more than that."""
    headers = {}
    if isinstance(error, HTTPException):  # of the framework: no such route, another method
        status = error.status_code
        code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(status, INVALID if status < 500 else "INTERNAL_ERROR")
        message, headers = str(error.detail), dict(error.headers or {})
    elif isinstance(error, FepflowError) and error.http_status < 500:
        status, message = error.http_status, str(error)
        known = (code for kind, code in CODES if isinstance(error, kind))
        code = error.code if isinstance(error, InvalidRequestError) else next(known, INVALID)
        if isinstance(error, RateLimitError):
            headers = {"Retry-After": str(max(1, round(error.retry_after)))}
    else:
        logger.error("a request could not be answered", exc_info=error)
        away = isinstance(error, FepflowError) and error.http_status == 503
        status, code = (503, "UNAVAILABLE") if away else (500, "INTERNAL_ERROR")
        message = "The service is not available, try again later" if away else "Unexpected server error"
    return _response({"success": False, "data": None, "error": {"code": code, "message": message}}, status, headers)


Handler = Callable[[Request], Awaitable[Any]]


def _endpoint(handler: Handler, status: int) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return envelope(await handler(request), status)
        except Exception as error:
            return envelope_error(error)

    endpoint.__name__ = handler.__name__
    return endpoint


def _response(document: dict[str, Any], status: int, headers: dict[str, str] | None = None) -> Response:
    # In ASCII: what agents answer may hold lone surrogates, which no encoding of Unicode has.
    body = json.dumps(document, ensure_ascii=True, separators=(",", ":"))
    return Response(body, status, headers, "application/json")


async def _call(work: Callable[..., T], *arguments: Any) -> T:
    """The store blocks, so it is waited for in a thread."""
    return await asyncio.to_thread(partial(work, *arguments))


def _caller(request: Request) -> Caller:
    caller = getattr(request.state, "caller", None)
    return caller if isinstance(caller, Caller) else Caller(None, frozenset(SCOPES))


async def _text(request: Request) -> str:
    try:
        return (await request.body()).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidRequestError(INVALID, "the body is not UTF-8") from None


async def _json(request: Request) -> Any:
    try:
        return parse(await _text(request))
    except ValueError as error:
        raise InvalidRequestError(INVALID, f"the body is not valid JSON: {error}") from None


def _page(request: Request, default: int, most: int) -> tuple[int, int]:
    """How many are wanted, and after how many; more than there may be is as many as there may be."""
    limit, skip = _number(request, "limit", default), _number(request, "skip", 0)
    if limit < 1:
        raise InvalidRequestError(INVALID, f"limit: a whole number from 1 to {most}")
    return min(limit, most), skip


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InvalidRequestError(INVALID, f"{name}: a whole number, not {text[:20]!a}")
    return int(text)
