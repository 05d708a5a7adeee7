"""The HTTP client that agents are called through: httpx, over aiohttp's connections."""

from __future__ import annotations

import os
import ssl
from http.cookiejar import CookieJar
from typing import Any

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from fepflow.errors import InputError, Problem
from fepflow.http.addresses import is_loopback


class Client(httpx.AsyncClient):
    """As httpx's own, whose pool costs 7 ms of computing a call at 64 connections; each request is sent once.

    Proxies come from the environment as httpx has it (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), but never for a
    loopback address. Certificates are checked against SSL_CERT_FILE or SSL_CERT_DIR where set, else certifi's list. No
    cookie of one answer goes into another call. Raises InputError where the environment names what cannot be used.
    """

    def __init__(self, url: httpx.URL, connections: int, **options: Any) -> None:
        is_local = is_loopback(url.host)
        # Made only where there may be TLS, to the endpoint or to a proxy, for it takes 50 ms.
        needs_no_tls = "transport" in options or (is_local and url.scheme == "http")
        try:
            super().__init__(
                verify=False if needs_no_tls else _trust(),
                trust_env=not is_local,
                limits=httpx.Limits(max_connections=connections),
                cookies=_NoCookies(),
                **options,
            )
        except (ValueError, httpx.InvalidURL):  # its text may hold the proxy's password
            problem = "a proxy that the environment names cannot be used"
            advice = "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY read like http://host:3128"
            raise InputError(Problem(problem, advice=advice)) from None

    def _init_transport(self, *_: Any, **options: Any) -> httpx.AsyncBaseTransport:
        return options.pop("transport") or _Transport(**options)

    def _init_proxy_transport(self, proxy: httpx.Proxy, *_: Any, **options: Any) -> httpx.AsyncBaseTransport:
        if proxy.url.scheme not in ("http", "https"):
            raise ValueError("aiohttp knows no other proxies")
        return _Transport(proxy=proxy, **options)


class _NoCookies(CookieJar):
    def extract_cookies(self, *_: Any) -> None:
        """Keep none, which httpx has no switch for."""


class _Transport(AiohttpTransport):
    def get_client(self) -> aiohttp.ClientSession:
        """The pool of connections."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.limits.max_connections or 0, ssl=self.ssl_context),
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=_Response,
        )
        # aiohttp would send a GET or PUT again by itself when a kept-alive connection turns out to be closed: a call
        # that no attempt log knows of. There is no public switch.
        session._retry_connection = False
        return session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it with the names of its headers as they are written: as a mapping, httpx's have lower case."""
        headers = request.headers
        request.headers = {name.decode(): value.decode() for name, value in headers.raw}  # type: ignore[assignment]
        try:
            return await super().handle_async_request(request)
        finally:
            request.headers = headers


class _Response(aiohttp.ClientResponse):
    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Read the head; what is no text in the reason, which the transport would fail at, is replaced."""
        await super().start(connection)
        self.reason = (self.reason or "").encode("ascii", "replace").decode()
        return self


def _trust() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        why = error.strerror or "it holds no certificate"
        named = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
        raise InputError(Problem(f"cannot be used: {why}", named, advice="see SSL_CERT_FILE")) from None
