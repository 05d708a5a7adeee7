"""Errors over REST: the body and status for each path. They contain no traceback and no secret."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from fepflow.api.rest.request import invalid_field
from fepflow.errors import FepflowError, InputError, Problem, UserError
from fepflow.security.redaction import words_of

logger = logging.getLogger("fepflow.rest")

ErrorBody = Callable[[int, FepflowError], Response]
"""Writes the body of an error that has a status."""


_WHY = {
    400: "The request is not valid.",
    401: "A key or token is missing, or not valid.",
    403: "The key does not have the scope that this needs.",
    404: "There is none of this id.",
    409: "The id is taken, or the idempotency key belongs to another request.",
    413: "The request is too large.",
    429: "Too many requests; Retry-After says when the next one is taken.",
    500: "A fault of the service.",
    503: "The store is unavailable.",
}


def documented(
    body: type[BaseModel], *statuses: int, common: Iterable[int] = (400, 401, 403, 413, 429, 500, 503)
) -> dict[int | str, dict[str, Any]]:
    """Return the errors of an operation for the API's document: common ones, and `statuses`, with this body."""
    return {status: {"model": body, "description": _WHY[status]} for status in sorted({*common, *statuses})}


class HttpError(FepflowError):
    """An error of HTTP itself: an unknown path, or a method that it does not have."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_response(status: int, error: FepflowError) -> JSONResponse:
    """Return FEP 5.1's ErrorResponse: `error` is its type, `details.problems` has the mistakes in the input."""
    body = {"error": type_of(status, error), "message": str(error)}
    if isinstance(error, InputError):
        problems = [{"path": problem.path or "", "message": str(problem)} for problem in error.problems]
        return JSONResponse({**body, "details": {"problems": problems}}, status)
    return JSONResponse(body, status)


def type_of(status: int, error: FepflowError) -> str:
    """Return a word for an error, for programs: `not_found`, `validation_error`."""
    if status == HTTPStatus.BAD_REQUEST:
        return error.fep_type
    return HTTPStatus(status).phrase.lower().replace(" ", "_")


class Errors:
    """The answers to errors of an application, by the path's prefix, the longest first."""

    def __init__(self, bodies: dict[str, ErrorBody]) -> None:
        self._bodies = sorted(bodies.items(), key=lambda item: -len(item[0]))

    def render(self, path: str, error: FepflowError) -> Response:
        """Return the response for an error."""
        status = error.status if isinstance(error, HttpError) else error.http_status
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, HttpError):
            logger.error("%s: %s: %s", path, type(error).__name__, words_of(error))
        body = next((body for prefix, body in self._bodies if f"{path}/".startswith(f"{prefix}/")), error_response)
        return body(status, error)

    def install(self, app: FastAPI) -> None:
        """Answer with these responses whatever a handler raises."""

        async def answer(request: Request, error: Exception) -> Response:
            if isinstance(error, HTTPException):
                return self._of_http(app, request, error)
            if isinstance(error, RequestValidationError):
                error = UserError(_invalid_parameter(request, error))
            elif isinstance(error, ClientDisconnect):
                error = InputError(Problem("the body ended before it was complete"))
            elif not isinstance(error, FepflowError):
                logger.error("%s %s: %s: %s", request.method, request.url.path, type(error).__name__, words_of(error))
                error = HttpError(500, "This is a fault of fepflow; its log says more.")
            return self.render(request.url.path, error)

        for kind in (FepflowError, HTTPException, RequestValidationError, ClientDisconnect, Exception):
            app.add_exception_handler(kind, answer)

    def _of_http(self, app: FastAPI, request: Request, error: HTTPException) -> Response:
        message, headers = str(error.detail), dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = allowed = ", ".join(_methods(app, request))
            message = f"This path has no such method: it has {allowed}."
        response = self.render(request.url.path, HttpError(error.status_code, message))
        response.headers.update(headers)
        return response


def _invalid_parameter(request: Request, error: RequestValidationError) -> str:
    """Return the sentence about the first parameter that is not valid."""
    parameters = request.scope["route"].dependant.query_params
    known = [name for parameter in parameters for name in parameter.field_info.annotation.model_fields]
    return invalid_field("parameter", error.errors(), known)


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Return the methods of a path, of all its routes; the framework names only those of the first one."""
    methods = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(route.matches({**request.scope, "method": method})[0] == Match.FULL for route in app.routes)
    ]
    return ["GET", "HEAD", *methods[1:]] if methods[:1] == ["GET"] else methods
