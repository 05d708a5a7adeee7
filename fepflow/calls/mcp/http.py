"""An MCP server behind an address: the SDK's Streamable HTTP over fepflow's connections, with their limits and errors.

The SDK's own client reads bodies without limit, ends the whole session when one connection breaks, and tells of an HTTP
error only that there was one. So it gets a transport that never raises: what goes wrong is kept for whoever asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from fepflow.calls.base import traceparent
from fepflow.calls.ecp.protocol import malformed
from fepflow.calls.http_client import (
    Client,
    add_auth_in_address,
    add_headers,
    address_without_secrets,
    connections_to,
    parse_address,
    wire_errors,
)
from fepflow.calls.mcp.traffic import Exchange, Reader, Traffic, Writer, exchange_under_way
from fepflow.calls.response_body import ACCEPT_ENCODING, read_beginning, read_pieces
from fepflow.calls.response_parser import SettingNames, status_error
from fepflow.errors import TargetError
from fepflow.security.addresses import host_and_port
from fepflow.security.redaction import excerpt, redact
from fepflow.security.secret_names import is_secret_name
from fepflow.suite import target

NAMES = SettingNames.of_suite("target.mcp")
_SHOWN_BYTES = 65_536
_EVENTS = "text/event-stream"


class Endpoint:
    """`config.mcp.url`, and the connections to it. Raises InputError for an address or a header that cannot be used."""

    def __init__(self, config: target.Target, secrets: frozenset[str]) -> None:
        assert config.mcp is not None  # whoever calls this has seen its address
        address = parse_address(config.mcp.url or "", NAMES.url)
        self._url = address.copy_with(userinfo=b"", fragment=None)
        self._headers = httpx.Headers({"User-Agent": "fepflow", "Accept-Encoding": ACCEPT_ENCODING})
        add_headers(self._headers, config.mcp.headers, "target.mcp.headers")
        add_auth_in_address(self._headers, address)
        # Without a limit of its own for reading, the deadline of the whole call is enough.
        timeout = httpx.Timeout(None, connect=config.connect_timeout, read=config.read_timeout)
        # Beside the calls: the server's own stream, and a notification.
        client = Client(connections_to(self._url, config.concurrency + 2, timeout))
        self._transport = _Transport(client, self._url, timeout, config.mcp.max_bytes, secrets)
        public = {name: value for name, value in config.mcp.headers.items() if not is_secret_name(name)}
        self.identity: Final = [address_without_secrets(self._url), public]

    @asynccontextmanager
    async def streams(self, traffic: Traffic) -> AsyncIterator[tuple[Reader, Writer]]:
        """Give the streams of a session."""
        self._transport.traffic = traffic
        async with (
            # Without a timeout of its own: each call has its deadline.
            httpx2.AsyncClient(
                transport=self._transport, headers=self._headers.raw, timeout=None, trust_env=False
            ) as client,
            streamable_http_client(str(self._url), http_client=client, max_sse_event_size=None) as (read, write),
        ):
            yield Reader(traffic, read.__anext__), Writer(traffic, write.send)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.close()


class _Transport(httpx2.AsyncBaseTransport):
    """What the SDK's HTTP client sends requests with. Never raises: the exchange under way gets the error."""

    def __init__(
        self, client: Client, url: httpx.URL, timeout: httpx.Timeout, limit: int, secrets: frozenset[str]
    ) -> None:
        self.traffic = Traffic()
        self._client = client
        self._url = url
        self._timeout = timeout
        self._limit = limit
        self._secrets = secrets

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = exchange_under_way.get(Exchange()) if request.method == "POST" else Exchange()
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
        if (context := traceparent.get()) is not None:
            headers.append((b"traceparent", context.encode()))
        try:
            content = await request.aread()
            with wire_errors(self._url, self._timeout, NAMES):
                sent = httpx.Request(request.method, str(request.url), headers=headers, content=content)
                response = await self._client.send(sent)
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
            stream=_Body(response, exchange, self._limit, self._url, self._timeout),
            request=request,
        )

    def _look_at_head(self, response: httpx.Response, exchange: Exchange) -> None:
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if response.status_code == 202:
            exchange.fault = malformed("HTTP 202: the server took the request for a notification, and gives no answer")
        elif kind not in ("application/json", _EVENTS):
            what = excerpt(kind, self._secrets, 60) or "of no type"
            message = f"the answer is {what}, and neither JSON nor a stream of events: check {NAMES.url}"
            exchange.fault = malformed(message)

    async def _refused(self, request: httpx2.Request, response: httpx.Response, exchange: Exchange) -> httpx2.Response:
        """Return a response that is no success, whose body is there. An error of JSON-RPC in it is the answer."""
        status, encoding = response.status_code, response.headers.get("Content-Encoding", "")
        try:
            with wire_errors(self._url, self._timeout, NAMES):
                body = await read_beginning(response.aiter_raw(), encoding, _SHOWN_BYTES)
        except TargetError:
            body = b""
        finally:
            await response.aclose()
        location = response.headers.get("Location")
        if status < 400 and location is not None:
            exchange.fault = self._redirect(status, location)
            return httpx2.Response(status, headers={"Location": location}, request=request)
        shown, wait = body.decode("utf-8", "replace"), response.headers.get("Retry-After")
        fault = status_error(status, response.reason_phrase, shown, wait, self._secrets, NAMES)
        if status == 404 and "mcp-session-id" in request.headers:
            self.traffic.is_open = False
            message = "HTTP 404: the server has forgotten the session; the next attempt begins another one"
            fault = TargetError(message, kind="http_status", retryable=True, status=404)
        if fault.retryable or not _is_error(body):
            exchange.fault = fault
            body = b""
        return httpx2.Response(status, headers={"Content-Type": "application/json"}, content=body, request=request)

    def _redirect(self, status: int, location: str) -> TargetError:
        try:
            place = host_and_port(str(self._url.join(location)))
        except httpx.InvalidURL:
            place = "an address that cannot be read"
        place = redact(place, self._secrets | {secret.lower() for secret in self._secrets})
        message = f"HTTP {status}: redirects to {place}; put the final address into the suite"
        return TargetError(message, kind="redirect", retryable=False, status=status)

    async def aclose(self) -> None:
        """Do nothing: the endpoint keeps the connections for the next session."""

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _is_error(body: bytes) -> bool:
    try:
        return isinstance(jsonrpc_message_adapter.validate_json(body, by_name=False), JSONRPCError)
    except ValidationError:
        return False


class _Body(httpx2.AsyncByteStream):
    """The body of a response, decoded and bounded. Its end before an answer is a fault of the exchange."""

    def __init__(
        self, response: httpx.Response, exchange: Exchange, limit: int, url: httpx.URL, timeout: httpx.Timeout
    ) -> None:
        self._response = response
        self._exchange = exchange
        self._limit = limit
        self._url = url
        self._timeout = timeout

    async def __aiter__(self) -> AsyncIterator[bytes]:
        encoding = self._response.headers.get("Content-Encoding", "")
        try:
            with wire_errors(self._url, self._timeout, NAMES):
                async for piece in read_pieces(self._response.aiter_raw(), encoding, self._limit):
                    yield piece
        except TargetError as error:
            self._exchange.fault = error
            raise httpx2.StreamError("see the exchange's fault") from None
        if self._response.headers.get("Content-Type", "").lower().startswith(_EVENTS):
            # The SDK stops reading at the answer.
            message = "the stream of events ended without an answer"
            self._exchange.fault = TargetError(message, kind="connect", retryable=True)

    async def aclose(self) -> None:
        response: Any = self._response
        await response.aclose()
        if hasattr(response, "stream"):
            del response.stream  # refers to the response: else each one would wait for the garbage collector
