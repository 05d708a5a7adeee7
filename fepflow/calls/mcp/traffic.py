"""Messages between an MCP server and the SDK's session, over pipes or HTTP, and the requests under way.

The SDK drops answers to unknown requests and lines that are not messages, so callers would wait until their time-out.
Here the requests under way fail at once, with an error that shows what came instead. The SDK's HTTP client reads bodies
without limit, ends the whole session when one connection breaks, and hides the reason of an HTTP error. So it gets a
transport that never raises: the error is kept in the exchange of the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Final, Self

import anyio
import httpx
import httpx2
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from fepflow.calls.base import traceparent
from fepflow.calls.http_client import Endpoint, refused_redirect, wire_errors
from fepflow.calls.processes import ChildProcess, obituary
from fepflow.calls.responses import (
    LARGE_TEXT,
    MCP,
    close,
    malformed,
    media_type,
    read_beginning,
    read_pieces,
    status_error,
)
from fepflow.calls.thread_pool import READERS
from fepflow.errors import TargetError
from fepflow.security.redaction import excerpt

logger = logging.getLogger("fepflow.calls")

_SHOWN = 120


class Exchange:
    """One request and its answer. `fault` is fepflow's reason for a missing answer, if it knows one."""

    def __init__(self) -> None:
        self.fault: TargetError | None = None
        self.heard_before = 0
        """Number of messages that the server had sent before the request."""


exchange_under_way: ContextVar[Exchange] = ContextVar("fepflow_mcp_exchange")
"""The exchange of the request that this task sends. The SDK passes contexts on; it chooses the ids itself."""


class Traffic:
    """Requests under way on a connection, and `errors` in place of answers that will not come."""

    def __init__(self) -> None:
        self.is_open = True
        self.errors: Final[deque[SessionMessage]] = deque()
        self.unheard: TargetError | None = None
        """An error before the first request, which it ends: for example a text that a server prints at its start."""
        self.is_silent = False
        """True if the server has sent nothing since the last cancelled request was sent."""
        self.tools_have_changed = False
        """True if the server has announced a change since its tools were listed."""
        self._heard = 0
        self._under_way: dict[RequestId, Exchange] = {}
        self._last_id = 0

    def sent(self, item: SessionMessage) -> None:
        """Note a message that the session sends."""
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._last_id = max(self._last_id, message.id if isinstance(message.id, int) else 0)
            exchange = exchange_under_way.get()
            if self.unheard is not None:
                exchange.fault = self.unheard
                raise anyio.ClosedResourceError  # the SDK takes it for the end of the connection
            exchange.heard_before = self._heard
            self._under_way[message.id] = exchange
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            given_up = self._under_way.pop((message.params or {}).get("requestId", 0), None)
            self.is_silent = given_up is not None and given_up.heard_before == self._heard

    def received(self, item: SessionMessage) -> None:
        """Note a message of the server. A wrong answer fails all requests under way."""
        self._heard += 1
        message = item.message
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/tools/list_changed":
            self.tools_have_changed = True
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return
        request_id = None if message.id is None else coerce_request_id(message.id)
        if request_id is None and isinstance(message, JSONRPCError):
            words = excerpt(message.error.message, frozenset())
            self.fail(malformed(f"the server answered without an id that it cannot read a request: {words}"))
        elif self._under_way.pop(request_id or 0, None) is None and not self._was_asked(request_id):
            shown = excerpt(repr(message.id), frozenset(), 60)
            self.fail(malformed(f"an answer came with the id {shown}, which no request has"))

    def _was_asked(self, request_id: RequestId | None) -> bool:
        """Return whether an answer is late, or repeats an earlier one."""
        return isinstance(request_id, int) and 0 < request_id <= self._last_id

    def fail(self, error: TargetError) -> None:
        """End all requests under way with an error. With several, the culprit is unknown, so all may be retried."""
        if not self._last_id:
            self.unheard = self.unheard or error
        elif not self._under_way:
            logger.warning("between two calls: %s", error)
        if len(self._under_way) > 1 and not error.retryable:
            error = TargetError(f"{error} (of {len(self._under_way)} calls under way)", kind=error.kind, retryable=True)
        for request_id, exchange in self._under_way.items():
            # One for each call, which adds its own place.
            exchange.fault = TargetError(str(error), kind=error.kind, retryable=error.retryable)
            data = ErrorData(code=INTERNAL_ERROR, message="failed")
            self.errors.append(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=data)))
        self._under_way.clear()


class _Stream:
    """A direction of the session's messages."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    async def aclose(self) -> None:
        """Note that the session is over. The owner of the connection closes it."""
        self._traffic.is_open = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Writer(_Stream):
    """The direction to the server."""

    def __init__(self, traffic: Traffic, send: Callable[[SessionMessage], Awaitable[None]]) -> None:
        super().__init__(traffic)
        self._send = send

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        self._traffic.sent(item)
        await self._send(item)


class Reader(_Stream):
    """The direction from the server. `receive` returns the next message, and raises StopAsyncIteration at the end."""

    last_context = None

    def __init__(self, traffic: Traffic, receive: Callable[[], Awaitable[SessionMessage | Exception]]) -> None:
        super().__init__(traffic)
        self._receive = receive

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        """Return the next message, but first the errors in place of answers."""
        if not self._traffic.errors:
            try:
                item = await self._receive()
            except StopAsyncIteration:
                self._traffic.is_open = False
                if not self._traffic.errors:
                    raise
            else:
                if isinstance(item, SessionMessage):
                    self._traffic.received(item)
                return item
        return self._traffic.errors.popleft()

    receive = __anext__


class ProcessLines:
    """The messages of a process, one on each line of its stdin and stdout.

    It may write at most `limit` bytes without an answer. No error shows `secrets`.
    """

    def __init__(self, process: ChildProcess, traffic: Traffic, limit: int, secrets: frozenset[str]) -> None:
        self._process = process
        self._traffic = traffic
        self._limit = limit
        self._secrets = secrets
        self._unanswered = 0

    async def send(self, item: SessionMessage) -> None:
        """Write a message."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._process.stdin.write(text.encode() + b"\n")
        if self._traffic.is_silent:  # many servers do one thing at a time, and may be stuck
            message = "the server hangs in another call, so it is restarted"
            self._traffic.fail(TargetError(message, kind="connect", retryable=True))
            self._traffic.is_open = False

    async def receive(self) -> SessionMessage:
        """Return the next message. Raises StopAsyncIteration when the process has ended or written too much; the
        requests under way have their error then."""
        while True:
            try:
                line = await self._process.read_line()
            except asyncio.LimitOverrunError:
                line, self._unanswered = b"", self._limit + 1
            self._unanswered += len(line)
            if self._unanswered > self._limit:
                message = f"the server wrote more than {self._limit:,} bytes without an answer (target.mcp.max_bytes)"
                self._traffic.fail(TargetError(message, kind="too_large", retryable=False))
                raise StopAsyncIteration
            if not line:
                self._traffic.fail(await obituary(self._process, self._secrets, "server"))
                raise StopAsyncIteration
            if (item := await self._read(line)) is not None:
                return item
            if self._traffic.errors:
                return self._traffic.errors.popleft()

    async def _read(self, line: bytes) -> SessionMessage | None:
        read = partial(jsonrpc_message_adapter.validate_json, line, by_name=False)
        try:
            message = await READERS.run(read) if len(line) > LARGE_TEXT else read()
        except (ValidationError, UnicodeDecodeError):
            if line.strip() and line.endswith(b"\n"):  # a dying process may leave half a line
                self._refuse(line)
            return None
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._unanswered = 0
        return SessionMessage(message)

    def _refuse(self, line: bytes) -> None:
        text = excerpt(line.decode("utf-8", "replace"), self._secrets, _SHOWN)
        if line.lstrip().startswith(b"{") and b'"jsonrpc"' in line:
            self._traffic.fail(malformed(f"the server sent a line that is not a JSON-RPC 2.0 message: {text}"))
            return
        advice = "stdout is for the protocol only: print to stderr"
        self._traffic.fail(
            malformed(f"the server printed to stdout a line that is not an MCP message: {text} ({advice})")
        )


# --- messages over HTTP ----------------------------------------------------------------------------------------------


_EVENTS = "text/event-stream"


class Transport(httpx2.AsyncBaseTransport):
    """A transport that never raises: the exchange under way gets the error."""

    def __init__(self, endpoint: Endpoint, secrets: frozenset[str], traffic: Traffic) -> None:
        self._endpoint = endpoint
        self._secrets = secrets
        self._traffic = traffic

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. After an error, return a response that the SDK reads as a failure."""
        exchange = exchange_under_way.get(Exchange()) if request.method == "POST" else Exchange()
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
        if (context := traceparent.get()) is not None:
            headers.append((b"traceparent", context.encode()))
        try:
            content = await request.aread()
            with wire_errors(self._endpoint.url, self._endpoint.timeout, MCP):
                sent = httpx.Request(request.method, str(request.url), headers=headers, content=content)
                response = await self._endpoint.client.send(sent)
        except TargetError as error:
            exchange.fault = error
            return httpx2.Response(503, request=request)
        exchange.fault = None
        if response.status_code >= 300:
            return await self._refused(request, response, exchange)
        self._look_at_head(response, exchange)
        return httpx2.Response(
            response.status_code,
            headers=[pair for pair in response.headers.raw if pair[0].lower() != b"content-encoding"],
            stream=_Body(response, exchange, self._endpoint),
            request=request,
        )

    def _look_at_head(self, response: httpx.Response, exchange: Exchange) -> None:
        kind = media_type(response)
        if response.status_code == 202:
            exchange.fault = malformed("HTTP 202: the server took the request for a notification, and sends no answer")
        elif kind not in ("application/json", _EVENTS):
            what = excerpt(kind, self._secrets, 60) or "missing"
            message = f"the answer's Content-Type is {what}, not JSON or a stream of events: check {MCP.url}"
            exchange.fault = malformed(message)

    async def _refused(self, request: httpx2.Request, response: httpx.Response, exchange: Exchange) -> httpx2.Response:
        """Return an unsuccessful response with its body. A JSON-RPC error in it is the answer."""
        status, encoding = response.status_code, response.headers.get("Content-Encoding", "")
        try:
            with wire_errors(self._endpoint.url, self._endpoint.timeout, MCP):
                body = await read_beginning(response.aiter_raw(), encoding)
        except TargetError:
            body = b""
        finally:
            await response.aclose()
        location = response.headers.get("Location")
        if status < 400 and location is not None:
            exchange.fault = refused_redirect(self._endpoint.url, location, status, self._secrets)
            return httpx2.Response(status, headers={"Location": location}, request=request)
        fault = status_error(response, body.decode("utf-8", "replace"), self._secrets, MCP)
        if status == 404 and "mcp-session-id" in request.headers:
            self._traffic.is_open = False
            message = "HTTP 404: the server has forgotten the session; the next attempt starts a new one"
            fault = TargetError(message, kind="http_status", retryable=True, status=404)
        if fault.retryable or not _is_error(body):
            exchange.fault = fault
            body = b""
        return httpx2.Response(status, headers={"Content-Type": "application/json"}, content=body, request=request)


def _is_error(body: bytes) -> bool:
    try:
        return isinstance(jsonrpc_message_adapter.validate_json(body, by_name=False), JSONRPCError)
    except ValidationError:
        return False


class _Body(httpx2.AsyncByteStream):
    """The body of a response, decoded and bounded. If it ends before the answer, the exchange gets the error."""

    def __init__(self, response: httpx.Response, exchange: Exchange, endpoint: Endpoint) -> None:
        self._response = response
        self._exchange = exchange
        self._endpoint = endpoint

    async def __aiter__(self) -> AsyncIterator[bytes]:
        encoding = self._response.headers.get("Content-Encoding", "")
        try:
            with wire_errors(self._endpoint.url, self._endpoint.timeout, MCP):
                async for piece in read_pieces(self._response.aiter_raw(), encoding, self._endpoint.max_bytes):
                    yield piece
        except TargetError as error:
            self._exchange.fault = error
            raise httpx2.StreamError("see the exchange's fault") from None
        if media_type(self._response) == _EVENTS:
            # The SDK stops reading at the answer.
            message = "the stream of events ended without an answer"
            self._exchange.fault = TargetError(message, kind="connect", retryable=True)

    async def aclose(self) -> None:
        await close(self._response)
