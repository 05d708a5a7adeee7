"""Steps around every request: admission, limits, and the record.

Pure ASGI: the application's responses are passed on as they come, and a body is read only once its caller is admitted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from fepflow.access.access import BEGUN, Access
from fepflow.access.caller import Caller
from fepflow.access.caller import Scope as Right
from fepflow.errors import AuthenticationError, FepflowError, RateLimitError, TooLargeError
from fepflow.observability.metrics import PATH

Render = Callable[[str, FepflowError], Response]
"""The response to a request to this path that failed so."""

OPEN_PATHS = frozenset(
    {"/healthz", "/livez", "/readyz", "/v1/health", "/v1/openapi.json", "/api/openapi.json", "/openapi.json"}
)
"""Paths that anybody may read: whether we are there, and how we are spoken to. They are not limited or recorded."""

INTERFACES = ("/v1", "/api", PATH)
"""Interfaces for programs are here, and below."""

QUERIES = frozenset({("POST", "/v1/reports")})
"""Requests that only read, by another method than GET."""

STARTS = frozenset({("POST", "/api/evaluations")})
"""Requests that start runs, which call agents."""

POLLED = re.compile(rf"/api/evaluations/[^/]+|{PATH}")
"""Paths that programs ask for again and again until something has come of it."""

NO_RESPONSE = "no response"

_RESOURCE = re.compile(r"(/[^/]+/[^/]+/)([^/]+)(/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AccessMiddleware:
    """Middleware that admits requests and records them. `scope["state"]["caller"]` is the Caller, for the application.

    A request that may change something is recorded before it is carried out, and its outcome before the response is
    sent. A request that only reads is recorded with its outcome only. If the record fails, the response is the error
    that `render` makes of it, 503. It is the outermost middleware, so that nothing is answered without it.
    """

    app: ASGIApp
    access: Access
    render: Render
    max_body: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the server's lifespan (ASGI 3); websockets are closed."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        else:
            await WebSocketClose(1008, "there are none here")(scope, receive, send)


class _Exchange:
    """A request: its caller, the bytes of its body so far, and a response in place of the application's, if any."""

    def __init__(self, middleware: AccessMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
        self._middleware = middleware
        self._access = middleware.access
        self._scope = scope
        self._receive = receive
        self._send = send
        self._method, self._path = scope["method"], scope["path"].rstrip("/") or "/"
        client = scope.get("client")
        self._source: str | None = client[0] if client else None
        reads = self._method in ("GET", "HEAD", "OPTIONS") or (self._method, self._path) in QUERIES
        self._needs: Right = "read" if reads else "evaluate"
        self._caller: Caller | None = None
        self._received = 0
        self._has_begun = False
        self._instead: Response | None = None

    async def run(self) -> None:
        """Respond: by the application, once the caller is admitted, or by an error."""
        if self._method in ("GET", "HEAD") and self._path in OPEN_PATHS:
            await self._middleware.app(self._scope, self._receive, self._send)
            return
        state = self._scope.get("state", {})
        headers = Headers(scope=self._scope)
        try:
            self._caller = await self._access.admit(headers.items(), self._source, state.get("session"))
            starts_run = (self._method, self._path) in STARTS
            self._access.permit_request(self._caller, self._needs, headers.items(), starts_run=starts_run)
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length[:20]) > self._middleware.max_body:
                raise self._too_large()
            if self._needs != "read":
                await self._record(BEGUN)
        except FepflowError as error:
            await self._refuse(error)
        else:
            self._scope = {**self._scope, "state": {**state, "caller": self._caller}}
            await self._respond()
        if self._instead is not None:
            await self._instead(self._scope, self._receive, self._send)

    async def _respond(self) -> None:
        try:
            await self._middleware.app(self._scope, self._receive_counted, self._send_settled)
        except Exception:
            if not self._has_begun and self._instead is None:
                await self._settle("500")
            if self._instead is None:
                raise
        if not self._has_begun and self._instead is None:
            await self._settle(NO_RESPONSE)

    async def _receive_counted(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._middleware.max_body:
            raise self._too_large()
        return message

    async def _send_settled(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._settle(str(message["status"]))
            self._has_begun = self._instead is None
        if self._instead is not None:
            raise _ReplacedError  # nobody hears the rest of it, however long it is
        await self._send(message)

    def _too_large(self) -> TooLargeError:
        return TooLargeError(
            f"The request's body is larger than {self._middleware.max_body:,} bytes (FEPFLOW_MAX_BODY)."
        )

    async def _settle(self, outcome: str) -> None:
        """Record an outcome. Frameworks treat a too large body as a bad body; here the size is the outcome."""
        if self._received > self._middleware.max_body:
            await self._refuse(self._too_large())
            return
        try:
            await self._record(outcome)
        except FepflowError as failure:
            self._instead = self._rendered(failure)

    async def _refuse(self, error: FepflowError) -> None:
        try:
            await self._record(str(error.http_status))
        except FepflowError as failure:
            error = failure
        self._instead = self._rendered(error)

    def _rendered(self, error: FepflowError) -> Response:
        response = self._middleware.render(self._path, error)
        if isinstance(error, AuthenticationError):
            response.headers["WWW-Authenticate"] = self._access.challenge
        if isinstance(error, RateLimitError):
            response.headers["Retry-After"] = str(math.ceil(error.retry_after))
        return response

    async def _record(self, outcome: str) -> None:
        action, resource = action_of(self._method, self._path)
        name, is_late = self._caller.name if self._caller else None, self._caller is None or self._needs == "read"
        # htmx, which our pages ask again with, says so. A reader who pretends to be it hides nothing but repetitions.
        is_poll = self._needs == "read" and (
            POLLED.fullmatch(self._path) is not None or Headers(scope=self._scope).get("hx-request") == "true"
        )
        await self._access.record(name, self._source, action, resource, outcome, may_be_late=is_late, is_poll=is_poll)


class _ReplacedError(Exception):
    """Another response replaces the application's."""


def action_of(method: str, path: str) -> tuple[str, str | None]:
    """Return `GET /v1/runs/{id}` and the id, the third part of a path; never the query."""
    match = _RESOURCE.fullmatch(path)
    if not match:
        return f"{method} {path}", None
    return f"{method} {match[1]}{{id}}{match[3] or ''}", match[2]


def is_interface(path: str) -> bool:
    """Return whether programs request a path, and not people's browsers."""
    return path in OPEN_PATHS or path.startswith(tuple(f"{prefix}/" for prefix in INTERFACES)) or path in INTERFACES


class HeadAsGet:
    """Middleware that handles HEAD as GET (RFC 9110, 9.1); the server sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI 3)."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send)


def with_cors(app: ASGIApp, origins: frozenset[str]) -> ASGIApp:
    """Return the application with CORS for these origins; unchanged without any."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=sorted(origins),
        allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "X-API-Key"],
        expose_headers=["Retry-After", "WWW-Authenticate"],
    )
