"""The HTTP client that agents are called through: httpx, over aiohttp's connections."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import httpx

from fepflow.calls.agent_addresses import DialGuard
from fepflow.errors import InputError, Problem
from fepflow.security.addresses import is_loopback
from fepflow.security.secret_names import is_secret_parameter

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Client(httpx.AsyncClient):
    """As httpx's own, whose pool costs 7 ms of computing a call at 64 connections; each request is sent once.

    Proxies come from the environment as httpx has it (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), but never for a
    loopback address. Certificates are checked against SSL_CERT_FILE or SSL_CERT_DIR where set, else certifi's list. No
    cookie of one answer goes into another call. With a `guard` each connection is made past no proxy, and only to an
    address that the guard lets be dialled. Raises InputError where the environment names what cannot be used.
    """

    def __init__(
        self,
        url: httpx.URL,
        connections: int,
        timeout: httpx.Timeout,
        *,
        guard: DialGuard | None = None,
        **options: Any,
    ) -> None:
        self._pool = partial(_Connections, connections, timeout, guard)
        is_local = is_loopback(url.host)
        # Made only where there may be TLS, to the endpoint or to a proxy, for it takes 50 ms.
        needs_no_tls = "transport" in options or (is_local and url.scheme == "http")
        try:
            super().__init__(
                verify=False if needs_no_tls else _trust(),
                trust_env=not is_local and guard is None,
                timeout=timeout,
                **options,
            )
        except (ValueError, httpx.InvalidURL):  # its text may hold the proxy's password
            problem = "a proxy that the environment names cannot be used"
            advice = "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY read like http://host:3128"
            raise InputError(Problem(problem, advice=advice)) from None
        self._cookies = _NoCookies()  # for which httpx has no switch

    def _init_transport(
        self, verify: Any = True, *_: Any, transport: httpx.AsyncBaseTransport | None = None, **__: Any
    ) -> httpx.AsyncBaseTransport:
        return transport or self._pool(verify)

    def _init_proxy_transport(
        self, proxy: httpx.Proxy, verify: Any = True, *_: Any, **__: Any
    ) -> httpx.AsyncBaseTransport:
        if proxy.url.scheme not in ("http", "https"):
            raise ValueError("aiohttp knows no other proxies")
        return self._pool(verify, proxy)


class _NoCookies(httpx.Cookies):
    def extract_cookies(self, response: httpx.Response) -> None:
        """Keep none, and do not look for any: httpx parses the whole request and response for it."""


class _Connections(httpx.AsyncBaseTransport):
    """aiohttp's connections. It is loaded with the first call: a suite that is validated needs none of its 0.2 s."""

    def __init__(self, *options: Any) -> None:
        self._options = options

    @cached_property
    def _transport(self) -> httpx.AsyncBaseTransport:
        from fepflow.calls.aiohttp_transport import Transport

        return Transport(*self._options)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it."""
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close them, if there are any."""
        if "_transport" in self.__dict__:
            await self._transport.aclose()


def parse_address(url: str, path: str, base: str = "") -> httpx.URL:
    """An address that a suite gives at `path`, from `base` on; raises InputError for what is none."""
    try:
        return httpx.URL(base).join(url) if base else httpx.URL(url)
    except httpx.InvalidURL:
        problem = "is no address that can be called"
        raise InputError(Problem(problem, path=path, advice="it reads like https://host/path")) from None


def add_headers(headers: httpx.Headers, given: Mapping[str, str], path: str) -> None:
    """Add the headers that a suite gives at `path`; raises InputError for what no header can hold."""
    for name, value in given.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or _CONTROL.search(value):
            problem = "has characters that a header cannot hold, such as a line break"
            raise InputError(Problem(problem, path=f"{path}.{ascii(name)[1:-1]}"))
        headers.update([(name.encode(), value.encode("utf-8"))])


def auth_in_address(address: httpx.URL, headers: httpx.Headers) -> httpx.BasicAuth | None:
    """User and password of an address, unless a header says who asks."""
    by_address = address.userinfo and "Authorization" not in headers
    return httpx.BasicAuth(address.username, address.password) if by_address else None


def address_without_secrets(url: httpx.URL) -> str:
    """An address, which has no user, for a fingerprint: without parameters that are named like a secret."""
    query = [(key, value) for key, value in url.params.multi_items() if not is_secret_parameter(key)]
    return str(url.copy_with(params=query) if query else url.copy_with(query=None))


def _trust() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        why = error.strerror or "it holds no certificate"
        named = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
        raise InputError(Problem(f"cannot be used: {why}", named, advice="see SSL_CERT_FILE")) from None
