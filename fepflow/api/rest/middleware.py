"""Steps around every request: who calls, may they, how often, how much; the record; and probes of health.

Pure ASGI: the application's responses are handed on as they come, and a body is read only once its caller is admitted.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from fepflow.access.access import BEGUN, Access
from fepflow.access.caller import Caller
from fepflow.access.caller import Scope as Right
from fepflow.errors import AuthenticationError, FepflowError, RateLimitError, TooLargeError
from fepflow.store.store import Store

SECONDS = 3.0
"""Seconds for the store to answer; its caller gives up after a few seconds itself."""


def health_router(store: Store) -> APIRouter:
    """`/livez`: this process answers. `/readyz` and `/healthz`: its store does, too, or the status is 503."""
    router = APIRouter(include_in_schema=False)
    under_way: list[asyncio.Task[None]] = []
    """The one question to the store that is under way: a store that does not answer is not asked again and again."""

    @router.get("/livez")
    async def livez() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @router.get("/readyz")
    @router.get("/healthz")
    async def readyz() -> JSONResponse:
        if not under_way or under_way[0].done():
            under_way[:] = [asyncio.create_task(asyncio.to_thread(store.check))]
        try:
            async with asyncio.timeout(SECONDS):
                await asyncio.shield(under_way[0])
        except (FepflowError, TimeoutError):
            return JSONResponse({"status": "unavailable", "message": "The store does not answer."}, 503)
        return JSONResponse({"status": "ok"})

    return router


Render = Callable[[str, FepflowError], Response]
"""The response to a request to this path that failed so."""

Settle = Callable[[str, FepflowError | None], Awaitable[Response | None]]

OPEN_PATHS = frozenset(
    {"/healthz", "/livez", "/readyz", "/v1/health", "/v1/openapi.json", "/api/openapi.json", "/openapi.json"}
)
"""What anybody may read: whether we are there, and how we are spoken to. It is neither limited nor recorded."""

INTERFACES = ("/v1", "/api")
"""Below them there are interfaces for programs."""

QUERIES = frozenset({("POST", "/v1/reports")})
"""Requests that only read, by another method than GET."""

STARTS = frozenset({("POST", "/api/evaluations")})
"""Requests that start runs, which call agents."""

NO_RESPONSE = "no response"

_RESOURCE = re.compile(r"(/[^/]+/[^/]+/)([^/]+)(/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    headers: Headers
    source: str | None

    @property
    def is_open(self) -> bool:
        return self.method in ("GET", "HEAD") and self.path in OPEN_PATHS

    @property
    def needs(self) -> Right:
        reads = self.method in ("GET", "HEAD", "OPTIONS") or (self.method, self.path) in QUERIES
        return "read" if reads else "evaluate"

    @property
    def starts_run(self) -> bool:
        return (self.method, self.path) in STARTS

    @property
    def action(self) -> tuple[str, str | None]:
        return action_of(self.method, self.path)


class AccessMiddleware:
    """Admits requests and records them. `scope["state"]["caller"]` is the Caller, for the application.

    A request that may change something is recorded before it is carried out, and its outcome before the response is
    sent; one that reads, with its outcome only. Where that fails, the response is the error that `render` makes of
    it, 503. Put outermost, so that nothing is answered past it.
    """

    def __init__(self, app: ASGIApp, access: Access, render: Render, *, max_body: int) -> None:
        self._app = app
        self._access = access
        self._render = render
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the server's life (ASGI 3); websockets are closed."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._handle(scope, receive, send)
        else:
            await WebSocketClose(1008, "there are none here")(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        path = scope["path"].rstrip("/") or "/"
        request = _Request(scope["method"], path, Headers(scope=scope), client[0] if client else None)
        if request.is_open:
            await self._app(scope, receive, send)
            return
        caller: Caller | None = None
        try:
            headers = request.headers.items()
            caller = await self._access.admit(headers, request.source, scope.get("state", {}).get("session"))
            self._access.permit_request(caller, request.needs, headers, starts_run=request.starts_run)
            self._check_length(request)
            if request.needs != "read":
                await self._record(request, caller, BEGUN)
        except FepflowError as error:
            response: Response | None = await self._refusal(request, caller, error)
        else:
            known = {**scope, "state": {**scope.get("state", {}), "caller": caller}}
            exchange = _Exchange(self._max_body, partial(self._settle, request, caller), known, receive, send)
            response = await exchange.run(self._app)
        if response is not None:
            await response(scope, receive, send)

    def _check_length(self, request: _Request) -> None:
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self._max_body:
            raise _too_large(self._max_body)

    async def _settle(
        self, request: _Request, caller: Caller, outcome: str, error: FepflowError | None
    ) -> Response | None:
        """Record an outcome; what is to be the response instead of the application's, if anything."""
        if error is not None:
            return await self._refusal(request, caller, error)
        try:
            await self._record(request, caller, outcome)
        except FepflowError as failure:
            return self._rendered(request, failure)
        return None

    async def _refusal(self, request: _Request, caller: Caller | None, error: FepflowError) -> Response:
        try:
            await self._record(request, caller, str(error.http_status))
        except FepflowError as failure:
            error = failure
        return self._rendered(request, error)

    def _rendered(self, request: _Request, error: FepflowError) -> Response:
        response = self._render(request.path, error)
        if isinstance(error, AuthenticationError):
            response.headers["WWW-Authenticate"] = self._access.challenge
        if isinstance(error, RateLimitError):
            response.headers["Retry-After"] = str(math.ceil(error.retry_after))
        return response

    async def _record(self, request: _Request, caller: Caller | None, outcome: str) -> None:
        action, resource = request.action
        name, may_be_late = caller.name if caller else None, caller is None or request.needs == "read"
        await self._access.record(name, request.source, action, resource, outcome, may_be_late=may_be_late)


class _Exchange:
    """An admitted request: its body is counted, and its outcome is settled before the response begins."""

    def __init__(self, max_body: int, settle: Settle, scope: Scope, receive: Receive, send: Send) -> None:
        self._max_body = max_body
        self._settle = settle
        self._scope = scope
        self._receive = receive
        self._send = send
        self._received = 0
        self._begun = False
        self._instead: Response | None = None

    async def run(self, app: ASGIApp) -> Response | None:
        """Have the application respond; what is to be sent in place of that, if anything."""
        try:
            await app(self._scope, self._receive_counted, self._send_settled)
        except Exception:
            if not self._begun and self._instead is None:
                self._instead = await self._settle("500", self._too_large())
            if self._instead is None:
                raise
        if not self._begun and self._instead is None:
            self._instead = await self._settle(NO_RESPONSE, self._too_large())
        return self._instead

    def _too_large(self) -> TooLargeError | None:
        return _too_large(self._max_body) if self._received > self._max_body else None

    async def _receive_counted(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if error := self._too_large():
            raise error
        return message

    async def _send_settled(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._instead = await self._settle(str(message["status"]), self._too_large())
            self._begun = self._instead is None
        if self._instead is not None:
            raise _ReplacedError  # nobody hears the rest of it, however long it is
        await self._send(message)


class _ReplacedError(Exception):
    """Another response takes the place of the application's."""


def action_of(method: str, path: str) -> tuple[str, str | None]:
    """`GET /v1/runs/{id}` and the id: what comes third in a path. Never the query."""
    match = _RESOURCE.fullmatch(path)
    if not match:
        return f"{method} {path}", None
    return f"{method} {match[1]}{{id}}{match[3] or ''}", match[2]


def is_interface(path: str) -> bool:
    """Return whether a path is one that programs ask for, and not people's browsers."""
    return path in OPEN_PATHS or path.startswith(tuple(f"{prefix}/" for prefix in INTERFACES)) or path in INTERFACES


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"The request's body is larger than {limit:,} bytes (FEPFLOW_MAX_BODY).")


class HeadAsGet:
    """Has HEAD handled as GET: a path of that has it, too (RFC 9110, 9.1), and the server sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI 3)."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send)


def with_cors(app: ASGIApp, origins: frozenset[str]) -> ASGIApp:
    """Return the application, for pages of these origins, too; as it is without any."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=sorted(origins),
        allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "X-API-Key"],
        expose_headers=["Retry-After", "WWW-Authenticate"],
    )
