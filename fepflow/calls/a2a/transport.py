"""The HTTP transport of the A2A SDK's clients: allowed addresses, and limits and ids of answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

import httpx

from fepflow.calls.agent_addresses import AgentAddresses, AllowedHost, allowed_hosts
from fepflow.calls.http_client import (
    Client,
    add_auth_in_address,
    add_headers,
    connections_to,
    parse_address,
    refused_redirect,
    timeout_of,
    wire_errors,
)
from fepflow.calls.responses import (
    A2A,
    ACCEPT_ENCODING,
    LARGE_TEXT,
    close,
    malformed,
    media_type,
    parse_answer,
    read_body,
    read_events,
    refusal,
    result_of,
    shown,
)
from fepflow.calls.thread_pool import READERS
from fepflow.errors import InputError, Problem, TargetError
from fepflow.security.addresses import host_and_port, is_loopback
from fepflow.security.redaction import excerpt, redact
from fepflow.suite import target

_PORTS = {"http": 80, "https": 443}


class AgentHosts:
    """The hosts of an agent: that of its card, and those that the suite lists (`target.a2a.hosts`).

    Addresses on other hosts are not called: a card comes over the network. Raises InputError for an invalid entry.
    """

    def __init__(self, card: httpx.URL, hosts: Sequence[str]) -> None:
        self._card = card
        try:
            self._listed = [entry for host in hosts for entry in allowed_hosts(host)]
        except InputError:
            advice = "write agent.example.com or agent.example.com:8443"
            raise InputError(Problem("has an invalid host", path="target.a2a.hosts", advice=advice)) from None
        own = [AllowedHost(None, card.host, None)]
        if is_loopback(card.host):  # an agent on this machine names it in any way; 0.0.0.0 is what many listen on
            own += allowed_hosts("localhost, 127.0.0.0/8, [::1], 0.0.0.0")
        self._own = own

    def gets_headers(self, url: httpx.URL) -> bool:
        """Return whether an address in the card gets the suite's headers. Raises TargetError if it must not be called:
        it is on another host, one of fepflow's own ports, or without TLS while the card has TLS."""
        if _origin(url) == _origin(self._card):
            return True
        if problem := AgentAddresses.configured(also=[*self._own, *self._listed]).problem(str(url)):
            raise refused(url, problem)
        is_listed = _has(self._listed, url)
        if not is_listed and not _has(self._own, url):
            raise refused(url, "it is on a host that the suite does not name")
        if url.scheme == "http" and self._card.scheme != "http":
            raise refused(url, "it is http, without encryption")
        return is_listed

    def is_plain(self, url: httpx.URL) -> bool:
        """Return whether gRPC uses no TLS there: if the card came without TLS, and the address does not ask for it."""
        known = _has(self._own, url) or _has(self._listed, url)
        return known and self._card.scheme == "http" and url.scheme not in ("https", "grpcs")


def refused(url: httpx.URL, problem: str) -> TargetError:
    """Return the error of an address in the card that must not be called."""
    message = f"the agent's card names {host_and_port(str(url))}, which is not called: {problem}"
    advice = "; the agent's other hosts are listed in target.a2a.hosts" if url.host else ""
    return TargetError(f"{message}{advice}", kind="connect", retryable=False)


def _has(entries: Sequence[AllowedHost], url: httpx.URL) -> bool:
    """Return whether an entry matches the host and port of an address."""
    port = url.port or _PORTS.get(url.scheme, 443)
    try:
        address = ip_address(url.host)
    except ValueError:
        return any(entry.has_name(url.host, port) for entry in entries)
    return any(entry.has_name(url.host, port) or entry.has_address(address, port) for entry in entries)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    host = "localhost" if is_loopback(url.host) or url.host == "0.0.0.0" else url.host  # noqa: S104  # not listened on
    return url.scheme, host, url.port or _PORTS.get(url.scheme)


WELL_KNOWN = "/.well-known/agent-card.json"
MAX_CARD_BYTES = 1_000_000


class AgentTransport(httpx.AsyncBaseTransport):
    """A transport to the hosts of one agent. It opens nothing before the first request.

    It reads answers within limits, and checks that they are valid JSON and, in JSON-RPC, belong to their request.
    Faults of answers are TargetErrors, which pass through the SDK. The client follows redirects within an origin.
    Raises InputError for an address, a header or a host that cannot be used.
    """

    def __init__(self, config: target.Target, secrets: frozenset[str]) -> None:
        assert config.a2a is not None  # the caller has looked
        address = parse_address(config.a2a.card, A2A.url)
        path = WELL_KNOWN if address.path in ("", "/") else address.path
        self.card: Final = address.copy_with(userinfo=b"", fragment=None, path=path)
        self.hosts: Final = AgentHosts(self.card, config.a2a.hosts)
        self.headers: Final = httpx.Headers()
        add_headers(self.headers, config.a2a.headers, "target.a2a.headers")
        add_auth_in_address(self.headers, address)
        self._secrets = secrets
        self._max_bytes = config.a2a.max_bytes
        self._connections = config.concurrency
        self._timeout = timeout_of(config)
        self._peers: dict[str, _Peer] = {}
        self._peer(self.card)

    def _peer(self, url: httpx.URL) -> _Peer:
        """Return the peer at an address; raises TargetError if it must not be called."""
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        if origin not in self._peers:
            gets_headers = self.hosts.gets_headers(url)
            self._peers[origin] = _Peer(Client(connections_to(url, self._connections, self._timeout)), gets_headers)
        return self._peers[origin]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its response is complete, or a stream of events that are checked one by one."""
        await request.aread()  # httpx forgets the body of a redirected request
        url = request.url
        peer = self._peer(url)
        if peer.gets_headers:
            request.headers.update(self.headers)
        request.headers["User-Agent"], request.headers["Accept-Encoding"] = "fepflow", ACCEPT_ENCODING
        with wire_errors(url, self._timeout, A2A):
            response = await peer.client.send(request)
            kind = media_type(response)
            answer = Answer(request, self._secrets)
            if response.status_code < 300 and kind == "text/event-stream":
                events = _Events(response, answer, self._max_bytes, self._timeout)
                return httpx.Response(response.status_code, headers={"Content-Type": kind}, stream=events)
            try:
                return await self._read(response, answer, gets_headers=peer.gets_headers)
            finally:
                await close(response)

    async def _read(self, response: httpx.Response, answer: Answer, *, gets_headers: bool) -> httpx.Response:
        encoding, status, url = response.headers.get("Content-Encoding", ""), response.status_code, answer.request.url
        if response.has_redirect_location:
            return httpx.Response(status, headers={"Location": self._redirected(url, response)})
        if status >= 300:
            error = await refusal(response, self._secrets, A2A)
            if status in (401, 403) and self.headers and not gets_headers:
                error.args = (f"{error}; {headers_withheld(url)}",)
            raise error
        limit = MAX_CARD_BYTES if url == self.card else self._max_bytes
        body = await read_body(response.aiter_raw(), encoding, limit)
        await answer.check(body.decode("utf-8", "replace"))
        return httpx.Response(status, headers={"Content-Type": "application/json"}, content=body)

    def _redirected(self, url: httpx.URL, response: httpx.Response) -> str:
        new = url.join(response.headers["Location"])
        if (url.scheme, url.host, url.port) == (new.scheme, new.host, new.port):
            return str(new.copy_with(userinfo=b"", fragment=None))
        raise refused_redirect(url, str(new), response.status_code, self._secrets)

    async def aclose(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            await peer.client.aclose()


class _Peer(NamedTuple):
    """An origin: the client that calls it, and whether it gets the suite's headers."""

    client: Client
    gets_headers: bool


def headers_withheld(url: httpx.URL) -> str:
    """Return why an address does not get the suite's headers, with advice."""
    place = host_and_port(str(url))
    return f"{place} does not get target.a2a.headers, for it is not the card's own: list it in target.a2a.hosts"


class Answer:
    """A checker of all texts in the answer to a request, before the SDK reads them."""

    def __init__(self, request: httpx.Request, secrets: frozenset[str]) -> None:
        self.request = request
        self._secrets = secrets
        asked = json.loads(request.content) if request.method == "POST" and request.content else {}
        self._is_rpc = "jsonrpc" in asked
        self._id = asked.get("id")

    async def check(self, text: str) -> Any:
        """Return the JSON in a text. Raises TargetError for an error, and for anything but an answer to the request."""
        message = await READERS.run(partial(self._parse, text)) if len(text) > LARGE_TEXT else self._parse(text)
        if not isinstance(message, dict):
            raise malformed(f"the answer is not a JSON object: {excerpt(text, self._secrets)}")
        if not self._is_rpc:
            if "error" in message:
                raise self._agent_error(message["error"])
            return message
        if message.get("jsonrpc") != "2.0":
            raise malformed(f"the answer is not JSON-RPC 2.0: {excerpt(text, self._secrets)}")
        its_id = message.get("id")
        if its_id != self._id and not (its_id is None and message.get("error") is not None):
            shown_id = shown(its_id, self._secrets, 60)
            raise malformed(f"the answer has the id {shown_id}, which is that of another request")
        result_of(message, self._secrets)
        return message

    def _parse(self, text: str) -> Any:
        try:
            return parse_answer(text)
        except ValueError as error:
            beginning, why = excerpt(text, self._secrets), redact(str(error), self._secrets)
            raise malformed(f"the answer is not valid JSON: {why}: {beginning or 'it is empty'}") from None

    def _agent_error(self, error: Any) -> TargetError:
        words = error.get("message") if isinstance(error, dict) else error
        text = words if isinstance(words, str) else json.dumps(words)
        message = f"the agent answered with an error: {excerpt(text, self._secrets, 300)}"
        return TargetError(message, kind="agent_error", retryable=False)


class _Events(httpx.AsyncByteStream):
    """The checked events of a stream, rewritten in ASCII because the SDK also ends lines at U+2028."""

    def __init__(self, response: httpx.Response, answer: Answer, limit: int, timeout: httpx.Timeout) -> None:
        self._response = response
        self._answer = answer
        self._limit = limit
        self._timeout = timeout

    async def __aiter__(self) -> AsyncIterator[bytes]:
        encoding = self._response.headers.get("Content-Encoding", "")
        with wire_errors(self._answer.request.url, self._timeout, A2A):
            async for data in read_events(self._response.aiter_raw(), encoding, self._limit):
                yield b"data: " + json.dumps(await self._answer.check(data)).encode("ascii") + b"\n\n"

    async def aclose(self) -> None:
        await close(self._response)
