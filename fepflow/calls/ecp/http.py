"""An ECP agent at an address: each request is a POST, its answer JSON or an event of a stream (Streamable HTTP)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx

from fepflow.calls import http_client
from fepflow.calls.base import traceparent
from fepflow.calls.ecp.protocol import Request
from fepflow.calls.http_client import refused_redirect, wire_errors
from fepflow.calls.processes import Tail
from fepflow.calls.responses import ECP, close, malformed, media_type, read_body, read_events, status_error
from fepflow.errors import TargetError
from fepflow.security.redaction import excerpt
from fepflow.suite import target


class Endpoint(http_client.Endpoint):
    """The address of an ECP agent. Raises InputError for an address or a header that cannot be used."""

    def __init__(self, config: target.Target, secrets: frozenset[str]) -> None:
        assert config.ecp is not None  # the caller has looked
        own_headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        super().__init__(config.ecp, config, ECP, config.calls_at_once, own_headers)
        self._secrets = secrets

    async def connect(self) -> HttpConnection:
        """Return the connection of one scenario. Nothing is sent yet."""
        return HttpConnection(self, self._secrets)

    @asynccontextmanager
    async def post(self, content: bytes) -> AsyncIterator[httpx.Response]:
        """Send one request once, and yield its response when the head has arrived. Raises TargetError."""
        with wire_errors(self.url, self.timeout, ECP):
            context = traceparent.get()
            headers = self.headers if context is None else httpx.Headers({**self.headers, "traceparent": context})
            request = httpx.Request("POST", self.url, headers=headers, content=content)
            response = await self.client.send(request)
            try:
                yield response
            finally:
                await close(response)

    async def body(self, response: httpx.Response) -> str:
        """Return the whole body of a response as text. Raises BodyError."""
        encoding = response.headers.get("Content-Encoding", "")
        return (await read_body(response.aiter_raw(), encoding, self.max_bytes)).decode("utf-8", "replace")

    def events(self, response: httpx.Response) -> AsyncGenerator[str, None]:
        """Yield the data of each event of a stream as it arrives. Raises BodyError."""
        return read_events(response.aiter_raw(), response.headers.get("Content-Encoding", ""), self.max_bytes)


class HttpConnection:
    """The connection of one scenario to an endpoint. Redirects are refused. No error shows `secrets`."""

    def __init__(self, endpoint: Endpoint, secrets: frozenset[str]) -> None:
        self._endpoint = endpoint
        self._secrets = secrets
        self._events = Tail()

    @property
    def is_open(self) -> bool:
        """True: each request may use a new connection."""
        return True

    async def ask(self, request: Request) -> dict[str, Any]:
        """Send the request, and read up to its answer."""
        async with self._endpoint.post(request.text.encode("ascii")) as response:
            return await self._answer(request, response)

    async def _answer(self, request: Request, response: httpx.Response) -> dict[str, Any]:
        kind = media_type(response)
        if 300 <= response.status_code < 400:
            location = response.headers.get("Location", "")
            raise refused_redirect(self._endpoint.url, location, response.status_code, self._secrets)
        if response.status_code == 202:
            raise malformed("HTTP 202: the agent took the request for a notification, and sends no answer")
        if kind == "text/event-stream" and response.status_code < 300:
            return await self._answer_in_events(request, response)
        text = (await self._endpoint.body(response)).removeprefix("\ufeff")
        answer = await request.answer_in(text)
        if answer is not None:
            return answer
        if response.status_code >= 300:
            raise status_error(response, text, self._secrets, ECP)
        what = request.progress.fault or excerpt(text, self._secrets) or "it is empty"
        raise malformed(f"the response is not a JSON-RPC answer to the request: {what}")

    async def _answer_in_events(self, request: Request, response: httpx.Response) -> dict[str, Any]:
        """Return the event with the answer, without waiting for later ones."""
        async with aclosing(self._endpoint.events(response)) as events:
            async for data in events:
                if (answer := await request.answer_in(data)) is not None:
                    return answer
                self._events.add(data.encode("utf-8", "replace") + b"\n")
        message = "the stream of events ended without an answer"
        if fault := request.progress.fault:
            raise malformed(f"{message}: {fault}")
        raise TargetError(message, kind="connect", retryable=True)

    def log_tail(self) -> dict[str, str]:
        """Return the last events that were not answers."""
        texts = {"events": self._events.text} if self._events.text else {}
        self._events.clear()
        return texts

    async def aclose(self) -> None:
        """Do nothing: the endpoint keeps the connections."""
