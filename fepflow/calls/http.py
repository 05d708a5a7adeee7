"""The target behind an HTTP endpoint, or as an ASGI application, called once for each test case."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import httpx

from fepflow.calls.agent_addresses import AgentAddresses
from fepflow.calls.base import (
    Conversation,
    TargetResponse,
    Turn,
    pass_traceparent,
    refuse_reserved_names,
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
    ACCEPT_ENCODING,
    EVALUATIONS_API,
    HTTP,
    LARGE_TEXT,
    ResponseParser,
    close,
    read_body,
    refusal,
    too_large,
)
from fepflow.calls.thread_pool import READERS
from fepflow.errors import TargetError
from fepflow.jsonpath.path import compile_template, has_placeholders
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.addresses import host_and_port, is_same_host
from fepflow.security.redaction import is_secret_name, known_secrets, redact_json, remember, secrets_in_address
from fepflow.suite import target
from fepflow.suite.values import address_sample, fill_address, fill_header

if TYPE_CHECKING:
    from fepflow.calls.asgi import AsgiApp

MAX_REDIRECTS = 5
_IN_PROCESS = "http://testserver"
"""The address that an application sees, unless the suite names one."""


class HttpTarget:
    """A target that calls `config.http` over `config.concurrency` kept-alive connections at most, or `app` in process.

    Authentication, proxies, certificates and a redirect's address are httpx's; one attempt is one request for each
    address of a redirect, and none goes to another host. Responses are bounded by `fepflow.calls.responses`.
    `secrets` are taken out of everything that an answer or an error says. Every call is like the first one: no cookies,
    no netrc. The connections are made in the event loop of the first call; where the address is somebody else's, they
    are made to `addresses` only, no redirect is followed, and errors name the address as the evaluations API does.

    Raises InputError for an address, a header, a proxy or a file of certificates that cannot be used, JSONPathError for
    an invalid path.
    """

    def __init__(
        self,
        config: target.Target,
        secrets: frozenset[str] = frozenset(),
        app: AsgiApp | None = None,
        addresses: AgentAddresses | None = None,
    ) -> None:
        assert config.http is not None  # the factory has looked
        self._http: Final = config.http
        self._app = app
        self._guard = None if addresses is None else addresses.for_url(self._http.url or "")
        self._connections = config.concurrency
        self._names = HTTP if addresses is None else EVALUATIONS_API
        self._filled = {name: text for name, text in self._http.headers.items() if has_placeholders(text)}
        self._fills_address = has_placeholders(self._http.url or "")
        address = parse_address(address_sample(self._http.url or "/"), self._names.url, _IN_PROCESS)
        self._url = address.copy_with(userinfo=b"", fragment=None)
        self.secrets = secrets | secrets_in_address(self._http.url or "")
        remember(self.secrets)
        if app is not None:
            self.secrets |= known_secrets()  # its code may know them
        self._timeout = timeout_of(config)
        self._headers = _headers(self._http)
        add_auth_in_address(self._headers, address)
        body = _without(self._http.body, _SESSION_PATH)
        self._body = None if self._http.method == "GET" else compile_template(body, with_texts=True)
        body = self._http.body if "body" in self._http.model_fields_set else _CONVERSATION
        self._turn_body = compile_template(body, with_texts=True)
        # Before there is a session, members of the body that would contain it are left out.
        self._first_turn_body = compile_template(_without(body, _SESSION_PATH), with_texts=True)
        refuse_reserved_names(self._http.metadata, "target.http.metadata")
        self._reading = self._parser(self._http.metadata)
        self._reading_session = None
        if self._http.session is not None:
            self._reading_session = self._parser({**self._http.metadata, _SESSION: self._http.session})
        self._clients: dict[str, Client] = {}
        self._client(self._url)
        self.fingerprint = self._fingerprint()

    def _parser(self, metadata: dict[str, str]) -> ResponseParser:
        return ResponseParser(self._http.output, metadata, self.secrets, self._names)

    def _fingerprint(self) -> str:
        http = self._http
        headers = {name: value for name, value in http.headers.items() if not is_secret_name(name)}
        address = http.url if self._fills_address else address_without_secrets(self._url)
        asked = [address, http.method, headers, http.body, http.output, http.metadata]
        app = [] if self._app is None else [self._app.content_hash]
        session = [] if http.session is None else [http.session]
        return content_hash("http", redact_json([*asked, *session], self.secrets), *app)

    @property
    def conversation_problem(self) -> str | None:
        """Reason why no conversation is possible (all turns would get the same request), or None."""
        if self._http.method == "GET":
            return "a conversation needs a body: target.http.method is GET"
        if not any("$.turn" in path.expression for _, path in self._turn_body.paths):
            return SAME_REQUEST
        if self._http.session is not None and _SESSION_PATH in (self._http.url or ""):
            return "the first turn has no session yet: put $.session into a header or the body, not the address"
        return None

    def render(self, case: TestCase) -> Any:
        """Return the JSON body for `case`, None for GET; `{body, url, headers}` if address or headers depend on the
        case.

        Raises JSONPathError, and TargetError for a value that no address or header can contain.
        """
        context = template_context(case)
        return self._whole(None if self._body is None else self._body.render(context), context)

    def _whole(self, body: Any, context: Mapping[str, Any]) -> Any:
        if not (self._fills_address or self._filled):
            return body
        try:
            url = fill_address(self._http.url or "", context) if self._fills_address else None
            filled = self._filled.items()
            if context["session"] is None:  # a text in its place would be one session, that of all conversations
                filled = _without(self._filled, _SESSION_PATH).items()
            headers = {name: fill_header(text, context) for name, text in filled}
        except ValueError as error:
            raise TargetError(str(error), kind="request", retryable=False) from None
        return {"body": body, "url": url, "headers": headers}

    async def call(self, request: Any) -> TargetResponse:
        """Call once, following redirects within the host. Raises TargetError."""
        return await self._send(request, self._reading)

    @asynccontextmanager
    async def converse(self, case: TestCase) -> AsyncIterator[Conversation]:
        """Open a conversation, identified by its session or its messages; each turn is a request."""
        session: Any = None if self._reading_session is not None else str(uuid4())

        async def say(turn: Turn) -> TargetResponse:
            nonlocal session
            answer, session = await self._say(case, turn, session)
            return answer

        yield Conversation(say)

    async def _say(self, case: TestCase, turn: Turn, session: Any) -> tuple[TargetResponse, Any]:
        """Send a turn; return the answer and the session for the next turn."""
        context = template_context(case, turn, session)
        body = (self._first_turn_body if session is None else self._turn_body).render(context)
        request = self._whole(body, context)
        if self._reading_session is None:
            return await self._send(request, self._reading), session
        answer = await self._send(request, self._reading_session)
        metadata = dict(answer.metadata)
        new_session = metadata.pop(_SESSION, None)
        if new_session not in (None, ""):
            session = new_session
        if session is None:
            where = f"the first answer has nothing at {self._http.session} (target.http.session)"
            raise TargetError(where, kind="missing_output", retryable=False)
        return TargetResponse(answer.value, metadata), session

    async def _send(self, request: Any, reading: ResponseParser) -> TargetResponse:
        method, url, headers = self._http.method, self._url, self._headers
        if self._fills_address or self._filled:
            if request["url"] is not None:
                address = parse_address(request["url"], self._names.url, _IN_PROCESS)
                url = address.copy_with(userinfo=b"", fragment=None)
            headers = headers.copy()
            headers.update(request["headers"])
            request = request["body"]
        body = _encode(request) if self._body is not None else None
        if (parent := pass_traceparent()) is not None:
            headers = headers.copy()
            headers["traceparent"] = parent
        for _ in range(MAX_REDIRECTS + 1):
            with wire_errors(url, self._timeout, self._names):
                sent = httpx.Request(method, url, headers=headers, content=body)
                response = await self._client(url).send(sent)
                try:
                    if not response.has_redirect_location:
                        return await self._read(response, reading)
                    url = self._redirected(url, url.join(response.headers["Location"]), response.status_code)
                finally:
                    await close(response)
                if response.status_code == 303:  # httpx would take GET after 301 and 302, too, and ask nothing
                    method, body = "GET", None
        raise _redirect(f"more than {MAX_REDIRECTS} redirects, the last one to {host_and_port(str(url))}")

    async def _read(self, response: httpx.Response, reading: ResponseParser) -> TargetResponse:
        encoding, status = response.headers.get("Content-Encoding", ""), response.status_code
        if not response.is_success:
            raise await refusal(response, self.secrets, self._names)
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and int(length[:20]) > self._http.max_bytes:
            raise too_large(self._http.max_bytes)
        stream: Any = response.stream  # read once, here: `aiter_raw`, which guards that, takes as long as parsing it
        body = await read_body(stream, encoding, self._http.max_bytes)
        content_type = response.headers.get("Content-Type", "")
        if len(body) > LARGE_TEXT:
            return await READERS.run(partial(reading.read, body, content_type, status))
        return reading.read(body, content_type, status)

    def _redirected(self, url: httpx.URL, new: httpx.URL, status: int) -> httpx.URL:
        if self._guard is not None:
            raise _redirect("redirects to another address, which is not followed: give the final address", status)
        if is_same_host(str(url), str(new)):
            return new.copy_with(userinfo=b"", fragment=None)
        raise refused_redirect(url, str(new), status, self.secrets)

    def _client(self, url: httpx.URL) -> Client:
        """Return the client for the address's scheme, because a redirect may lead from http to https."""
        if url.scheme not in self._clients:
            open_transport: Callable[[], httpx.AsyncBaseTransport]
            if self._app is not None:
                open_transport = partial(httpx.ASGITransport, self._app)
            else:
                open_transport = connections_to(url, self._connections, self._timeout, self._guard)
            self._clients[url.scheme] = Client(open_transport)
        return self._clients[url.scheme]

    async def aclose(self) -> None:
        """Close all connections, or shut the application down."""
        for client in self._clients.values():
            await client.aclose()
        if self._app is not None:
            await self._app.aclose()


SAME_REQUEST = "each turn would get the same request: put $.turn.input or $.turn.messages into target.http.body"

_SESSION = "\0session"
"""The name of an answer's session among its metadata until it is taken out: no suite can name metadata so."""

_SESSION_PATH = "$.session"

_CONVERSATION = {"input": "$.turn.input", "messages": "$.turn.messages", "session": _SESSION_PATH}
"""The body of a turn, unless the suite has one."""


def _without(value: Any, path: str) -> Any:
    """Return a template without members of objects that are this path, or texts that contain it."""
    if isinstance(value, dict):
        kept = {name: item for name, item in value.items() if not isinstance(item, str) or path not in item}
        return {name: _without(item, path) for name, item in kept.items()}
    return [_without(item, path) for item in value] if isinstance(value, list) else value


def _headers(http: target.HttpTarget) -> httpx.Headers:
    headers = httpx.Headers({"Accept": "application/json, */*;q=0.5", "User-Agent": "fepflow"})
    headers["Accept-Encoding"] = ACCEPT_ENCODING
    if http.method != "GET":
        headers["Content-Type"] = "application/json"
    add_headers(
        headers,
        {name: text for name, text in http.headers.items() if not has_placeholders(text)},
        "target.http.headers",
    )
    return headers


def _encode(request: Any) -> bytes:
    try:
        return json.dumps(request, allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError):
        message = "the request for this test case is not JSON: it holds NaN, an object of Python, or is nested too deep"
        raise TargetError(message, kind="request", retryable=False) from None


def _redirect(message: str, status: int | None = None) -> TargetError:
    return TargetError(message, kind="redirect", retryable=False, status=status)
