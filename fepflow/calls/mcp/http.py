"""The transport of the SDK's HTTP client for MCP: fepflow's connections, with their limits and errors.

The SDK's own client reads bodies without limit, ends the whole session when one connection breaks, and hides the reason
of an HTTP error. So it gets a transport that never raises: the error is kept in the exchange of the request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
from mcp_types import JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from fepflow.calls.base import traceparent
from fepflow.calls.http_client import Endpoint, refused_redirect, wire_errors
from fepflow.calls.json_rpc import malformed
from fepflow.calls.mcp.traffic import Exchange, Traffic, exchange_under_way
from fepflow.calls.response_body import read_beginning, read_pieces
from fepflow.calls.response_parser import MCP, status_error
from fepflow.errors import TargetError
from fepflow.security.redaction import excerpt

_SHOWN_BYTES = 65_536
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
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
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
                body = await read_beginning(response.aiter_raw(), encoding, _SHOWN_BYTES)
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
        if self._response.headers.get("Content-Type", "").lower().startswith(_EVENTS):
            # The SDK stops reading at the answer.
            message = "the stream of events ended without an answer"
            self._exchange.fault = TargetError(message, kind="connect", retryable=True)

    async def aclose(self) -> None:
        response: Any = self._response
        await response.aclose()
        if hasattr(response, "stream"):
            del response.stream  # refers to the response: else each one would wait for the garbage collector
