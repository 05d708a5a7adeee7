"""The two kinds of MCP servers: a program or an address. The SDK is loaded with the first session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fepflow.calls import http_client
from fepflow.calls.processes import Tail
from fepflow.calls.programs import Programs, end_process
from fepflow.calls.response_parser import MCP
from fepflow.suite import target

if TYPE_CHECKING:
    from fepflow.calls.mcp.traffic import Reader, Traffic, Writer


class Program(Programs):
    """The program of a suite in `folder`, started for each session and killed after it."""

    def __init__(self, config: target.Target, folder: Path, secrets: frozenset[str]) -> None:
        assert config.mcp is not None  # the caller has looked
        super().__init__(config.mcp, folder, config.trace)
        self._limit = config.mcp.max_bytes
        self._secrets = secrets

    @asynccontextmanager
    async def streams(self, traffic: Traffic) -> AsyncIterator[tuple[Reader, Writer]]:
        """Open the streams of a session. Raises TargetError."""
        from fepflow.calls.mcp.traffic import ProcessLines, Reader, Writer

        process = await self.start()
        try:
            lines = ProcessLines(process, traffic, self._limit, self._secrets)
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

        from fepflow.calls.mcp.http import Transport
        from fepflow.calls.mcp.traffic import Reader, Writer

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
