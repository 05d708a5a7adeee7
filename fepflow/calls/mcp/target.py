"""The system under test as an MCP server: each test case calls one of its tools."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fepflow.calls.base import Progress, TargetResponse, progress_of_call
from fepflow.calls.mcp.servers import Program, open_servers
from fepflow.calls.thread_pool import READERS
from fepflow.errors import TargetError
from fepflow.json.values import is_large
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import known_secrets, redact_json, remember
from fepflow.security.secret_names import secrets_in_address
from fepflow.suite import target
from fepflow.suite.mcp_calls import call_problem

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

    from fepflow.calls.mcp.session import Connection, Server

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
