"""Messages between an MCP server and the SDK's session, and the requests under way.

The SDK drops answers to unknown requests and lines that are not messages, so callers would wait until their time-out.
Here the requests under way fail at once, with an error that shows what came instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Final, Self

import anyio
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

from fepflow.calls.json_rpc import LARGE_TEXT, malformed
from fepflow.calls.processes import ChildProcess
from fepflow.calls.programs import obituary
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
