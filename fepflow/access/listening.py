"""Addresses on which fepflow may listen, callers that it answers there, and limits on their connections."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from socket import socket

from fepflow.access.credentials import TokenVerifier
from fepflow.errors import PermissionDeniedError, UserError
from fepflow.host import most_files
from fepflow.settings import Settings
from fepflow.store.store import Store
from fepflow.text import brief, printable

OPEN_NOTICE = (
    "No API key is asked for: whoever is on this machine may read results and start evaluations. "
    "`fepflow keys create NAME` ends that."
)

_PROXY_HEADER = re.compile(
    r"""
    (via|cdn-loop|proxy-connection)                                     # RFC 9110, RFC 8586
    | (.*-)?forward(ed)?(-.*)? | x-forward.*                            # RFC 7239, and X-Forwarded-*
    | x-(original|envoy|prox|azure|amzn?-|appengine|arr-|vercel|nf-).* | (cf|fastly|fly|akamai)-.*
    | x-(host|http-host-override|scheme|url-scheme|rewrite-url|cloud-trace-context) | front-end-https
    | (.*-)?(client|remote|socket|source)?(ip|ipv4|ipv6|addr|address)   # whose address it is that connects
    """,
    re.VERBOSE,
)
"""Names of headers, in lower case, that a proxy, a load balancer or a CDN adds."""

_ORIGIN = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_LOCAL_HOST = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Listening:
    """A permission to listen. `tls` has the files of the certificate chain and of its key.

    `may_be_open` says whether callers without a key are admitted as long as no key exists (`Access`). `notice` is a
    message for the operator.
    """

    may_be_open: bool
    tls: tuple[Path, Path] | None
    notice: str | None


def listening_on(host: str, store: Store, settings: Settings, *, behind_tls: bool) -> Listening:
    """Return the permission to listen on a host. `behind_tls` states that a proxy in front terminates TLS.

    Raises UserError with the missing settings.
    """
    tls = _tls_files(settings)
    takes_tokens = TokenVerifier.of(settings) is not None
    has_keys = takes_tokens or store.access.has_keys(active=True)
    may_be_open = is_loopback(host) and not behind_tls
    if not may_be_open and not has_keys:
        where = "Behind a proxy" if behind_tls else f"On {printable(brief(host, 100))}"
        raise UserError(
            f"{where}, other machines can call, and there is neither an active API key nor a JWT issuer: make a key "
            "(fepflow keys create NAME), set FEPFLOW_JWT_KEY_FILE, or listen on 127.0.0.1 without a proxy."
        )
    if not is_loopback(host) and tls is None and not behind_tls:
        raise UserError(
            f"On {printable(brief(host, 100))}, keys would cross the network in plain text: set FEPFLOW_TLS_CERT and "
            "FEPFLOW_TLS_KEY, or say with --behind-tls that a proxy before it terminates TLS."
        )
    is_open = may_be_open and not takes_tokens and not store.access.has_keys(active=False)
    return Listening(may_be_open, tls, OPEN_NOTICE if is_open else None)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches that host: localhost, or a loopback address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls_files(settings: Settings) -> tuple[Path, Path] | None:
    certificate, key = settings.tls_cert, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UserError("TLS needs both FEPFLOW_TLS_CERT and FEPFLOW_TLS_KEY: set the other one, too.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError):
        reason = "they are not a certificate and its unencrypted key, in PEM"
    except OSError as error:
        reason = f"{error.strerror}"
    else:
        return certificate, key
    raise UserError(f"{certificate} and {key} (FEPFLOW_TLS_CERT, FEPFLOW_TLS_KEY) cannot be used: {reason}.")


def allowed_origins(settings: Settings) -> frozenset[str]:
    """Return the origins of FEPFLOW_CORS_ORIGINS. Raises UserError for anything else, including *."""
    origins = [origin.strip().rstrip("/").lower() for origin in settings.cors_origins.split(",") if origin.strip()]
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise UserError(
                f"FEPFLOW_CORS_ORIGINS: {printable(brief(origin, 100))} is not an origin: write, for example, https://app.example.org"
            )
    return frozenset(origins)


def tells_of_proxy(name: str) -> bool:
    """Return whether a proxy adds a header of this name, in lower case."""
    return _PROXY_HEADER.fullmatch(name.replace("_", "-")) is not None


def refuse_pages_of_others(headers: Iterable[tuple[str, str]], allowed: frozenset[str]) -> None:
    """Refuse a request that a page of another site may have sent. Used if no key is required; names are in lower case.

    The Host must be this machine: otherwise an attacker's name leads here (DNS rebinding). The Origin of a page must be
    the same as the Host, or one of `allowed`. Requests through a proxy are refused, because they may come from anybody.
    Raises PermissionDeniedError.
    """
    pairs = list(headers)
    hosts = [value for name, value in pairs if name == "host"]
    if len(hosts) != 1 or not _LOCAL_HOST.fullmatch(hosts[0]):
        raise PermissionDeniedError(
            "Without API keys, requests are taken for localhost, 127.0.0.1 and [::1] only (Host)."
        )
    if any(tells_of_proxy(name) for name, _ in pairs):
        raise PermissionDeniedError(
            "Without API keys, requests of proxies are not taken: `fepflow keys create` makes one."
        )
    own = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
    if any(name == "origin" and value.lower() not in own | allowed for name, value in pairs):
        raise PermissionDeniedError("Without API keys, requests of pages from elsewhere are refused (Origin).")


HEAD_SECONDS = 10.0
"""Seconds for TLS, and for the head of a request, from its first byte or the connection's beginning."""

BODY_SECONDS = 60.0
"""Seconds for the body of a request, and for a client that reads nothing of a response."""

MAX_CONNECTIONS = 1_000
_SHARE = 5


def most_connections() -> int:
    """Return the maximum number of connections of an interface: a fifth of the process's descriptors, at most 1,000.

    The rest is for the store, for files and for agents.
    """
    files = most_files()
    return MAX_CONNECTIONS if files is None else max(1, min(MAX_CONNECTIONS, files // _SHARE))


def address_of(host: str, port: int) -> str:
    """Return `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Acceptor:
    """An acceptor of a limited number of connections, for protocols that `make` creates.

    `count` is the number of open connections. A further connection replaces the one that has been idle for the longest
    time: one in the middle of TLS, or else the one that `make_room` closes. If none can be replaced, the new one is
    closed. asyncio's own server accepts any number, a hundred at a time.
    """

    def __init__(
        self,
        listener: socket,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        most: int,
        count: Callable[[], int],
        make_room: Callable[[], bool],
    ) -> None:
        self._listener = listener
        self._make = make
        self._tls = tls
        self._most = most
        self._count = count
        self._make_room = make_room
        self._handshakes: dict[asyncio.Task[None], None] = {}
        listener.setblocking(False)
        self._task = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Stop accepting connections."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())  # it is about to be closed
        for task in (self._task, *self._handshakes):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until no connection is accepted any more."""
        await asyncio.gather(self._task, *self._handshakes, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # no descriptor is free, or the client has left
                await asyncio.sleep(0.1)
                continue
            if not self._has_room():
                connection.close()
            elif self._tls is None:
                await self._begin(connection)
            else:
                task = asyncio.create_task(self._begin(connection))
                self._handshakes[task] = None
                task.add_done_callback(self._handshakes.pop)
            await asyncio.sleep(0)  # others have their turn, however many clients there are

    def _has_room(self) -> bool:
        if len(self._handshakes) + self._count() < self._most:
            return True
        return any(task.cancel() for task in self._handshakes) or self._make_room()

    async def _begin(self, connection: socket) -> None:
        with suppress(OSError):  # it closes the connection itself
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HEAD_SECONDS,
            )
