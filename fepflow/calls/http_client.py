"""The HTTP client for agents, httpx over aiohttp's connections, and its errors in plain words.

Errors show only host and port of an address. The private members of another library that calls use are here:
`ClientSession._retry_connection` and `BaseConnector._get` of aiohttp.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.request import getproxies, proxy_bypass

import httpx

from fepflow.calls.agent_addresses import AddressRefusedError, DialGuard
from fepflow.calls.responses import ACCEPT_ENCODING, HTTP, BodyError, SettingNames
from fepflow.errors import InputError, Problem, TargetError, TargetTimeoutError
from fepflow.security.addresses import address_problem, host_and_port, is_loopback
from fepflow.security.redaction import is_secret_name, is_secret_parameter, redact
from fepflow.suite import target

if TYPE_CHECKING:
    from aiohttp import ClientResponse, TCPConnector

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Client:
    """A client over an httpx transport, which is opened at the first request; validation of a suite needs none.

    Each request is sent once, unchanged. httpx's own client would also look for cookies, 0.1 ms a call, and keep them.
    """

    def __init__(self, open_transport: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._open_transport = open_transport
        self._transport: httpx.AsyncBaseTransport | None = None

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return when the head of the response has arrived."""
        if self._transport is None:
            self._transport = self._open_transport()
        response = await self._transport.handle_async_request(request)
        response.request = request
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.aclose()


class Endpoint:
    """An address in a suite's section, the headers of its requests, and the connections to it.

    `names` are the names of its settings, `own_headers` those that the protocol needs. `identity` is its part of a
    fingerprint. Raises InputError for an address or a header that cannot be used.
    """

    def __init__(
        self,
        section: target.ProgramOrAddress,
        config: target.Target,
        names: SettingNames,
        connections: int,
        own_headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        address = parse_address(section.url or "", names.url)
        self.url: Final = address.copy_with(userinfo=b"", fragment=None)
        self.headers: Final = httpx.Headers(
            {**own_headers, "User-Agent": "fepflow", "Accept-Encoding": ACCEPT_ENCODING}
        )
        add_headers(self.headers, section.headers, names.headers)
        add_auth_in_address(self.headers, address)
        self.max_bytes: Final = section.max_bytes
        self.timeout: Final = timeout_of(config)
        self.client: Final = Client(connections_to(self.url, connections, self.timeout))
        public = {name: value for name, value in section.headers.items() if not is_secret_name(name)}
        self.identity: Final = [address_without_secrets(self.url), public]

    async def aclose(self) -> None:
        """Close all connections."""
        await self.client.aclose()


def connections_to(
    url: httpx.URL, most: int, timeout: httpx.Timeout, guard: DialGuard | None = None
) -> Callable[[], httpx.AsyncBaseTransport]:
    """Return a factory of aiohttp connections to an address: httpx's own pool costs 7 ms a call at 64 connections.

    Proxies come from the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), but never for a loopback address.
    Certificates are checked against SSL_CERT_FILE or SSL_CERT_DIR if set, else certifi's list. With a `guard`,
    connections use no proxy, and go only to addresses that the guard allows. Raises InputError for unusable values of
    the environment.
    """
    is_local = is_loopback(url.host)
    proxy = None if is_local or guard is not None else _proxy_for(url)
    # Made only where there may be TLS, to the endpoint or to a proxy, for it takes 50 ms.
    verify = False if is_local and url.scheme == "http" else _trust()

    return partial(Transport, most, timeout, guard, verify, proxy)


def _proxy_for(url: httpx.URL) -> str | None:
    """Return the environment's proxy for an address, or None."""
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(f"{url.host}:{url.port}" if url.port else url.host):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if address_problem(proxy) is not None:  # aiohttp knows proxies over HTTP only; the text may hold a password
        problem = "a proxy that the environment names cannot be used"
        advice = "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY read like http://host:3128"
        raise InputError(Problem(problem, advice=advice))
    return proxy


def parse_address(url: str, path: str, base: str = "") -> httpx.URL:
    """Parse an address that a suite gives at `path`, relative to `base`. Raises InputError."""
    try:
        address = httpx.URL(base).join(url) if base else httpx.URL(url)
        _ = address.host  # only now httpx decodes `xn--…`, and raises a UnicodeError for one that is no name
        return address
    except (httpx.InvalidURL, UnicodeError):
        problem = "is not an address that can be called"
        raise InputError(Problem(problem, path=path, advice="it reads like https://host/path")) from None


def add_headers(headers: httpx.Headers, more: Mapping[str, str], path: str) -> None:
    """Add the headers that a suite gives at `path`. Raises InputError for values that no header can contain."""
    for name, value in more.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or _CONTROL.search(value):
            problem = "has characters that a header cannot hold, such as a line break"
            raise InputError(Problem(problem, path=f"{path}.{ascii(name)[1:-1]}"))
        headers.update([(name.encode(), value.encode("utf-8"))])


def add_auth_in_address(headers: httpx.Headers, address: httpx.URL) -> None:
    """Add user and password of an address as basic authentication, unless a header authenticates."""
    if address.userinfo and "Authorization" not in headers:
        credentials = f"{address.username}:{address.password}".encode()
        headers["Authorization"] = f"Basic {b64encode(credentials).decode('ascii')}"


def address_without_secrets(url: httpx.URL) -> str:
    """Return an address for a fingerprint, without user and without parameters that are named like a secret."""
    query = [(key, value) for key, value in url.params.multi_items() if not is_secret_parameter(key)]
    return str(url.copy_with(params=query) if query else url.copy_with(query=None))


def timeout_of(config: target.Target) -> httpx.Timeout:
    """Return the time limits of a target's connections; without a limit for reading, that of the call counts."""
    return httpx.Timeout(None, connect=config.connect_timeout, read=config.read_timeout)


def _trust() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        why = error.strerror or "it holds no certificate"
        file = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
        raise InputError(Problem(f"cannot be used: {why}", file, advice="see SSL_CERT_FILE")) from None


# --- aiohttp's connections, behind httpx -----------------------------------------------------------------------------


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
        import aiohttp  # a suite that is only validated does without; see `fepflow.calls.factory`

        self._session = aiohttp.ClientSession(
            connector=_connector_type()(limit=connections, ssl=verify, socket_factory=new_socket),
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


@cache
def _connector_type() -> type[TCPConnector]:
    from aiohttp import TCPConnector

    class Connector(TCPConnector):
        async def _get(self, key: Any, traces: Any) -> Any:
            """Return a kept-alive connection. What came on one after its last answer belongs to no later request."""
            connection: Any = await super()._get(key, traces)
            while connection is not None and connection.protocol.should_close:
                connection.close()
                connection = await super()._get(key, traces)
            return connection

    return Connector


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()

    async def aclose(self) -> None:
        self._response.release()
        await self._response.wait_for_close()


# --- errors ----------------------------------------------------------------------------------------------------------

_RESET = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)


@contextmanager
def wire_errors(url: httpx.URL, timeout: httpx.Timeout, names: SettingNames = HTTP) -> Iterator[None]:
    """Turn all exceptions of the HTTP client into TargetErrors; `url` was called."""
    try:
        yield
    except BodyError as error:
        limit = f" ({names.max_bytes})" if names.max_bytes and error.kind == "too_large" else ""
        raise TargetError(f"the answer {error}{limit}", kind=error.kind, retryable=error.retryable) from None
    except httpx.InvalidURL:  # in the Location of a redirect
        message = "redirects to an address that cannot be read"
        raise TargetError(message, kind="redirect", retryable=False) from None
    except _raised_by_calls() as error:
        # The transport's own exceptions say more than those that it makes of them: a reset is a ConnectTimeout there.
        cause = error.__cause__ if isinstance(error, httpx.HTTPError) and error.__cause__ else error
        raise _target_error(cause, host_and_port(str(url)), timeout) from None


def refused_redirect(url: httpx.URL, location: str, status: int, secrets: frozenset[str]) -> TargetError:
    """Return the error of a redirect to `location` that is not followed; `url` was called."""
    try:
        new = url.join(location)
        place = host_and_port(str(new)) if new.scheme in ("http", "https") else "another protocol than HTTP"
    except httpx.InvalidURL:
        place = "an address that cannot be read"
    place = redact(place, secrets | {secret.lower() for secret in secrets})  # a host is read in lower case
    message = f"HTTP {status}: redirects to {place}; put the final address into the suite"
    return TargetError(message, kind="redirect", retryable=False, status=status)


def _raised_by_calls() -> tuple[type[Exception], ...]:
    # Here and below it is loaded where something went wrong on the wire: a suite that is validated needs no aiohttp.
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError

    return httpx.HTTPError, aiohttp.ClientError, HttpProcessingError, OSError, ValueError


def _target_error(error: BaseException, location: str, timeout: httpx.Timeout) -> TargetError:
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError

    match error:
        case aiohttp.ConnectionTimeoutError():
            return TargetTimeoutError(f"no connection to {location} within {timeout.connect:g} s (connect_timeout)")
        case aiohttp.ServerTimeoutError():
            silence = f" for {timeout.read:g} s (read_timeout)" if timeout.read else ""
            return TargetTimeoutError(f"{location} was silent{silence}")
        case aiohttp.ClientConnectorCertificateError():
            return _certificate(location, error.certificate_error)
        case aiohttp.ClientProxyConnectionError():
            return _connect(f"no connection to {location}: the proxy of the environment does not answer")
        case aiohttp.ClientHttpProxyError():
            return _connect(f"no connection to {location}: the proxy of the environment answered HTTP {error.status}")
        case aiohttp.ClientConnectorDNSError():
            return _connect(f"name not found: {location.rpartition(':')[0]}")
        case aiohttp.ClientConnectorError():
            return _no_connection(location, error.os_error)
        case aiohttp.ClientPayloadError():
            return _connect(f"the connection to {location} broke in the middle of the answer")
        case aiohttp.ClientResponseError() | HttpProcessingError():
            message = f"{location} does not answer in HTTP, or with a header that is too long"
            return TargetError(message, kind="malformed", retryable=True)
        # Without a number: the connection closed as the request began.
        case aiohttp.ServerDisconnectedError() | ConnectionError() | OSError(errno=None):
            return _reset(location)
        case OSError():
            failed = f"the connection to {location} failed: {_reason(error)}"
            return _reset(location) if error.errno in _RESET else _connect(failed)
    # Only the class: the text of these may hold the whole address or a header.
    message = f"the request to {location} could not be sent ({type(error).__name__})"
    return TargetError(message, kind="request", retryable=False)


def _connect(message: str, *, retryable: bool = True) -> TargetError:
    return TargetError(message, kind="connect", retryable=retryable)


def _reset(location: str) -> TargetError:
    return _connect(f"connection reset by {location} before the answer was complete")


def _certificate(location: str, error: Exception) -> TargetError:
    why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else type(error).__name__
    advice = "name the file of your certificate authority in SSL_CERT_FILE"
    return _connect(f"certificate of {location} not trusted: {why} ({advice})", retryable=False)


def _no_connection(location: str, error: OSError) -> TargetError:
    if isinstance(error, AddressRefusedError):
        return _connect(f"not called: {error}", retryable=False)
    if isinstance(error, ConnectionRefusedError):
        return _connect(f"connection refused by {location}")
    if isinstance(error, ssl.SSLError):
        return _connect(f"no TLS connection to {location}: {error.reason or 'handshake failed'}")
    if isinstance(error, socket.gaierror):
        return _connect(f"name not found: {location.rpartition(':')[0]}")
    return _connect(f"no connection to {location}: {_reason(error)}")


def _reason(error: OSError) -> str:
    """Return the system's message: aiohttp puts the whole address, with its secrets, into `strerror`."""
    known = isinstance(error.errno, int) and error.errno in errno.errorcode
    return os.strerror(error.errno) if known else type(error).__name__  # type: ignore[arg-type]  # a number then
