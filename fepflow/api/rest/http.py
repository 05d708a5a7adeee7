"""HTTP as handlers see it: callers, parameters and JSON bodies, read more strictly than FastAPI does, and errors.

The body and status of an error depend on the path. They contain no traceback and no secret. At the end, the application
of all interfaces, and the document that describes it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from fepflow.access.caller import Caller
from fepflow.api.evaluations.check_pool import CheckPool
from fepflow.api.evaluations.check_process import Source
from fepflow.api.rest.middleware import HeadAsGet
from fepflow.documents.messages import did_you_mean
from fepflow.errors import FepflowError, InputError, Problem, UserError
from fepflow.security.redaction import words_of
from fepflow.text import brief, printable

T = TypeVar("T")

MAX_PARAMETERS = 20
_MANY_DIGITS = 15
_QUICK = 20_000
"""Bytes of JSON that are read in a millisecond or two, whatever they are."""


def caller_of(request: Request) -> Caller:
    """Return the caller that the middleware has admitted."""
    caller: Caller = request.state.caller
    return caller


async def _admitted(request: Request) -> Caller:
    return caller_of(request)


Admitted = Annotated[Caller, Depends(_admitted)]


def _whole_number(text: Any) -> Any:
    """Return ASCII digits as a number; too many digits give a number above all limits."""
    if not isinstance(text, str) or not re.fullmatch(r"-?[0-9]+", text):
        return text if isinstance(text, int) else None
    return int(text) if len(text) <= _MANY_DIGITS else 10**_MANY_DIGITS * (-1 if text[0] == "-" else 1)


WholeNumber = Annotated[int, BeforeValidator(_whole_number)]


class Parameters(BaseModel):
    """The parameters of a query; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


def invalid_field(kind: str, errors: Sequence[Any], known: list[str]) -> str:
    """Return the sentence about a field, or parameter, from pydantic's errors: unknown ones come first."""
    error = min(errors, key=lambda error: error["type"] != "extra_forbidden")
    name, context = str(error["loc"][-1]) if error["loc"] else "name", error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        return _unknown(kind, name, known)
    sentence = {
        "missing": "is missing",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "string_type": "must be a text",
        "string_unicode": "holds half of a surrogate pair, which is no character",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than_equal": f"must be at most {context.get('le')}",
        "string_too_long": f"must have at most {context.get('max_length', 0):,} characters",
        "literal_error": f"must be one of {str(context.get('expected')).replace(' or ', ', ').replace(chr(39), '')}",
        "string_pattern_mismatch": "must be ids of letters, digits, _ and -, separated by commas"
        if "," in str(context.get("pattern"))
        else "must not hold control characters",
    }.get(error["type"], "is not valid")
    return f"The {kind} {name} {sentence}."


def _unknown(kind: str, name: str, known: list[str]) -> str:
    advice = did_you_mean(name[:100], known) if known else "there are none here"
    return f"There is no {kind} {_quoted(name)} ({printable(advice)})."


def _quoted(name: str) -> str:
    return printable(brief(repr(name), 60))


def media_type(request: Request) -> str:
    """Return the media type of the body, without parameters; JSON if there is none."""
    return request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()


def require_plain(request: Request) -> None:
    """Raise InputError for a compressed body, because a small one could expand enormously."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise InputError(
            Problem(f"a body with Content-Encoding {encoding[:60]!a} is not read", advice="send it uncompressed")
        )


async def bounded_body(request: Request, most: int, refusal: str) -> bytes:
    """Return the body. Raises UserError with the sentence `refusal` once it has more than `most` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise UserError(refusal)
    return bytes(body)


async def json_bytes(request: Request) -> bytes:
    """Return the body. Raises InputError if its media type is not JSON."""
    require_plain(request)
    kind = media_type(request)
    if kind != "application/json" and not kind.endswith("+json"):
        raise InputError(Problem(f"a body of type {kind[:60]!a} is not read", advice="send application/json"))
    return await request.body()


async def read_body(request: Request, read: Callable[[bytes], T], pool: CheckPool) -> T:
    """Read a JSON body; large ones are read in a process of the pool."""
    body = await json_bytes(request)
    return read(body) if len(body) <= _QUICK else await pool.read(Source(read, body))


def strict_route(read: Callable[[Request, Any], Awaitable[Any]]) -> type[APIRoute]:
    """Return a class of routes that refuse ambiguous queries, and read JSON bodies by `read`.

    `read` returns the value of the handler's parameter `body`. FastAPI's own reading accepts NaN and duplicate names,
    and blocks the event loop.
    """

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle, body = super().get_route_handler(), self.body_field

            async def handle_strictly(request: Request) -> Response:
                names = _names_in_query(request)
                if names and not self.dependant.query_params:
                    raise UserError(_unknown("parameter", names[0], []))
                if body is not None:
                    request = _ReadRequest(request, await read(request, body.field_info.annotation))
                return await handle(request)

            return handle_strictly

    return StrictRoute


def _names_in_query(request: Request) -> list[str]:
    """Return the names of a query's parameters. Raises UserError for an ambiguous query.

    FastAPI takes the last value of a name that appears twice, and replaces bytes that are not UTF-8.
    """
    try:
        query = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise UserError(
            f"The query cannot be read: at most {MAX_PARAMETERS} parameters, in UTF-8 and percent-encoded."
        ) from None
    names = [name for name, _ in pairs]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UserError(f"The parameter {_quoted(name)} appears twice: give it once.")
    return names


class _ReadRequest(Request):
    """A request whose body has been read and validated."""

    def __init__(self, request: Request, value: Any) -> None:
        others = [header for header in request.scope["headers"] if header[0] != b"content-type"]
        headers = [*others, (b"content-type", b"application/json")]  # of anything else FastAPI takes the bytes
        super().__init__({**request.scope, "headers": headers}, request.receive)
        self._value = value

    async def body(self) -> bytes:
        """Return a body that is not empty."""
        return b"read"

    async def json(self) -> Any:
        """Return the value. FastAPI takes a model as valid, and passes it to the handler."""
        return self._value


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


# --- the application of all interfaces -------------------------------------------------------------------------------


TITLE = "fepflow"
DESCRIPTION = "Evaluations of AI agents: the Flexible Evaluation Protocol, the Evaluations contract and EvalGuard."


def create_app(
    routers: Sequence[APIRouter],
    errors: Errors,
    paths: Mapping[str, Any] | None = None,
    models: Sequence[type[BaseModel]] = (),
) -> FastAPI:
    """Return the application of REST interfaces. Its document is at /openapi.json; there is no page for it, which would
    load foreign scripts.

    `paths` are operations in the document besides those of the routes, `models` those that only its text refers to.
    """
    app = FastAPI(title=TITLE, version=version("fepflow"), docs_url=None, redoc_url=None, redirect_slashes=False)
    for router in routers:
        app.include_router(router)
    errors.install(app)
    app.add_middleware(HeadAsGet)
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        document.update(document or _document(app, paths or {}, models))
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way of doing it
    return app


def _document(app: FastAPI, paths: Mapping[str, Any], models: Sequence[type[BaseModel]]) -> dict[str, Any]:
    document = get_openapi(title=TITLE, version=app.version, description=DESCRIPTION, routes=app.routes)
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    components = document.setdefault("components", {})
    components["schemas"] = {**schemas.get("$defs", {}), **components.get("schemas", {})}
    for name in ("HTTPValidationError", "ValidationError"):  # nothing answers 422
        components["schemas"].pop(name, None)
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    components["securitySchemes"] = {
        "BearerAuth": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "ApiKeyAuth": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    document["paths"].update(paths)
    document["security"] = [{"BearerAuth": []}, {"ApiKeyAuth": []}]
    if "/v1/health" in document["paths"]:
        document["paths"]["/v1/health"]["get"]["security"] = []
    return document
