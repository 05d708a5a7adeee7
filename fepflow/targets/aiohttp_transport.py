"""The connections of the HTTP client: aiohttp's, behind httpx."""

from __future__ import annotations

from typing import Any

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport


class Transport(AiohttpTransport):
    """As httpx-aiohttp's; each request is sent once, as it is written."""

    def get_client(self) -> aiohttp.ClientSession:
        """The pool of connections."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.limits.max_connections or 0, ssl=self.ssl_context),
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=_Response,
        )
        # aiohttp would send a GET or PUT again by itself when a kept-alive connection turns out to be closed: a call
        # that no attempt log knows of. There is no public switch.
        session._retry_connection = False
        return session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it with the names of its headers as they are written: as a mapping, httpx's have lower case."""
        headers = request.headers
        request.headers = {name.decode(): value.decode() for name, value in headers.raw}  # type: ignore[assignment]
        try:
            return await super().handle_async_request(request)
        finally:
            request.headers = headers


class _Response(aiohttp.ClientResponse):
    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Read the head; what is no text in the reason, which the transport would fail at, is replaced."""
        await super().start(connection)
        self.reason = (self.reason or "").encode("ascii", "replace").decode()
        return self
