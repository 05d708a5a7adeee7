"""The system under test as an agent that speaks the Agent2Agent protocol, and the HTTP transport to it.

The SDK takes most of a second to load, so only `fepflow.calls.a2a.agent` imports it, for a target that is called.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import httpx

from fepflow.calls.agent_addresses import AgentAddresses, AllowedHost, allowed_hosts
from fepflow.calls.base import (
    Conversation,
    Progress,
    TargetResponse,
    Turn,
    pass_traceparent,
    progress_of_call,
    template_context,
)
from fepflow.calls.http_client import (
    Client,
    add_auth_in_address,
    add_headers,
    address_without_secrets,
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
from fepflow.jsonpath.path import compile_template
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.addresses import PORTS, host_and_port, is_loopback
from fepflow.security.redaction import excerpt, is_secret_name, redact, redact_json, remember, secrets_in_address
from fepflow.suite import target

if TYPE_CHECKING:
    from a2a.client import ClientCallContext
    from a2a.types import SendMessageRequest, StreamResponse

    from fepflow.calls.a2a.agent import Agent, Exchange

# The SDK takes most of a second to load, so it is loaded only for a target that is called, and not by `validate`.

_FIRST_WAIT = 0.1
_CANCEL_SECONDS = 2.0
"""A run that is stopped has ended within 5 s."""


class A2aTarget:
    """An A2A agent as a target: each test case is a message, and its task is followed until it is over.

    The card is read at the first call. A task is cancelled at the agent if the time is over or its answers cannot be
    read. Raises InputError for an address, a header or a host that cannot be used, JSONPathError for an invalid path.
    """

    def __init__(self, config: target.Target, secrets: frozenset[str] = frozenset()) -> None:
        assert config.a2a is not None  # the factory has looked
        self._a2a = config.a2a
        self.secrets = secrets | secrets_in_address(config.a2a.card)
        remember(self.secrets)
        self._message = compile_template(config.a2a.message, with_texts=True)
        self._transport = AgentTransport(config, self.secrets)
        self._met: Agent | None = None
        self._meeting = asyncio.Lock()
        self._unreadable: Callable[[], TargetError] | None = None
        self._cancelling: set[asyncio.Task[None]] = set()
        public = {name: value for name, value in config.a2a.headers.items() if not is_secret_name(name)}
        asked = [address_without_secrets(self._transport.card), public, config.a2a.message, config.a2a.stream]
        self.fingerprint = content_hash("a2a", redact_json(asked, self.secrets))

    def render(self, case: TestCase) -> Any:
        """Return the message for `case`, `{parts: […]}`. Raises JSONPathError."""
        return self.request_of(template_context(case))

    async def call(self, request: Any) -> TargetResponse:
        """Send the message, and follow its task until it is over. Raises TargetError."""
        progress = progress_of_call.get(None) or Progress()
        return await self.send(request, Thread(), progress)

    @asynccontextmanager
    async def converse(self, case: TestCase) -> AsyncIterator[Conversation]:
        """Open a conversation in one context of the agent. A task that waits for input at its end is not cancelled."""
        thread = Thread()

        async def say(turn: Turn) -> TargetResponse:
            return await self.send(self.request_of(template_context(case, turn)), thread, Progress())

        yield Conversation(say, lambda: {"context_id": thread.context_id} if thread.context_id else {})

    @property
    def conversation_problem(self) -> str | None:
        """Reason why no conversation is possible (all turns would be the same message), or None."""
        if any("$.turn" in path.expression for _, path in self._message.paths):
            return None
        return "each turn would be the same message: put $.turn.input into target.a2a.message"

    def request_of(self, context: dict[str, Any]) -> dict[str, Any]:
        """Return the message, `{parts: […]}`, for the result of `template_context`. Raises JSONPathError."""
        return {"parts": parts_of(self._message.render(context))}

    async def send(self, request: Any, thread: Thread, progress: Progress) -> TargetResponse:
        """Send a message in its thread, and move the thread on. Raises TargetError."""
        agent = await self._agent()
        from fepflow.calls.a2a.agent import Exchange, send_request

        parent = pass_traceparent()
        exchange = Exchange(thread.steps)
        try:
            with agent.errors(self.secrets):
                message = send_request(request, thread.context_id, thread.task_id, parent)
                await self._follow(agent, message, agent.context(parent), exchange, progress)
                return exchange.response(agent.described, self.secrets)
        except BaseException:
            progress.response = TargetResponse(None, exchange.metadata(agent.described, self.secrets))
            if exchange.is_running:
                self._cancel(agent, exchange.task.id)
            raise
        finally:
            thread.context_id = exchange.context_id or thread.context_id
            thread.task_id = exchange.task.id if exchange.state == "input-required" else ""
            thread.steps |= exchange.steps.keys()

    async def _follow(
        self,
        agent: Agent,
        message: SendMessageRequest,
        context: ClientCallContext,
        exchange: Exchange,
        progress: Progress,
    ) -> None:
        """Take events until the task is over; without events, poll it."""
        from a2a.types import GetTaskRequest

        received = 0
        stream = cast("AsyncGenerator[StreamResponse, None]", agent.client.send_message(message, context=context))
        async with aclosing(stream) as events:
            async for event in events:
                received += event.ByteSize()
                if received > self._a2a.max_bytes:  # of gRPC: over HTTP the transport has counted
                    what = f"the answer is larger than {self._a2a.max_bytes:,} bytes (target.a2a.max_bytes)"
                    raise TargetError(what, kind="too_large", retryable=False)
                exchange.take(event)
                progress.place = f"the agent's task is {exchange.state}"
                if exchange.is_over:
                    return
        if not exchange.task.id:
            raise TargetError("the stream of events ended without an answer", kind="connect", retryable=True)
        wait = min(_FIRST_WAIT, self._a2a.poll_interval)
        while not exchange.is_over:
            await asyncio.sleep(wait)
            wait = min(2 * wait, self._a2a.poll_interval)
            exchange.take_task(await agent.client.get_task(GetTaskRequest(id=exchange.task.id), context=context))
            progress.place = f"the agent's task is {exchange.state}"

    async def _agent(self) -> Agent:
        """Return the agent, whose card is read once in a run. Raises TargetError, a permanent one at each call."""
        if self._met is None:
            async with self._meeting:
                if self._unreadable is not None:
                    raise self._unreadable()
                if self._met is None:
                    from fepflow.calls.a2a.agent import meet

                    try:
                        self._met = await meet(self._transport, self._a2a, self.secrets)
                    except TargetError as error:
                        if not error.retryable:  # a new one for each call, which adds its own place
                            words, kind, status = str(error), error.kind, error.status
                            self._unreadable = partial(TargetError, words, kind=kind, retryable=False, status=status)
                        raise
        return self._met

    def _cancel(self, agent: Agent, task_id: str) -> None:
        """Ask the agent to cancel a task, without waiting: the caller has no time left."""

        async def cancel() -> None:
            from a2a.types import CancelTaskRequest

            with suppress(Exception):  # it may have ended meanwhile, or not support the request
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await agent.client.cancel_task(CancelTaskRequest(id=task_id), context=agent.context(None))

        task = asyncio.create_task(cancel())
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def aclose(self) -> None:
        """Wait until the agent has cancelled tasks, and close all connections."""
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=_CANCEL_SECONDS)
        if self._met is not None:
            await self._met.aclose()
        await self._transport.aclose()


@dataclass(slots=True)
class Thread:
    """The place of the next message: the agent's context and its task that waits for input, empty if there are none.

    `steps` are the keys of all earlier messages of the agent, which a task repeats.
    """

    context_id: str = ""
    task_id: str = ""
    steps: set[str] = field(default_factory=set)


_CONTENTS = ("text", "data", "url", "raw")
_OLD_KINDS = ("text", "data", "file")


def parts_of(value: Any) -> list[dict[str, Any]]:
    """Return the parts of a message: a text, parts in the form of protocol 1.0 or 0.3, or other JSON as data.

    Raises TargetError for null, because there is nothing to send.
    """
    if value is None:
        raise TargetError("there is nothing to send: the message is null", kind="request", retryable=False)
    if isinstance(value, str):
        return [{"text": value}]
    if isinstance(value, list) and value and all(isinstance(part, str) or _is_part(part) for part in value):
        return [{"text": part} if isinstance(part, str) else _part(part) for part in value]
    return [{"data": value}]


def _is_part(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return value.get("kind") in _OLD_KINDS or sum(name in value for name in _CONTENTS) == 1


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part in the form of protocol 1.0."""
    if "kind" not in part:
        return part
    file = part.get("file") or {}
    renamed = {"url": "uri", "raw": "bytes", "filename": "name", "mediaType": "mimeType"}
    fields = {new: file[old] for new, old in renamed.items() if old in file}
    return {**{name: part[name] for name in ("text", "data", "metadata") if name in part}, **fields}


# --- the transport of the SDK's clients: allowed addresses, and limits and ids of answers ----------------------------


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
    port = url.port or PORTS.get(url.scheme, 443)
    try:
        address = ip_address(url.host)
    except ValueError:
        return any(entry.has_name(url.host, port) for entry in entries)
    return any(entry.has_name(url.host, port) or entry.has_address(address, port) for entry in entries)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    host = "localhost" if is_loopback(url.host) or url.host == "0.0.0.0" else url.host  # noqa: S104  # not listened on
    return url.scheme, host, url.port or PORTS.get(url.scheme)


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
