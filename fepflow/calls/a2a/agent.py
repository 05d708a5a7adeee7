"""An A2A agent as its card describes it: the SDK's client, and the SDK's errors as TargetErrors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError, A2AClientTimeoutError, AgentCardResolutionError
from a2a.types import AgentCard
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import A2AError
from google.protobuf.json_format import Error as ProtoJsonError

from fepflow.calls.a2a.transport import AgentTransport, headers_withheld
from fepflow.calls.json_rpc import malformed
from fepflow.calls.response_parser import A2A
from fepflow.errors import TargetError, TargetTimeoutError
from fepflow.security.addresses import is_loopback
from fepflow.security.redaction import excerpt
from fepflow.suite.target import A2aTarget

_BINDINGS = [TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON, TransportProtocol.GRPC]
_MAX_REDIRECTS = 5
_SHOWN = 300
_STATUS = {
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
}
"""HTTP statuses with the meaning of gRPC statuses."""


class Agent:
    """The agent behind a card: its `client`, and the context of its calls.

    Raises TargetError for an interface that must not be called, ValueError for a card without a known interface.
    """

    def __init__(self, card: AgentCard, http: httpx.AsyncClient, transport: AgentTransport, config: A2aTarget) -> None:
        self.described = {"name": card.name, "version": card.version}
        self._transport = transport
        self._http = http
        self._metadata: dict[str, str] = {}
        """The headers of the suite, for calls over gRPC. Over HTTP the transport adds them."""
        self._withheld = ""
        streams = card.capabilities.streaming and config.stream is not False
        self._max_bytes = config.max_bytes
        factory = ClientFactory(
            ClientConfig(
                streaming=streams,
                polling=not streams,
                httpx_client=http,
                grpc_channel_factory=self._channel,
                supported_protocol_bindings=list(_BINDINGS),
            )
        )
        self.client: Client = factory.create(card)

    def _channel(self, address: str) -> grpc.aio.Channel:
        """Open a channel to the address of a card's interface for gRPC: `host:port`, with a scheme or without."""
        url = httpx.URL(address if "://" in address else f"//{address}")
        hosts = self._transport.hosts
        is_plain = hosts.is_plain(url)
        place = url.copy_with(scheme="http" if is_plain else "https", path="/", query=None)
        if hosts.gets_headers(place):
            self._metadata = {name.lower(): value for name, value in self._transport.headers.items()}
        elif self._transport.headers:
            self._withheld = headers_withheld(place)
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", self._max_bytes),
            ("grpc.enable_http_proxy", int(not is_loopback(place.host))),
            ("grpc.enable_retries", 0),  # each attempt is recorded, so the library must not retry
            ("grpc.primary_user_agent", "fepflow"),
        ]
        port = place.port or (80 if is_plain else 443)
        name = f"[{place.host}]:{port}" if ":" in place.host else f"{place.host}:{port}"
        if is_plain:
            return grpc.aio.insecure_channel(name, options)
        return grpc.aio.secure_channel(name, grpc.ssl_channel_credentials(_trusted()), options)

    def context(self, traceparent: str | None) -> ClientCallContext:
        """Return the context of a call, with its trace as a header."""
        traced = {"traceparent": traceparent} if traceparent else {}
        return ClientCallContext(service_parameters={**self._metadata, **traced})

    @contextmanager
    def errors(self, secrets: frozenset[str]) -> Iterator[None]:
        """Turn all exceptions of the SDK into TargetErrors."""
        try:
            yield
        except TargetError:
            raise
        except Exception as error:
            target_error = _target_error(error, secrets)
            if target_error.status in (401, 403) and self._withheld:
                target_error.args = (f"{target_error}; {self._withheld}",)
            raise target_error from None

    async def aclose(self) -> None:
        """Close all connections."""
        await self.client.close()
        await self._http.aclose()


async def meet(transport: AgentTransport, config: A2aTarget, secrets: frozenset[str]) -> Agent:
    """Read the card, and return the agent. Raises TargetError."""
    http = httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=True, max_redirects=_MAX_REDIRECTS)
    address = transport.card
    base = f"{address.scheme}://{address.netloc.decode('ascii')}"
    try:
        card = await A2ACardResolver(http, base, address.raw_path.decode("ascii")).get_agent_card()
    except TargetError as error:
        error.args = (f"the agent's card: {error}",)
        raise
    except Exception as error:
        raise _card_error(error, secrets) from None
    try:
        return Agent(card, http, transport, config)
    except TargetError:
        raise
    except Exception as error:
        raise _card_error(error, secrets) from None


def _card_error(error: Exception, secrets: frozenset[str]) -> TargetError:
    if isinstance(error, httpx.InvalidURL):
        return _unreadable(error, secrets)
    if isinstance(error.__cause__, httpx.TooManyRedirects):
        return _redirects()
    if isinstance(error, AgentCardResolutionError | ProtoJsonError):
        why = error.__cause__ or error  # without the address that the SDK puts before it
        return malformed(f"the agent's card is not valid: {excerpt(str(why), secrets, _SHOWN)}")
    if isinstance(error, ValueError) and str(error).startswith("no "):
        return TargetError(
            "the agent's card names no supported interface: JSONRPC, HTTP+JSON or GRPC, of protocol 0.3 or 1.0",
            kind="incompatible",
            retryable=False,
        )
    return malformed(
        f"the agent's card cannot be read ({type(error).__name__}): {excerpt(str(error), secrets, _SHOWN)}"
    )


def _unreadable(error: httpx.InvalidURL, secrets: frozenset[str]) -> TargetError:
    return malformed(f"the agent's card names an address that cannot be read: {excerpt(str(error), secrets, _SHOWN)}")


def _redirects() -> TargetError:
    return TargetError(f"more than {_MAX_REDIRECTS} redirects", kind="redirect", retryable=False)


def _target_error(error: Exception, secrets: frozenset[str]) -> TargetError:
    words = excerpt(str(error), secrets, _SHOWN)
    cause = error.__cause__
    if isinstance(cause, grpc.aio.AioRpcError):
        return _grpc_error(cause, words, secrets)
    if isinstance(cause, httpx.TooManyRedirects):
        return _redirects()
    if isinstance(error, httpx.InvalidURL):  # httpx reads it with the first call
        return _unreadable(error, secrets)
    if isinstance(error, A2AClientTimeoutError):
        return TargetTimeoutError("the agent did not answer in time")
    if isinstance(error, A2AError) and not isinstance(error, A2AClientError):
        return TargetError(f"the agent answered with an error: {words}", kind="agent_error", retryable=False)
    return malformed(f"the answer cannot be read ({type(error).__name__}): {words}")


def _grpc_error(error: grpc.aio.AioRpcError, words: str, secrets: frozenset[str]) -> TargetError:
    code, details = error.code(), excerpt(error.details() or "", secrets, _SHOWN)
    message = f"gRPC {code.name}: {details or words}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TargetTimeoutError(message)
    if "larger than max" in details:
        return TargetError(f"{message} (target.a2a.max_bytes)", kind="too_large", retryable=False)
    status = _STATUS.get(code)
    if status is None:
        return TargetError(message, kind="agent_error", retryable=False)
    advice = f": {A2A.advice(status)}" if status < 429 else ""
    return TargetError(f"{message}{advice}", kind="http_status", retryable=status >= 429, status=status)


def _trusted() -> bytes | None:
    """Return the certificates in SSL_CERT_FILE, or None for those of the library."""
    path = os.environ.get("SSL_CERT_FILE")
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        message = f"SSL_CERT_FILE cannot be read: {error.strerror}"
        raise TargetError(message, kind="request", retryable=False) from None
