"""The connections of the HTTP client: aiohttp's, behind httpx.

The one private member of another library that calls use is here: `ClientSession._retry_connection`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import httpx


class Transport(httpx.AsyncBaseTransport):
    """A transport of at most `connections`, kept alive; each request is sent once, its headers as they are written.

    It raises aiohttp's own errors. `verify` is what certificates are checked against, False for nothing; `proxy`
    may have a user. Requests have the timeouts of the transport, whatever they themselves say. `new_socket` makes the
    socket of each connection, and may refuse what is about to be dialled by raising an OSError.
    """

    def __init__(
        self,
        connections: int,
        timeout: httpx.Timeout,
        new_socket: Callable[[Any], Any] | None,
        verify: ssl.SSLContext | bool,
        proxy: str | None = None,
    ) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=verify, socket_factory=new_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeout.connect, sock_read=timeout.read),
            auto_decompress=False,
            proxy=proxy,
        )
        # aiohttp would send a GET or PUT again by itself when a kept-alive connection turns out to be closed: a call
        # that no attempt log knows of. There is no public switch.
        self._session._retry_connection = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it; the response's body is there as it comes, and as it is."""
        response = await self._session.request(
            request.method,
            str(request.url),
            # httpx's own mapping of them has the names in lower case.
            headers={name.decode(): value.decode() for name, value in request.headers.raw},
            data=request.content or None,
            allow_redirects=False,
        )
        reason = (response.reason or "").encode("ascii", "replace")
        return httpx.Response(
            response.status,
            headers=response.raw_headers,
            stream=_Body(response),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": reason},
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()

    async def aclose(self) -> None:
        self._response.release()
        await self._response.wait_for_close()
