"""EvalGuard's API (EvalGuard 4.5): its schema is what is served, and what requests are held against."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from fepflow.api.evalguard.catalogue import Catalogue
from fepflow.api.evalguard.service import EvalguardApi
from fepflow.api.rest.errors import type_of
from fepflow.api.rest.evalguard_contract import operation
from fepflow.api.rest.parameters import parse_body, parse_query, query_schema
from fepflow.api.rest.request import media_type, require_plain
from fepflow.errors import FepflowError, UserError
from fepflow.store.store import Store

MAX_BODY = 65_536
"""Bytes of a request's body: four filters of 1,000 characters, escaped, are less."""

PATHS = ("/reports", "/thresholds", "/models", "/tasks")
"""Below them, errors are EvalGuard's."""

_CODES = {400: "bad_request", 413: "too_large", 429: "rate_limited", 500: "internal_error", 503: "unavailable"}

Answer = Callable[..., dict[str, Any]]


def evalguard_router(catalogue: Catalogue, store: Store) -> APIRouter:
    """The routes, to be included under a prefix. Blocking work is done in threads."""
    api = EvalguardApi(catalogue, store)
    router = APIRouter()
    for path, method, answer in (
        ("/reports", "get", api.reports),
        ("/reports", "post", api.reports),
        ("/reports/{report_id}", "get", api.report),
        ("/reports/{report_id}/metrics", "get", api.report_metrics),
        ("/thresholds", "get", api.thresholds),
        ("/models", "get", api.models),
        ("/tasks", "get", api.tasks),
    ):
        contract = operation(path, method)
        router.add_api_route(
            path,
            _endpoint(contract, answer),
            methods=[method],
            name=contract["operationId"],
            response_class=Response,
            openapi_extra=contract,
        )
    return router


def _endpoint(contract: dict[str, Any], answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    in_query = query_schema(contract)
    content = contract.get("requestBody", {}).get("content", {})
    in_body = content["application/json"]["schema"] if content else None

    async def endpoint(request: Request) -> Response:
        arguments = parse_query(request.scope["query_string"], in_query)
        if in_body is not None:
            arguments |= parse_body(await _body(request), in_body)
        return _json(200, await run_in_threadpool(answer, **request.path_params, **arguments))

    return endpoint


def evalguard_error(status: int, error: FepflowError) -> Response:
    """An error as EvalGuard's API has it."""
    code = _CODES.get(status) or type_of(status, error)
    return _json(status, {"error": {"code": code, "message": str(error)}})


async def _body(request: Request) -> bytes:
    if media_type(request) != "application/json":
        raise UserError("The body must be JSON: send the header Content-Type: application/json.")
    require_plain(request)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise UserError(f"The body has more than {MAX_BODY:,} bytes.")
    return bytes(body)


def _json(status: int, document: dict[str, Any]) -> Response:
    """In ASCII, so that texts of whatever characters can be sent."""
    try:
        text = json.dumps(document, allow_nan=False)
    except ValueError:  # metadata of a report may hold what JSON has no word for
        text = json.dumps(_finite(document), allow_nan=False)
    return Response(text, status, media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
