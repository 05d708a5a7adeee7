"""The system under test as an MCP server, a program or an address: each test case calls one of its tools.

The SDK, which takes half a second, is loaded with the first session.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fepflow.calls import http_client
from fepflow.calls.base import Progress, TargetResponse, progress_of_call
from fepflow.calls.processes import Programs, Tail, end_process
from fepflow.calls.responses import MCP
from fepflow.calls.thread_pool import READERS
from fepflow.errors import TargetError
from fepflow.json.values import is_large
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import known_secrets, redact_json, remember, secrets_in_address
from fepflow.suite import target
from fepflow.suite.target import call_problem

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

    from fepflow.calls.mcp.session import Connection, Server
    from fepflow.calls.mcp.traffic import Reader, Traffic, Writer

MAX_SCHEMA = 100_000
"""Most characters of an outputSchema that is stored with each output."""


class McpTarget:
    """An MCP server as a target. A case's input is `{tool, arguments}`, and `is_error: true` if the tool is to refuse.

    Opening it starts nothing. The value of an output is the result's structuredContent; without it, the text, if the
    content is one text, else the list of contents. Its metadata has `tool`, `is_error`, `outcome` (`answer`, `error`,
    or `refusal` for an error that the case expects), `expected_outcome`, `content`, `server`, `protocol_version`, and,
    if there are any, `structuredContent` and `outputSchema`. Answers are redacted: `secrets`, and values of environment
    variables with names of secrets. Raises InputError for an address or a header that cannot be used.
    """

    def __init__(self, config: target.Target, folder: Path, secrets: frozenset[str] = frozenset()) -> None:
        assert config.mcp is not None  # the factory has looked
        secrets |= secrets_in_address(config.mcp.url or "")
        remember(secrets)
        self.secrets = secrets | known_secrets()
        self._servers: Final = open_servers(config, folder, self.secrets)
        self._connection: Connection | None = None
        self._ended: set[asyncio.Task[None]] = set()
        self.fingerprint = content_hash("mcp", redact_json(self._servers.identity, self.secrets))

    def render(self, case: TestCase) -> Any:
        """Return the call of a tool. Raises TargetError for an invalid input."""
        if problem := call_problem(case.input):
            raise TargetError(problem, kind="request", retryable=False)
        call = {"tool": case.input["tool"], "arguments": case.input.get("arguments") or {}}
        return {**call, "is_error": True} if case.input.get("is_error") else call

    async def call(self, request: Any) -> TargetResponse:
        """Call the tool once. Raises TargetError."""
        progress = progress_of_call.get(None) or Progress()
        progress.place = "initialize"
        server = await self._server()
        progress.place = ""
        tool = await server.tool(request["tool"])
        result = await server.call_tool(tool.name, request["arguments"])
        expects_error = request.get("is_error", False)
        read = partial(_response, server, tool, result, self.secrets, expects_error=expects_error)
        is_long = is_large([result.structured_content, *map(vars, result.content)])
        return await READERS.run(read) if is_long else read()

    async def _server(self) -> Server:
        from fepflow.calls.mcp.session import Connection  # the SDK, which takes half a second to load

        if self._connection is None or not self._connection.is_open:
            if self._connection is not None:
                ending = asyncio.ensure_future(self._connection.aclose())
                self._ended.add(ending)
                ending.add_done_callback(self._ended.discard)
            self._connection = Connection(
                self._servers.streams, self.secrets, is_program=isinstance(self._servers, Program)
            )
        return await self._connection.server()

    async def aclose(self) -> None:
        """End the session, the process that fepflow started, and the connections."""
        if self._connection is not None:
            await self._connection.aclose()
        await asyncio.gather(*self._ended)
        await self._servers.aclose()


def _response(
    server: Server, tool: Tool, result: CallToolResult, secrets: frozenset[str], *, expects_error: bool
) -> TargetResponse:
    from fepflow.calls.mcp.session import json_of

    data = json_of(result)
    content, is_error = data.get("content", []), data.get("isError", False) is True
    metadata = {
        "tool": tool.name,
        "is_error": is_error,
        "outcome": ("refusal" if expects_error else "error") if is_error else "answer",
        "expected_outcome": "refusal" if expects_error else "answer",
        "content": content,
        **server.about,
    }
    if tool.output_schema is not None and len(json.dumps(tool.output_schema)) <= MAX_SCHEMA:
        metadata["outputSchema"] = tool.output_schema
    value = content[0].get("text") if len(content) == 1 and content[0].get("type") == "text" else content
    if (structured := data.get("structuredContent")) is not None:  # some servers write null if there is none
        value = metadata["structuredContent"] = structured
    return TargetResponse(*redact_json([value, metadata], secrets))


# --- servers ---------------------------------------------------------------------------------------------------------


class Program(Programs):
    """The program of a server, started for each session and killed after it."""

    @asynccontextmanager
    async def streams(self, traffic: Traffic) -> AsyncIterator[tuple[Reader, Writer]]:
        """Open the streams of a session. Raises TargetError."""
        from fepflow.calls.mcp.traffic import ProcessLines, Reader, Writer

        process = await self.start()
        try:
            lines = ProcessLines(process, traffic, self._config.max_bytes, self._secrets)
            yield Reader(traffic, lines.receive), Writer(traffic, lines.send)
        finally:
            await end_process(process, Tail())


class Endpoint(http_client.Endpoint):
    """The address of an MCP server. Raises InputError for an address or a header that cannot be used."""

    def __init__(self, config: target.Target, secrets: frozenset[str]) -> None:
        assert config.mcp is not None  # the caller has looked
        # Beside the calls: the server's own stream, and a notification.
        super().__init__(config.mcp, config, MCP, config.concurrency + 2)
        self._secrets = secrets

    @asynccontextmanager
    async def streams(self, traffic: Traffic) -> AsyncIterator[tuple[Reader, Writer]]:
        """Open the streams of a session."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        from fepflow.calls.mcp.traffic import Reader, Transport, Writer

        transport = Transport(self, self._secrets, traffic)
        async with (
            # Without a timeout, because each call has its deadline.
            httpx2.AsyncClient(transport=transport, headers=self.headers.raw, timeout=None, trust_env=False) as client,
            streamable_http_client(str(self.url), http_client=client, max_sse_event_size=None) as (read, write),
        ):
            yield Reader(traffic, read.__anext__), Writer(traffic, write.send)


def open_servers(config: target.Target, folder: Path, secrets: frozenset[str]) -> Program | Endpoint:
    """Return the server of an `mcp` target. Nothing is started yet; no message shows `secrets`.

    Raises InputError for an address or a header that cannot be used.
    """
    assert config.mcp is not None  # the caller has looked
    if config.mcp.command is not None:
        return Program(config, folder, secrets)
    return Endpoint(config, secrets)
