"""Places of an MCP server: a program to start, or an address. The SDK is loaded with the first session only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from fepflow.calls.http_client import (
    Client,
    add_auth_in_address,
    add_headers,
    address_without_secrets,
    connections_to,
    parse_address,
    timeout_of,
)
from fepflow.calls.processes import Tail
from fepflow.calls.programs import Programs, end_process
from fepflow.calls.response_body import ACCEPT_ENCODING
from fepflow.calls.response_parser import MCP
from fepflow.security.secret_names import is_secret_name
from fepflow.suite import target

if TYPE_CHECKING:
    from fepflow.calls.mcp.traffic import Reader, Traffic, Writer


class Program:
    """The program of a suite in `folder`, which is started for each session, and killed after it."""

    def __init__(self, config: target.Target, folder: Path, secrets: frozenset[str]) -> None:
        assert config.mcp is not None  # whoever calls this has seen its command
        self._programs = Programs(config.mcp, folder, config.trace)
        self._limit = config.mcp.max_bytes
        self._secrets = secrets
        self.identity: Final = self._programs.identity

    @asynccontextmanager
    async def streams(self, traffic: Traffic) -> AsyncIterator[tuple[Reader, Writer]]:
        """Give the streams of a session. Raises TargetError."""
        from fepflow.calls.mcp.traffic import ProcessLines, Reader, Writer

        process = await self._programs.start()
        try:
            lines = ProcessLines(process, traffic, self._limit, self._secrets)
            yield Reader(traffic, lines.receive), Writer(traffic, lines.send)
        finally:
            await end_process(process, Tail())

    async def aclose(self) -> None:
        """Kill what is left of the processes."""
        await self._programs.aclose()


class Endpoint:
    """`config.mcp.url`, and the connections to it. Raises InputError for an address or a header that cannot be used."""

    def __init__(self, config: target.Target, secrets: frozenset[str]) -> None:
        assert config.mcp is not None  # whoever calls this has seen its address
        address = parse_address(config.mcp.url or "", MCP.url)
        self._url = address.copy_with(userinfo=b"", fragment=None)
        self._headers = httpx.Headers({"User-Agent": "fepflow", "Accept-Encoding": ACCEPT_ENCODING})
        add_headers(self._headers, config.mcp.headers, "target.mcp.headers")
        add_auth_in_address(self._headers, address)
        self._timeout = timeout_of(config)
        # Beside the calls: the server's own stream, and a notification.
        self._client = Client(connections_to(self._url, config.concurrency + 2, self._timeout))
        self._limit = config.mcp.max_bytes
        self._secrets = secrets
        public = {name: value for name, value in config.mcp.headers.items() if not is_secret_name(name)}
        self.identity: Final = [address_without_secrets(self._url), public]

    @asynccontextmanager
    async def streams(self, traffic: Traffic) -> AsyncIterator[tuple[Reader, Writer]]:
        """Give the streams of a session."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        from fepflow.calls.mcp.http import Transport
        from fepflow.calls.mcp.traffic import Reader, Writer

        transport = Transport(self._client, self._url, self._timeout, self._limit, self._secrets, traffic)
        async with (
            # Without a timeout of its own: each call has its deadline.
            httpx2.AsyncClient(transport=transport, headers=self._headers.raw, timeout=None, trust_env=False) as client,
            streamable_http_client(str(self._url), http_client=client, max_sse_event_size=None) as (read, write),
        ):
            yield Reader(traffic, read.__anext__), Writer(traffic, write.send)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def open_servers(config: target.Target, folder: Path, secrets: frozenset[str]) -> Program | Endpoint:
    """Return the servers of a target that has `mcp`; nothing is started yet. `secrets` are shown in no message.

    Raises InputError for an address or a header that cannot be used.
    """
    assert config.mcp is not None  # the caller has looked
    if config.mcp.command is not None:
        return Program(config, folder, secrets)
    return Endpoint(config, secrets)
