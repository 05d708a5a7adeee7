"""Sessions with an MCP server through the public SDK: one for all calls of a run, and a new one after a failure."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any, cast

from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    Result,
    Tool,
)
from pydantic import TypeAdapter, ValidationError

from fepflow.calls.base import Progress, pass_traceparent, progress_of_call, traceparent
from fepflow.calls.mcp.traffic import Exchange, Reader, Traffic, Writer, exchange_under_way
from fepflow.calls.policy import time_limit
from fepflow.calls.responses import MAX_VALUES, RpcError, incompatible, malformed, misfit
from fepflow.documents.messages import did_you_mean
from fepflow.errors import TargetError, TargetTimeoutError
from fepflow.json.values import has_more_values
from fepflow.security.redaction import excerpt, words_of

MAX_PAGES = 100
"""Most pages of tools/list, for servers whose list never ends."""

START_SECONDS = 30.0
"""Time limit for a server to start and list its tools; then the next attempt starts it again."""

_CLOSING_SECONDS = 5.0
"""Time limit for the end of a session, including the seconds for a process to end by itself."""

_SHOWN = 300
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)

_LOGGERS = ("client", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher", "httpx2")


def _is_of_others(_: logging.LogRecord) -> bool:
    return exchange_under_way.get(None) is None


for _name in _LOGGERS:
    # The SDK logs tracebacks, texts of servers and whole addresses; here each of these is an error of its call.
    logging.getLogger(_name).addFilter(_is_of_others)

OpenStreams = Callable[[Traffic], AbstractAsyncContextManager[tuple[Reader, Writer]]]
"""Opens the streams of a session. Raises TargetError."""


class Server:
    """A server with an open session, and its `tools`."""

    def __init__(self, session: ClientSession, traffic: Traffic, secrets: frozenset[str]) -> None:
        self.tools: dict[str, Tool] = {}
        self._session = session
        self._traffic = traffic
        self._secrets = secrets

    @property
    def about(self) -> dict[str, Any]:
        """Facts about the server, for an output's metadata."""
        info = self._session.server_info
        server = {} if info is None else {"name": info.name, "version": info.version}
        return {"server": server, "protocol_version": self._session.protocol_version}

    async def set_up(self) -> None:
        """Agree on a version, and list the tools. Raises TargetError.

        `initialize` comes first, because some servers end at any other request before it. Newer servers have replaced
        it by `server/discover`.
        """
        try:
            with self._asking("initialize"):
                await self._session.initialize()
        except RpcError as error:
            if error.code not in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
                raise
            with self._asking("server/discover"):
                await self._session.discover()
        await self.list_tools()

    async def list_tools(self) -> None:
        """Ask for all tools. Raises TargetError."""
        self._traffic.tools_have_changed = False
        tools: dict[str, Tool] = {}
        cursors: set[str | None] = {None}
        with self._asking("tools/list"):
            cursor = None
            while len(cursors) <= MAX_PAGES:
                params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
                page = await self._session.list_tools(params=params)
                tools.update({tool.name: tool for tool in page.tools})
                cursor = page.next_cursor
                if cursor is None:
                    self.tools = tools
                    return
                if cursor in cursors:
                    raise malformed("tools/list: the server sends the same page again and again")
                cursors.add(cursor)
        raise malformed(f"tools/list: the server sends more than {MAX_PAGES} pages")

    async def tool(self, name: str) -> Tool:
        """Return a tool. Raises TargetError if the server does not list it."""
        if self._traffic.tools_have_changed or name not in self.tools:
            await self.list_tools()
        if name not in self.tools:
            advice = did_you_mean(name, sorted(self.tools)) if self.tools else "it lists none"
            message = f"the server has no tool {excerpt(name, self._secrets, 60)} ({excerpt(advice, self._secrets)})"
            raise TargetError(message, kind="request", retryable=False)
        return self.tools[name]

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool. A cancelled call is also cancelled at the server. Raises TargetError."""
        meta: Any = None if (context := pass_traceparent()) is None else {"traceparent": context}
        params = CallToolRequestParams(name=name, arguments=dict(arguments), _meta=meta)
        noting = partial(self._note_progress, progress_of_call.get(Progress()))
        with self._asking():
            # `session.call_tool` would validate the result, and hide one that does not fit the schema.
            result = await self._session.send_request(CallToolRequest(params=params), _RESULT, progress_callback=noting)
        if isinstance(result, InputRequiredResult):
            message = "the tool asks for input during the call, which an evaluation cannot give"
            raise TargetError(message, kind="agent_error", retryable=False)
        return result

    async def _note_progress(self, progress: Progress, done: float, total: float | None, message: str | None) -> None:
        words = f": {excerpt(message, self._secrets, 100)}" if message else ""
        progress.place = f"at {done:g}{f' of {total:g}' if total else ''}{words}"

    @contextmanager
    def _asking(self, method: str = "") -> Iterator[None]:
        """Turn the SDK's exceptions into TargetErrors that name the method, if given."""
        exchange = Exchange()
        token = exchange_under_way.set(exchange)
        try:
            yield
        except (MCPError, ValidationError, RuntimeError) as error:
            failure = exchange.fault or self._in_words(error)
            if method:
                failure.args = (f"{method}: {failure}",)
            raise failure from None
        finally:
            exchange_under_way.reset(token)

    def _in_words(self, error: MCPError | ValidationError | RuntimeError) -> TargetError:
        if isinstance(error, ValidationError):
            return misfit("result", error, self._secrets)
        if isinstance(error, RuntimeError):  # the SDK's error for unsupported versions
            return incompatible(words_of(error))
        words = excerpt(error.message, self._secrets, _SHOWN)
        if error.code == CONNECTION_CLOSED and not self._traffic.is_open:
            return self._traffic.unheard or TargetError(
                "the connection to the server was closed", kind="connect", retryable=True
            )
        if error.code == PARSE_ERROR:
            return malformed(f"the answer is not a JSON-RPC 2.0 message: {words}")
        return RpcError(error.code, f"the server answered with the error {error.code}: {words}")


class Connection:
    """A session in its own task, because the SDK's scopes must end in the task in which they began."""

    def __init__(self, open_streams: OpenStreams, secrets: frozenset[str], *, is_program: bool = False) -> None:
        self._open_streams = open_streams
        self._is_program = is_program
        self._secrets = secrets
        self._traffic = Traffic()
        self._ready: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    @property
    def is_open(self) -> bool:
        """True while calls can be made, or the session is being set up."""
        has_failed = self._ready.done() and self._ready.exception() is not None
        return self._traffic.is_open and not (has_failed or self._over.is_set() or self._task.done())

    async def server(self) -> Server:
        """Return the server once it is set up. Raises TargetError.

        A program may take longer to start than a call may last, so the next attempt waits for the same program. An
        address that does not answer is asked again.
        """
        try:
            return await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            if not self._is_program:
                self._end()
            raise

    async def _run(self) -> None:
        traceparent.set(None)  # the session does not belong to the first call
        exchange_under_way.set(Exchange())

        def late() -> TargetTimeoutError:
            return TargetTimeoutError(f"initialize: the server did not answer within {START_SECONDS:g} s")

        try:
            async with (
                self._open_streams(self._traffic) as (reader, writer),
                ClientSession(reader, writer, client_info=Implementation(name="fepflow", version="1")) as session,
            ):
                server = Server(session, self._traffic, self._secrets)
                try:
                    async with time_limit(START_SECONDS, late):
                        await server.set_up()
                except TargetError as error:  # outside, it would be in a group of the SDK's exceptions
                    self._fail(error)
                else:
                    self._ready.set_result(server)
                    await self._over.wait()
        except TargetError as error:
            self._fail(error)
        except Exception as error:  # exception groups of the SDK
            self._fail(TargetError(f"the connection broke: {words_of(error)}", kind="connect", retryable=True))
        finally:
            self._traffic.is_open = False
            self._fail(late())

    def _fail(self, error: TargetError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # marks it as retrieved, for nobody may be waiting

    def _end(self) -> None:
        self._over.set()
        if not self._ready.done():
            self._task.cancel()

    async def aclose(self) -> None:
        """End the session, and what was started for it."""
        self._end()
        await asyncio.wait({self._task}, timeout=_CLOSING_SECONDS)
        self._task.cancel()
        await asyncio.wait({self._task})


def json_of(result: Result) -> dict[str, Any]:
    """Return a result as JSON, unchanged. Raises TargetError for too many values, and if it is not JSON."""
    try:
        # pydantic's own dump as JSON has null for NaN.
        text = json.dumps(result.model_dump(by_alias=True, exclude_unset=True), allow_nan=False, default=str)
    except (ValueError, RecursionError):
        raise malformed(
            "the result is not JSON: it has NaN or a number that is too large, or is nested too deep"
        ) from None
    if has_more_values(text, MAX_VALUES):
        message = f"the result holds more than {MAX_VALUES:,} JSON values"
        raise TargetError(message, kind="too_large", retryable=False)
    return cast("dict[str, Any]", json.loads(text))
